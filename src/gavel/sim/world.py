"""Virtual time: performs the scheduler's commands and yields the events that follow, in order and by seed alone."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gavel.core.allocation import Allocation
from gavel.core.errors import SolverError
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobFinished,
    JobsProgressed,
    JobSubmitted,
    Launch,
    Renew,
    RoundDue,
    Solve,
    SolveFailed,
    Stop,
    WakeAt,
)
from gavel.core.jobs import JobSpec
from gavel.core.problem import Problem
from gavel.core.throughputs import ThroughputTable
from gavel.sim.progress import Progress

Solver = Callable[[Problem], Allocation]


@dataclass(slots=True)
class _Running:
    """A job on its accelerators."""

    spec: JobSpec
    kind: str
    version: int
    beside: str | None


@dataclass(slots=True)
class World:
    """A heap of things to come. Iterate over it and perform what the scheduler commands."""

    table: ThroughputTable
    solver: Solver
    restart_seconds: float
    now: float = 0.0
    left: dict[str, float] = field(default_factory=dict)
    """Steps left of every job that is here and does not run."""
    running: dict[str, _Running] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)
    """Of those that run."""
    _heap: list[tuple[float, int, int, Event | None, str, int]] = field(default_factory=list)
    _serial: int = 0
    _wake: float | None = None
    _specs: dict[str, JobSpec] = field(default_factory=dict)
    _ran: set[str] = field(default_factory=set)
    _rates: dict[tuple[str, int, str, bool, str | None], float] = field(default_factory=dict)

    def expect(self, event: Event) -> None:
        """Put an event of the outside world on the calendar."""
        self._push(event.time, 1, event)

    def _push(self, time: float, order: int, event: Event | None, job: str = "", version: int = 0) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (time, order, self._serial, event, job, version))

    def __iter__(self) -> Iterator[Event]:
        """Events in order of time; of one instant: ends of jobs, then arrivals, then answers, then the round."""
        while self._heap or self._wake is not None:
            if self._wake is not None and (not self._heap or (self._wake, 2) < self._heap[0][:2]):
                time, self._wake = self._wake, None
                self.now = time
                jobs, steps = self.progress.count(time)
                if jobs:
                    yield JobsProgressed(time, jobs, steps)
                yield RoundDue(time)
                continue
            time, _, _, event, job, version = heapq.heappop(self._heap)
            if event is None:
                entry = self.running.get(job)
                if entry is None or entry.version != version:
                    continue  # it was stopped, or its pace changed
                self.now = time
                self._end(job, time)
                yield JobFinished(time, job)
                continue
            self.now = time
            if isinstance(event, JobSubmitted):
                self._specs[event.job.id] = event.job
                self.left[event.job.id] = event.job.steps
            yield event

    def perform(self, command: Command) -> None:
        """Do what the scheduler says."""
        match command:
            case WakeAt():
                self._wake = command.time
            case Renew():
                self._expect_ends(command.until)
            case Stop():
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
        self._push(self.now, 0, answer)

    def _launch(self, command: Launch) -> None:
        spec = self._specs[command.job]
        rate = self._rate(spec, command.type, command.consolidated, command.beside)
        cost = self.restart_seconds if command.job in self._ran else 0.0
        self._ran.add(command.job)
        self.running[command.job] = _Running(spec, command.type, self._serial, command.beside)
        self.progress.begin(command.job, self.now + cost, rate, self.left[command.job])

    def _rate(self, spec: JobSpec, kind: str, close: bool, beside: str | None) -> float:
        other = self._specs[beside].template if beside else None
        key = (spec.template, spec.workers, kind, close, other)
        if key not in self._rates:
            if other is None:
                rate = self.table.rates([(spec.template, spec.workers)], [kind])[0, 0, 0 if close else 1]
            else:
                rate = self._pair_rate(spec, other, kind)
            self._rates[key] = float(rate)
        return self._rates[key]

    def _pair_rate(self, spec: JobSpec, other: str, kind: str) -> float:
        mine, its = (spec.template, spec.workers), (other, spec.workers)
        first, second, rates = self.table.pairs([mine] if mine == its else [mine, its], [kind])
        for a, b, pair in zip(first.tolist(), second.tolist(), rates, strict=True):
            if (a, b) == (0, 0 if mine == its else 1):
                return float(pair[0, 0])
        return 0.0

    def _expect_ends(self, until: float) -> None:
        """Put on the calendar who will be done before the lease ends."""
        for end, job in self.progress.ends(until):
            entry = self.running[job]
            entry.version = self._serial
            self._push(max(end, self.now), 0, None, job, entry.version)

    def _end(self, job: str, time: float) -> None:
        entry = self.running.pop(job)
        self.progress.end(job)
        self.left[job] = 0.0
        self._release(entry, time)

    def _stop(self, job: str) -> None:
        entry = self.running.pop(job, None)
        if entry is not None:
            self.left[job] = self.progress.end(job)
            self._release(entry, self.now)

    def _release(self, entry: _Running, time: float) -> None:
        """Whoever shared accelerators with a job that leaves goes on alone, at another pace."""
        other = self.running.get(entry.beside) if entry.beside else None
        if other is None or other.beside != entry.spec.id:
            return
        end = self.progress.change_rate(other.spec.id, time, self._rate(other.spec, other.kind, True, None))
        self._serial += 1
        other.beside, other.version = None, self._serial
        self._push(end, 0, None, other.spec.id, other.version)
