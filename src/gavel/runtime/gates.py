"""Why jobs may not run yet: the one owner of every reason to wait besides accelerators.

A fold over facts. A job is on hold in the scheduler exactly while one of these reasons applies; the recorded cause is
the first that does: it is held by a user, other jobs must end before it (or it can never start), its array has enough
jobs at once, a limit is reached. What is recorded decides where a job stands: until an earlier reason is gone, it takes
no place in its array, and until it has one, it counts against no limit of accelerators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gavel.client.dependencies import Dependency
from gavel.client.requests import Submission
from gavel.core import facts as core_facts
from gavel.core.events import JobEdited, JobsHeld, JobsReleased
from gavel.core.jobs import Cause
from gavel.runtime.facts import DependenciesChanged, Fact, HoldsChanged, LimitsChanged
from gavel.runtime.prerequisites import DEPENDENCY, Prerequisites, waits_until
from gavel.runtime.throttles import ARRAY, Throttles
from gavel.security import quotas
from gavel.security.quotas import Quotas

HELD = "held"
"""The code of the cause for which a job waits that a user holds."""
OVER_LIMIT = quotas.CODE


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job about to be submitted."""

    job: str
    request: Submission
    met: tuple[str, ...] = ()
    """Those of its dependencies that are met already."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What becomes of the jobs that may continue: they wait for the next reason, or for accelerators only."""

    held: Sequence[tuple[tuple[str, ...], Cause]] = ()
    released: tuple[str, ...] = ()


