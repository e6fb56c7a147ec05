"""The agent's side of a job's terminal: types what users send, within bounds, and notices when no one is connected.

The terminal itself belongs to the guard. What it shows is in the job's log, like all output.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from gavel.runtime.terminal_rules import LINGER_SECONDS

CHECK_SECONDS = 0.5
PACKET_BYTES = 16 * 1024
MOST_TYPED_BYTES = 4 * 2**20
"""What waits for a job that does not read; more is dropped."""


@dataclass(eq=False)
class TerminalLine:
    """The connection to a guard: packets leave in order, as fast as the guard takes them."""

    channel: socket.socket
    shows: Callable[[], None]
    """Called when there is more in the log."""
    _queue: deque[bytes] = field(default_factory=deque)
    _waiting_bytes: int = 0
    _dropped: int = 0

    def __post_init__(self) -> None:
        self.channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self.channel, self._hear)

    def type(self, keys: bytes) -> None:
        """Type keys; all of them or, if too many wait, none."""
        if self._waiting_bytes + len(keys) > MOST_TYPED_BYTES:
            self._dropped += len(keys)
            return
        for start in range(0, len(keys), PACKET_BYTES):
            self._put(b"k" + keys[start : start + PACKET_BYTES])

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        self._put(f"w{rows} {columns}".encode())

    def notice(self, sentence: str) -> None:
        """Show a line to the user, beside what the job prints."""
        self._put(b"n" + sentence.encode())

    def close(self) -> None:
        """Let go of the guard."""
        with suppress(RuntimeError, ValueError):  # the loop has ended
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.channel)
            loop.remove_writer(self.channel)
        self.channel.close()
        self._queue.clear()

    def _put(self, packet: bytes) -> None:
        if self.channel.fileno() < 0:
            return
        if not self._queue:
            asyncio.get_running_loop().add_writer(self.channel, self._flush)
        self._queue.append(packet)
        self._waiting_bytes += len(packet)
        self._flush()

    def _flush(self) -> None:
        while self._queue:
            try:
                self.channel.send(self._queue[0])
            except BlockingIOError:
                return
            except OSError:  # the job has ended
                self._queue.clear()
                break
            self._waiting_bytes -= len(self._queue.popleft())
        self._waiting_bytes = 0
        if self._dropped:
            told, self._dropped = f"{self._dropped:,} bytes were not typed: the job did not read", 0
            self.notice(told)
        if not self._queue:
            asyncio.get_running_loop().remove_writer(self.channel)

    def _hear(self) -> None:
        """Read that there is more to show; each packet says the same."""
        try:
            while said := self.channel.recv(16):
                pass
        except BlockingIOError:
            said = b"o"
        except OSError:
            said = b""
        if not said:
            asyncio.get_running_loop().remove_reader(self.channel)
        self.shows()


@dataclass(eq=False)
class TerminalWatch:
    """Notices when no user has been connected to a terminal for too long; time without a scheduler does not count."""

    attached: Callable[[], bool]
    """Whether the scheduler is connected: users are connected through it."""
    abandoned: Callable[[str], None]
    """Called once, with the reason."""
    linger_seconds: float = LINGER_SECONDS
    _heard_at: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to wait for a first user."""
        self._heard_at = asyncio.get_running_loop().time()
        self._wait()

    def heard(self, linger_seconds: float) -> None:
        """Note that a user is connected."""
        self._heard_at = asyncio.get_running_loop().time()
        if linger_seconds:
            self.linger_seconds = linger_seconds

    def end(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self.attached():
            self._heard_at = now
        if now - self._heard_at < self.linger_seconds:
            self._wait()
            return
        self._timer = None
        self.abandoned(f"no one was connected to its terminal for {self.linger_seconds:g} s")
