"""`gavel.report`: progress of programs with their own loop and checkpoints."""

from __future__ import annotations

import atexit
import os
import threading
import time

from gavel.client.job_environment import JobEnvironment
from gavel.client.link import PROGRESS_SECONDS, PROTOCOL, AgentLink, Wire
from gavel.errors import InputError


def report(steps: float, *, saved: float = 0) -> None:
    """Report how many steps the job has made in its whole life, and how many of them its own checkpoint holds.

    Does nothing without Gavel, and never fails because of it. Call it as often as you like. Programs that use
    GavelIterator do not need it: the iterator counts.
    """
    if not (steps >= 0 and saved >= 0):
        raise InputError(f"steps ({steps}) and saved ({saved}) are counts: they cannot be negative")
    path = os.environ.get("GAVEL_SOCKET")
    if path and AgentLink.process != os.getpid():
        with _LOCK:
            _reporter(path).tell(steps, saved)


class _Reporter:
    """The connection of this process. It reports only; orders to leave are ignored."""

    def __init__(self, path: str, rank: int) -> None:
        self._wire = Wire(path)
        self._wire.send({"op": "hello", "protocol": PROTOCOL, "rank": rank, "asks": False})
        self._sent_at = 0.0
        self._sent_steps: float | None = None
        self._waiting: tuple[float, float] | None = None

    def tell(self, steps: float, saved: float) -> None:
        self._waiting = (steps, saved)
        if time.monotonic() - self._sent_at >= PROGRESS_SECONDS:
            self.send()

    def send(self) -> None:
        if self._waiting is None:
            return
        self._wire.receive(0.0)  # discard what the agent sends, so that it does not fill the socket
        now, (steps, saved) = time.monotonic(), self._waiting
        measured = (0.0, 0.0)
        if self._sent_steps is not None and steps >= self._sent_steps:
            measured = (steps - self._sent_steps, now - self._sent_at)
        message = {"op": "progress", "steps": steps, "saved": saved}
        if self._wire.send({**message, "measured_steps": measured[0], "measured_seconds": measured[1]}):
            self._sent_at, self._sent_steps, self._waiting = now, steps, None

    def close(self) -> None:
        self.send()
        self._wire.close()
        self._wire.release()


_LOCK = threading.Lock()
_REPORTERS: dict[int, _Reporter] = {}
"""By process id: a forked child must not use its parent's connection."""


def _reporter(path: str) -> _Reporter:
    process = os.getpid()
    if process not in _REPORTERS:
        _REPORTERS.clear()
        _REPORTERS[process] = reporter = _Reporter(path, JobEnvironment.of(os.environ).rank)
        atexit.register(reporter.close)
    return _REPORTERS[process]
