"""The terminal that a guard gives to a command: a real one, which passes on keys, sizes and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting import PATIENCE

from gavel.client import guard

MEGABYTE = 2**20


class Seat:
    """A guard with a terminal, as an agent sees it."""

    def __init__(self, process: subprocess.Popen[bytes], leash: socket.socket, line: socket.socket, log: Path) -> None:
        self.process = process
        self.leash = leash
        self.line = line
        self.log = log

    def type(self, keys: bytes) -> None:
        for start in range(0, len(keys), 16_384):
            self.line.send(b"k" + keys[start : start + 16_384])

    def shows(self, text: bytes) -> bytes:
        """Wait until the log has the text."""
        end = time.monotonic() + PATIENCE
        while text not in (shown := self.log.read_bytes()):
            assert time.monotonic() < end, shown[-2000:]
            time.sleep(0.005)
        return shown

    def ends(self) -> int:
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def seated(folder: Path, *command: str, grace: float = 60.0) -> Iterator[Seat]:
    ours, theirs = socket.socketpair()
    line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = folder / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            guard.argv(list(command), pipe=theirs.fileno(), grace_seconds=grace, output=1, terminal=far.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno(), far.fileno()],
            env={**os.environ, "PS1": "% ", "TERM": "dumb", "ENV": ""},
        )
    theirs.close()
    far.close()
    try:
        yield Seat(process, ours, line, log)
    finally:
        process.kill()
        process.wait()
        ours.close()
        line.close()


def test_a_shell_on_the_terminal_runs_what_is_typed(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-i") as seat:
        seat.type(b"echo $((6*7)); test -t 0 -a -t 1 -a -t 2 && echo all three\n")
        seat.shows(b"42\r\nall three")
        seat.type(b"exit 7\n")
        assert seat.ends() == 7


def test_the_terminal_has_the_size_of_the_users(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.02; done") as seat:
        seat.shows(b"24 80\r\n")
        seat.line.send(b"w50 132")
        seat.shows(b"50 132\r\n")


def test_control_c_interrupts_what_runs_and_not_the_shell(tmp_path: Path) -> None:
    with seated(tmp_path, "bash", "--norc", "-i") as seat:
        seat.type(b"echo go''ing; sleep 1000\n")
        seat.shows(b"going")
        time.sleep(0.1)  # until sleep runs in the foreground
        seat.type(b"\x03")
        seat.type(b"echo still $((40+2))\n")
        seat.shows(b"still 42")


def test_a_paste_of_a_megabyte_arrives_whole(tmp_path: Path) -> None:
    script = "import sys, tty; tty.setraw(0); print('ready'); print(len(sys.stdin.buffer.read(2**20)))"
    with seated(tmp_path, sys.executable, "-u", "-c", script) as seat:
        seat.shows(b"ready")
        seat.type(b"x" * MEGABYTE)
        seat.shows(str(MEGABYTE).encode())


def test_a_command_that_reads_nothing_stops_the_typing_and_not_the_guard(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-c", "stty raw -echo; echo ready; sleep 1000", grace=0.1) as seat:
        seat.shows(b"ready")
        seat.line.setblocking(False)
        with pytest.raises(BlockingIOError):
            seat.type(b"x" * 16 * MEGABYTE)
        seat.leash.close()
        assert seat.ends() == 128 + signal.SIGTERM


def test_a_shell_is_hung_up_when_it_must_leave(tmp_path: Path) -> None:
    with seated(tmp_path, "bash", "--norc", "-i") as seat:
        seat.type(b"echo he''re\n")
        seat.shows(b"here")
        seat.leash.shutdown(socket.SHUT_WR)  # an interactive shell ignores SIGTERM
        assert seat.ends() == 128 + signal.SIGHUP
        assert guard.ASKED in seat.leash.recv(64)


def test_notices_stand_between_what_the_command_prints(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-i") as seat:
        seat.line.send(b"npreempted in 60 s")
        seat.shows(b"\r\n[gavel: preempted in 60 s]\r\n")


def test_every_output_is_announced(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-c", "read line; echo got $line") as seat:
        seat.type(b"it\n")
        seat.line.settimeout(PATIENCE)
        assert seat.line.recv(16) == b"o"
        seat.shows(b"got it")


def test_what_was_printed_before_the_end_is_kept(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-c", "seq 1 300; echo the end") as seat:
        assert seat.ends() == 0
        assert seat.log.read_bytes().endswith(b"\r\n300\r\nthe end\r\n")


def test_a_loop_that_prints_is_slowed_down(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-c", "sleep 0.1; timeout 0.5 yes") as seat:
        began = time.monotonic()
        seat.ends()
        assert seat.log.stat().st_size < (time.monotonic() - began) * guard.RATE + MEGABYTE


def test_the_guard_of_an_agent_that_is_gone_ends_the_terminal_and_does_not_spin(tmp_path: Path) -> None:
    with seated(tmp_path, "sh", "-c", "trap '' TERM HUP; echo ready; sleep 1", grace=60.0) as seat:
        seat.shows(b"ready")
        seat.line.close()
        seat.leash.close()
        status = Path(f"/proc/{seat.process.pid}/stat")
        time.sleep(0.3)
        used = sum(int(ticks) for ticks in status.read_text().rpartition(")")[2].split()[11:13])
        assert used / os.sysconf("SC_CLK_TCK") < 0.2
        seat.ends()
