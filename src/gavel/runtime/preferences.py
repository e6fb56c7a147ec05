"""Which jobs may run only on the types that they prefer, and for how many rounds they have waited: a fold over facts.

A job with a preference is confined to its preferred types. It may use all of its types while no server has enough
accelerators of a preferred one, and for good once it has waited, able to run, for PREFERENCE_ROUNDS rounds in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gavel.client.requests import Submission
from gavel.client.views import JobState
from gavel.core.events import JobEdited, JobsReleased, TypesAllowed
from gavel.core.facts import (
    JobEnded,
    JobQueued,
    JobRequeued,
    JobsStopped,
    RoundPlanned,
    ServerAdded,
    ServerRemoved,
)
from gavel.core.jobs import Cause
from gavel.runtime.facts import Fact
from gavel.runtime.jobs import LiveJobRecord

PREFERENCE_ROUNDS = 5
PREFERRED = Cause("preferred", "a type that it prefers is there again")
ABSENT = Cause("no_preferred_type", "no server has enough accelerators of a type that it prefers")
WAITED = Cause("waited", f"it has waited for a preferred type for {PREFERENCE_ROUNDS} rounds")
_MATTER = (ServerAdded, ServerRemoved, JobsStopped, JobRequeued, JobsReleased)
"""Facts after which a preference may count again, or no longer; RoundPlanned is another."""


class Preferences:
    """Unfinished jobs that prefer some types."""

    def __init__(self) -> None:
        self.rounds: dict[str, int] = {}
        """By job: how many rounds in a row it has waited while confined."""
        self.free: dict[str, str] = {}
        """By job that is not confined: the code of the cause."""
        self.due = False
        """Whether something happened after which other types may be allowed."""

    def evolve(self, fact: Fact, records: Mapping[str, LiveJobRecord], able: Callable[[str], bool]) -> None:
        """Apply a fact; `able` says whether a job that waits could run."""
        if isinstance(fact, JobEnded):
            self._drop(fact.job)
        elif isinstance(fact, JobQueued | JobEdited) and fact.request is not None:
            self._requested(fact, fact.request)
        elif isinstance(fact, TypesAllowed):
            self._allowed(fact)
        elif isinstance(fact, RoundPlanned) and self.rounds:
            self.due = True
            if not fact.mid_round:
                self._count(records, able)
        elif isinstance(fact, _MATTER):
            self.due = self.due or bool(self.rounds)

    def _drop(self, job: str) -> None:
        self.rounds.pop(job, None)
        self.free.pop(job, None)

    def _requested(self, fact: JobQueued | JobEdited, request: Submission) -> None:
        job = fact.job.id
        if not request.prefer:
            self._drop(job)
            return
        self.due = True
        if isinstance(fact, JobQueued) or {each.name for each in fact.changes} & {"types", "prefer"}:
            self._drop(job)
            self.rounds[job] = 0
            if fact.job.types != request.prefer:
                self.free[job] = ABSENT.code

    def _allowed(self, fact: TypesAllowed) -> None:
        self.rounds[fact.job] = 0
        if fact.cause.code == PREFERRED.code:
            self.free.pop(fact.job, None)
        else:
            self.free[fact.job] = fact.cause.code

    def _count(self, records: Mapping[str, LiveJobRecord], able: Callable[[str], bool]) -> None:
        for job in self.rounds.keys() - self.free.keys():
            waits = records[job].state is not JobState.RUNNING and able(job)
            self.rounds[job] = self.rounds[job] + 1 if waits else 0

    def types_of(
        self, job: str, request: Submission, before: Submission, running_on: str | None
    ) -> tuple[str, ...] | None:
        """The types on which a job may run if its request becomes this one; a running job is not stopped for them."""
        kept = (request.types, request.prefer) == (before.types, before.prefer) and job in self.free
        elsewhere = running_on is not None and running_on not in request.prefer
        if not request.prefer or kept or elsewhere:
            return request.types or None
        return request.prefer

    def changes(
        self,
        time: float,
        records: Mapping[str, LiveJobRecord],
        enough: Callable[[str, str], bool],
        types: tuple[str, ...],
    ) -> Iterator[TypesAllowed]:
        """The types that jobs may use from now on where that changes.

        `enough` says whether a type has enough accelerators for a job; `types` are those of the cluster.
        """
        for job, rounds in list(self.rounds.items()):
            request, cause = records[job].request, self.free.get(job)
            allowed = request.types or types
            there = any(enough(job, name) for name in request.prefer)
            others = any(enough(job, name) for name in allowed if name not in request.prefer)
            if cause is None and others and (not there or rounds >= PREFERENCE_ROUNDS):
                yield TypesAllowed(time, job, request.types or None, WAITED if there else ABSENT)
            elif cause == ABSENT.code and there and records[job].state is not JobState.RUNNING:
                yield TypesAllowed(time, job, request.prefer, PREFERRED)

    def note(self, record: LiveJobRecord) -> str:
        """What its preference means for a job that waits; empty if it means nothing now."""
        if record.id not in self.rounds or record.id in self.free:
            return ""
        left = max(PREFERENCE_ROUNDS - self.rounds[record.id], 1)
        rounds = f"{left} more round{'s' if left > 1 else ''}"
        return f"it prefers {' or '.join(record.request.prefer)}, and may use its other types after {rounds}"

    def document(self) -> dict[str, Any]:
        return {"rounds": dict(self.rounds), "free": dict(self.free)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Preferences:
        preferences = cls()
        preferences.rounds = dict(document.get("rounds", {}))
        preferences.free = dict(document.get("free", {}))
        return preferences
