"""The ideal that the mechanism is compared with: every job receives its allocation exactly, at every instant.

No rounds, no placement, no restarts: between two arrivals or ends each job makes steps at its effective throughput.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import Cluster
from gavel.core.events import Event, JobFinished, JobsProgressed, JobSubmitted, ServerJoined
from gavel.core.jobs import Entity
from gavel.core.throughputs import ThroughputTable
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.priorities import Priorities
from gavel.sim.meter import Meter
from gavel.sim.simulate import Outcome, TimedSolver, measure
from gavel.sim.world import Solver
from gavel.workload.trace import Trace


def simulate_ideally(
    trace: Trace,
    cluster: Cluster,
    table: ThroughputTable,
    solver: Solver,
    settings: Settings,
    *,
    entities: Mapping[str, Entity] | None = None,
    prices: Mapping[str, float] | None = None,
    window: tuple[int, int] | None = None,
    until_seconds: float = np.inf,
    disturbances: Sequence[Event] = (),
) -> Outcome:
    """Run a trace with time granted exactly by the allocation, recomputed whenever a job or a server comes or goes."""
    started = time.perf_counter()
    outcome, meter, solving = Outcome(), Meter(), TimedSolver(solver)
    # Keeps the jobs and asks the questions; its rounds are not used.
    books = Scheduler(table, Priorities(), settings, entities=entities, prices=prices)
    joining = [ServerJoined(0.0, server) for server in cluster.servers]
    arriving = [JobSubmitted(job.arrival, job.spec()) for job in trace.jobs]
    coming: list[Event] = sorted((*joining, *disturbances, *arriving), key=lambda event: event.time)[::-1]
    wanted = {job.id for job in trace.jobs[slice(*window)]} if window else {job.id for job in trace.jobs}
    now = 0.0
    while wanted and now < until_seconds:
        while coming and coming[-1].time <= now:
            event = coming.pop()
            meter.hear(event)
            books.handle(event)
        upcoming = min(coming[-1].time, until_seconds) if coming else until_seconds
        if not len(books.roster):
            now = upcoming
            continue
        allocation = solving(books.problem(now))
        outcome.solves += 1
        if not coming and not allocation.job_throughput.any():
            break  # nobody can run and nobody comes
        now = _advance(books, allocation, now, upcoming, outcome)
        wanted -= outcome.jobs.keys()
    meter.close(now)
    outcome.stopped, outcome.drained, outcome.offered_seconds = now, not wanted, meter.offered
    outcome.given_seconds = sum(outcome.given_by_type.values())
    outcome.solver_seconds = solving.seconds
    outcome.wall_seconds = time.perf_counter() - started
    return outcome


def _advance(books: Scheduler, allocation: Allocation, now: float, upcoming: float, outcome: Outcome) -> float:
    """Go on to the next event or end of a job, whichever is first, and return when that is."""
    names, pace = allocation.problem.jobs.ids, allocation.job_throughput
    slots = np.array([books.roster.slot_of[name] for name in names], dtype=np.intp)
    left = books.roster.steps[slots]
    seconds = np.divide(left, pace, out=np.full(len(left), np.inf), where=pace > 0)
    end = min(now + float(seconds.min(initial=np.inf)), upcoming)
    elapsed = end - now
    books.handle(JobsProgressed(end, names, np.minimum(pace * elapsed, left)))
    books.roster.received[slots] += allocation.job_shares * elapsed
    outcome.given_by_type = {
        kind: outcome.given_by_type.get(kind, 0.0) + float(busy) * elapsed
        for kind, busy in zip(books.types, allocation.busy, strict=True)
    }
    for name in [name for name, needed in zip(names, seconds, strict=True) if now + needed <= end]:
        finished = JobFinished(end, name)
        outcome.jobs[name] = measure(finished, books)
        outcome.end = end
        books.handle(finished)
    return end
