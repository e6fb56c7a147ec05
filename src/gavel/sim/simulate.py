"""One simulation from a trace to its figures: sets up the world and the scheduler, drives them, and measures.

Between two events it can be inspected, and its state can be saved and resumed later without any difference.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import Cluster
from gavel.core.errors import InputError
from gavel.core.events import Command, Event, JobFinished, JobSubmitted, Launch, Renew, ServerJoined, Solve
from gavel.core.jobs import Entity
from gavel.core.problem import Problem
from gavel.core.serialization import from_plain, to_plain
from gavel.core.throughputs import Throughputs, ThroughputTable
from gavel.estimator.learned import LearnedTable
from gavel.scheduler import state
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.rounds import Mechanism
from gavel.sim.outcome import Outcome, measure, measure_unfinished
from gavel.sim.starts import StartCosts
from gavel.sim.usage import UsageMeter
from gavel.sim.view import View
from gavel.sim.world import SimulatedWorld, Solver
from gavel.workload.trace import Trace, TraceJob


class Observer(Protocol):
    """Watches a simulation, for plots and tests; it changes nothing."""

    def after(self, event: Event, view: View) -> None:
        """Called after the scheduler has handled an event."""


@runtime_checkable
class CommandObserver(Observer, Protocol):
    """An observer that also sees the commands that follow from an event, before `after` is called for it."""

    def see(self, command: Command, time: float) -> None:
        """Called for each command."""


@runtime_checkable
class Recording(Observer, Protocol):
    """An observer whose record is saved and resumed with the simulation."""

    name: str
    """Its name in messages and in the saved state."""

    def dump(self) -> Any:
        """All of the record, as plain data."""

    def restore(self, document: Any) -> None:
        """Continue from a dumped record."""


class Underway(Protocol):
    """A simulation between two events."""

    @property
    def outcome(self) -> Outcome:
        """What has been measured so far."""

    @property
    def jobs_done(self) -> tuple[int, int]:
        """The number of finished jobs of the window, and the number of all its jobs."""

    def dump(self) -> dict[str, Any]:
        """Everything needed to resume it later, as plain data."""


class Attendant(Protocol):
    """Is called between events, to show progress or to save the simulation; it changes nothing."""

    def between(self, simulation: Underway) -> None:
        """Inspect the simulation, or raise an exception to end it."""


def simulate(
    trace: Trace,
    cluster: Cluster,
    table: ThroughputTable,
    solver: Solver,
    mechanism: Mechanism,
    settings: Settings,
    *,
    known: ThroughputTable | None = None,
    restart_seconds: float = 0.0,
    starts: StartCosts | None = None,
    entities: Mapping[str, Entity] | None = None,
    prices: Mapping[str, float] | None = None,
    window: tuple[int, int] | None = None,
    until_seconds: float = np.inf,
    disturbances: Sequence[Event] = (),
    observers: Sequence[Observer] = (),
    attendants: Sequence[Attendant] = (),
    start: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run a trace to its end, or until the jobs of the window (in order of arrival) have finished.

    The table holds the true rates. With `known`, the scheduler begins with that and learns the rest as jobs run. With
    `starts`, starts cost that instead of `restart_seconds`, and the scheduler is told the cost of each restart.
    With `start`, a state that an attendant saved, continue from there; all other arguments must be the same as then.
    """
    stopwatch = Stopwatch(solver)
    world = SimulatedWorld(table, stopwatch.solve, restart_seconds, starts, measures=known is not None)
    for server in cluster.servers:
        world.expect(ServerJoined(0.0, server))
    for event in disturbances:
        world.expect(event)
    for job in trace.jobs:
        world.expect(JobSubmitted(job.arrival, job.spec(None if known is None else _where(job, table))))
    if start is None:
        believed: Throughputs = table if known is None else LearnedTable(known)
        scheduler = Scheduler(believed, mechanism, settings, entities=entities, prices=prices)
        simulation = _Simulation(
            scheduler, world, stopwatch, UsageMeter(restart_seconds), counted(trace, window), observers
        )
    else:
        believed = table if known is None else LearnedTable.of(known, start["learned"])
        scheduler = state.restore(start["scheduler"], believed, mechanism, settings, entities=entities, prices=prices)
        world.restore(start["world"], scheduler.unanswered)
        meter = from_plain(UsageMeter, start["meter"])
        simulation = _Simulation(scheduler, world, stopwatch, meter, counted(trace, window), observers)
        simulation.take_up(Outcome.restored(start["outcome"]), start["recordings"])
    return simulation.run(until_seconds, attendants)


def _where(job: TraceJob, table: ThroughputTable) -> tuple[str, ...] | None:
    """The types that a job can run on, as declared by its owner; None: all."""
    runs = table.rates([(job.template, job.workers)], table.types)[0].any(axis=1)
    return None if runs.all() else tuple(type_name for type_name, can in zip(table.types, runs, strict=True) if can)


def counted(trace: Trace, window: tuple[int, int] | None) -> frozenset[str]:
    """The jobs of the window."""
    return frozenset(job.id for job in (trace.jobs[slice(*window)] if window else trace.jobs))


