"""Build the problem for a policy: the current types, profiles and entities, and the jobs of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import NO_NEEDS, Entity
from gavel.core.problem import Ints, Problem, ProblemJobs
from gavel.scheduler.beliefs import Beliefs
from gavel.scheduler.placement import ServerPool
from gavel.scheduler.room import can_share, load_of
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import NO_TEAM


def problem_without_jobs(
    beliefs: Beliefs,
    server_pools: Sequence[ServerPool],
    entities: Mapping[str, Entity],
    prices: Mapping[str, float],
    *,
    sharing: bool,
) -> Problem:
    """The part of the problem that changes only with types, servers, profiles or entities."""
    types = [
        AcceleratorType(name, pool.capacity, prices.get(name), pool.sizes())
        for name, pool in zip(beliefs.types, server_pools, strict=True)
    ]
    problem = Problem.from_table(
        types,
        beliefs.table,
        [(template, workers) for template, workers, *_ in beliefs.profiles],
        ProblemJobs((), *(np.empty(0) for _ in range(8))),  # type: ignore[arg-type]
        entities=entities,
        allowed=beliefs.allowed(),
        sharing=sharing,
    )
    return _without_tight_pairs(problem, beliefs, server_pools) if sharing and beliefs.stated else problem


def _without_tight_pairs(problem: Problem, beliefs: Beliefs, server_pools: Sequence[ServerPool]) -> Problem:
    """The problem without pairs whose needs together exceed what a type has."""
    pairs, workers = problem.pairs, problem.profiles.workers
    rates = pairs.rates.copy()
    for at, (one, other) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)):
        if one in beliefs.stated or other in beliefs.stated:
            load = load_of((beliefs.stated.get(one, NO_NEEDS), beliefs.stated.get(other, NO_NEEDS)))
            tight = np.array([not can_share(pool, load, int(workers[one])) for pool in server_pools])
            rates[at][:, tight[problem.column_type]] = 0.0
    return replace(problem, pairs=replace(pairs, rates=rates))


def problem_at(time: float, base: Problem, roster: Roster, slots: Ints) -> Problem:
    """The problem that these jobs pose at this time."""
    return base.with_jobs(
        ProblemJobs(
            roster.names(slots),
            roster.profile[slots],
            roster.weight[slots],
            np.maximum(roster.steps[slots], 1e-9),
            roster.arrival[slots],
            time - roster.arrival[slots],
            roster.isolated_age[slots],
            np.maximum(roster.deadline[slots] - time, 1e-3),
            roster.entity[slots],
        )
    )


def age_in_isolation(problem: Problem, roster: Roster, slots: Ints) -> None:
    """Convert the steps done since the last problem into seconds with 1/n of the cluster."""
    done = roster.counted[slots] - roster.steps[slots]
    rate = problem.isolated_rates[problem.jobs.profile]
    roster.isolated_age[slots] += np.divide(done, rate, out=np.zeros(len(slots)), where=rate > 0)
    roster.counted[slots] = roster.steps[slots]


def isolated_seconds(base: Problem, roster: Roster, slot: int, steps: float) -> float:
    """Seconds that these steps of a job would take with 1/n of the cluster as it is now."""
    n = max(len(roster), 1)
    share = base.counts / (n * int(roster.workers[slot])) * (roster.rates[slot] > 0)
    rate = float(share / max(float(share.sum()), 1.0) @ roster.rates[slot])
    return steps / rate if rate > 0 else 0.0


def teams_of_jobs(entities: Mapping[str, Entity], roster: Roster) -> Ints:
    """By slot: the number of the job's entity if that entity serves its jobs in order, else NO_TEAM."""
    ordered = [number if entity.policy == "fifo" else NO_TEAM for number, entity in enumerate(entities.values())]
    if all(number == NO_TEAM for number in ordered):
        return _nobody(len(roster.entity))
    return np.array([*ordered, NO_TEAM], dtype=np.intp)[roster.entity]


@lru_cache(maxsize=8)
def _nobody(size: int) -> Ints:
    """NO_TEAM for every slot; shared, so it must not be written to."""
    teams = np.full(size, NO_TEAM, dtype=np.intp)
    teams.flags.writeable = False
    return teams
