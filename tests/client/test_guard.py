"""The guard with real processes: what it passes on, and that no process of a job survives it or its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting import PATIENCE, until

from gavel.client import guard

SAYS_AND_WAITS = "import time; print('ready', flush=True); time.sleep(1000)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SAYS_AND_WAITS
FORKS = """
import os, signal, sys, time
def hide():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(1, b"%d\\n" % os.getpid())
            time.sleep(1000)
        os._exit(0)
hide()
if os.fork() == 0:
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(1000)
sys.stdin.readline()
"""


@contextlib.contextmanager
def guarded(*command: str, grace: float = 60.0, pipe: int | None = None) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        guard.argv(list(command), pipe=pipe, grace_seconds=grace),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[] if pipe is None else [pipe],
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def code_of(*command: str) -> tuple[int, str]:
    with guarded(*command) as process:
        _, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, errors


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
)
def test_its_exit_code_is_the_commands(script: str, code: int) -> None:
    assert code_of("sh", "-c", script) == (code, "")


def test_a_command_that_does_not_exist_is_named() -> None:
    assert code_of("no-such-command", "x") == (127, "gavel: command not found: no-such-command\n")
    assert code_of("/no/such/command") == (127, "gavel: command not found: /no/such/command\n")


def test_a_file_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    data, lost = tmp_path / "data", tmp_path / "lost"
    data.write_text("text")
    lost.write_text("#!/no/such/interpreter\n")
    lost.chmod(0o755)
    assert code_of(str(data)) == (126, f"gavel: cannot execute {data}: Permission denied\n")
    assert code_of(str(lost)) == (
        126,
        f"gavel: cannot execute {lost}: the interpreter in its first line does not exist\n",
    )


@pytest.mark.parametrize("arguments", [[], ["--"], ["--grace", "soon", "--", "true"], ["--loud", "1", "--", "true"]])
def test_wrong_use_is_explained(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert guard.main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_the_command_has_its_own_session_and_default_signals() -> None:
    program = "import os, signal; print(os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGTERM).name)"
    with guarded(sys.executable, "-c", program) as process:
        assert line(process) == "True SIG_DFL\n"
    with guarded("sh", "-c", "yes | head -1; trap", "x") as process:
        assert process.communicate(timeout=PATIENCE) == ("y\n", "")  # SIGPIPE ends `yes` in silence


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on_to_the_whole_group(number: signal.Signals) -> None:
    with guarded("sh", "-c", "sleep 1000 & echo $!; wait") as process:
        child = int(line(process))
        process.send_signal(number)
        until(lambda: gone(child) or number == signal.SIGINT)  # shells let background jobs ignore SIGINT
        assert process.wait(PATIENCE) == 128 + number
    assert gone(child)


def test_a_job_may_take_its_time_to_leave_after_sigterm() -> None:
    program = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); " + SAYS_AND_WAITS
    with guarded(sys.executable, "-c", program) as process:
        assert line(process) == "ready\n"
        process.terminate()
        assert process.wait(PATIENCE) == 5


def test_what_a_job_forked_is_killed_when_the_job_ends_wherever_it_hid() -> None:
    with guarded(sys.executable, "-c", FORKS) as process:
        children = [int(line(process)), int(line(process))]
        assert not any(gone(child) for child in children)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0
        assert all(gone(child) for child in children)


def test_when_the_pipe_closes_the_job_is_asked_and_then_killed() -> None:
    theirs, ours = os.pipe()
    with guarded(sys.executable, "-c", IGNORES_SIGTERM, pipe=theirs, grace=0.1) as process:
        os.close(theirs)
        assert line(process) == "ready\n"
        os.close(ours)
        assert process.wait(PATIENCE) == 128 + signal.SIGKILL


def test_when_the_pipe_closes_a_job_that_listens_has_its_grace() -> None:
    theirs, ours = os.pipe()
    with guarded(sys.executable, "-c", SAYS_AND_WAITS, pipe=theirs, grace=1000.0) as process:
        os.close(theirs)
        assert line(process) == "ready\n"
        os.close(ours)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_a_byte_in_the_pipe_kills_at_once() -> None:
    theirs, ours = os.pipe()
    with guarded(sys.executable, "-c", FORKS, pipe=theirs, grace=1000.0) as process:
        os.close(theirs)
        children = [int(line(process)), int(line(process))]
        os.write(ours, guard.KILL)
        assert process.wait(PATIENCE) == 128 + signal.SIGKILL
        assert all(gone(child) for child in children)
    os.close(ours)


def test_nothing_survives_when_the_parent_of_the_guard_is_killed() -> None:
    parent = f"""
import os, subprocess, sys
sys.path.insert(0, {str(Path(guard.__file__).parent)!r})
import guard
theirs, ours = os.pipe()
command = guard.argv([sys.executable, "-c", {FORKS!r}], pipe=theirs, grace_seconds=0.1)
process = subprocess.Popen(command, pass_fds=[theirs], stdin=subprocess.PIPE)
os.close(theirs)
os.write(1, b"%d\\n" % process.pid)
process.wait()
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        try:
            pids = [int(line(process)) for _ in range(3)]
        finally:
            process.kill()
    until(lambda: all(gone(pid) for pid in pids))


def test_when_the_guard_itself_is_killed_the_command_ends_too() -> None:
    with guarded("sh", "-c", "echo $$; exec sleep 1000") as process:
        pid = int(line(process))
        process.kill()
        until(lambda: gone(pid))