@dataclass(slots=True)
class _Simulation:
    """A simulation in progress."""

    scheduler: Scheduler
    """Changes only by handling events; everything else reads it through the view."""
    world: SimulatedWorld
    stopwatch: Stopwatch
    meter: UsageMeter
    counted: frozenset[str]
    observers: Sequence[Observer]
    outcome: Outcome = field(default_factory=Outcome)
    left: set[str] = field(init=False)
    """Jobs of the window that have not finished."""

    recordings: Mapping[str, Recording] = field(init=False)
    """Observers whose record is saved, by name."""
    command_observers: Sequence[CommandObserver] = field(init=False)
    view: View = field(init=False)

    def __post_init__(self) -> None:
        self.view = View(self.scheduler)
        self.left = set(self.counted)
        self.recordings = {one.name: one for one in self.observers if isinstance(one, Recording)}
        self.command_observers = [one for one in self.observers if isinstance(one, CommandObserver)]

    def take_up(self, outcome: Outcome, records: Mapping[str, Any]) -> None:
        """Continue from these figures and records."""
        self.outcome = outcome
        self.left -= outcome.jobs.keys()
        self.stopwatch.go_on(outcome)
        for name, recording in self.recordings.items():
            if name not in records:
                raise InputError(
                    f"cannot resume with {name}: the run was started without it; leave it out, or start a new run"
                )
            recording.restore(records[name])

    @property
    def jobs_done(self) -> tuple[int, int]:
        return len(self.counted) - len(self.left), len(self.counted)

    def dump(self) -> dict[str, Any]:
        self.stopwatch.stop(self.outcome)
        return {
            "scheduler": state.dump(self.scheduler),
            "learned": self.scheduler.table.document(),
            "world": self.world.dump(),
            "meter": to_plain(self.meter),
            "outcome": self.outcome.dump(),
            "recordings": {name: recording.dump() for name, recording in self.recordings.items()},
        }

    def run(self, until_seconds: float, attendants: Sequence[Attendant]) -> Outcome:
        """Handle events until the end."""
        for event in self.world:
            if event.time > until_seconds:
                self.outcome.stopped = until_seconds
                break
            self._take_in(event)
            for observer in self.observers:
                observer.after(event, self.view)
            if isinstance(event, JobFinished) and not self.left:
                break
            for attendant in attendants:
                attendant.between(self)
        return self._closed()

    def _take_in(self, event: Event) -> None:
        outcome = self.outcome
        outcome.stopped = event.time
        if isinstance(event, JobFinished):
            outcome.jobs[event.job] = measure(event, self.view, self.meter)
            outcome.end = event.time
            self.left.discard(event.job)
        self.meter.hear(event)
        for command in self.scheduler.handle(event):
            outcome.solves += isinstance(command, Solve)
            outcome.rounds += isinstance(command, Renew)
            cost = self.world.start_seconds(command.job) if isinstance(command, Launch) else None
            self.meter.see(command, event.time, cost)
            for observer in self.command_observers:
                observer.see(command, event.time)
            self.world.perform(command)

    def _closed(self) -> Outcome:
        outcome, given = self.outcome, self.view.given_seconds(self.outcome.stopped)
        outcome.drained = not self.left
        self.meter.close(outcome.stopped)
        outcome.unfinished = measure_unfinished(self.view, self.meter, outcome.stopped)
        outcome.offered_seconds, outcome.restart_seconds = self.meter.offered, self.meter.restarting
        outcome.given_seconds = float(given.sum())
        outcome.given_by_type = dict(zip(self.view.types, given.tolist(), strict=True))
        self.stopwatch.stop(outcome)
        return outcome


class Stopwatch:
    """Measures the wall-clock time of a simulation and of its solver, including earlier parts of a resumed run."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._solving = 0.0
        self._started = time.perf_counter()

    def solve(self, problem: Problem) -> Allocation:
        """Ask the solver."""
        started = time.perf_counter()
        try:
            return self._solver(problem)
        finally:
            self._solving += time.perf_counter() - started

    def go_on(self, outcome: Outcome) -> None:
        """Add the time that earlier parts took."""
        self._solving += outcome.solver_seconds
        self._started -= outcome.wall_seconds

    def stop(self, outcome: Outcome) -> None:
        """Store the time spent so far in the outcome."""
        outcome.solver_seconds = self._solving
        outcome.wall_seconds = time.perf_counter() - self._started


def check_fits(trace: Trace, window: tuple[int, int] | None, cluster: Cluster, table: ThroughputTable) -> None:
    """Raise InputError for what cannot be simulated, before any time is spent on it."""
    for accelerator_type in cluster.types():
        if accelerator_type.name not in table.types:
            near = difflib.get_close_matches(accelerator_type.name.lower(), table.types, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(table.types)}"
            raise InputError(f"no throughput is known for {accelerator_type.name!r}, a type of the cluster; {hint}")
    if not sum(server.accelerators for server in cluster.servers):
        raise InputError("the cluster has no accelerators; give for example --cluster v100=4,k80=8")
    if window and not 0 <= window[0] < window[1] <= len(trace.jobs):
        raise InputError(
            f"the window {window[0]}:{window[1]} does not lie within the {len(trace.jobs):,} jobs of the workload"
        )
