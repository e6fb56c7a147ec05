"""Play one allocation through a mechanism, round after round, without a scheduler; jobs never end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.scheduler.credits import Credits
from gavel.scheduler.rounds import NO_TEAM, Elapsed, Mechanism, RoundInput, Run

ROUND_SECONDS = 360.0
RESTART_SECONDS = 10.0
Look = Callable[[RoundInput, list[Run]], None]
"""A callback that receives the input and the plan of every round."""


def round_input(rates: Any, **given: Any) -> RoundInput:
    """The input of a round; by default every job has one worker and an unknown length."""
    rates = np.asarray(rates, dtype=float)
    jobs = len(rates)
    usual: dict[str, Any] = {
        "number": 0,
        "time": 0.0,
        "running": [],
        "rate_here": np.zeros(jobs),
        "waiting": np.arange(jobs),
        "workers": np.ones(jobs, dtype=np.intp),
        "started": np.zeros(jobs, dtype=np.intp),
        "steps_heard": np.full(jobs, np.nan),
        "heard": np.full(jobs, np.inf),
        "received": np.zeros(rates.shape),
        "launched": np.zeros(jobs),
        "arrival": np.zeros(jobs),
        "restart": np.full(jobs, RESTART_SECONDS),
        "team": np.full(jobs, NO_TEAM),
        "round_seconds": ROUND_SECONDS,
    }
    return _consistent(RoundInput(rates=rates, free=given["capacity"], **{**usual, **given}))


def _consistent(given: RoundInput) -> RoundInput:
    """The same input, with the fields that follow from its runs filled in."""
    free, rate_here = list(given.capacity), np.zeros(len(given.rates))
    for run in given.running:
        free[run.type_index] -= run.workers
        rate_here[list(run.members)] = given.rates[list(run.members), run.type_index]
    return replace(given, free=free, rate_here=rate_here)


def decided(mechanism: Mechanism, given: RoundInput) -> list[Run]:
    """Everything that runs after a mechanism, which was told what ran before, has decided."""
    account(mechanism, given.running, 0.0)
    given = _consistent(given)
    return mechanism.decide(given).runs(given)


def account(mechanism: Mechanism, runs: Collection[Run], seconds: float) -> None:
    """Tell a mechanism that exactly these runs had accelerators for a while."""
    known = mechanism.ledger.entry_of if isinstance(mechanism, Credits) else {}
    begun = [run for run in runs if run not in known]
    mechanism.account(Elapsed(seconds, runs, begun, [run for run in known if run not in runs]))


def next_input(given: RoundInput, plan: list[Run], seconds: float | None = None) -> RoundInput:
    """The input of the next round, after a plan has run for a while (by default for a round)."""
    seconds = given.round_seconds if seconds is None else seconds
    before = set(given.running)
    started, launched, received = given.started.copy(), given.launched.copy(), given.received.copy()
    for run in plan:
        for slot in run.members:
            received[slot, run.type_index] += seconds
            started[slot] = 1
            if run not in before:
                launched[slot] = given.time
    busy = {slot for run in plan for slot in run.members}
    present = sorted({*given.waiting.tolist(), *(slot for run in given.running for slot in run.members)})
    later = replace(
        given,
        number=given.number + 1,
        time=given.time + seconds,
        running=list(plan),
        waiting=np.array([slot for slot in present if slot not in busy], dtype=np.intp),
        started=started,
        launched=launched,
        received=received,
    )
    return _consistent(later)


@dataclass
class Played:
    """What a mechanism did with one allocation over many rounds."""

    received: Floats
    """By job and type: the number of rounds."""
    launches: int
    seconds: float


def play(
    mechanism: Mechanism,
    allocation: Allocation,
    rounds: int = 400,
    *,
    look: Look | None = None,
    round_seconds: float = ROUND_SECONDS,
) -> Played:
    """Play rounds to their end."""
    problem = allocation.problem
    capacity = [kind.count for kind in problem.types]
    given = round_input(
        problem.type_rates[problem.jobs.profile],
        capacity=capacity,
        workers=problem.profiles.workers[problem.jobs.profile],
        round_seconds=round_seconds,
    )
    launches = 0
    mechanism.adopt(allocation, np.arange(len(problem.jobs)))
    for _ in range(rounds):
        plan = decided(mechanism, given)
        assert_fits(plan, capacity, given.workers)
        if look is not None:
            look(given, plan)
        launches += len(set(plan) - set(given.running))
        account(mechanism, plan, round_seconds)
        given = next_input(given, plan)
    return Played(given.received / round_seconds, launches, given.time)


def assert_fits(plan: list[Run], capacity: list[int], workers: Ints) -> None:
    """Assert that no job runs twice, gangs are complete, and no more accelerators are used than exist."""
    used = [0] * len(capacity)
    seen: set[int] = set()
    for run in plan:
        assert seen.isdisjoint(run.members)
        seen.update(run.members)
        assert run.workers == workers[run.members[0]]
        used[run.type_index] += run.workers
    assert all(u <= c for u, c in zip(used, capacity, strict=True))


def shares(allocation: Allocation) -> Floats:
    """By job and type: the target share of time, including pairs."""
    names = {name: index for index, name in enumerate(allocation.problem.jobs.ids)}
    target = np.zeros((len(names), len(allocation.problem.types)))
    for row in allocation.rows():
        for name in row.jobs:
            target[names[name]] += list(row.shares.values())
    return target
