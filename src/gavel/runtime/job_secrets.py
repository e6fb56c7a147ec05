"""Secrets of unfinished jobs: sealed in memory and beside the journal's facts, unsealed only for an order to start.

They are in memory, so that a launch reads no database in the event loop; sealed, so that a value exists in clear only
while it is received or sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import sqlalchemy as sql

from gavel.client.field_checks import shortened
from gavel.client.requests import Submission
from gavel.client.secret_values import SecretValues, check_values
from gavel.core.errors import InputError
from gavel.core.facts import JobEnded, JobQueued
from gavel.journal.accounts import remove_secrets, write_secrets
from gavel.journal.store import Journal, Write
from gavel.runtime.facts import Fact
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.journal_retry import Insist
from gavel.security.vault import Vault, VaultError
from gavel.wire import gavel_pb2 as pb

logger = logging.getLogger(__name__)


class JobSecrets:
    """The sealed secrets of every unfinished job, and what is written about them."""

    def __init__(self, vault: Vault | None = None) -> None:
        self._vault = vault
        self._sealed: dict[str, Mapping[str, bytes]] = {}
        """By job and name."""

    # ---- a submission ----

    def prepare(self) -> None:
        """Make the key if there is none; may touch the disk. VaultError if no secret can be sealed."""
        self._needed().prepare()

    def keeping(self, secrets: Sequence[SecretValues]) -> Callable[[Sequence[Fact]], list[Write]]:
        """What to write with the facts of a submission, given the secrets of its jobs in order; none: no job has any.

        `prepare` must have succeeded.
        """

        def beside(facts: Sequence[Fact]) -> list[Write]:
            queued = [fact.job.id for fact in facts if isinstance(fact, JobQueued)]
            if not queued:
                return []  # the same submission again
            return [self._keep(job, values) for job, values in zip(queued, secrets, strict=True) if values]

        return beside if any(secrets) else lambda _: []

    def _keep(self, job: str, values: SecretValues) -> Write:
        vault = self._needed()
        sealed = {name: vault.seal(job, name, value) for name, value in values.items()}
        self._sealed[job] = sealed

        def write(connection: sql.Connection) -> None:
            write_secrets(connection, job, sealed)

        return write

    # ---- a launch ----

    def of(self, job: str, names: Iterable[str]) -> SecretValues:
        """The values of a job's secrets; VaultError if one of them is lost."""
        wanted = list(names)
        if not wanted:
            return SecretValues()
        vault, sealed = self._needed(), self._sealed.get(job, {})
        if missing := [name for name in wanted if name not in sealed]:
            raise VaultError(f"the secret {missing[0]} of job {job} is not in the journal; submit the job again")
        return SecretValues({name: vault.unseal(job, name, sealed[name]) for name in wanted})

    def _needed(self) -> Vault:
        if self._vault is None:
            raise VaultError("this scheduler has no vault, so its jobs cannot have secrets")
        return self._vault

    # ---- the end ----

    def removal(self, facts: Sequence[Fact]) -> list[Write]:
        """What to write with facts that end jobs."""
        ended = [fact.job for fact in facts if isinstance(fact, JobEnded) and fact.job in self._sealed]
        return [_removing(ended)] if ended else []

    def forget(self, job: str) -> None:
        """Drop the secrets of a job whose end is in the journal."""
        self._sealed.pop(job, None)

    # ---- a start of the scheduler ----

    def take_up(self, journal: Journal, jobs: Iterable[LiveJobRecord], insist: Insist) -> None:
        """Read the secrets of unfinished jobs, and remove those of jobs that have finished or never existed."""
        names = {record.id: record.request.secrets for record in jobs if not record.finished and record.request.secrets}
        found: dict[str, dict[str, bytes]] = {}
        insist(lambda: found.update(journal.all_secrets()))
        if leftovers := [job for job in found if job not in names]:
            insist(lambda: journal.write([_removing(leftovers)]))
        self._sealed = {job: found[job] for job in names if job in found}
        self._warn(names)

    def _warn(self, names: Mapping[str, Sequence[str]]) -> None:
        faults = [fault for job in names if (fault := self.fault(job, names[job]))]
        if faults:
            logger.error("the secrets of %d jobs cannot be read, so they will not start: %s", len(faults), faults[0])

    def fault(self, job: str, names: Iterable[str]) -> str:
        """Why a job cannot get its secrets, as a sentence; empty if it can."""
        try:
            self.of(job, names)
        except VaultError as error:
            return f"its secrets cannot be read: {error}"
        return ""


def _removing(jobs: Sequence[str]) -> Write:
    def write(connection: sql.Connection) -> None:
        remove_secrets(connection, jobs)

    return write


def secrets_of(request: pb.SubmitRequest, jobs: Sequence[Submission]) -> list[SecretValues]:
    """The checked secrets of each submitted job; empty if no job has any. No message quotes a value."""
    if not request.secrets and not any(job.secrets for job in jobs):
        return []
    if len(request.secrets) != len(jobs):
        raise InputError(
            f"values of secrets were sent for {len(request.secrets):,} jobs, but {len(jobs):,} were submitted; send one"
            " entry for each job"
        )
    return [_checked(job, values) for job, values in zip(jobs, request.secrets, strict=True)]


def _checked(job: Submission, sent: pb.Secrets) -> SecretValues:
    what = f"job {shortened(job.name)}" if job.name else "the job"
    values = SecretValues(dict(sent.values))
    if unsent := [name for name in job.secrets if name not in values]:
        raise InputError(f"{what}: the secret {unsent[0]} was sent without a value; send its value beside the job")
    if unnamed := [name for name in values if name not in job.secrets]:
        raise InputError(f"{what}: a value was sent for {shortened(unnamed[0])}, which it does not list as a secret")
    try:
        check_values(values)
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    return values
