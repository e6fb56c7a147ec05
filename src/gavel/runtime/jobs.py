"""The life of every job: one record each, and the one table that says which fact leads from which state to which.

Records are immutable, so a reader may keep one while the scheduler moves on. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from gavel.client.requests import Submission
from gavel.client.views import JobState, Transition
from gavel.core.events import JobEdited, JobsHeld, JobsProgressed, JobsReleased, PausesEnded
from gavel.core.facts import JobEnded, JobQueued, JobRequeued, JobsStopped, RoundPlanned, ServerRemoved, Started
from gavel.core.jobs import Cause
from gavel.core.serialization import from_plain, plain_record
from gavel.runtime.facts import AttemptClosed, DependenciesChanged, Fact, TimeLimitNear


class JobChange(StrEnum):
    """What a fact means for one job."""

    LAUNCHED = "launched"
    MOVED = "moved"
    STOPPED = "stopped"
    REQUEUED = "requeued"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HELD = "held"
    RELEASED = "released"


_ENDS = {
    JobChange.COMPLETED: JobState.COMPLETED,
    JobChange.FAILED: JobState.FAILED,
    JobChange.CANCELLED: JobState.CANCELLED,
}
TRANSITIONS: Mapping[tuple[JobState, JobChange], JobState] = {
    (JobState.QUEUED, JobChange.LAUNCHED): JobState.RUNNING,
    (JobState.QUEUED, JobChange.REQUEUED): JobState.QUEUED,
    (JobState.PREEMPTED, JobChange.LAUNCHED): JobState.RUNNING,
    (JobState.PREEMPTED, JobChange.REQUEUED): JobState.QUEUED,
    (JobState.RUNNING, JobChange.MOVED): JobState.RUNNING,
    (JobState.RUNNING, JobChange.STOPPED): JobState.PREEMPTED,
    (JobState.RUNNING, JobChange.REQUEUED): JobState.QUEUED,
    **{
        (state, change): state
        for state in (JobState.QUEUED, JobState.PREEMPTED)
        for change in (JobChange.HELD, JobChange.RELEASED)
    },
    **{
        (state, change): end
        for state in (JobState.QUEUED, JobState.RUNNING, JobState.PREEMPTED)
        for change, end in _ENDS.items()
    },
}
"""Everything else is refused; above all, a finished job stays as it finished."""

WAITING = Cause("", "waiting for accelerators")
RELEASED = Cause("released", "waiting for accelerators")
HISTORY = 200
"""Most transitions kept per job: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJobRecord:
    """One job as its owner sees it."""

    id: str
    request: Submission
    submitted: float
    history: tuple[Transition, ...]
    steps_done: float = 0.0
    attempts: int = 0
    """The number of the last attempt."""
    failures: int = 0
    """Failures that used up a retry."""
    type: str = ""
    places: Mapping[str, int] = field(default_factory=dict)
    beside: str = ""
    received: Mapping[str, float] = field(default_factory=dict)
    """Seconds by type, once the job has finished; before that, the scheduler knows."""
    restarts: int = 0
    exit_code: int | None = None
    """Of the attempt that ended last; None: none has ended, or its code is not known."""
    warned: bool = False
    """Whether its user was told that its time limit is near."""

    @property
    def state(self) -> JobState:
        return self.history[-1].state

    @property
    def finished(self) -> bool:
        return self.state.finished

    @property
    def changed(self) -> float:
        """When it entered its state."""
        return self.history[-1].time

    def document(self) -> dict[str, Any]:
        return plain_record(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LiveJobRecord:
        return from_plain(cls, document)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fact that the table does not allow for a job: a bug elsewhere, to be logged."""

    job: str
    change: JobChange
    state: JobState | None
    """None if there is no such job."""

    def __str__(self) -> str:
        if self.state is None:
            return f"job {self.job} cannot be {self.change}: there is no such job"
        return f"job {self.job} cannot be {self.change}: it is {self.state}"


class JobRegistry:
    """Records of all unfinished jobs, and of jobs that finished since the last hand-over."""

    def __init__(self) -> None:
        self.records: dict[str, LiveJobRecord] = {}
        self.next_number = 1
        self.keys: dict[str, list[str]] = {}
        """Job ids by the key of the call that submitted them."""
        self.touched: set[str] = set()
        """Jobs whose records changed since this was last emptied."""
        self.refusals: list[Refusal] = []
        """Facts that were refused since this was last read."""

    def __getitem__(self, job: str) -> LiveJobRecord:
        return self.records[job]

    def __contains__(self, job: object) -> bool:
        return job in self.records

    def get(self, job: str) -> LiveJobRecord | None:
        return self.records.get(job)

    def active(self) -> Iterator[LiveJobRecord]:
        return (record for record in self.records.values() if not record.finished)

    def hand_over(self) -> list[LiveJobRecord]:
        """Forget the records of finished jobs, which the journal keeps from now on."""
        finished = [record for record in self.records.values() if record.finished]
        for record in finished:
            del self.records[record.id]
        return finished

    def forget_keys(self) -> None:
        """Forget the keys of calls whose jobs have all finished and been handed over."""
        self.keys = {key: ids for key, ids in self.keys.items() if any(job in self.records for job in ids)}

    def evolve(self, fact: Fact) -> set[str]:
        """Apply a fact; returns the jobs whose state changed."""
        effect = self._EFFECTS.get(type(fact))
        changed = effect(self, fact) if effect is not None else set()
        self.touched |= changed
        return changed

    def _queued(self, fact: JobQueued) -> set[str]:
        job, request = fact.job.id, fact.request
        assert request is not None, "only simulated jobs have no request"  # noqa: S101
        cause = fact.held or WAITING
        first = Transition(fact.time, JobState.QUEUED, cause.text, cause.code)
        self.records[job] = LiveJobRecord(id=job, request=request, submitted=fact.time, history=(first,))
        self.next_number = max(self.next_number, int(job) + 1)
        if fact.key:
            self.keys.setdefault(fact.key, []).append(job)
        return {job}

    def _edited(self, fact: JobEdited) -> set[str]:
        record = self.records.get(fact.job.id)
        if record is None or record.finished or fact.request is None:
            return set()
        warned = record.warned and fact.request.time_limit_seconds == record.request.time_limit_seconds
        self.records[record.id] = replace(record, request=fact.request, warned=warned)
        return {record.id}

    def _warned(self, fact: TimeLimitNear) -> set[str]:
        self.records[fact.job] = replace(self.records[fact.job], warned=True)
        return {fact.job}

    def _progressed(self, fact: JobsProgressed) -> set[str]:
        for job, steps in zip(fact.jobs, fact.steps.tolist(), strict=True):
            if job in self.records:
                record = self.records[job]
                self.records[job] = replace(record, steps_done=record.steps_done + steps)
                self.touched.add(job)
        return set()

    def _closed(self, fact: AttemptClosed) -> set[str]:
        record = self.records.get(fact.job)
        if record is not None and record.exit_code != fact.exit_code:
            self.records[fact.job] = replace(record, exit_code=fact.exit_code)
            self.touched.add(fact.job)
        return set()

    def _held(self, fact: JobsHeld) -> set[str]:
        return {job for job in fact.jobs if self._changed(fact.time, job, JobChange.HELD, fact.cause)}

    def _released(self, fact: JobsReleased) -> set[str]:
        return {job for job in fact.jobs if self._changed(fact.time, job, JobChange.RELEASED, RELEASED)}

    def _paused_enough(self, fact: PausesEnded) -> set[str]:
        return {job for job in fact.jobs if self._changed(fact.time, job, JobChange.RELEASED, fact.cause)}

    def _waits_for_others(self, fact: DependenciesChanged) -> set[str]:
        record = self.records.get(fact.job)
        if record is None:
            return set()
        self.records[fact.job] = replace(record, request=replace(record.request, after=fact.after))
        return {fact.job}

    def _requeued(self, fact: JobRequeued) -> set[str]:
        record = self._changed(
            fact.time, fact.job, JobChange.REQUEUED, Cause("failed" if fact.counts else "lost", fact.reason)
        )
        if record is None:
            return set()
        self.records[fact.job] = replace(record, failures=record.failures + fact.counts)
        return {fact.job}

    def _ended(self, fact: JobEnded) -> set[str]:
        cause = Cause(fact.code or fact.outcome, fact.reason)
        record = self._changed(fact.time, fact.job, JobChange(fact.outcome), cause)
        if record is None:
            return set()
        failed = fact.outcome == "failed" and fact.counts
        self.records[fact.job] = replace(
            record, received=dict(fact.received), restarts=fact.restarts, failures=record.failures + failed
        )
        return {fact.job}

    def _planned(self, fact: RoundPlanned) -> set[str]:
        changed: set[str] = set()
        for stopped in fact.stopped:
            changed |= self._stop(fact.time, stopped.jobs, stopped.cause)
        for moved in fact.moved:
            changed |= self._launch(fact.time, moved, JobChange.MOVED)
        for started in fact.started:
            changed |= self._launch(fact.time, started, JobChange.LAUNCHED)
        return changed

    def _stop(self, time: float, jobs: Iterable[str], cause: Cause) -> set[str]:
        return {job for job in jobs if self._changed(time, job, JobChange.STOPPED, cause) is not None}

    def _launch(self, time: float, started: Started, change: JobChange) -> set[str]:
        changed: set[str] = set()
        servers = ", ".join(started.accelerators)
        for launch in started.launches(time):
            company = f", beside job {launch.beside}" if launch.beside else ""
            cause = Cause(started.cause.code, f"on {started.type} ({servers}){company}: {started.cause.text}")
            record = self._changed(time, launch.job, change, cause)
            if record is not None:
                changed.add(launch.job)
                self.records[launch.job] = replace(
                    record,
                    attempts=launch.attempt,
                    type=started.type,
                    places=dict(started.accelerators),
                    beside=launch.beside or "",
                )
        return changed

    def _changed(self, time: float, job: str, change: JobChange, cause: Cause) -> LiveJobRecord | None:
        """Move a job along the table; None, without any change, if the table does not allow it."""
        record = self.records.get(job)
        state = None if record is None else TRANSITIONS.get((record.state, change))
        if record is None or state is None:
            self.refusals.append(Refusal(job, change, None if record is None else record.state))
            return None
        last = Transition(time, state, cause.text, cause.code)
        history = record.history if last == record.history[-1] else (*record.history, last)[-HISTORY:]
        if state is JobState.RUNNING:
            changed = replace(record, history=history)
        else:
            changed = replace(record, history=history, type="", places={}, beside="")
        self.records[job] = changed
        return changed

    def document(self) -> dict[str, Any]:
        """Everything about unfinished jobs."""
        active = {record.id for record in self.active()}
        return {
            "next_number": self.next_number,
            "records": [record.document() for record in self.active()],
            "keys": {key: list(ids) for key, ids in self.keys.items() if active.intersection(ids)},
        }

    _EFFECTS: ClassVar[Mapping[type, Callable[..., set[str]]]] = {
        JobQueued: _queued,
        JobEdited: _edited,
        TimeLimitNear: _warned,
        JobsProgressed: _progressed,
        JobRequeued: _requeued,
        JobEnded: _ended,
        RoundPlanned: _planned,
        JobsHeld: _held,
        JobsReleased: _released,
        PausesEnded: _paused_enough,
        DependenciesChanged: _waits_for_others,
        JobsStopped: lambda self, fact: self._stop(fact.time, fact.jobs, fact.cause),
        ServerRemoved: lambda self, fact: self._stop(fact.time, fact.stopped, fact.cause),
        AttemptClosed: _closed,
    }
    """What each kind of fact does; each returns the jobs whose state changed."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JobRegistry:
        jobs = cls()
        jobs.next_number = document["next_number"]
        jobs.keys = {key: list(ids) for key, ids in document["keys"].items()}
        jobs.records = {entry["id"]: LiveJobRecord.of(entry) for entry in document["records"]}
        return jobs
