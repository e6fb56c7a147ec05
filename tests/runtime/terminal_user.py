"""A user at a terminal: a client process under a pseudo-terminal, which a test types at and reads."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from live_cluster import GAVEL, PATIENCE_SECONDS


class TerminalUser:
    """Types, looks, changes the size of the window, and goes."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (30, 100))
        self.process = subprocess.Popen(
            [*GAVEL, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "dumb", "SHELL": "/bin/sh", "PS1": "% ", "ENV": ""},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = b""

    def types(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def sees(self, text: bytes) -> bytes:
        """Wait until this is shown, and return everything that was shown before; later looks begin after it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen:
            assert self._read(end - time.monotonic()), f"no {text!r} in {self.seen[-3000:]!r}"
        before, _, self.seen = self.seen.partition(text)
        return before

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], max(0.0, seconds))[0]:
            return False
        try:
            found = os.read(self._ours, 65536)
        except OSError:  # the client has ended
            return False
        self.seen += found
        return bool(found)

    def resizes(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._ours, (rows, columns))
        self.process.send_signal(signal.SIGWINCH)

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._ours)[3] & termios.ICANON

    def ends(self) -> int:
        """Wait until the client has ended; return its exit code."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            self._read(0.05)
            assert time.monotonic() < end, self.seen[-3000:]
        while self._read(0.05):
            pass
        return self.process.returncode

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def user(*arguments: str) -> Iterator[TerminalUser]:
    """A user who runs `gavel` with these arguments."""
    someone = TerminalUser(arguments)
    try:
        yield someone
    finally:
        someone.close()
