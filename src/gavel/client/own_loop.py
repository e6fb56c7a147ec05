"""What a program with its own loop and checkpoints asks and tells: `gavel.should_leave`, `report` and their like.

All of them share one connection to the agent, opened on first use. Without Gavel, only SIGTERM asks to leave.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import overload

from gavel.client.job_environment import JobEnvironment
from gavel.client.link import TERMINATED, AgentLink, Message, Orders
from gavel.client.termination import TERMINATION
from gavel.errors import InputError


def should_leave() -> bool:
    """Whether to save a checkpoint now and end the program; once true, it stays true.

    It turns true when Gavel orders it, when the lease ends, or after SIGTERM, which no longer ends a process that has
    called this. Call it after every step: it costs less than a microsecond. In a distributed job all ranks must decide
    the same at the same step: see `gavel.torch.should_leave`.
    """
    return (_LOOP or _own_loop()).should_leave()


def seconds_left() -> float:
    """How many seconds the process still has to save and end; infinite as long as nothing asked it to leave."""
    return (_LOOP or _own_loop()).seconds_left()


def report(step: float, *, saved: float = 0, done: bool = False) -> None:
    """Report how many steps the job has made in its whole life, and how many of them its own checkpoint holds.

    `done` says that the training is finished: see `finished`. Does nothing without Gavel, and never fails because of
    it. Call it as often as you like. Programs that use GavelIterator do not need it: the iterator counts.
    """
    if not (step >= 0 and saved >= 0):
        raise InputError(f"step ({step}) and saved ({saved}) are counts: they cannot be negative")
    (_LOOP or _own_loop()).tell(step, saved)
    if done:
        finished()


def finished() -> None:
    """Say that all of the work is done, so that it is not run again although an order to leave arrived meanwhile.

    In a distributed job, call it on every rank. What follows should be short, because nothing waits for it.
    """
    (_LOOP or _own_loop()).finish()


@overload
def checkpoint_dir(default: str | os.PathLike[str]) -> Path: ...


@overload
def checkpoint_dir(default: None = None) -> Path | None: ...


def checkpoint_dir(default: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the job's own directory for checkpoints, the same in every attempt; without Gavel, the default.

    >>> checkpoint_dir("checkpoints").name
    'checkpoints'
    """
    directory = os.environ.get("GAVEL_CHECKPOINT_DIR") or default
    return None if directory is None else Path(directory)


def share_decision() -> None:
    """Note that another rank told this one to leave, so that this process has left, too, when it ends."""
    (_LOOP or _own_loop()).see()


class OwnLoop:
    """The state of this process. Any thread may call any method."""

    def __init__(self, environment: JobEnvironment) -> None:
        self._environment = environment
        self._orders = Orders()
        self._link: AgentLink | None = None
        self._lock = threading.Lock()
        self._obeys = False
        """Whether the program asks, so that the agent asks it before it makes it leave."""
        self._seen = False
        """Whether the program knows that it should leave."""
        self._finished = False
        self._counts: Message = {"steps": None, "saved": 0.0, "measured_steps": 0.0, "measured_seconds": 0.0}
        """What was reported; replaced as a whole, because the link's thread reads it."""
        self._told_at = 0.0
        atexit.register(self.close)

    def should_leave(self) -> bool:
        if self._seen:
            return True
        if not self._obeys:
            self._obey()
        now = time.monotonic()
        counting = AgentLink.counting
        if self._orders.leaving(now) or (counting is not None and counting.orders.leaving(now)):
            self.see()
        return self._seen

    def seconds_left(self) -> float:
        if not self._obeys:
            self._obey()
        now = time.monotonic()
        counting = AgentLink.counting
        others = math.inf if counting is None else counting.orders.seconds_left(now)
        return min(self._orders.seconds_left(now), others)

    def see(self) -> None:
        """Announce that this process leaves, which counts more than its exit code."""
        with self._lock:
            if self._seen:
                return
            self._seen = True
        saved = {} if self._counts["steps"] is None else {"steps": self._counts["saved"]}
        why = {"reason": TERMINATED} if TERMINATION.received else {}
        self._say("stopped", **saved, **why)

    def tell(self, step: float, saved: float) -> None:
        if self._environment.socket is None or AgentLink.counting is not None:
            return
        with self._lock:
            link = self._connected()
            first = self._counts["steps"] is None
            self._count(float(step), float(saved))
        if first:
            link.progress()

    def finish(self) -> None:
        if not self._finished:
            self._finished = True
            TERMINATION.forget(self._orders)
            counted = self._counts["steps"]
            self._say("done", **({} if counted is None else {"steps": counted}))

    def close(self) -> None:
        """Say what the last report said, and whether an order to leave came too late for this program to see."""
        link = self._link
        if link is None:
            return
        link.progress()
        uncaught = hasattr(sys, "last_value")  # the program ends with an exception
        if self._obeys and self._orders.stop and not (self._seen or self._orders.terminated or uncaught):
            link.say("unaware")
        link.close()

    def _count(self, step: float, saved: float) -> None:
        now, counts = time.monotonic(), self._counts
        steps, seconds = counts["measured_steps"], counts["measured_seconds"]
        if counts["steps"] is not None and step >= counts["steps"]:
            steps, seconds = steps + step - counts["steps"], seconds + now - self._told_at
        self._told_at = now
        self._counts = {
            "steps": step,
            "saved": max(saved, counts["saved"]),
            "measured_steps": steps,
            "measured_seconds": seconds,
        }

    def _obey(self) -> None:
        with self._lock:
            if self._obeys:
                return
            self._obeys = True
            TERMINATION.listen(self._orders)
            if self._environment.socket is None or AgentLink.counting is not None:
                return
            if self._link is None:
                self._connected()
            else:
                self._link.greet(asks=True)

    def _say(self, op: str, **fields: object) -> None:
        link = AgentLink.counting
        if link is None and self._environment.socket is not None:
            with self._lock:
                link = self._connected()
        if link is not None:
            link.say(op, **fields)

    def _connected(self) -> AgentLink:
        if self._link is None:
            environment = self._environment
            self._orders.begin(environment.lease_seconds)
            self._link = AgentLink(
                environment.socket, environment.rank, self._orders, lambda: self._counts, asks=self._obeys
            )
        return self._link


_LOOP: OwnLoop | None = None
_MAKING = threading.Lock()


def _own_loop() -> OwnLoop:
    global _LOOP  # noqa: PLW0603 - one process, one loop
    with _MAKING:
        if _LOOP is None:
            _LOOP = OwnLoop(JobEnvironment.of(os.environ))
        return _LOOP


def _forget_parent() -> None:
    """In a forked child: it has its own loop; and another thread of the parent may have held the lock."""
    global _LOOP, _MAKING
    if _LOOP is not None:
        atexit.unregister(_LOOP.close)
    _LOOP, _MAKING = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_parent)
