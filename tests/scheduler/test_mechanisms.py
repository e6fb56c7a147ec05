"""From shares to rounds: what is received stays close to the target, nobody starves, and restarts are few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job, Pair
from gavel.core.problem import Floats, Ints, Problem
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits, fewest
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism, Question, Run

ROUNDS = 400


@dataclass
class Played:
    """What a mechanism did with one allocation over many rounds."""

    received: Floats
    """Rounds by job and type."""
    launches: int = 0
    widest: Floats = field(default_factory=lambda: np.zeros(0))
    """The largest deviation from the target of each job and type, in rounds."""


Look = Callable[[set[int], list[Run], Ints], None]
"""Is told after each round who has waited since the one before, what runs, and how many workers jobs have."""


def play(mechanism: Mechanism, allocation: Allocation, rounds: int = ROUNDS, look: Look | None = None) -> Played:
    problem = allocation.problem
    n = len(problem.jobs)
    capacity = [t.count for t in problem.types]
    workers = problem.profiles.workers[problem.jobs.profile]
    rates = problem.type_rates[problem.jobs.profile]
    target = shares(allocation)
    started = np.zeros(n, dtype=np.intp)
    result = Played(np.zeros((n, len(capacity))), widest=np.zeros((n, len(capacity))))
    running: list[Run] = []
    mechanism.adopt(allocation, np.arange(n))
    for number in range(1, rounds + 1):
        busy = {slot for run in running for slot in run.members}
        waiting = np.array([slot for slot in range(n) if slot not in busy], dtype=np.intp)
        plan = mechanism.plan(ask(capacity, running, waiting, workers, rates, started))
        assert_fits(plan, capacity, workers)
        result.launches += sum(run not in running for run in plan)
        running = plan
        if look is not None:
            look(set(waiting.tolist()).difference(*(run.members for run in plan)), plan, workers)
        for run in plan:
            for slot in run.members:
                result.received[slot, run.type_index] += 1
                started[slot] = 1
        result.widest = np.maximum(result.widest, target * number - result.received)
    return result


def ask(
    capacity: list[int], running: list[Run], waiting: Ints, workers: Ints, rates: Floats, started: Ints
) -> Question:
    """Where nobody knows how long jobs will take."""
    return Question(capacity, running, waiting, workers, rates, started, np.full(len(workers), np.nan), 360.0)


def assert_fits(plan: list[Run], capacity: list[int], workers: np.ndarray[tuple[int], np.dtype[np.intp]]) -> None:
    used = [0] * len(capacity)
    seen: set[int] = set()
    for run in plan:
        assert seen.isdisjoint(run.members)
        seen.update(run.members)
        assert run.workers == workers[run.members[0]]
        used[run.type_index] += run.workers
    assert all(u <= c for u, c in zip(used, capacity, strict=True))


def shares(allocation: Allocation) -> Floats:
    """Target share of time by job and type, pairs included."""
    names = {name: index for index, name in enumerate(allocation.problem.jobs.ids)}
    target = np.zeros((len(names), len(allocation.problem.types)))
    for row in allocation.rows():
        for name in row.jobs:
            target[names[name]] += list(row.shares.values())
    return target


@st.composite
def problems(draw: st.DrawFn, *, gangs: bool = True) -> Problem:
    types = [AcceleratorType(f"t{i}", draw(st.integers(1, 6))) for i in range(draw(st.integers(1, 3)))]
    jobs = []
    for number in range(draw(st.integers(1, 10))):
        workers = draw(st.sampled_from([1, 1, 1, 2, 4])) if gangs else 1
        rates = {t.name: draw(st.sampled_from([0.5, 1.0, 2.0, 4.0])) for t in types}
        jobs.append(Job(f"j{number}", rates, workers=workers))
    return Problem.of(types, jobs)


@given(problem=problems())
@settings(max_examples=20)
@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_everyone_with_a_share_runs(mechanism: type[Mechanism], problem: Problem) -> None:
    allocation = allocate(problem)
    played = play(mechanism(), allocation)
    wanted = shares(allocation).sum(axis=1) > 0.02
    assert (played.received.sum(axis=1)[wanted] > 0).all()


@given(problem=problems(gangs=False))
@settings(max_examples=25)
def test_credits_keep_every_job_within_a_bounded_number_of_rounds_of_its_target(problem: Problem) -> None:
    """The stated bound: nobody's total time is ever more than 2 x patience + rotation + 12 rounds behind its share."""
    mechanism = Credits(patience=4.0, rotation=12.0)
    allocation = allocate(problem)
    behind = np.zeros(len(problem.jobs))
    target = shares(allocation).sum(axis=1)
    played = play(mechanism, allocation)
    behind = target * ROUNDS - played.received.sum(axis=1)
    assert behind.max() <= mechanism.moving * mechanism.patience + mechanism.rotation + 12


