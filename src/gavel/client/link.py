"""The link between a job process and its agent: JSON lines over a UNIX socket.

The job says hello, progress, renew, saved, stopped, done and failed; the agent says lease, stop and pace. One thread
reads, reports progress and asks for renewal; the training thread only looks at `Orders`.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

PROTOCOL = 1
PROGRESS_SECONDS = 0.5
FIRST_PROGRESS_SECONDS = 0.05
"""The same until the first steps are reported: they show what starting cost."""
SEND_SECONDS = 5.0
"""How long a message that must arrive may wait for an agent that does not read."""
GREETING_SECONDS = 2.0
"""How long an agent may take to answer a hello."""
_LONGEST_LINE = 1 << 20

Message = dict[str, Any]


class Orders:
    """What the agent wants of this process. Written by the thread of the link, read by the training thread."""

    def __init__(self, lease_seconds: float | None = None) -> None:
        self.news = False
        """Something changed that the training thread should look at before the next step; it sets this back."""
        self.stop = False
        self.deadline = math.inf
        """The lease ends then, by the monotonic clock."""
        self.ask_at = math.inf
        """When to ask for another lease, if none has come by then."""
        self.rate: float | None = None
        """At most so many steps a second."""
        self._woken = threading.Event()
        if lease_seconds is not None:
            self._lease(lease_seconds)

    def hear(self, message: Message) -> None:
        """Take in one message of the agent; those of a newer agent that we do not know are not for us."""
        match message.get("op"):
            case "lease":
                self._lease(float(message["seconds"]))
            case "stop":
                self.stop = True
                self._wake()
            case "pace":
                rate = message["rate"]
                self.rate = float(rate) if rate and rate > 0 else None
                self._wake()

    def leaving(self, now: float) -> bool:
        return self.stop or now >= self.deadline

    def wait(self, seconds: float) -> bool:
        """Sleep so long, or until there is news; say whether there is."""
        return self._woken.wait(seconds)

    def look(self) -> None:
        """Say that the news are about to be read: what comes from now on is news again."""
        self.news = False
        self._woken.clear()

    def _lease(self, seconds: float) -> None:
        before, self.deadline = self.deadline, time.monotonic() + seconds
        self.ask_at = self.deadline - min(0.25 * seconds, 30.0)
        if self.deadline < before:  # it will look at the time it knew; a later end is found then
            self._wake()

    def _wake(self) -> None:
        self.news = True
        self._woken.set()


class Wire:
    """A connection for JSON lines that never waits for longer than it is told; `broken` says whether it is."""

    def __init__(self, path: str | None) -> None:
        self.broken = ""
        """Why nothing can be sent any more; empty while it can."""
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._unsent = b""
        self._received = b""
        self._socket: socket.socket | None = None
        if path is not None:
            self._connect(path)

    @property
    def open(self) -> bool:
        # A forked child has a copy, on which it must not talk into what its parent says.
        return self._socket is not None and not self.broken and os.getpid() == self._process

    def send(self, message: Message, *, patience: float = 0.0) -> bool:
        """Send, waiting at most so long; say whether it will arrive if the connection lives.

        Without patience a message is dropped while the one before it is still on its way.
        """
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            until = time.monotonic() + patience
            self._flush(until)
            if not self.open or (self._unsent and not patience):
                return False
            self._unsent += line
            self._flush(until)
            return self.open

    def receive(self, seconds: float) -> list[Message]:
        """Return what has come, waiting for it at most so long."""
        connection = self._socket
        if connection is None or self.broken or not _ready(connection, select.POLLIN, seconds):
            return []
        try:
            data = connection.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            self._break(error.strerror or str(error))
            return []
        if not data:
            self._break("closed by the agent")
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > _LONGEST_LINE:
            self._break("a line without end")
        return [message for line in lines if (message := _parsed(line)) is not None]

    def close(self) -> None:
        """End the connection for both threads; the one that receives releases it."""
        self._break("closed")

    def release(self) -> None:
        """Give the descriptor back: only when no other thread can be waiting on it."""
        if self._socket is not None:
            with suppress(OSError):
                # If anything unread were left, the kernel would reset the connection, and our last words be lost.
                while self._socket.recv(1 << 16):
                    pass
            self._socket.close()

    def _connect(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
            self._socket.setblocking(False)
        except OSError as error:
            self._break(f"{path}: {error.strerror or error}")
            self.release()

    def _flush(self, until: float) -> None:
        connection = self._socket
        while connection is not None and self.open and self._unsent:
            try:
                sent = connection.send(self._unsent, socket.MSG_NOSIGNAL)
                self._unsent = self._unsent[sent:]
            except (BlockingIOError, InterruptedError):
                if not _ready(connection, select.POLLOUT, until - time.monotonic()):
                    return
            except OSError as error:
                self._break(error.strerror or str(error))

    def _break(self, why: str) -> None:
        self.broken = self.broken or why
        if self._socket is not None:
            with suppress(OSError):  # it may not have been connected
                self._socket.shutdown(socket.SHUT_RDWR)


class AgentLink:
    """A process of a job that can be asked to leave, and says how far it is."""

    process: ClassVar[int] = 0
    """The process that has one: it need not report by other ways."""

    def __init__(self, path: str | None, rank: int, orders: Orders, status: Callable[[], Message]) -> None:
        """Connect, if there is a path, and say hello; `status` returns the steps, saved steps and measured totals."""
        self._wire = Wire(path)
        self._orders = orders
        self._status = status
        self._told = status()
        self._telling = threading.Lock()
        if self._wire.open:
            AgentLink.process = os.getpid()
            self.say("hello", protocol=PROTOCOL, rank=rank, asks=True)
            self._hear_greeting()
            threading.Thread(target=self._converse, name="gavel-link", daemon=True).start()

    @property
    def broken(self) -> str:
        return self._wire.broken

    def say(self, op: str, **fields: Any) -> None:
        """Send a message that matters; if the link is broken nobody is there to hear it."""
        self._wire.send({"op": op, **fields}, patience=SEND_SECONDS)

    def progress(self) -> None:
        """Report how far it is, unless the last report said the same."""
        with self._telling:
            now, before = self._status(), self._told
            measured = {name: now[name] - before[name] for name in ("measured_steps", "measured_seconds")}
            if now != before and self._wire.send({"op": "progress", **now, **measured}):
                self._told = now

    def close(self) -> None:
        self.progress()
        self._wire.close()

    def _hear_greeting(self) -> None:
        """Take in what the agent says first, a lease at the end of it, so that no step is made against its orders."""
        until = time.monotonic() + GREETING_SECONDS
        greeted = False
        while not greeted and self._wire.open and time.monotonic() < until:
            messages = self._wire.receive(until - time.monotonic())
            self._hear(messages)
            greeted = any(message.get("op") == "lease" for message in messages)

    def _hear(self, messages: list[Message]) -> None:
        for message in messages:
            with suppress(KeyError, TypeError, ValueError):  # a message we cannot read must not end the training
                self._orders.hear(message)

    def _converse(self) -> None:
        try:
            self._hear_and_tell()
        finally:
            self._wire.release()

    def _hear_and_tell(self) -> None:
        next_progress = time.monotonic() + self._pause
        while self._wire.open:
            asking = self._orders.ask_at
            self._hear(self._wire.receive(max(0.0, min(next_progress, asking) - time.monotonic())))
            now = time.monotonic()
            if now >= self._orders.ask_at:
                self._orders.ask_at = math.inf
                self._wire.send({"op": "renew"}, patience=SEND_SECONDS)
            if now >= next_progress:
                self.progress()
                next_progress = now + self._pause

    @property
    def _pause(self) -> float:
        """Seconds until the next report."""
        return PROGRESS_SECONDS if self._told["measured_steps"] else FIRST_PROGRESS_SECONDS


def _ready(connection: socket.socket, event: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection, event)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def _parsed(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
