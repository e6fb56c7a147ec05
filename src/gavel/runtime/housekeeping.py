"""Removes what is older than it has to be kept: facts, finished jobs, logs. Runs beside the scheduler, in a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from gavel.core.errors import GavelError
from gavel.journal.retention import Retention
from gavel.journal.store import Journal
from gavel.runtime.logs import Logs

logger = logging.getLogger(__name__)

HOUR = 3600.0
DAY = 24 * HOUR
PAUSE_SECONDS = 0.02
"""Between two small steps of a compaction, so that other writers get their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """For how many days what is kept. Checkpoints belong to users and are never removed."""

    journal_days: float = 30.0
    finished_days: float = 365.0
    logs_days: float = 90.0

    @property
    def retention(self) -> Retention:
        return Retention(journal_days=self.journal_days, finished_days=self.finished_days)


async def keep_house(
    keep: Keep, journal: Journal, logs: Logs, clock: Callable[[], float], *, every_seconds: float = HOUR
) -> None:
    """Tidy up now and then, until cancelled; trouble is logged, and the next time may succeed."""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            await asyncio.to_thread(tidy, keep, journal, logs, clock())
        except (GavelError, OSError) as error:
            logger.warning("what is old was not removed: %s", error)


def tidy(keep: Keep, journal: Journal, logs: Logs, now: float) -> None:
    """Remove what is too old."""
    report = keep.retention.apply(journal, now, pause=lambda: time.sleep(PAUSE_SECONDS))
    removed = logs.prune(now - keep.logs_days * DAY)
    if report.facts or report.finished or removed:
        logger.info(
            "removed %d facts and %d finished jobs from the journal, and the logs of %d jobs",
            report.facts,
            report.finished,
            removed,
        )