@given(problem=problems(gangs=False))
@settings(max_examples=15)
def test_received_time_converges_to_the_allocation(problem: Problem) -> None:
    allocation = allocate(problem)
    target = shares(allocation)
    short, long = (play(Credits(patience=4.0, rotation=12.0), allocation, n) for n in (100, 1000))
    full = target.sum(axis=1) >= 1 - 1e-6
    error_short = np.abs(short.received / 100 - target)[full].max(initial=0.0)
    error_long = np.abs(long.received / 1000 - target)[full].max(initial=0.0)
    assert error_long <= max(error_short, 0.08) + 1e-9


def test_credits_restart_far_less_often_than_priorities() -> None:
    types = [AcceleratorType("v100", 4), AcceleratorType("p100", 4), AcceleratorType("k80", 4)]
    rng = np.random.default_rng(1)
    jobs = [Job(f"j{n}", dict(zip(("v100", "p100", "k80"), rng.uniform(1, 8, 3), strict=True))) for n in range(20)]
    allocation = allocate(Problem.of(types, jobs))
    plain, credit = (play(mechanism, allocation).launches for mechanism in (Priorities(), Credits()))
    assert plain >= 6 * credit


def test_pairs_are_formed_and_kept() -> None:
    types = [AcceleratorType("v100", 1)]
    jobs = [Job("a", {"v100": 4.0}), Job("b", {"v100": 4.0})]
    problem = Problem.of(types, jobs, [Pair(("a", "b"), {"v100": (3.0, 3.0)})])
    played = play(Credits(), allocate(problem), 50)
    assert played.received.tolist() == [[50.0], [50.0]]
    assert played.launches == 1


@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_a_large_gang_is_not_starved_by_single_workers(mechanism: type[Mechanism]) -> None:
    types = [AcceleratorType("v100", 8)]
    jobs = [Job("gang", {"v100": 8.0}, workers=8), *(Job(f"s{n}", {"v100": 1.0}) for n in range(16))]
    allocation = allocate(Problem.of(types, jobs))
    played = play(mechanism(), allocation)
    share = shares(allocation)[0, 0]
    assert played.received[0, 0] == pytest.approx(share * ROUNDS, abs=20)


def test_guests_who_become_members_do_not_take_each_others_place_for_ever() -> None:
    """Both ran before there was an allocation for them; now a third job makes one of them wait."""
    types = [AcceleratorType("v100", 2)]
    jobs = [Job("a", {"v100": 1.0}), Job("b", {"v100": 1.0}), Job("x", {"v100": 2.0})]
    workers, rates, started = np.ones(3, dtype=np.intp), np.array([[1.0], [1.0], [2.0]]), np.array([1, 1, 0])
    mechanism = Credits()
    guests = mechanism.plan(ask([2], [], np.array([0, 1]), workers, rates, started))
    assert sorted(run.members for run in guests) == [(0,), (1,)]
    mechanism.adopt(allocate(Problem.of(types, jobs)), np.arange(3))
    plan = mechanism.plan(ask([2], guests, np.array([2]), workers, rates, started))
    assert_fits(plan, [2], workers)
    assert (2,) in [run.members for run in plan]


