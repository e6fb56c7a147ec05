"""The link between a job process and its agent: JSON lines over a UNIX socket.

The job sends hello, progress, renew, saved, stopped, done and failed; the agent sends lease, stop and pace. One thread
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
GRACE_SECONDS = 60.0
"""How long a process may take to save if the agent, of an earlier version, does not say."""
TERMINATE_SECONDS = 10.0
"""How long a process that got SIGTERM can count on: the usual time until SIGKILL."""
TERMINATED = "it got SIGTERM"
_LONGEST_LINE = 1 << 20

Message = dict[str, Any]


class Orders:
    """What the agent wants from this process. Written by the link's thread, read by the training thread."""

    def __init__(self, lease_seconds: float | None = None) -> None:
        self.news = False
        """Whether the training thread should look before its next step; it clears the flag."""
        self.stop = False
        self.terminated = False
        """Whether the process got SIGTERM."""
        self.ends = math.inf
        """When the process will be made to end, once it was asked to leave."""
        self.deadline = math.inf
        """When the lease ends, by the monotonic clock."""
        self.ask_at = math.inf
        """When to ask for another lease, if none has come by then."""
        self.rate: float | None = None
        """The highest allowed rate, in steps per second."""
        self._woken = threading.Event()
        self.begin(lease_seconds)

    def begin(self, lease_seconds: float | None) -> None:
        """Start with this lease, if there is one."""
        if lease_seconds is not None:
            self._lease(lease_seconds)

    def hear(self, message: Message) -> None:
        """Handle one message of the agent; ignore unknown messages of a newer agent."""
        match message.get("op"):
            case "lease":
                self._lease(float(message["seconds"]))
            case "stop":
                self._stop(_seconds(message, GRACE_SECONDS))
                self._wake()
            case "pace":
                rate = message["rate"]
                self.rate = float(rate) if rate and rate > 0 else None
                self._wake()

    def leaving(self, now: float) -> bool:
        return self.stop or now >= self.deadline

    def seconds_left(self, now: float) -> float:
        """How long the process may still run; infinite as long as nothing asked it to leave."""
        ends = self.deadline + GRACE_SECONDS if now >= self.deadline and not self.stop else self.ends
        return max(0.0, ends - now)

    def terminate(self) -> None:
        """Note SIGTERM; called by its handler, which may interrupt a holder of the event's lock and must not wake."""
        self.terminated = self.news = True
        self._stop(TERMINATE_SECONDS)

    def pass_on(self) -> None:
        """Wake the training thread if only SIGTERM has asked it to leave."""
        if self.terminated:
            self._wake()

    def wait(self, seconds: float) -> bool:
        """Sleep for this long, or until there is news; return whether there is."""
        return self._woken.wait(seconds)

    def look(self) -> None:
        """Clear the flag before reading; later messages set it again."""
        self.news = False
        self._woken.clear()

    def _lease(self, seconds: float) -> None:
        before, self.deadline = self.deadline, time.monotonic() + seconds
        self.ask_at = self.deadline - min(0.25 * seconds, 30.0)
        if self.deadline < before:  # otherwise the thread wakes at the time it knows, and finds the later end then
            self._wake()

    def _stop(self, seconds: float) -> None:
        self.ends = min(self.ends, time.monotonic() + seconds)
        self.stop = True

    def _wake(self) -> None:
        self.news = True
        self._woken.set()


