"""Time the scheduler takes to plan a round on a cluster of any size, without the solver."""

from __future__ import annotations

import time

import numpy as np

from gavel.core.cluster import Server
from gavel.core.events import AllocationReady, JobSubmitted, RoundDue, ServerJoined, Solve
from gavel.core.jobs import NO_NEEDS, JobSpec, Needs
from gavel.core.throughputs import builtin_table
from gavel.policies.mechanisms import mechanism_for
from gavel.policies.registry import allocate, find_policy
from gavel.scheduler.machine import Scheduler, Settings

PER_SERVER = 8
GIB = 2**30
CORES = 8.0
MEMORY = 64 * GIB
"""CPU cores and RAM of a server for each of its accelerators."""
STATED = tuple(
    Needs(millicores=cores * 1000, memory=memory * GIB) for cores in (2, 4, 8, 12, 16) for memory in (16, 32, 64, 100)
)
"""What jobs need that state anything, with equal chances: more than their accelerators' part, or less."""
POLICY = "max_min_fairness"


def plan_rounds(
    jobs: int, accelerators: int, rounds: int, *, needs: float = 0.0, per_server: int = PER_SERVER
) -> dict[str, float]:
    """Fill a cluster and plan rounds: seconds for the first one, and for the slowest and the median of the others.

    `needs` is the share of jobs that state how many cores and how much RAM they need.
    """
    table = builtin_table()
    scheduler = Scheduler(table, mechanism_for(find_policy(POLICY)), Settings())
    for type_name in table.types:
        for number in range(max(accelerators // len(table.types) // per_server, 1)):
            server = Server(f"{type_name}-{number}", type_name, per_server, CORES * per_server, MEMORY * per_server)
            scheduler.handle(ServerJoined(0.0, server))
    random = np.random.default_rng(0)
    template = random.integers(len(table.templates), size=jobs).tolist()
    states, which = (random.random(jobs) < needs).tolist(), random.integers(len(STATED), size=jobs).tolist()
    for number, index in enumerate(template):
        stated = STATED[which[number]] if states[number] else NO_NEEDS
        scheduler.handle(JobSubmitted(0.0, JobSpec(f"job{number}", table.templates[index], 1, 1e9, needs=stated)))
    (solve, *_) = scheduler.handle(RoundDue(0.0))
    if not isinstance(solve, Solve):
        raise TypeError("the first round requests an allocation")
    answer = AllocationReady(0.0, solve.number, allocate(solve.problem))
    seconds = [_timed(scheduler, answer)]
    seconds += [_timed(scheduler, RoundDue(360.0 * number)) for number in range(1, rounds)]
    return {
        "first_round_seconds": seconds[0],
        "slowest_round_seconds": max(seconds[1:]),
        "median_round_seconds": float(np.median(seconds[1:])),
    }


def _timed(scheduler: Scheduler, event: AllocationReady | RoundDue) -> float:
    started = time.perf_counter()
    scheduler.handle(event)
    return time.perf_counter() - started
