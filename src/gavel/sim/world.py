"""Virtual time: carries out the scheduler's commands and yields the resulting events in a repeatable order."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.codec import decode_event, encode_event
from gavel.core.errors import InputError, SolverError
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobFailed,
    JobFinished,
    JobsProgressed,
    JobSubmitted,
    Launch,
    RateMeasured,
    Renew,
    RestartMeasured,
    RoundDue,
    Solve,
    SolveFailed,
    Stop,
    WakeAt,
)
from gavel.core.jobs import JobSpec
from gavel.core.locality import Locality
from gavel.core.problem import Problem
from gavel.core.serialization import from_plain, plain_record, stored_as
from gavel.core.throughputs import ThroughputTable
from gavel.sim.progress import ProgressState, RunningJobs
from gavel.sim.starts import StartCosts

Solver = Callable[[Problem], Allocation]


@dataclass(slots=True)
class _Running:
    """A job on its accelerators."""

    spec: JobSpec
    type_name: str = field(metadata=stored_as("kind"))
    version: int
    locality: Locality = field(metadata=stored_as("close"))
    beside: str | None


@dataclass(frozen=True, slots=True)
class _WorldState:
    """A world in a dump. Of the events from outside, it has only the number of those that have happened."""

    now: float
    come: int
    left: Mapping[str, float]
    running: dict[str, _Running]
    progress: ProgressState
    ahead: tuple[tuple[float, int, Any, str, int], ...]
    serial: int
    wake: float | None
    leased_until: float
    ran: set[str]
    unmeasured: tuple[str, ...]


@dataclass(slots=True)
class SimulatedWorld:
    """A calendar of future events. Iterate over it and call `perform` for each command of the scheduler."""

    table: ThroughputTable
    solver: Solver
    restart_seconds: float
    starts: StartCosts | None = None
    """The cost of starts by template, instead of `restart_seconds`; if given, jobs also report their restart costs."""
    measures: bool = False
    """Whether jobs report their rate, once per placement, at the end of a round."""
    now: float = 0.0
    left: dict[str, float] = field(default_factory=dict)
    """Steps left of every active job that does not run."""
    running: dict[str, _Running] = field(default_factory=dict)
    progress: RunningJobs = field(default_factory=RunningJobs)
    """The progress of the running jobs."""
    _outside: list[Event] = field(default_factory=list)
    """Events from outside, by time."""
    _come: int = 0
    """How many of `_outside` have happened."""
    _ahead: list[tuple[float, int, Event | None, str, int]] = field(default_factory=list)
    """A heap of consequences of commands: time, serial number, and an event, or the job that ends and its version."""
    _serial: int = 0
    _wake: float | None = None
    _leased_until: float = 0.0
    """When the leases of all running jobs end."""
    _specs: dict[str, JobSpec] = field(default_factory=dict)
    """The specification of every active job."""
    _ran: set[str] = field(default_factory=set)
    """The active jobs that have run: their next launch is a restart."""
    _unmeasured: dict[str, None] = field(default_factory=dict)
    """Running jobs that have not reported their rate at their placement, in order."""
    _rates: dict[tuple[str, int, str, Locality, str | None], float] = field(default_factory=dict)
    _orderly: bool = False
    """Whether the current commands answer RoundDue: jobs stopped by these save all steps that they have made."""

    def expect(self, event: Event) -> None:
        """Add an event from outside to the calendar."""
        insort(self._outside, event, lo=self._come, key=attrgetter("time"))

    def _push(self, time: float, event: Event | None, job: str = "", version: int = 0) -> None:
        self._serial += 1
        heapq.heappush(self._ahead, (time, self._serial, event, job, version))

    def __iter__(self) -> Iterator[Event]:
        """Events in order of time. At one instant: ends and answers first, then events from outside, then the round.

        The order depends only on state kept in the world, so iteration may stop and start again at any event.
        """
        while (event := self._next()) is not None:
            self._orderly = isinstance(event, RoundDue)
            yield event

    def _next(self) -> Event | None:
        while True:
            inside = self._ahead[0][0] if self._ahead else inf
            outside = self._outside[self._come].time if self._come < len(self._outside) else inf
            wake = inf if self._wake is None else self._wake
            if self._ahead and inside <= min(outside, wake):
                event = self._from_inside()
                if event is not None:
                    return event
            elif self._come < len(self._outside) and outside <= wake:
                return self._from_outside()
            elif self._wake is not None:
                return self._round(self._wake)
            else:
                return None

    def _from_inside(self) -> Event | None:
        """The next answer or end of a job; None if the job has been stopped or its rate has changed in the meantime."""
        time, _, event, job, version = heapq.heappop(self._ahead)
        if job:
            entry = self.running.get(job)
            if entry is None or entry.version != version:
                return None
        self.now = time
        if isinstance(event, RestartMeasured) and event.job not in self.running:
            return None  # it was stopped before it made a step
        if event is None:
            event = JobFinished(time, job)
            self._end(job, time)
        elif job:
            self._stop(job)
        return event

    def _from_outside(self) -> Event:
        event = self._outside[self._come]
        self._come += 1
        self.now = event.time
        if isinstance(event, JobSubmitted):
            self._specs[event.job.id] = event.job
            self.left[event.job.id] = event.job.steps
        return event

    def _round(self, time: float) -> Event:
        """The next event of a due round: first the steps made, then measured rates one by one, then RoundDue.

        Jobs report steps and rates only when their leases end.
        """
        self.now = time
        if time >= self._leased_until:
            jobs, steps = self.progress.count(time)
            if jobs:
                return JobsProgressed(time, jobs, steps)
            while self._unmeasured:
                job = next(iter(self._unmeasured))
                del self._unmeasured[job]
                if job in self.running:
                    return self._measured(self.running[job])
        self._wake = None
        return RoundDue(time)

    def _measured(self, entry: _Running) -> Event:
        rate = self._rate(entry.spec, entry.type_name, entry.locality, entry.beside)
        return RateMeasured(self.now, entry.spec.id, entry.type_name, rate, entry.locality, entry.beside)

    def dump(self) -> dict[str, Any]:
        """The state without the events from outside, as plain data."""
        ahead = tuple(
            (time, serial, event and encode_event(event), job, version)
            for time, serial, event, job, version in sorted(self._ahead, key=itemgetter(0, 1))
        )
        return plain_record(
            _WorldState(
                self.now,
                self._come,
                self.left,
                self.running,
                self.progress.dump(),
                ahead,
                self._serial,
                self._wake,
                self._leased_until,
                self._ran,
                tuple(self._unmeasured),
            )
        )

    def restore(self, document: Any, unanswered: Solve | None) -> None:
        """Restore a dump into a world that expects the same events; `unanswered` may have an answer on the calendar."""

        def problem_of(number: int) -> Problem:
            if unanswered is None or unanswered.number != number:
                raise InputError(f"there is an answer to question {number}, which was not asked")
            return unanswered.problem

        state = from_plain(_WorldState, document)
        self.now, self._come, self._serial, self._wake = state.now, state.come, state.serial, state.wake
        self._leased_until = state.leased_until
        self.left, self.running, self._ran = dict(state.left), state.running, state.ran
        self._unmeasured = dict.fromkeys(state.unmeasured)
        self.progress = RunningJobs.restored(state.progress)
        self._ahead = [
            (time, serial, None if event is None else decode_event(event, problem_of), job, version)
            for time, serial, event, job, version in state.ahead
        ]
        came = (event.job for event in self._outside[: self._come] if isinstance(event, JobSubmitted))
        self._specs = {job.id: job for job in came if job.id in self.left}

    def perform(self, command: Command) -> None:
        """Carry out a command of the scheduler."""
        match command:
            case WakeAt():
                self._wake = command.time
            case Renew():
                self._leased_until = command.until
                self._expect_ends(command.until)
            case Stop():
                self._save(command.job)
                self._stop(command.job)
            case Launch():
                self._launch(command)
            case Solve():
                self._solve(command)

    def _solve(self, command: Solve) -> None:
        try:
            answer: Event = AllocationReady(self.now, command.number, self.solver(command.problem))
        except SolverError as error:
            answer = SolveFailed(self.now, command.number, str(error))
        self._push(self.now, answer)

    def start_seconds(self, job: str) -> float:
        """How long a job that is launched now takes to make its first step."""
        restart = job in self._ran
        if self.starts is None:
            return self.restart_seconds if restart else 0.0
        return self.starts.of(self._specs[job].template, restart=restart)

    def _launch(self, command: Launch) -> None:
        spec = self._specs[command.job]
        rate = self._rate(spec, command.type, command.locality, command.beside)
        cost = self.start_seconds(command.job)
        if self.starts is not None and command.job in self._ran:
            self._push(self.now + cost, RestartMeasured(self.now + cost, command.job, cost))
        self._ran.add(command.job)
        self.running[command.job] = _Running(spec, command.type, self._serial, command.locality, command.beside)
        self.progress.begin(command.job, self.now + cost, rate, self.left[command.job])
        if self.measures:
            self._unmeasured[command.job] = None
        if command.until == self._leased_until and rate > 0:  # launched during a round, which has no later Renew
            end = self.now + cost + self.left[command.job] / rate
            if end <= command.until:
                self._push(end, None, command.job, self.running[command.job].version)
        if rate == 0.0 and command.beside:
            reason = f"out of memory beside job {command.beside}"
            failure = JobFailed(self.now + cost, command.job, reason, crashed=True)
            self._push(failure.time, failure, command.job, self.running[command.job].version)

    def _rate(self, spec: JobSpec, type_name: str, locality: Locality, beside: str | None) -> float:
        other = self._specs[beside].template if beside else None
        key = (spec.template, spec.workers, type_name, locality, other)
        if key not in self._rates:
            if other is None:
                rate = self.table.rates([(spec.template, spec.workers)], [type_name])[0, 0, locality]
            else:
                rate, _ = self.table.together((spec.template, spec.workers), (other, spec.workers), type_name)
            self._rates[key] = float(rate)
        return self._rates[key]

    def _expect_ends(self, until: float) -> None:
        """Add the jobs that will finish before the lease ends to the calendar."""
        for end, job in self.progress.ends(until):
            entry = self.running[job]
            entry.version = self._serial
            self._push(max(end, self.now), None, job, entry.version)

    def _end(self, job: str, time: float) -> None:
        entry = self.running.pop(job)
        self.progress.end(job)
        del self.left[job], self._specs[job]
        self._ran.discard(job)
        self._release(entry, time)

    def _save(self, job: str) -> None:
        """Save and report the steps that an orderly stopped job has made since its lease began."""
        if self._orderly and job in self.running:
            steps = self.progress.settle(job, self.now)
            if steps:
                self._push(self.now, JobsProgressed(self.now, [job], np.array([steps])))

    def _stop(self, job: str) -> None:
        entry = self.running.pop(job, None)
        if entry is not None:
            self.left[job] = self.progress.end(job)
            self._release(entry, self.now)

    def _release(self, entry: _Running, time: float) -> None:
        """Let a job whose partner leaves continue alone, at another rate."""
        other = self.running.get(entry.beside) if entry.beside else None
        if other is None or other.beside != entry.spec.id:
            return
        rate = self._rate(other.spec, other.type_name, other.locality, None)
        end = self.progress.change_rate(other.spec.id, time, rate)
        self._serial += 1
        other.beside, other.version = None, self._serial
        if self.measures:
            self._unmeasured[other.spec.id] = None
        if self._wake is not None and end <= self._wake:  # otherwise the next Renew adds it
            self._push(end, None, other.spec.id, other.version)
