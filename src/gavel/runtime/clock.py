"""The scheduler's time: wall time that never jumps, so that leases, fences and rounds last as long as they should."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Wall time as it was when the clock was made, going on by the machine's monotonic clock.

    Setting the machine's clock changes nothing until the scheduler is started again. Then it begins no earlier than
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
