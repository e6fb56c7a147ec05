"""The call that submits jobs, and the way of every submission into the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

import grpc

from gavel.client.messages import from_submission
from gavel.client.requests import Submission
from gavel.client.secret_values import SecretValues
from gavel.core.errors import InputError
from gavel.limits import MOST_JOBS_IN_A_CALL
from gavel.policies.policy import Policy
from gavel.runtime.batch import UnknownReferenceError, references, sizes_of
from gavel.runtime.events import JobsSubmitted
from gavel.runtime.job_calls import Context, JobCalls, user_of
from gavel.runtime.job_secrets import secrets_of
from gavel.runtime.notify.notifier import Notifier
from gavel.runtime.outcomes import outcomes
from gavel.runtime.prerequisites import Ends
from gavel.runtime.requests import checked
from gavel.runtime.steps import unhurried
from gavel.security.caller import current
from gavel.security.ownership import NotAllowedError, owned
from gavel.security.quotas import OverLimitError
from gavel.security.roles import Caller
from gavel.security.vault import VaultError
from gavel.wire import gavel_pb2 as pb

LOOKUPS = 3
"""How often references are looked up: a job may leave memory between being looked up and being waited for."""


class SubmissionService(JobCalls):
    """Answers Submit."""

    _policy: Policy
    _notifier: Notifier

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitReply:  # noqa: N802
        if len(request.jobs) > MOST_JOBS_IN_A_CALL:
            told = f"{len(request.jobs):,} jobs in one call; submit at most {MOST_JOBS_IN_A_CALL:,} at a time"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, told)
        return await self._accept(
            [_new(from_submission(job)) async for job in unhurried(request.jobs)], request, context
        )

    async def _accept(self, jobs: Sequence[Submission], request: pb.SubmitRequest, context: Context) -> pb.SubmitReply:
        """Submit jobs of the caller, with the secrets and the key in a request: all of them, or it is refused.

        A client that disconnects meanwhile changes nothing. A key that this user has used before submits nothing.
        """
        caller, key = current(), request.key or uuid4().hex
        await self._check_label("the key of a submission", key, context)
        key = key if caller.open else f"{caller.user}:{key}"  # two users may choose the same
        try:
            acceptable = tuple([self._acceptable(job, caller) async for job in unhurried(jobs)])
            self._notifier.check(acceptable)
            await self._keep_submission(acceptable, secrets_of(request, acceptable), key)
        except NotAllowedError as error:
            await self._deny(str(error), "Submit", "", context)
        except VaultError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except OverLimitError as error:
            self._access.refused("Submit", str(error))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.SubmitReply(ids=self._engine.state.jobs.keys.get(key, ()))

    def _acceptable(self, job: Submission, caller: Caller) -> Submission:
        """A request of a caller, checked and with its defaults; InputError if it cannot be accepted."""
        scheduler = self._engine.scheduler
        entities = None if scheduler.settings.open_entities else scheduler.entities
        longest_grace = self._fleet.settings.longest_grace_seconds
        return checked(owned(job, caller), self._policy, entities, longest_grace=longest_grace)

    async def _keep_submission(self, jobs: tuple[Submission, ...], secrets: Sequence[SecretValues], key: str) -> None:
        audited = self._audited("Submit")
        if any(secrets):
            await asyncio.to_thread(self._fleet.secrets.prepare)
        keeping = self._fleet.secrets.keeping(_of_each_job(jobs, secrets))
        asked = JobsSubmitted(self._engine.clock(), jobs, key, await self._driver.recalled(jobs), by=user_of(current()))
        for lookup in range(1, LOOKUPS + 1):
            submitted = replace(asked, outcomes=await self._ended(jobs))
            try:
                # A client that disconnects changes nothing.
                await asyncio.shield(
                    self._driver.post(submitted, beside=lambda facts: [*keeping(facts), *audited(facts)])
                )
            except UnknownReferenceError:
                if lookup == LOOKUPS:
                    raise
            else:
                return

    async def _ended(self, jobs: Sequence[Submission]) -> Mapping[str, Ends]:
        """How that has ended which jobs wait for, as far as it has."""
        known = self._engine.state.gates.prerequisites
        gone = {reference for reference in references(jobs) if known.ends_of(reference) is None}
        return await asyncio.to_thread(outcomes, self._engine, gone) if gone else {}


def _new(job: Submission) -> Submission:
    """A request without what only the scheduler fills in."""
    return replace(job, user="", array_id="", index=None, parameters={})


def _of_each_job(jobs: Sequence[Submission], secrets: Sequence[SecretValues]) -> list[SecretValues]:
    """The secrets of every job that requests stand for."""
    if not any(secrets):
        return []
    return [values for values, size in zip(secrets, sizes_of(jobs), strict=True) for _ in range(size)]
