"""The guard with real processes: what it passes on, and that nothing of a job survives it or whoever started it."""

from __future__ import annotations

import contextlib
import os
import signal
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


def test_the_command_has_a_session_of_its_own_and_ordinary_signals() -> None:
    program = "import os, signal; print(os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGTERM).name)"
    with guarded(sys.executable, "-c", program) as process:
        assert line(process) == "True SIG_DFL\n"
    with guarded("sh", "-c", "yes | head -1; trap", "x") as process:
        assert process.communicate(timeout=PATIENCE) == ("y\n", "")  # SIGPIPE ends `yes` in silence


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_go_on_to_the_whole_group(number: signal.Signals) -> None:
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


def test_when_whoever_started_the_guard_is_killed_nothing_survives() -> None:
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