def test_a_job_that_was_displaced_is_seen_waiting_in_the_next_round() -> None:
    types = [AcceleratorType("v100", 1), AcceleratorType("k80", 1)]
    rates = {"rl": (7.2, 3.4), "transformer": (8.6, 1.75), "vision": (7.8, 1.24)}
    jobs = [Job(name, {"v100": fast, "k80": slow}) for name, (fast, slow) in rates.items()]
    mechanism = Credits()
    played = play(mechanism, allocate(Problem.of(types, jobs)), 400)
    assert played.widest.max() <= mechanism.patience + 4


def test_under_plain_priorities_nobody_always_comes_first_among_equals() -> None:
    """Also where a new allocation follows every round, which makes everyone equal again."""
    types = [AcceleratorType("v100", 1)]
    jobs = [Job(f"j{n}", {"v100": 1.0}) for n in range(4)]
    allocation = allocate(Problem.of(types, jobs))
    mechanism, times = Priorities(), np.zeros(4)
    workers, rates = np.ones(4, dtype=np.intp), np.ones((4, 1))
    for _ in range(200):
        mechanism.adopt(allocation, np.arange(4))
        (run,) = mechanism.plan(ask([1], [], np.arange(4), workers, rates, workers))
        times[run.members[0]] += 1
    assert times.min() >= 30


def test_plain_priorities_serve_the_fastest_type_first_if_the_policy_knows_it() -> None:
    types = [AcceleratorType("k80", 1), AcceleratorType("v100", 1)]
    allocation = allocate(Problem.of(types, [Job("a", {"k80": 1.0, "v100": 4.0})]), "isolated")
    assert shares(allocation).tolist() == [[0.5, 0.5]]
    rounds = [play(Priorities(knows_speeds=known), allocation, 100).received[0] for known in (True, False)]
    assert [round_[1] for round_ in rounds] == [100.0, pytest.approx(50.0, abs=20)]


def test_plain_priorities_keep_the_queue_of_fifo_but_let_new_jobs_use_what_is_idle() -> None:
    types = [AcceleratorType("v100", 3)]
    jobs = [Job(f"gang{n}", {"v100": 3.0}, workers=3, arrival=float(n)) for n in range(2)]
    allocation = allocate(Problem.of(types, [*jobs, Job("late", {"v100": 1.0}, arrival=9.0)]), "fifo")
    workers, rates = np.array([3, 3, 1, 1]), np.ones((4, 1))
    mechanism = Priorities()
    mechanism.adopt(allocation, np.arange(3))
    mechanism.leave(0)
    waiting = np.array([1, 2, 3])
    plan = mechanism.plan(ask([3], [], waiting, workers, rates, np.zeros(4, dtype=np.intp)))
    assert [run.members for run in plan] == [(3,)]  # unknown to the policy; the others wait for the next allocation


@given(problem=problems(gangs=False))
@settings(max_examples=25)
def test_what_single_workers_are_owed_on_a_type_stays_within_a_few_rounds_of_patience(problem: Problem) -> None:
    """The stated bound: no (class combo, type) is ever more than 2 x patience + 4 rounds behind or ahead of its target.

    Whoever runs on one of many types, and should on all, is as far ahead there when it moves.
    """
    mechanism = Credits()
    allocation = allocate(problem)
    widest = 0.0
    for rounds in (50, 100, 200, 400):
        mechanism = Credits()
        play(mechanism, allocation, rounds)
        widest = max(widest, float(np.abs(mechanism.entries.credit).max(initial=0.0)))
    assert widest <= mechanism.moving * mechanism.patience + 4


