"""Time the scheduler takes to plan a round on a cluster of any size, without the solver."""

from __future__ import annotations

import time

import numpy as np

from gavel.core.cluster import Server
from gavel.core.events import AllocationReady, JobSubmitted, RoundDue, ServerJoined, Solve
from gavel.core.jobs import JobSpec
from gavel.core.throughputs import builtin_table
from gavel.policies.mechanisms import mechanism_for
from gavel.policies.registry import allocate, find_policy
from gavel.scheduler.machine import Scheduler, Settings

PER_SERVER = 8
POLICY = "max_min_fairness"


def plan_rounds(jobs: int, accelerators: int, rounds: int) -> dict[str, float]:
    """Fill a cluster and plan rounds: seconds for the first one, and for the slowest and the median of the others."""
    table = builtin_table()
    scheduler = Scheduler(table, mechanism_for(find_policy(POLICY)), Settings())
    for type_name in table.types:
        for number in range(max(accelerators // len(table.types) // PER_SERVER, 1)):
            scheduler.handle(ServerJoined(0.0, Server(f"{type_name}-{number}", type_name, PER_SERVER)))
    template = np.random.default_rng(0).integers(len(table.templates), size=jobs)
    for number, index in enumerate(template.tolist()):
        scheduler.handle(JobSubmitted(0.0, JobSpec(f"job{number}", table.templates[index], 1, 1e9)))
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
