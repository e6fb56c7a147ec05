"""One simulation from a trace to its figures: sets up the world and the scheduler, drives them, and measures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import LIST_PRICES, Cluster
from gavel.core.errors import InputError
from gavel.core.events import Event, JobFinished, JobSubmitted, RoundDue, ServerJoined, Solve
from gavel.core.jobs import Entity
from gavel.core.problem import Floats, Problem
from gavel.core.throughputs import ThroughputTable
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.rounds import Mechanism
from gavel.sim.meter import Meter
from gavel.sim.world import Solver, World
from gavel.workload.trace import Trace


class Observer(Protocol):
    """Looks on while a simulation runs, for plots and tests; it changes nothing."""

    def after(self, event: Event, scheduler: Scheduler) -> None:
        """Called after the scheduler has handled an event."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedJob:
    """What became of a job."""

    id: str
    arrival: float
    seconds: float
    """From arrival to the end."""
    fairness: float
    """`seconds` over what it would have taken with 1/n of the cluster."""
    late: bool
    """Whether it missed its deadline."""
    restarts: int
    workers: int
    received: Floats
    """Seconds on each type of the table."""


@dataclass(slots=True)
class Outcome:
    """What a simulation measured."""

    jobs: dict[str, FinishedJob] = field(default_factory=dict)
    rounds: int = 0
    solves: int = 0
    end: float = 0.0
    """When the last job was done."""
    stopped: float = 0.0
    """When the simulation stopped: then, or at the limit."""
    offered_seconds: float = 0.0
    """Accelerator-seconds of all servers until then, as far as they were there."""
    given_seconds: float = 0.0
    """Accelerator-seconds given to jobs, restarts included; accelerators that are shared count once."""
    given_by_type: Mapping[str, float] = field(default_factory=dict)
    restart_seconds: float = 0.0
    """Accelerator-seconds of those spent on saving and loading checkpoints."""
    solver_seconds: float = 0.0
    wall_seconds: float = 0.0
    drained: bool = True
    """False if the time limit came first, or jobs were left that cannot run."""


def simulate(
    trace: Trace,
    cluster: Cluster,
    table: ThroughputTable,
    solver: Solver,
    mechanism: Mechanism,
    settings: Settings,
    *,
    restart_seconds: float = 0.0,
    entities: Mapping[str, Entity] | None = None,
    prices: Mapping[str, float] | None = None,
    window: tuple[int, int] | None = None,
    until_seconds: float = np.inf,
    disturbances: Sequence[Event] = (),
    observers: Sequence[Observer] = (),
) -> Outcome:
    """Run a trace to its end, or until the jobs of the window (by order of arrival) are done."""
    started = time.perf_counter()
    outcome, meter = Outcome(), Meter(restart_seconds)
    solving = TimedSolver(solver)
    scheduler = Scheduler(table, mechanism, settings, entities=entities, prices=prices)
    world = World(table, solving, restart_seconds)
    for server in cluster.servers:
        world.expect(ServerJoined(0.0, server))
    for event in disturbances:
        world.expect(event)
    for job in trace.jobs:
        world.expect(JobSubmitted(job.arrival, job.spec()))
    wanted = {job.id for job in trace.jobs[slice(*window)]} if window else {job.id for job in trace.jobs}
    for event in world:
        if event.time > until_seconds:
            outcome.stopped = until_seconds
            break
        outcome.stopped = event.time
        meter.hear(event)
        finished = measure(event, scheduler) if isinstance(event, JobFinished) else None
        for command in scheduler.handle(event):
            outcome.solves += isinstance(command, Solve)
            meter.see(command, event.time)
            world.perform(command)
        outcome.rounds += isinstance(event, RoundDue)
        for observer in observers:
            observer.after(event, scheduler)
        if finished is not None:
            outcome.jobs[finished.id] = finished
            outcome.end = event.time
            wanted.discard(finished.id)
            if not wanted:
                break
    outcome.drained = not wanted
    meter.close(outcome.stopped)
    scheduler.account(outcome.stopped)
    outcome.offered_seconds, outcome.restart_seconds = meter.offered, meter.restarting
    outcome.given_seconds = float(scheduler.accelerator_seconds.sum())
    outcome.given_by_type = dict(zip(scheduler.types, scheduler.accelerator_seconds.tolist(), strict=True))
    outcome.solver_seconds = solving.seconds
    outcome.wall_seconds = time.perf_counter() - started
    return outcome


def measure(event: JobFinished, scheduler: Scheduler) -> FinishedJob:
    """The figures of a job that is about to leave."""
    scheduler.account(event.time)
    roster, slot = scheduler.roster, scheduler.roster.slot_of[event.job]
    seconds = event.time - float(roster.arrival[slot])
    isolated = float(roster.isolated_age[slot]) + scheduler.isolated_seconds(slot, float(roster.counted[slot]))
    return FinishedJob(
        event.job,
        float(roster.arrival[slot]),
        seconds,
        seconds / isolated if isolated > 0 else np.inf,
        event.time > float(roster.deadline[slot]) + 1e-6,
        int(roster.restarts[slot]),
        int(roster.workers[slot]),
        roster.received[slot].copy(),
    )


@dataclass(slots=True)
class TimedSolver:
    """A solver that knows how long it has worked."""

    solver: Solver
    seconds: float = 0.0

    def __call__(self, problem: Problem) -> Allocation:
        started = time.perf_counter()
        try:
            return self.solver(problem)
        finally:
            self.seconds += time.perf_counter() - started


def dollars(outcome: Outcome, prices: Mapping[str, float] = LIST_PRICES) -> float:
    """What all accelerator time that was given costs; a shared accelerator counts once."""
    return sum(prices.get(kind, 0.0) * seconds for kind, seconds in outcome.given_by_type.items()) / 3600.0


def check_fits(trace: Trace, window: tuple[int, int] | None, cluster: Cluster, table: ThroughputTable) -> None:
    """Refuse what cannot be simulated, before any time is spent on it."""
    for kind in cluster.types():
        if kind.name not in table.types:
            raise InputError(
                f"no throughput is known for {kind.name!r}, a type of the cluster; known: {', '.join(table.types)}"
            )
    if not sum(server.accelerators for server in cluster.servers):
        raise InputError("the cluster has no accelerators; give for example --cluster v100=4,k80=8")
    if window and not 0 <= window[0] < window[1] <= len(trace.jobs):
        raise InputError(
            f"the window {window[0]}:{window[1]} does not lie within the {len(trace.jobs)} jobs of the trace"
        )
