"""SIGTERM as an order to leave: the process saves and ends by itself, instead of dying in the middle of a step.

The handler only sets flags that training loops read. It is installed on first use, calls the handler that it replaced,
and is taken back when no loop needs it any more. A forked child gets the handler of before.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Protocol


class LeaveListener(Protocol):
    def terminate(self) -> None:
        """Note that the process was asked to leave; runs in a signal handler, so it must take no lock."""


class Termination:
    """The SIGTERM handling of this process."""

    def __init__(self) -> None:
        self.received = False
        """Whether SIGTERM has arrived; from then on it stays handled, so that a second one cannot interrupt a save."""
        self._listeners: tuple[LeaveListener, ...] = ()
        self._forking = threading.local()
        self._previous: Callable[[int, FrameType | None], object] | int | None = None
        self._installed = False

    def listen(self, listener: LeaveListener) -> None:
        """Tell this listener of SIGTERM, at once if it has arrived already."""
        self._listeners = (*self._listeners, listener)
        self._install()
        if self.received:
            listener.terminate()

    def forget(self, listener: LeaveListener) -> None:
        """Stop telling it; without listeners, SIGTERM ends the process again, unless that is leaving already."""
        self._listeners = tuple(other for other in self._listeners if other is not listener)
        if not self._listeners and not self.received:
            self._restore()

    def take_back(self) -> None:
        """Replace the handler that a framework installed over ours; it would end the process, or raise in a step."""
        if self._installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._handle)

    def before_fork(self) -> None:
        """Hold SIGTERM back: the interpreter would lose one that reaches a child before the child's own handlers."""
        if self._installed:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork(self) -> None:
        """Let SIGTERM through again."""
        mask = self._forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def after_fork_in_child(self) -> None:
        """Forget everything: a worker process that survives SIGTERM could not be ended."""
        self._restore()
        self.received = False
        self._listeners = ()
        self.after_fork()

    def _install(self) -> None:
        # Only the main thread may set handlers. A program that ignores SIGTERM, or handles it outside Python, means it.
        previous = signal.getsignal(signal.SIGTERM)
        if self._installed or previous in {None, signal.SIG_IGN}:
            return
        if threading.current_thread() is threading.main_thread():
            self._previous = previous
            signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def _restore(self) -> None:
        ours = self._installed and signal.getsignal(signal.SIGTERM) == self._handle
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._previous)
            self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        for listener in self._listeners:
            listener.terminate()
        if callable(self._previous):
            self._previous(number, frame)


TERMINATION = Termination()
os.register_at_fork(
    before=TERMINATION.before_fork,
    after_in_parent=TERMINATION.after_fork,
    after_in_child=TERMINATION.after_fork_in_child,
)
