"""The calls that change jobs and that submit them again: rights, checks and the audit; the state decides the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import grpc

from gavel.client.messages import from_submission
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.core.events import FieldChange, JobEdited
from gavel.journal.store import Write
from gavel.runtime.engine import Beside
from gavel.runtime.events import EditAsked
from gavel.runtime.facts import DependenciesChanged, Fact
from gavel.runtime.job_calls import Context
from gavel.runtime.job_edits import EDITABLE, changed, check_fields, check_steps
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.requests import checked
from gavel.runtime.resubmission import may_repeat, repeat_denied, resubmission
from gavel.runtime.steps import unhurried
from gavel.runtime.submission_service import SubmissionService
from gavel.runtime.views import steps_done
from gavel.security.caller import current
from gavel.security.ownership import weight_denied
from gavel.wire import gavel_pb2 as pb


class JobEdits(SubmissionService):
    """Answers Edit and Resubmit."""

    async def Edit(self, request: pb.EditRequest, context: Context) -> pb.JobList:  # noqa: N802
        ids, fields = tuple(dict.fromkeys(request.ids)), tuple(dict.fromkeys(request.fields))
        records = await self._changeable(ids, "Edit", context)
        changes = from_submission(request.changes)
        if "weight" in fields:
            await self._check_weight(changes.weight, records, context)
        caller, clock = current(), self._driver.engine.clock
        try:
            await self._check_edit(records, changes, fields)
            ended = await self._ended([changes]) if "after" in fields else {}
            asked = EditAsked(clock(), ids, changes, fields, caller.by or caller.user, ended)
            await asyncio.shield(self._driver.post(asked, beside=self._audited_edit()))
        except InputError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return await self._views(ids, context)

    async def _check_weight(self, weight: float, records: Sequence[LiveJobRecord], context: Context) -> None:
        async for record in unhurried(records):
            if (denied := weight_denied(current(), weight, record.request.entity)) is not None:
                await self._deny(denied, "Edit", record.id, context)

    async def _check_edit(self, records: Sequence[LiveJobRecord], changes: Submission, fields: Sequence[str]) -> None:
        """Refuse what a submission of such jobs would be refused for; the state checks the rest."""
        check_fields(fields, EDITABLE)
        if "notify" in fields:
            self._notifier.check([changes])
        scheduler = self._driver.engine.scheduler
        entities = None if scheduler.settings.open_entities else scheduler.entities
        async for record in unhurried(records):
            if record.finished:
                continue  # the state says so
            try:
                checked(changed(record.request, changes, fields), self._policy, entities)
            except InputError as error:
                raise InputError(f"job {record.id}: {error}") from None
            if "steps" in fields:
                check_steps(record.id, changes.steps, steps_done(self._driver.engine, record))

    def _audited_edit(self) -> Beside:
        """Entries of the current call for each job that changed, in the transaction of its facts."""
        caller, trail = current(), self._access.trail

        def beside(facts: Sequence[Fact]) -> Sequence[Write]:
            edited = [(fact.job.id, told_changes(fact.changes)) for fact in facts if isinstance(fact, JobEdited)]
            edited += [
                (fact.job, f"after {', '.join(fact.after) or 'none'}")
                for fact in facts
                if isinstance(fact, DependenciesChanged)
            ]
            return [trail.entries(caller, "Edit", [job for job, _ in edited], [told for _, told in edited])]

        return beside

    async def Resubmit(self, request: pb.ResubmitRequest, context: Context) -> pb.SubmitReply:  # noqa: N802
        await self._check_ids(request.ids, context)
        records = [await self._find(job, context) for job in dict.fromkeys(request.ids)]
        for record in records:
            if not may_repeat(current(), record.request):
                await self._deny(repeat_denied(record.id, record.request), "Resubmit", record.id, context)
        try:
            jobs, submit = resubmission(request, {record.id: without_others_urls(record.request) for record in records})
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return await self._accept(jobs, submit, context)


def without_others_urls(request: Submission) -> Submission:
    """A request without URLs that another user wrote: they may contain secrets, and are told about that user's jobs."""
    return request if request.user == current().user else replace(request, notify=())


def told_changes(changes: Sequence[FieldChange]) -> str:
    """Changes as the audit lists them.

    >>> told_changes([FieldChange("weight", "1", "2"), FieldChange("types", "", "v100")])
    'weight 1 → 2, types none → v100'
    """
    return ", ".join(f"{each.name} {each.before or 'none'} → {each.after or 'none'}" for each in changes)