@st.composite
def gangs_of_one_size(draw: st.DrawFn) -> Problem:
    size = draw(st.sampled_from([2, 4, 8]))
    types = [AcceleratorType(f"t{i}", size * draw(st.integers(1, 4))) for i in range(draw(st.integers(1, 3)))]
    rates = st.fixed_dictionaries({t.name: st.sampled_from([0.5, 1.0, 2.0, 4.0]) for t in types})
    return Problem.of(types, [Job(f"j{n}", draw(rates), workers=size) for n in range(draw(st.integers(1, 10)))])


@given(problem=gangs_of_one_size())
@settings(max_examples=25)
def test_gangs_of_one_size_are_as_close_to_their_target_as_single_workers(problem: Problem) -> None:
    """The stated bound: 2 x patience + 8 rounds."""
    mechanism = Credits()
    for rounds in (50, 100, 200, 400):
        mechanism = Credits()
        play(mechanism, allocate(problem), rounds)
        assert np.abs(mechanism.entries.credit).max(initial=0.0) <= mechanism.moving * mechanism.patience + 8


@st.composite
def mixed_problems(draw: st.DrawFn) -> Problem:
    """Gangs of several sizes beside single workers, and pairs of those: fractions that no timetable may realise."""
    types = [AcceleratorType(f"t{i}", 4 * draw(st.integers(1, 3))) for i in range(draw(st.integers(1, 3)))]
    speeds = st.fixed_dictionaries({t.name: st.sampled_from([0.5, 1.0, 2.0, 4.0]) for t in types})
    rates = draw(st.lists(speeds, min_size=1, max_size=10))
    jobs = [Job(f"j{n}", rate, workers=draw(st.sampled_from([1, 1, 2, 4]))) for n, rate in enumerate(rates)]
    pairs = [
        Pair((f"j{one}", f"j{other}"), {t.name: (0.7 * rates[one][t.name], 0.7 * rates[other][t.name]) for t in types})
        for one, other in combinations([n for n, job in enumerate(jobs) if job.workers == 1], 2)
        if draw(st.booleans())
    ]
    return Problem.of(types, jobs, pairs)


def envy(mechanism: Credits, plan: list[Run], idle: set[int], workers: Ints, capacity: list[int]) -> float:
    """By how many rounds more somebody who waits is owed than those in whose place it could run."""
    entries, widest = mechanism.entries, 0.0
    for (first, second, kind), target, owed in zip(entries.keys, entries.target, entries.credit.tolist(), strict=True):
        classes = [first] if second < 0 else [first, second]
        members = [[slot for slot in mechanism._members[number] if slot in idle] for number in classes]
        if target <= 0 or owed <= 0 or not all(members) or (first == second and len(members[0]) < 2):
            continue
        here = [(mechanism._entry_of[run], run) for run in plan if run.type_index == kind]
        standing = sorted((-mechanism.patience if e < 0 else float(entries.credit[e]), run.workers) for e, run in here)
        room = capacity[kind] - sum(run.workers for _, run in here)
        for least, count in standing:
            room += count
            if room >= workers[members[0][0]]:
                widest = max(widest, owed - least)
                break
    return widest


@given(problem=mixed_problems())
@settings(max_examples=25)
def test_nobody_waits_while_others_in_its_place_are_owed_much_less(problem: Problem) -> None:
    """The stated bound for gangs of several sizes and for pairs: patience + 2 rounds."""
    mechanism, allocation = Credits(), allocate(problem)
    widest = 0.0

    def look(idle: set[int], plan: list[Run], workers: Ints) -> None:
        nonlocal widest
        widest = max(widest, envy(mechanism, plan, idle, workers, [t.count for t in problem.types]))

    play(mechanism, allocation, 300, look=look)
    assert widest <= mechanism.patience + 2


