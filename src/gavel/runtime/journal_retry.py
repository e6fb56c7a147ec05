"""Writing to a journal that fails temporarily: repeated for a limited time, with an alarm in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gavel.journal.errors import JournalError, TemporaryJournalError

logger = logging.getLogger(__name__)

RETRY_SECONDS = (0.1, 2.0)
"""Pauses before a write is repeated: the first, and the longest."""
START_SECONDS = 60.0
"""How long a starting scheduler tries to record its start."""

Write = Callable[[], None]
Insist = Callable[[Write], None]
"""Calls a write, and repeats it while a later attempt may succeed."""


def at_once(write: Write) -> None:
    """Write without a second attempt."""
    write()


def insisting(
    seconds: float = START_SECONDS,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Insist:
    """Write as soon as possible within a time limit; JournalError after it."""

    def insist(write: Write) -> None:
        end, (pause, longest), failed = clock() + seconds, RETRY_SECONDS, False
        while True:
            try:
                write()
            except TemporaryJournalError as error:
                if clock() >= end:
                    raise JournalError(_given_up(seconds, error)) from error
                if not failed:
                    logger.error("alarm: the start cannot be recorded; trying again for %g s: %s", seconds, error)  # noqa: TRY400 - no trace
                failed = True
                sleep(pause)
                pause = min(2 * pause, longest)
            else:
                break
        if failed:
            logger.warning("the journal can be written again; the scheduler starts")

    return insist


def _given_up(seconds: float, error: TemporaryJournalError) -> str:
    return (
        f"the scheduler did not start, because the journal could not be written for {seconds:g} s: {error}; fix this"
        " and start it again. Running jobs continue under their leases"
    )