class Gates:
    """What every unfinished job waits for besides accelerators."""

    def __init__(self, limits: Quotas | None = None) -> None:
        self.quotas = limits or Quotas()
        self.prerequisites = Prerequisites()
        self.throttles = Throttles()
        self._holds: dict[str, Cause] = {}
        """By job: by whom it is held."""
        self._recorded: dict[str, Cause] = {}
        """By job on hold: the cause in the journal."""
        self._changed: set[str] = set()
        """Jobs whose reason may not be the recorded one."""
        self._stale: set[str] = set()
        """Of these, jobs to be recorded again even if the code of the cause is the same."""

    # ---- what is known ----

    def waits(self, job: str) -> bool:
        """Whether a job is on hold."""
        return job in self._recorded

    def held_by_user(self, job: str) -> bool:
        """Whether a user holds a job."""
        return job in self._holds

    def reason(self, job: str) -> Cause | None:
        """Why a job is on hold, as of now; None if it is not."""
        recorded = self._recorded.get(job)
        if recorded is None:
            return None
        if (earlier := self._earlier(job)) is not None:
            return earlier
        if recorded.code == ARRAY:
            return self.throttles.reason(job)
        return self.quotas.reason(job) if recorded.code == OVER_LIMIT else recorded

    def _earlier(self, job: str) -> Cause | None:
        """The first reason of a job that comes before places and limits."""
        return self._holds.get(job) or self.prerequisites.reason(job)

    @property
    def due(self) -> bool:
        """Whether something changed that may put jobs on hold or release them."""
        return bool(self._changed) or self.quotas.due or self.throttles.due or self.throttles.over

    # ---- decide ----

    def arrivals(self, jobs: Sequence[Arrival], by: str) -> dict[str, Cause]:
        """Of new jobs, those that must wait, and why."""
        held: dict[str, Cause] = {}
        for each in jobs:
            if each.request.hold:
                held[each.job] = Cause(HELD, f"held by {by or each.request.user or 'its user'}")
            elif waits := [Dependency.of(text) for text in each.request.after if text not in each.met]:
                held[each.job] = Cause(DEPENDENCY, waits_until(waits))
        ready = [(each.job, each.request) for each in jobs if each.job not in held]
        held |= self.throttles.arrivals(ready)
        return held | self.quotas.must_wait([each for each in ready if each[0] not in held])

    def closing(self, runs: Callable[[str], bool]) -> list[tuple[tuple[str, ...], Cause]]:
        """The jobs to put on hold, or to keep on hold for another reason, that may not continue; jobs that run stay."""
        causes: dict[str, Cause] = {}
        for job in self._changed:
            cause = self._earlier(job)
            if cause is not None and not runs(job) and self._differs(job, cause):
                causes[job] = cause
        for job in self.throttles.excess(runs):
            causes.setdefault(job, self.throttles.reason(job))
        return _by_cause(causes)

    def _differs(self, job: str, cause: Cause) -> bool:
        recorded = self._recorded.get(job)
        return recorded is None or recorded.code != cause.code or job in self._stale

    def opening(self) -> Opening:
        """What becomes of the jobs whose first reason is gone, and of those that wait for a place or a limit."""
        freed = sorted(filter(self._is_freed, self._changed), key=int)
        through, refused = self.throttles.opening(freed)
        admitted = self.quotas.admissible(through)
        inside = set(admitted)
        over = self.quotas.refusals([job for job in through if job not in inside], admitted)
        renamed = [job for job in self._stale.difference(through) if self._is_throttled(job)]
        causes = {job: self.throttles.reason(job) for job in (*refused, *renamed)} | over
        return Opening(_by_cause(causes), admitted)

    def _is_freed(self, job: str) -> bool:
        recorded = self._recorded.get(job)
        return recorded is not None and recorded.code not in (ARRAY, OVER_LIMIT) and self._earlier(job) is None

    def _is_throttled(self, job: str) -> bool:
        recorded = self._recorded.get(job)
        return recorded is not None and recorded.code == ARRAY and self._earlier(job) is None

    def settled(self) -> None:
        """Everything that followed is recorded."""
        self._changed.clear()
        self._stale.clear()
        self.throttles.settled()
        self.quotas.due = False

    # ---- evolve ----

    def evolve(self, fact: Fact) -> None:  # noqa: C901 - one effect for each kind of fact
        """Apply a fact."""
        match fact:
            case core_facts.JobQueued(request=Submission() as request):
                self._queued(fact, request)
            case core_facts.JobEnded():
                self._ended(fact)
            case JobsHeld():
                self._put_on_hold(fact)
            case JobsReleased():
                self._release(fact.jobs)
            case HoldsChanged():
                self._change_holds(fact)
            case DependenciesChanged():
                self.prerequisites.wait_for(fact.job, fact.after, fact.met)
                self._changed.add(fact.job)
                self._stale.add(fact.job)
            case JobEdited(request=Submission() as request):
                self._limit_array(request.array_id, request.at_once)
            case LimitsChanged():
                self.quotas.change(fact.subject, fact.limits)
            case core_facts.RoundPlanned() | core_facts.ServerRemoved() if not fact.stopped:
                pass
            case (
                core_facts.RoundPlanned()
                | core_facts.ServerRemoved()
                | core_facts.JobRequeued()
                | core_facts.JobsStopped()
            ):  # a lowered limit may not admit what has stopped any more
                self.quotas.due = self.quotas.due or bool(self.quotas.limits)
            case _:
                pass

    def _queued(self, fact: core_facts.JobQueued, request: Submission) -> None:
        job, cause = fact.job.id, fact.held
        code = "" if cause is None else cause.code
        self.prerequisites.added(job, request.array_id, request.after, fact.met)
        self.throttles.added(job, request)
        self.quotas.queued(job, request, fact.time, held=code == OVER_LIMIT, aside=code not in ("", OVER_LIMIT))
        if cause is not None:
            self._recorded[job] = cause
            if code == HELD:
                self._holds[job] = cause
        self._seat(job, code)

    def _seat(self, job: str, code: str) -> None:
        """Give a job its standing in its array, as the recorded cause has it."""
        if code == ARRAY:
            self.throttles.wait(job)
        elif code in ("", OVER_LIMIT):
            self.throttles.place(job)
        else:
            self.throttles.leave(job)

    def _put_on_hold(self, fact: JobsHeld) -> None:
        code = fact.cause.code
        for job in fact.jobs:
            self._recorded[job] = fact.cause
            self._seat(job, code)
        if code == OVER_LIMIT:
            self.quotas.held(fact.jobs)
        else:
            self.quotas.set_aside(fact.jobs)

    def _release(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self._recorded.pop(job, None)
            self._seat(job, "")
        self.quotas.released(jobs)

    def _change_holds(self, fact: HoldsChanged) -> None:
        for job in fact.jobs:
            if fact.held:
                self._holds[job] = Cause(HELD, f"held by {fact.by}")
            else:
                self._holds.pop(job, None)
        self._changed.update(fact.jobs)

    def _ended(self, fact: core_facts.JobEnded) -> None:
        job = fact.job
        self._changed.update(self.prerequisites.ended(job, fact.outcome))
        self.throttles.ended(job)
        self.quotas.ended(job)
        self._holds.pop(job, None)
        self._recorded.pop(job, None)
        self._changed.discard(job)
        self._stale.discard(job)

    def _limit_array(self, array: str, at_once: int) -> None:
        """An array may have this many jobs at once; its jobs that wait for a place are recorded again with the number.

        An edit says so for each job of the array.
        """
        if self.throttles.limit(array, at_once):
            waiting = self.throttles.waiting_in(array)
            self._changed.update(waiting)
            self._stale.update(waiting)

    # ---- as a document ----

    def document(self) -> dict[str, Any]:
        """Everything that unfinished jobs do not tell."""
        by_cause = _by_cause(self._recorded)
        return {
            "on_hold": [[cause.code, cause.text, list(jobs)] for jobs, cause in by_cause],
            "held": [[cause.text, list(jobs)] for jobs, cause in _by_cause(self._holds)],
            "dependencies": self.prerequisites.document(),
            "arrays": self.throttles.document(),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], limits: Mapping[str, Any], unfinished: Iterable[Arrival]) -> Gates:
        """The reasons in documents, those of limits in one of their own, given the unfinished jobs.

        Documents of version 0.3 have limits only: every job on hold waits because of one.
        """
        made, jobs = cls(), sorted(unfinished, key=lambda each: int(each.job))
        for code, text, names in document.get("on_hold", ()):
            made._recorded.update(dict.fromkeys(names, Cause(code, text)))
        for text, names in document.get("held", ()):
            made._holds.update(dict.fromkeys(names, Cause(HELD, text)))
        for name in limits.get("waiting", ()):
            made._recorded.setdefault(name, Cause(OVER_LIMIT))
        aside = {job for job, cause in made._recorded.items() if cause.code != OVER_LIMIT}
        made.quotas = Quotas.of(limits, [(each.job, each.request) for each in jobs], aside)
        pairs = [(each.job, each.request.array_id) for each in jobs]
        made.prerequisites = Prerequisites.of(document.get("dependencies", {}), pairs)
        made.throttles = Throttles.of(document.get("arrays", {}), [(each.job, each.request) for each in jobs])
        for each in jobs:
            recorded = made._recorded.get(each.job)
            made._seat(each.job, "" if recorded is None else recorded.code)
        made._changed.update(made._recorded)
        return made


def _by_cause(causes: Mapping[str, Cause]) -> list[tuple[tuple[str, ...], Cause]]:
    """Jobs with the same cause together, in order of submission."""
    groups: dict[Cause, list[str]] = {}
    for job in sorted(causes, key=int):
        groups.setdefault(causes[job], []).append(job)
    return [(tuple(jobs), cause) for cause, jobs in groups.items()]
