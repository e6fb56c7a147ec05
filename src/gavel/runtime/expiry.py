"""Finds checkpoints that have reached their age: goes through finished jobs in the order in which they ended.

It requests removal as an operator would; the scheduler records it, and agents remove them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gavel.journal.finished import FinishedQuery
from gavel.journal.store import Journal
from gavel.runtime.engine import Engine
from gavel.runtime.events import RemovalAsked
from gavel.runtime.removals import EndKey

RETENTION = "retention"
"""The author of removals by age."""
PAGE = 200
"""Most jobs whose checkpoints one fact removes."""

Posting = Callable[[RemovalAsked], Awaitable[None]]
"""Posts an event, and waits until it has taken effect."""


async def expire_checkpoints(engine: Engine, post: Posting, *, older_than: float) -> None:
    """Request the removal of all checkpoints of jobs that ended at least this many seconds ago."""
    while True:
        now = engine.clock()
        after = engine.state.removals.expired
        # Memory is read first: a job that is handed over to the journal meanwhile is seen twice, never missed.
        fresh = [(record.changed, int(record.id)) for record in engine.records.values() if record.finished]
        kept = await asyncio.to_thread(_page, engine.journal, after)
        asked = _removable(engine, _due(fresh, kept, after, now - older_than), now)
        if not asked:
            return
        await post(RemovalAsked(now, tuple(str(job) for _, job in asked), RETENTION, asked[-1]))


def _page(journal: Journal, after: EndKey | None) -> list[EndKey]:
    """The next finished jobs in the journal's table."""
    page = journal.finished(FinishedQuery(order="oldest", after=after, limit=PAGE))
    return [(job.ended, job.id) for job in page.jobs]


def _due(fresh: list[EndKey], kept: list[EndKey], after: EndKey | None, before: float) -> list[EndKey]:
    """The oldest jobs of both lists, after a key and before a time; jobs beyond the page are left for the next call."""
    last = kept[-1] if len(kept) == PAGE else None
    both = sorted({*fresh, *kept})
    return [
        key for key in both if key[0] <= before and (after is None or key > after) and (last is None or key <= last)
    ][:PAGE]


def _removable(engine: Engine, due: list[EndKey], now: float) -> list[EndKey]:
    """The jobs before the first one that may still have processes; that one is looked at again next time."""
    for number, (_, job) in enumerate(due):
        if engine.state.why_checkpoints_stay(str(job), now):
            return due[:number]
    return due