class Wire:
    """A connection for JSON lines that never blocks longer than asked; `broken` says whether and why it failed."""

    def __init__(self, path: str | None) -> None:
        self.broken = ""
        """Why nothing can be sent any more; empty while the connection works."""
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._unsent = b""
        self._received = b""
        self._socket: socket.socket | None = None
        if path is not None:
            self._connect(path)

    @property
    def open(self) -> bool:
        # A forked child has a copy of the descriptor; it must not send into its parent's messages.
        return self._socket is not None and not self.broken and os.getpid() == self._process

    def send(self, message: Message, *, patience: float = 0.0) -> bool:
        """Send, waiting at most `patience` seconds; return whether it will arrive if the connection lives.

        Without patience, a message is dropped while the previous one is still being sent.
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
        """Return the messages that have arrived, waiting for at most this long."""
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
            self._break("the agent sent an endless line")
        return [message for line in lines if (message := _parsed(line)) is not None]

    def close(self) -> None:
        """End the connection for both threads; the one that receives releases it."""
        self._break("closed")

    def release(self) -> None:
        """Close the descriptor: only when no other thread can be waiting on it."""
        if self._socket is not None:
            with suppress(OSError):
                # If unread data were left, the kernel would reset the connection and our last messages would be lost.
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
        if self._socket is not None and os.getpid() == self._process:  # a child must not end its parent's connection
            with suppress(OSError):  # it may not have been connected
                self._socket.shutdown(socket.SHUT_RDWR)


class AgentLink:
    """The link of a job process: receives orders to leave and reports progress."""

    counting: ClassVar[AgentLink | None] = None
    """The link of the loop that counts the steps of this process; other reports would contradict it."""

    def __init__(
        self, path: str | None, rank: int, orders: Orders, status: Callable[[], Message], *, asks: bool = True
    ) -> None:
        """Connect, if there is a path, and say hello; `status` returns the steps, saved steps and measured totals.

        `asks`: whether the process leaves when asked. One that does not gets SIGTERM, without time to save before.
        """
        self.orders = orders
        self._wire = Wire(path)
        self._process = os.getpid()
        self._rank = rank
        self._status = status
        self._told = status()
        self._telling = threading.Lock()
        if self._wire.open:
            self.greet(asks=asks)
            self._hear_greeting()
            threading.Thread(target=self._converse, name="gavel-link", daemon=True).start()

    @property
    def broken(self) -> str:
        return self._wire.broken

    def greet(self, *, asks: bool) -> None:
        """Say hello; a second one says that the process leaves when asked from now on."""
        self.say("hello", protocol=PROTOCOL, rank=self._rank, asks=asks)

    def say(self, op: str, **fields: Any) -> None:
        """Send a message that matters; does nothing if the link is broken."""
        self._wire.send({"op": op, **fields}, patience=SEND_SECONDS)

    def progress(self) -> None:
        """Report progress, unless the last report said the same."""
        with self._telling:
            now, before = self._status(), self._told
            measured = {name: now[name] - before[name] for name in ("measured_steps", "measured_seconds")}
            if now != before and self._wire.send({"op": "progress", **now, **measured}):
                self._told = now

    def counts(self) -> None:
        """Note that the owner of this link counts the steps of this process from now on, if it is connected."""
        if self._wire.open:
            AgentLink.counting = self

    def close(self) -> None:
        if os.getpid() == self._process:  # a forked child may have copied a lock that is held
            self.progress()
            self._wire.close()
            self.orders.deadline = math.inf  # no lease is heard of any more

    def _hear_greeting(self) -> None:
        """Read the agent's first messages, which end with a lease, so that no step is made against its orders."""
        until = time.monotonic() + GREETING_SECONDS
        greeted = False
        while not greeted and self._wire.open and time.monotonic() < until:
            messages = self._wire.receive(until - time.monotonic())
            self._hear(messages)
            greeted = any(message.get("op") == "lease" for message in messages)

    def _hear(self, messages: list[Message]) -> None:
        for message in messages:
            with suppress(KeyError, TypeError, ValueError):  # a message we cannot read must not end the training
                self.orders.hear(message)

    def _converse(self) -> None:
        try:
            self._hear_and_tell()
        finally:
            self._wire.release()

    def _hear_and_tell(self) -> None:
        next_progress = time.monotonic() + self._pause
        while self._wire.open:
            asking = self.orders.ask_at
            self._hear(self._wire.receive(max(0.0, min(next_progress, asking) - time.monotonic())))
            self.orders.pass_on()
            now = time.monotonic()
            if now >= self.orders.ask_at:
                self.orders.ask_at = math.inf
                self._wire.send({"op": "renew"}, patience=SEND_SECONDS)
            if now >= next_progress:
                self.progress()
                next_progress = now + self._pause

    @property
    def _pause(self) -> float:
        """Seconds until the next report."""
        counting = self._told["steps"] is not None
        return FIRST_PROGRESS_SECONDS if counting and not self._told["measured_steps"] else PROGRESS_SECONDS


def _seconds(message: Message, default: float) -> float:
    value = message.get("seconds")
    return default if value is None else float(value)


def _forget_parent() -> None:
    AgentLink.counting = None


os.register_at_fork(after_in_child=_forget_parent)


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
