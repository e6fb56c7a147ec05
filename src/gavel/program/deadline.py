"""How long the programs of one question may take together. Solvers look here between their steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gavel.core.errors import TimeLimitError

SECONDS_EACH = 3e-9
"""What sifting takes for each entry of a program with pairs, seen as a full matrix; measured on large ones."""

_until: ContextVar[tuple[float, float]] = ContextVar("until", default=(math.inf, math.inf))
"""When time is up by the monotonic clock, and the limit that was set."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitError in whatever is solved within, once this much time has passed; None: no limit."""
    if seconds is None:
        yield
        return
    token = _until.set((time.monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _until.reset(token)


def seconds_left() -> float:
    """What is left of the limit; infinite if there is none."""
    until, _ = _until.get()
    return until if math.isinf(until) else until - time.monotonic()


def check() -> None:
    """Raise TimeLimitError if time is up."""
    if seconds_left() <= 0:
        raise TimeLimitError(f"no answer within the time limit of {_until.get()[1]:g} s")


def announce(rows: int, columns: int) -> None:
    """Raise TimeLimitError before a program with pairs is begun that would take longer than there is time."""
    estimate, left = SECONDS_EACH * rows * columns, seconds_left()
    if estimate > left:
        raise TimeLimitError(
            f"a program of {rows:,} rows and {columns:,} columns would take about {estimate:,.0f} s, longer than the "
            f"time limit of {_until.get()[1]:g} s; raise the limit, leave out space sharing, or use a policy that "
            "tells fewer jobs apart"
        )
