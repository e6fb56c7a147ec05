"""The agent's end of the link to a job process: one UNIX socket per process, JSON lines both ways.

Sockets are read and written without a coroutine each: a server may have a hundred jobs that report twice a second,
and what a process said before it died must be read before its end is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LONGEST_LINE = 64 * 1024
LARGEST_BACKLOG = 256 * 1024
"""Stop writing to a job that leaves this much unread."""
_MOST_READS = 64
"""More than a socket holds: do not wait for a process that keeps writing."""

Listener = Callable[[Mapping[str, Any], int], None]
"""Takes a message and the rank of the process that sent it."""


class JobSocket:
    """Listens at one path; all processes that connect count as one job."""

    def __init__(
        self,
        path: Path,
        hear: Listener,
        greet: Callable[[], list[Mapping[str, Any]]],
        owner: tuple[int, int] | None = None,
    ) -> None:
        """Listen; only the owner, a user and a group, can connect. None: that is our own user."""
        self._loop = asyncio.get_running_loop()
        self._hear = hear
        self._greet = greet
        self._ends: set[_End] = set()
        self.path = path
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._server.bind(str(path))
        path.chmod(0o600)
        if owner is not None:
            os.chown(path, *owner)
        self._server.listen(64)
        self._loop.add_reader(self._server, self._accept)

    @property
    def can_ask(self) -> bool:
        """Whether a process is connected that leaves when asked."""
        return any(end.greeted and end.asks for end in self._ends)

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a message to the job; return whether it reached a process that leaves when asked."""
        reached = False
        for end in list(self._ends):
            if end.greeted:
                reached |= self._say(end, message) and end.asks
        return reached

    def catch_up(self) -> None:
        """Read what has arrived."""
        self._accept()
        for end in list(self._ends):
            for _ in range(_MOST_READS):
                if not self._read(end):
                    break

    def close(self) -> None:
        """Read what is left, then disconnect."""
        self.catch_up()
        for end in list(self._ends):
            self._drop(end)
        self._loop.remove_reader(self._server)
        self._server.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while True:
                connection, _ = self._server.accept()
                connection.setblocking(False)
                end = _End(connection)
                self._ends.add(end)
                self._loop.add_reader(connection, self._read, end)

    def _read(self, end: _End) -> bool:
        """Read what is available; return whether there may be more."""
        try:
            data = end.connection.recv(LONGEST_LINE)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        lines = end.lines(data)
        if not data or lines is None:
            self._drop(end)
            return False
        for line in lines:
            self._take(end, line)
        return True

    def _take(self, end: _End, line: bytes) -> None:
        message = _parse(line)
        if message is None:
            return
        op = message.get("op")
        greets = op == "hello" and not end.greeted
        if greets:
            end.greeted, end.rank = True, int(figure(message, "rank") or 0)
        self._hear(message, end.rank)
        if op == "hello":  # a second one says that the process leaves when asked from now on
            end.asks = message.get("asks") is not False
            for answer in self._greet() if greets else ():
                self._say(end, answer)

    def _say(self, end: _End, message: Mapping[str, Any]) -> bool:
        """Send a message to one process; False if it is gone."""
        waiting = bool(end.unsent)
        end.unsent += json.dumps(message).encode() + b"\n"
        if len(end.unsent) > LARGEST_BACKLOG:
            self._drop(end)
            return False
        return waiting or self._write(end)

    def _write(self, end: _End) -> bool:
        try:
            sent = end.connection.send(end.unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            # It may have sent something before it disconnected; reading finds that, and the end.
            end.unsent.clear()
            self._loop.remove_writer(end.connection)
            return False
        del end.unsent[:sent]
        if end.unsent:
            self._loop.add_writer(end.connection, self._write, end)
        else:
            self._loop.remove_writer(end.connection)
        return True

    def _drop(self, end: _End) -> None:
        if end in self._ends:
            self._ends.discard(end)
            self._loop.remove_reader(end.connection)
            self._loop.remove_writer(end.connection)
            end.connection.close()


@dataclass(eq=False)
class _End:
    """One connection."""

    connection: socket.socket
    greeted: bool = False
    rank: int = 0
    asks: bool = True
    """Whether it obeys orders; a program may also only report."""
    received: bytes = b""
    unsent: bytearray = field(default_factory=bytearray)

    def lines(self, data: bytes) -> list[bytes] | None:
        """Split received data into lines; None if a line is too long."""
        *lines, self.received = (self.received + data).split(b"\n")
        return None if len(self.received) > LONGEST_LINE else lines


def _parse(line: bytes) -> dict[str, Any] | None:
    """Read one message; an invalid one is no reason to stop listening to a job."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def figure(message: Mapping[str, Any], name: str) -> float | None:
    """Read a number of at least 0 from a message.

    >>> figure({"steps": 3}, "steps"), figure({"steps": "many"}, "steps")
    (3.0, None)
    """
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 <= number < math.inf else None


def socket_path_fits(path: Path) -> bool:
    """Whether the kernel accepts this as the path of a socket."""
    return len(os.fsencode(path)) <= 100
