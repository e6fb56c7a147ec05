"""The ideal that the mechanism is compared with: every job receives its allocation exactly, at every instant.

No rounds, no placement, no restarts: between two arrivals or ends each job makes steps at its effective throughput.
"""

from __future__ import annotations

import time

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import Cluster
from gavel.core.events import JobFinished, JobsProgressed, JobSubmitted, ServerJoined
from gavel.core.throughputs import ThroughputTable
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.priorities import Priorities
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
    window: tuple[int, int] | None = None,
    until_seconds: float = np.inf,
) -> Outcome:
    """Run a trace with time granted exactly by the allocation, recomputed whenever a job comes or goes."""
    started = time.perf_counter()
    outcome = Outcome(accelerators=sum(server.accelerators for server in cluster.servers))
    solving = TimedSolver(solver)
    books = Scheduler(table, Priorities(), settings)  # keeps the jobs and asks the questions; its rounds are not used
    for server in cluster.servers:
        books.handle(ServerJoined(0.0, server))
    wanted = {job.id for job in trace.jobs[slice(*window)]} if window else {job.id for job in trace.jobs}
    coming = list(reversed(trace.jobs))
    now = 0.0
    while wanted and now <= until_seconds:
        while coming and coming[-1].arrival <= now:
            books.handle(JobSubmitted(now, coming.pop().spec()))
        upcoming = coming[-1].arrival if coming else np.inf
        if not len(books.roster):
            now = upcoming
            continue
        allocation = solving(books.problem(now))
        outcome.solves += 1
        end = _advance(books, allocation, now, upcoming, outcome)
        if not np.isfinite(end):
            break  # nobody can run and nobody comes
        now = end
        wanted -= outcome.jobs.keys()
    outcome.end, outcome.drained = now, not wanted
    outcome.solver_seconds = solving.seconds
    outcome.wall_seconds = time.perf_counter() - started
    return outcome


def _advance(books: Scheduler, allocation: Allocation, now: float, upcoming: float, outcome: Outcome) -> float:
    """Go on to the next arrival or end, whichever is first, and return when that is."""
    names, pace = allocation.problem.jobs.ids, allocation.job_throughput
    slots = np.array([books.roster.slot_of[name] for name in names], dtype=np.intp)
    left = books.roster.steps[slots]
    seconds = np.divide(left, pace, out=np.full(len(left), np.inf), where=pace > 0)
    end = min(now + float(seconds.min(initial=np.inf)), upcoming)
    if not np.isfinite(end):
        return end
    elapsed = end - now
    books.handle(JobsProgressed(end, names, np.minimum(pace * elapsed, left)))
    books.roster.received[slots] += allocation.job_shares * elapsed
    outcome.busy_seconds += float(allocation.busy.sum()) * elapsed
    outcome.busy_by_type = {
        kind: outcome.busy_by_type.get(kind, 0.0) + float(busy) * elapsed
        for kind, busy in zip(books.types, allocation.busy, strict=True)
    }
    for name in [name for name, needed in zip(names, seconds, strict=True) if now + needed <= end]:
        finished = JobFinished(end, name)
        outcome.jobs[name] = measure(finished, books)
        books.handle(finished)
    return end
