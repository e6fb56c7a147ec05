"""The scheduler's time: wall time that never jumps, so that leases, fences and rounds last as long as they should."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """The wall time when the clock was made, advanced by the machine's monotonic clock.

    Setting the machine's clock has no effect until the scheduler is restarted. Then the time begins no earlier than
    the last event of its journal.
    """

    def __init__(
        self,
        *,
        not_before: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._offset = max(wall(), not_before) - monotonic()

    def __call__(self) -> float:
        return self._monotonic() + self._offset