def test_whoever_is_about_to_finish_is_left_to_do_so() -> None:
    types = [AcceleratorType("v100", 1)]
    jobs = [Job("a", {"v100": 1.0}), Job("b", {"v100": 1.0})]
    workers, rates, started = np.ones(2, dtype=np.intp), np.ones((2, 1)), np.ones(2, dtype=np.intp)
    for left, stays in ((28.0, True), (28.1, False)):
        mechanism = Credits()
        mechanism.adopt(allocate(Problem.of(types, jobs)), np.arange(2))
        running: list[Run] = []
        seen = set()
        for _ in range(40):
            waiting = np.array([slot for slot in (0, 1) if slot not in [run.members[0] for run in running]])
            steps = np.array([left, left]) * 360.0
            running = mechanism.plan(Question([1], running, waiting, workers, rates, started, steps, 360.0))
            seen.add(running[0].members)
        assert (len(seen) == 1) is stays


def test_whoever_is_new_need_not_catch_up_with_what_those_who_do_not_pack_are_owed() -> None:
    """A job that should run all the time beside a gang of two that should run half of it: both are owed ever more."""
    types = [AcceleratorType("v100", 2)]
    old = [Job("single", {"v100": 1.0}), Job("gang", {"v100": 2.0}, workers=2)]
    mechanism = Credits()
    play(mechanism, allocate(Problem.of(types, old)), 600)
    owed = mechanism.entries.credit[mechanism.entries.target > 0]
    assert owed.min() > 2 * mechanism.patience
    new = Job("new", {"v100": 1.5}, workers=2)
    mechanism.adopt(allocate(Problem.of(types, [*old, new])), np.arange(3))
    key = (int(mechanism._class_of[2]), -1, 0)
    assert owed.min() <= mechanism.entries.credit[mechanism.entries.number(key)] <= owed.max()


def test_as_few_as_possible_yield_to_a_gang() -> None:
    runs = [Run((slot,), 0, workers) for slot, workers in enumerate((1, 1, 4, 2, 1))]
    assert [run.workers for run in fewest(runs, 4) or []] == [4]
    assert [run.members for run in fewest(runs, 3) or []] == [(3,), (0,)]
    assert [run.workers for run in fewest(runs, 6) or []] == [4, 2]
    assert fewest(runs, 10) is None
    assert [run.workers for run in fewest([Run((0,), 0, 8), Run((1,), 0, 1)], 3) or []] == [8]


@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_a_thrifty_policy_has_idle_accelerators_used_where_a_step_is_cheapest(
    mechanism: Callable[..., Mechanism],
) -> None:
    types = [AcceleratorType("v100", 2, 2.5), AcceleratorType("k80", 2, 0.5)]
    jobs = [Job("best", {"v100": 20.0, "k80": 1.0}), *(Job(f"j{n}", {"v100": 4.0, "k80": 1.0}) for n in range(4))]
    allocation = allocate(Problem.of(types, jobs), "min_cost")
    assert shares(allocation).sum(axis=1)[1:].max() == 0.0
    assert play(mechanism(thrifty=True), allocation, 10).received[1:, 0].sum() == 0.0
    assert play(mechanism(thrifty=True), allocation, 10).received[1:, 1].sum() == 20.0


class Forgetful(Priorities):
    """Looks at every round anew."""

    def plan(self, question: Question) -> list[Run]:
        self._steady = None
        return super().plan(question)


@given(problems())
def test_rounds_in_which_everyone_runs_are_those_that_looking_at_each_would_give(problem: Problem) -> None:
    allocation = allocate(problem, "max_min_fairness")
    quick, slow = (play(kind(), allocation, 12).received for kind in (Priorities, Forgetful))
    np.testing.assert_array_equal(quick, slow)


def test_where_everyone_runs_all_the_time_the_plan_is_kept() -> None:
    types = [AcceleratorType("v100", 2), AcceleratorType("k80", 2)]
    allocation = allocate(Problem.of(types, [Job(f"j{n}", {"v100": 4.0, "k80": 1.0}) for n in range(2)]), "fifo")
    mechanism = Priorities()
    played = play(mechanism, allocation, 5)
    assert mechanism._steady is not None
    assert played.received.tolist() == [[5.0, 0.0], [5.0, 0.0]]
