"""What the calls about jobs have in common: find them, check rights and sizes, note who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import grpc

from gavel.client.field_checks import label_fault, shortened
from gavel.core.events import PausesEnded
from gavel.core.facts import JobEnded, JobQueued, JobsStopped
from gavel.journal.store import Write
from gavel.limits import MOST_IDS_IN_A_CALL
from gavel.runtime.access import Access
from gavel.runtime.denying import Denying
from gavel.runtime.driver import Driver
from gavel.runtime.engine import Beside, Engine
from gavel.runtime.facts import Fact, HoldsChanged
from gavel.runtime.fleet import Fleet
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.steps import unhurried
from gavel.runtime.watching import Watching
from gavel.security.caller import current
from gavel.security.ownership import change_denied
from gavel.security.roles import Caller, may_change
from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]
OPEN_OPERATOR = "operator"
"""Who asks, as facts name it, if the scheduler does not identify its callers."""


class JobCalls(Denying):
    """The common part of the calls about jobs."""

    _driver: Driver
    _engine: Engine
    _fleet: Fleet
    _access: Access
    _watching: Watching

    def _view(self, record: LiveJobRecord) -> pb.JobView:
        return self._watching.view(record)

    async def _views(self, ids: Iterable[str], context: Context) -> pb.JobList:
        return pb.JobList(jobs=[self._view(await self._find(job, context)) async for job in unhurried(ids)])

    async def _find(self, job: str, context: Context) -> LiveJobRecord:
        record = self._engine.records.get(job) or await asyncio.to_thread(self._engine.record, job)
        if record is None:
            told = f"there is no job {shortened(job)}; `gavel jobs --all` lists them"
            await context.abort(grpc.StatusCode.NOT_FOUND, told)
        return record

    async def _changeable(self, ids: Sequence[str], method: str, context: Context) -> list[LiveJobRecord]:
        """The jobs with these ids, all of which the caller may change."""
        await self._check_ids(ids, context)
        records = [await self._find(job, context) async for job in unhurried(dict.fromkeys(ids))]
        async for record in unhurried(records):
            await self._check_may_change(record, method, context)
        return records

    async def _check_may_change(self, record: LiveJobRecord, method: str, context: Context) -> None:
        if not may_change(current(), record.request):
            await self._deny(change_denied(record.id, record.request), method, record.id, context)

    async def _check_ids(self, ids: Sequence[str], context: Context) -> None:
        if len(ids) > MOST_IDS_IN_A_CALL:
            told = f"{len(ids):,} ids in one call; give at most {MOST_IDS_IN_A_CALL:,} at a time"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, told)

    async def _check_label(self, what: str, text: str, context: Context) -> None:
        if (fault := label_fault(text)) is not None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{what} {fault}: {shortened(text)}")

    def _audited(self, method: str, subjects: Iterable[str] | None = None) -> Beside:
        """The entries of the current call, in the transaction of its facts: about these, or about the facts' jobs."""
        caller, trail = current(), self._access.trail

        def beside(facts: Sequence[Fact]) -> Sequence[Write]:
            named = jobs_changed(facts) if subjects is None else subjects
            return [trail.entries(caller, method, list(named))]

        return beside


def by(caller: Caller) -> str:
    """Who asks, as facts name it."""
    return OPEN_OPERATOR if caller.open else caller.by or caller.user


def user_of(caller: Caller) -> str:
    """Who asks for something about jobs, as people are told: on an open scheduler, everyone is the same user."""
    return caller.by or caller.user


def jobs_changed(facts: Iterable[Fact]) -> list[str]:
    """The jobs that a call has changed: submitted, ended, held, released or requeued."""
    changed: dict[str, None] = {}
    for fact in facts:
        match fact:
            case JobQueued():
                changed[fact.job.id] = None
            case JobEnded():
                changed[fact.job] = None
            case HoldsChanged() | JobsStopped() | PausesEnded():
                changed |= dict.fromkeys(fact.jobs)
            case _:
                pass
    return list(changed)