# ---- reports to the agent ----

ENDS_WHEN_TOLD = "import sys; print('ready', flush=True); sys.stdin.readline()"


def heard_after(script: str, *, first: str) -> tuple[int, bytes]:
    """Close the pipe of a guard, before or after the command ends by itself; return exit code and report."""
    ours, theirs = socket.socketpair()
    with ours, guarded(sys.executable, "-c", script, pipe=theirs.fileno()) as process:
        theirs.close()
        assert line(process) == "ready\n"
        if first == "order":
            ours.shutdown(socket.SHUT_WR)
        else:
            process.send_signal(signal.SIGSTOP)  # it finds both when it wakes up
            [command] = guard.descendants(process.pid)
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            until(lambda: gone(command))
            ours.shutdown(socket.SHUT_WR)
            process.send_signal(signal.SIGCONT)
        code = process.wait(PATIENCE)
        ours.setblocking(False)
        return code, ours.recv(64)


def test_a_command_that_ended_before_the_order_was_not_asked() -> None:
    assert heard_after(ENDS_WHEN_TOLD, first="end") == (0, b"")


def test_a_command_that_leaves_because_of_the_order_was_asked() -> None:
    assert heard_after(SAYS_AND_WAITS, first="order") == (128 + signal.SIGTERM, guard.ASKED)
    leaves = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); " + SAYS_AND_WAITS
    assert heard_after(leaves, first="order") == (0, guard.ASKED)


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("would_die", [True, False])
@pytest.mark.parametrize("status", [0, signal.SIGTERM, 3 << 8])
def test_exit_code_0_after_a_deadly_signal_was_already_on_its_way(status: int, asked: bool, would_die: bool) -> None:
    by_itself = status == 0 and would_die
    assert guard.made_to_leave(status, asked=asked, would_die=would_die) is (asked and not by_itself)


NO_PROCESS = 2**22 + 1
"""Larger than any process id that Linux gives."""


def test_a_process_dies_of_what_it_does_not_handle() -> None:
    for setting, dies in (("", True), ("SIG_IGN", False), ("default_int_handler", False)):
        prepared = f"import signal; signal.signal(signal.SIGTERM, signal.{setting}); " if setting else ""
        with guarded(sys.executable, "-c", prepared + SAYS_AND_WAITS) as process:
            assert line(process) == "ready\n"
            [command] = guard.descendants(process.pid)
            assert guard._dies_of(command, signal.SIGTERM) is dies
            os.kill(command, signal.SIGKILL)
    assert guard._dies_of(NO_PROCESS, signal.SIGTERM) is False


# ---- output of the command ----


def copied(script: str, output: Path, *, limit: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a command whose output is copied to a file, under a limit of the shell."""
    argv = guard.argv(["/bin/sh", "-c", script], output=1)
    with output.open("ab") as file:
        shell = ["/bin/sh", "-c", f'{limit} exec "$@"', "sh", *argv]
        return subprocess.run(shell, stdout=file, stderr=file, timeout=PATIENCE, check=False)


def test_everything_that_is_printed_is_copied_in_order(tmp_path: Path) -> None:
    script = "for n in $(seq 30000); do echo line $n; done; echo error >&2; exit 3"
    assert copied(script, tmp_path / "log").returncode == 3
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == [*(f"line {number}" for number in range(1, 30001)), "error"]


def test_what_cannot_be_written_is_lost_and_does_not_end_the_command(tmp_path: Path) -> None:
    script = "seq 100000 && echo fine"
    assert copied(script, tmp_path / "log", limit="ulimit -f 8;").returncode == 0
    kept = (tmp_path / "log").read_text()
    assert kept.startswith("1\n2\n3\n")
    assert len(kept) == 8 * 512


def test_lost_output_is_noted_as_soon_as_there_is_room() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    copier = guard.Copier(writing)
    os.write(copier.theirs, b"x" * 60_000)
    copier.copy()
    os.write(copier.theirs, b"y" * 60_000)
    copier.copy()  # the pipe has no room for these
    first = os.read(reading, 1 << 17)
    os.write(copier.theirs, b"z")
    copier.copy()
    lost = 120_000 - len(first)
    assert 0 < lost <= 60_000
    assert os.read(reading, 1 << 17).startswith(f"\n[gavel: {lost} bytes of this log are lost: ".encode())
    copier.begin()
    for descriptor in (copier.ours, reading, writing):
        os.close(descriptor)


@pytest.mark.parametrize("way", ["ends", "fails", "is deaf", "is killed at once"])
def test_what_a_command_left_beyond_our_reach_is_ended_after_it_however_it_ends(tmp_path: Path, way: str) -> None:
    """So that no container survives an agent that is gone."""
    commands = {"ends": ["true"], "fails": ["false"]}
    command = commands.get(way, [sys.executable, "-c", IGNORES_SIGTERM])
    ours, theirs = socket.socketpair()
    last = ["/bin/sh", "-c", f"echo removed >> {tmp_path}/last; echo noise", "two words"]
    argv = guard.argv(command, pipe=theirs.fileno(), grace_seconds=0.2, last=last)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        if way not in commands:
            line(process)
            ours.send(guard.KILL) if way == "is killed at once" else ours.shutdown(socket.SHUT_WR)
        output, _ = process.communicate(timeout=PATIENCE)
    ours.close()
    assert (tmp_path / "last").read_text() == "removed\n"
    assert output == ""
