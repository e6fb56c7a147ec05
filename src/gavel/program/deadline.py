"""The time limit for all programs of one problem together. Solvers check it between their steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gavel.core.errors import TimeLimitError

SECONDS_EACH = 3e-9
"""Seconds of sifting per element of a program with pairs, as a dense matrix; measured on large programs."""

_until: ContextVar[tuple[float, float]] = ContextVar("until", default=(math.inf, math.inf))
"""The deadline on the monotonic clock, and the limit that was set, in seconds."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitError in solves within this context once this much time has passed; None: no limit."""
    if seconds is None:
        yield
        return
    token = _until.set((time.monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _until.reset(token)


def seconds_left() -> float:
    """Seconds left until the limit; infinite if there is none."""
    until, _ = _until.get()
    return until if math.isinf(until) else until - time.monotonic()


def check() -> None:
    """Raise TimeLimitError if the limit has passed."""
    if seconds_left() <= 0:
        raise TimeLimitError(f"no answer within the time limit of {_until.get()[1]:g} s")


def announce(rows: int, columns: int) -> None:
    """Raise TimeLimitError if a program with pairs of this size would take longer than the time left."""
    estimate, left = SECONDS_EACH * rows * columns, seconds_left()
    if estimate > left:
        raise TimeLimitError(
            f"a program of {rows:,} rows and {columns:,} columns would take about {estimate:,.0f} s, longer than the "
            f"time limit of {_until.get()[1]:g} s; raise the limit, leave out space sharing, or use a policy that "
            "tells fewer jobs apart"
        )
