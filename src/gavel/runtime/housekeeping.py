"""Removes facts, finished jobs and logs that are past their retention. Runs beside the scheduler, in a thread.

Agents remove checkpoints; `expiry` only says which.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sql

from gavel.core.errors import GavelError, InputError
from gavel.journal.audit import remove_audit
from gavel.journal.retention import Retention
from gavel.journal.store import Journal
from gavel.runtime.engine import Engine
from gavel.runtime.expiry import Posting, expire_checkpoints
from gavel.runtime.logs import Logs

logger = logging.getLogger(__name__)

HOUR = 3600.0
DAY = 24 * HOUR
PAUSE_SECONDS = 0.02
"""Pause between two small steps of a compaction, so that other writers get their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How many days each kind of data is kept."""

    journal_days: float = 30.0
    finished_days: float = 365.0
    logs_days: float = 90.0
    checkpoints_days: float | None = None
    """Checkpoints of finished jobs; None: forever, because they are the users' results."""
    audit_days: float = 400.0

    def __post_init__(self) -> None:
        days = self.checkpoints_days
        if days is not None and not 0 < days <= self.finished_days:
            raise InputError(
                f"checkpoints cannot be kept for {days:g} days: give more than 0, and no more than the"
                f" {self.finished_days:g} days for which finished jobs are listed"
            )

    @property
    def retention(self) -> Retention:
        return Retention(journal_days=self.journal_days, finished_days=self.finished_days)


async def keep_house(keep: Keep, engine: Engine, post: Posting, logs: Logs, *, every_seconds: float = HOUR) -> None:
    """Tidy up periodically until cancelled; failures are logged, and the next run may succeed."""
    while True:
        await asyncio.sleep(every_seconds)
        try:
            if keep.checkpoints_days is not None:
                await expire_checkpoints(engine, post, older_than=keep.checkpoints_days * DAY)
            await asyncio.to_thread(remove_old_entries, engine.journal, engine.clock() - keep.audit_days * DAY)
            await asyncio.to_thread(tidy, keep, engine.journal, logs, engine.clock(), forgettable(keep, engine))
        except (GavelError, OSError) as error:
            logger.warning("old data was not removed: %s", error)


def remove_old_entries(journal: Journal, before: float) -> None:
    """Remove entries of the audit from before that time."""
    journal.write([partial(_remove_audit, before=before)])


def _remove_audit(connection: sql.Connection, *, before: float) -> None:
    remove_audit(connection, before)


def forgettable(keep: Keep, engine: Engine) -> float:
    """The end time before which finished jobs may be forgotten: pending checkpoint removals still need their jobs."""
    if keep.checkpoints_days is None:
        return math.inf
    expired = engine.state.removals.expired
    return 0.0 if expired is None else expired[0]


def tidy(keep: Keep, journal: Journal, logs: Logs, now: float, finished_until: float = math.inf) -> None:
    """Remove what is too old; finished jobs only if they ended before a time."""
    report = keep.retention.apply(journal, now, pause=lambda: time.sleep(PAUSE_SECONDS), finished_until=finished_until)
    removed = logs.prune(now - keep.logs_days * DAY)
    if report.facts or report.finished or removed:
        logger.info(
            "removed %d facts and %d finished jobs from the journal, and the logs of %d jobs",
            report.facts,
            report.finished,
            removed,
        )
