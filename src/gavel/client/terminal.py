"""A connection to the terminal of a job: what is typed goes there, what it shows comes back, across restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Full, Queue

from gavel.client.connection import Away, Connection
from gavel.wire import gavel_pb2 as pb

KEYS_BYTES = 16 * 1024
MOST_WAITING = 1024
"""Messages that wait for a job that does not read, or for the network; what is typed beyond that is dropped."""


@dataclass(frozen=True, slots=True)
class TerminalNews:
    """What the terminal shows, or the state of the connection."""

    data: bytes = b""
    away: str = ""
    """Why the scheduler cannot be reached for now; nothing that is typed meanwhile is sent."""
    back: bool = False
    """Whether it is reached again."""


class Terminal:
    """A user at the terminal of one job. One thread reads what it shows; others may type."""

    def __init__(
        self,
        connection: Connection,
        job: str,
        *,
        rows: int,
        columns: int,
        linger_seconds: float = 0.0,
        offset: int = 0,
        tail: int = 0,
    ) -> None:
        self.offset = offset
        """How many bytes the job had printed before those that come next."""
        self.ended = False
        """Whether the job has ended; otherwise it waits to run again once no more is shown."""
        self._connection = connection
        self._job = job
        self._size = rows, columns
        self._linger_seconds = linger_seconds
        self._tail = tail
        self._lock = threading.Lock()
        self._outgoing: Queue[pb.TerminalInput | None] = Queue(MOST_WAITING)
        """Of the current connection."""
        self._open = True
        """Whether what is typed is sent."""
        self._begun = self._closed = False

    def shown(self) -> Iterator[TerminalNews]:
        """Yield what it shows until the job has ended, has to wait again, or `close` was called."""
        away = False
        for message in self._connection.listen("Terminal", self._requests, again=lambda: False):
            if self._closed:
                return
            if isinstance(message, Away):
                self._open = False
                if not away:
                    away = True
                    yield TerminalNews(away=message.reason)
                continue
            if away:
                away, self._open = False, True
                yield TerminalNews(back=True)
            fresh = message.data[max(0, self.offset - message.offset) :] if not self._tail else message.data
            self.offset, self._tail = max(self.offset, message.offset + len(message.data)), 0
            self.ended = message.ended
            if fresh:
                yield TerminalNews(fresh)

    def type(self, keys: bytes) -> bool:
        """Type keys, without waiting; return whether all are on their way. None are while the scheduler is away."""
        parts = [keys[start : start + KEYS_BYTES] for start in range(0, len(keys), KEYS_BYTES)]
        return all(self._send(pb.TerminalInput(data=part)) for part in parts)

    def resize(self, rows: int, columns: int) -> None:
        """Say that the user's window has another size."""
        self._size = rows, columns
        self._send(pb.TerminalInput(rows=rows, columns=columns))

    def close(self) -> None:
        """Leave; the job continues for a while."""
        with self._lock:
            self._closed, self._open = True, False
            _end(self._outgoing)

    def _send(self, message: pb.TerminalInput) -> bool:
        with self._lock:
            if not self._open:
                return False
            try:
                self._outgoing.put_nowait(message)
            except Full:
                return False
            return True

    def _requests(self) -> Iterator[pb.TerminalInput]:
        """Begin a stream: it ends when the next one begins. The first has what was typed before it."""
        with self._lock:
            if self._begun:
                _end(self._outgoing)
                self._outgoing = Queue(MOST_WAITING)
            self._begun, outgoing = True, self._outgoing
            if self._closed:
                _end(outgoing)
        rows, columns = self._size
        first = pb.TerminalInput(
            id=self._job,
            rows=rows,
            columns=columns,
            offset=self.offset,
            tail=self._tail,
            linger_seconds=self._linger_seconds,
        )
        return _from(first, outgoing)


def _from(first: pb.TerminalInput, outgoing: Queue[pb.TerminalInput | None]) -> Iterator[pb.TerminalInput]:
    yield first
    while (message := outgoing.get()) is not None:
        yield message


def _end(outgoing: Queue[pb.TerminalInput | None]) -> None:
    """Have the thread that reads a queue end, even if the queue is full."""
    while True:
        try:
            outgoing.put_nowait(None)
        except Full:
            with suppress(Empty):
                outgoing.get_nowait()
        else:
            return
