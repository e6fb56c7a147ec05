"""Who makes the call that is being answered: set by the gate for each call, read wherever a rule needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gavel.security.roles import OPEN_USER, Caller, Role

OPEN = Caller(user=OPEN_USER, role=Role.ADMIN, open=True)
"""Every caller of a scheduler that does not identify them."""

_caller: ContextVar[Caller] = ContextVar("caller", default=OPEN)


def current() -> Caller:
    """The caller of the call that is being answered; without a gate: the one user of an open scheduler."""
    return _caller.get()


def set_caller(caller: Caller) -> None:
    """Answer for this caller for the rest of this task: gRPC runs each call in a separate task."""
    _caller.set(caller)


@contextmanager
def as_caller(caller: Caller) -> Iterator[None]:
    """Answer for this caller."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)
