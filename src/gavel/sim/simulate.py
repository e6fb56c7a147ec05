"""One simulation from a trace to its figures: sets up the world and the scheduler, and measures what happens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gavel.core.cluster import LIST_PRICES, Cluster
from gavel.core.events import JobFinished, JobSubmitted, Launch, RoundDue, ServerJoined, Solve
from gavel.core.jobs import Entity, JobSpec
from gavel.core.throughputs import ThroughputTable
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.rounds import Mechanism
from gavel.sim.world import Solver, World
from gavel.workload.trace import Trace


@dataclass(slots=True)
class Outcome:
    """What a simulation measured."""

    completed: dict[str, float] = field(default_factory=dict)
    """Seconds from arrival to the end, by job."""
    fairness: dict[str, float] = field(default_factory=dict)
    """By job: its completion time over what it would have taken with 1/n of the cluster."""
    late: set[str] = field(default_factory=set)
    received: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    solves: int = 0
    end: float = 0.0
    busy_seconds: float = 0.0
    cost_dollars: float = 0.0
    solver_seconds: float = 0.0
    wall_seconds: float = 0.0


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
    window: tuple[int, int] | None = None,
) -> Outcome:
    """Run a trace to its end, or until the jobs of the window (by order of arrival) are done."""
    outcome = Outcome()

    def timed(problem):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        try:
            return solver(problem)
        finally:
            outcome.solver_seconds += time.perf_counter() - started

    started = time.perf_counter()
    scheduler = Scheduler(table, mechanism, settings, entities=entities)
    largest: dict[str, int] = {}
    for server in cluster.servers:
        largest[server.type] = max(largest.get(server.type, 0), server.accelerators)

    def close(launch: Launch) -> bool:
        workers = sum(launch.accelerators.values())
        return len(launch.accelerators) <= -(-workers // largest[launch.type])

    world = World(table, timed, restart_seconds, close)
    for server in cluster.servers:
        world.expect(ServerJoined(0.0, server))
    arrival: dict[str, float] = {}
    for job in trace.jobs:
        spec = JobSpec(job.id, job.template, job.workers, job.steps, job.weight, job.entity, job.deadline_seconds)
        arrival[job.id] = job.arrival
        world.expect(JobSubmitted(job.arrival, spec))
    wanted = {job.id for job in trace.jobs[slice(*window)]} if window else {job.id for job in trace.jobs}
    prices = np.array([LIST_PRICES.get(name, 0.0) for name in table.types]) / 3600.0
    for event in world:
        if isinstance(event, JobFinished):
            slot = scheduler.roster.slot_of[event.job]
            outcome.completed[event.job] = event.time - arrival[event.job]
        commands = scheduler.handle(event)
        if isinstance(event, JobFinished):
            received = scheduler.roster.received[slot].copy()
            workers = int(scheduler.roster.workers[slot])
            outcome.received[event.job] = received
            outcome.busy_seconds += float(received.sum()) * workers
            outcome.cost_dollars += float(received @ prices) * workers
            outcome.end = event.time
            wanted.discard(event.job)
            if not wanted:
                break
        elif isinstance(event, RoundDue):
            outcome.rounds += 1
        for command in commands:
            outcome.solves += isinstance(command, Solve)
            world.perform(command)
    outcome.restarts = scheduler.restarts
    outcome.wall_seconds = time.perf_counter() - started
    return outcome


