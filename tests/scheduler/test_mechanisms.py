"""From shares to rounds: jobs receive close to their targets, every rule keeps its promise, restarts are few."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from playing import ROUND_SECONDS, account, assert_fits, decided, next_input, play, round_input, shares

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job, Pair
from gavel.core.problem import Problem
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.entries import GUEST, LedgerEntries
from gavel.scheduler.ledger import Ledger
from gavel.scheduler.patience import Patience
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.round_draft import Draft, fewest
from gavel.scheduler.rounds import Mechanism, Members, Plan, RoundInput, Run
from gavel.scheduler.rules import Rules, advance, draw_up
from gavel.scheduler.settled import Settled

PATIENCE = float(Patience().of(round_input(np.ones((1, 1)), capacity=[1]))[0])
TURN = float(Patience().turns(round_input(np.ones((1, 1)), capacity=[1]))[0])
ROUNDS = (10.0, 360.0, 1800.0)


def test_patience_is_41_minutes_where_a_restart_costs_10_seconds() -> None:
    """Patience grows with the square root of the cost, a turn in proportion to it."""
    slow = round_input(np.ones((2, 1)), capacity=[1], restart=np.array([40.0, 0.0]))
    assert pytest.approx(41.0, abs=0.1) == PATIENCE / 60
    assert Patience().of(slow).tolist() == pytest.approx([2 * PATIENCE, PATIENCE])
    assert Patience().turns(slow).tolist() == [4 * TURN, TURN] == [400.0, 100.0]


# Shares


@st.composite
def problems(draw: st.DrawFn, *, sizes: tuple[int, ...] = (1, 1, 1, 2, 4)) -> Problem:
    unit = sizes[0] if len(sizes) == 1 else 1
    types = [AcceleratorType(f"t{i}", unit * draw(st.integers(1, 6))) for i in range(draw(st.integers(1, 3)))]
    rates = st.fixed_dictionaries({t.name: st.sampled_from([0.5, 1.0, 2.0, 4.0]) for t in types})
    jobs = [Job(f"j{n}", draw(rates), workers=draw(st.sampled_from(sizes))) for n in range(draw(st.integers(1, 10)))]
    return Problem.of(types, jobs)


@given(problem=problems())
@settings(max_examples=20)
@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_every_job_with_a_share_runs(mechanism: type[Mechanism], problem: Problem) -> None:
    allocation = allocate(problem)
    played = play(mechanism(), allocation)
    wanted = shares(allocation).sum(axis=1) > 0.02
    assert (played.received.sum(axis=1)[wanted] > 0).all()


@pytest.mark.parametrize("round_seconds", ROUNDS)
@given(problem=problems(sizes=(1,)))
@settings(max_examples=12)
def test_no_job_with_one_worker_is_far_behind_its_share_of_time(round_seconds: float, problem: Problem) -> None:
    """The stated bound: twice its patience plus four rounds, for any length of a round."""
    allocation = allocate(problem)
    rounds = min(int(20 * PATIENCE / round_seconds), 1500)
    played = play(Credits(), allocation, rounds, round_seconds=round_seconds)
    behind = (shares(allocation).sum(axis=1) * rounds - played.received.sum(axis=1)) * round_seconds
    assert behind.max() <= 2 * PATIENCE + 4 * round_seconds


@given(problem=st.sampled_from([2, 4, 8]).flatmap(lambda size: problems(sizes=(size,))))
@settings(max_examples=20)
def test_gangs_of_one_size_keep_the_bound_of_single_workers(problem: Problem) -> None:
    allocation = allocate(problem)
    played = play(Credits(), allocation, 200)
    behind = (shares(allocation).sum(axis=1) * 200 - played.received.sum(axis=1)) * ROUND_SECONDS
    assert behind.max() <= 2 * PATIENCE + 4 * ROUND_SECONDS


@pytest.mark.parametrize("round_seconds", ROUNDS)
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    rates=st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=3, max_size=3),
    jobs=st.integers(2, 14),
)
@settings(max_examples=12)
def test_equal_jobs_share_time_within_a_bound(
    round_seconds: float, counts: list[int], rates: list[float], jobs: int
) -> None:
    """The stated bound: their progress differs by at most twice their patience plus four rounds on the fastest type."""
    types = [AcceleratorType(f"t{number}", count) for number, count in enumerate(counts)]
    speeds = {kind.name: rate for kind, rate in zip(types, rates, strict=False)}
    allocation = allocate(Problem.of(types, [Job(f"j{n}", speeds) for n in range(jobs)]))
    widest = 0.0

    def look(given: RoundInput, _: list[Run]) -> None:
        nonlocal widest
        done = given.received @ np.array(list(speeds.values())) / max(speeds.values())
        widest = max(widest, float(done.max() - done.min()))

    play(Credits(), allocation, min(int(20 * PATIENCE / round_seconds), 1500), look=look, round_seconds=round_seconds)
    assert widest <= 2 * PATIENCE + 4 * round_seconds


@st.composite
def mixed_problems(draw: st.DrawFn) -> Problem:
    """Gangs of several sizes, single workers, and pairs of these: shares that no timetable may be able to realise."""
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


def envy(mechanism: Credits, given: RoundInput, runs: list[Run]) -> float:
    """The most seconds by which a waiting job is owed more than a run whose place it could take.

    A run that occupies several times the accelerators needed may stay longer, by the square root of that factor.
    """
    ledger, widest = mechanism.ledger, 0.0
    paid = np.bincount([e for e in map(ledger.entry, runs) if e >= 0], minlength=len(ledger.entries.keys))
    standing = ledger.entries.standing(paid, 0.0)
    waiting = set(given.waiting.tolist()).difference(*(run.members for run in runs))
    for entry, (first, second, kind) in enumerate(ledger.entries.keys):
        slot = next((slot for slot in ledger.members[first] if slot in waiting), None)
        if slot is None or second >= 0 or ledger.entries.target[entry] <= 0 or standing[entry] <= 0:
            continue
        here = [run for run in runs if run.type_index == kind and len(run.members) == 1 and ledger.entry(run) >= 0]
        needed = given.workers[slot] - given.capacity[kind] + sum(run.workers for run in runs if run.type_index == kind)
        for run in here:
            if 0 < needed <= run.workers:
                excess = float(standing[entry] - standing[ledger.entry(run)])
                widest = max(widest, excess / (run.workers / needed) ** 0.5)
    return widest


@given(problem=mixed_problems())
@settings(max_examples=25)
def test_no_job_waits_for_runs_that_are_owed_much_less(problem: Problem) -> None:
    """The stated bound for gangs of several sizes and for pairs: patience plus three rounds."""
    mechanism, widest = Credits(), 0.0

    def look(given: RoundInput, runs: list[Run]) -> None:
        nonlocal widest
        widest = max(widest, envy(mechanism, given, runs))

    play(mechanism, allocate(problem), 200, look=look)
    assert widest <= PATIENCE + 3 * ROUND_SECONDS


def test_credits_restart_far_less_often_than_priorities() -> None:
    types = [AcceleratorType("v100", 4), AcceleratorType("p100", 4), AcceleratorType("k80", 4)]
    rng = np.random.default_rng(1)
    jobs = [Job(f"j{n}", dict(zip(("v100", "p100", "k80"), rng.uniform(1, 8, 3), strict=True))) for n in range(20)]
    allocation = allocate(Problem.of(types, jobs))
    plain, credit = (play(mechanism, allocation).launches for mechanism in (Priorities(), Credits()))
    assert plain >= 4 * credit


def test_pairs_are_formed_and_kept() -> None:
    types = [AcceleratorType("v100", 1)]
    jobs = [Job("a", {"v100": 4.0}), Job("b", {"v100": 4.0})]
    problem = Problem.of(types, jobs, [Pair(("a", "b"), {"v100": (3.0, 3.0)})])
    played = play(Credits(), allocate(problem), 50)
    assert played.received.tolist() == [[50.0], [50.0]]
    assert played.launches == 1


def test_a_run_that_a_plan_starts_does_not_become_part_of_a_pair_in_the_same_plan() -> None:
    runs = [Run((slot,), 0, 1) for slot in range(2)]
    entries = LedgerEntries(
        first=np.array([0]),
        second=np.array([0]),
        type_index=np.array([1]),
        target=np.array([1.0]),
        speed=np.ones((1, 2)),
        credit=np.array([1e6]),
    )
    ledger = Ledger(
        entries,
        np.zeros(2),
        members=[[0, 1]],
        class_rate=np.ones(1),
        alone=np.ones((1, 2)),
        entry_of=dict.fromkeys(runs, GUEST),
        run_of=dict(enumerate(runs)),
        class_of=np.zeros(2, dtype=np.intp),
    )
    none = np.empty(0, dtype=np.intp)
    given = round_input(np.ones((2, 2)), capacity=[2, 2], time=1e5, running=runs, waiting=none, started=np.ones(2))
    draft = Draft.of(ledger, given, Patience())
    assert draft.movable(0, -np.inf) == [deque([0, 1])]
    draft.stop(runs[1])
    draft.start((1,), 1)
    assert not advance(0, draft, Rules())
    assert draft.plan().stopped == [runs[1]]
    assert_fits(draft.plan().runs(given), [2, 2], given.workers)


@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_a_large_gang_is_not_starved_by_single_workers(mechanism: type[Mechanism]) -> None:
    types = [AcceleratorType("v100", 8)]
    jobs = [Job("gang", {"v100": 8.0}, workers=8), *(Job(f"s{n}", {"v100": 1.0}) for n in range(16))]
    allocation = allocate(Problem.of(types, jobs))
    played = play(mechanism(), allocation)
    assert played.received[0, 0] == pytest.approx(shares(allocation)[0, 0] * 400, abs=20)


# The rules, one by one


def adopted(problem: Problem, rules: Rules | None = None, policy: str = "max_min_fairness") -> Credits:
    mechanism = Credits(rules)
    mechanism.adopt(allocate(problem, policy), np.arange(len(problem.jobs)))
    return mechanism


def equals(jobs: int, accelerators: int = 1) -> Problem:
    return Problem.of([AcceleratorType("v100", accelerators)], [Job(f"j{n}", {"v100": 1.0}) for n in range(jobs)])


def test_a_job_that_just_started_is_not_displaced_by_an_identical_one() -> None:
    """It keeps its place for a turn; the other job gets its first turn at the next end of a round."""
    mechanism = adopted(equals(2))
    given = round_input(np.ones((2, 1)), capacity=[1], round_seconds=30.0)
    starts = []
    for _ in range(8):
        runs = decided(mechanism, given)
        starts.append(runs[0].members[0])
        account(mechanism, runs, 30.0)
        given = next_input(given, runs)
    assert starts[:4] == [0, 0, 0, 0]  # 120 s: the first end of a round after a turn of 100 s
    assert starts[4:] == [1, 1, 1, 1]


@pytest.mark.parametrize("round_seconds", [10.0, 360.0])
@given(problem=problems())
@settings(max_examples=15)
def test_no_run_is_displaced_before_it_has_had_its_turn(round_seconds: float, problem: Problem) -> None:
    def look(given: RoundInput, runs: list[Run]) -> None:
        kept, placed = set(runs), {slot for run in runs for slot in run.members}
        for run in given.running:
            if run not in kept and placed.isdisjoint(run.members):
                assert all(given.time - given.launched[slot] >= TURN for slot in run.members)

    play(Credits(), allocate(problem), 150, look=look, round_seconds=round_seconds)


def test_a_new_job_gets_its_first_turn_however_much_its_class_has_overdrawn() -> None:
    mechanism = adopted(equals(9, accelerators=8))
    mechanism.ledger.entries.credit[:] = -1e6
    given = round_input(np.ones((9, 1)), capacity=[8], waiting=np.arange(8))
    runs = decided(mechanism, given)
    account(mechanism, runs, ROUND_SECONDS)
    later = replace(next_input(given, runs), waiting=np.array([8]))
    assert 8 in {run.members[0] for run in decided(mechanism, later)}


def test_first_turns_displace_half_of_a_type_at_once() -> None:
    mechanism = adopted(equals(40, accelerators=8))
    given = round_input(np.ones((40, 1)), capacity=[8])
    for _ in range(3):
        runs = decided(mechanism, given)
        stopped = [run for run in given.running if run not in runs]
        assert len(stopped) == (4 if given.running else 0)
        account(mechanism, runs, ROUND_SECONDS)
        given = next_input(given, runs)


def test_first_turns_displace_the_runs_that_will_take_longest_and_none_about_to_end() -> None:
    steps = np.array([9e4, 50.0, 8e4, np.nan])
    for left, expected in ((steps, 0), (np.where(steps > 100, 90.0, steps), None)):
        mechanism = adopted(equals(4, accelerators=3))
        given = round_input(np.ones((4, 1)), capacity=[3], waiting=np.arange(3), steps_heard=left)
        runs = decided(mechanism, given)
        account(mechanism, runs, ROUND_SECONDS)
        later = replace(next_input(given, runs), waiting=np.array([3]))
        stopped = {run.members[0] for run in runs}.difference(run.members[0] for run in decided(mechanism, later))
        assert stopped == (set() if expected is None else {expected})


@pytest.mark.parametrize(("alone", "rounds"), [(300.0, 1), (1000.0, 3), (1e9, 7)])
def test_a_first_turn_displaces_once_a_job_has_waited_as_long_as_it_takes_alone(alone: float, rounds: int) -> None:
    """The wait is at most the job's patience: 2,459 s, which is less than seven rounds."""
    mechanism = adopted(equals(2))
    mechanism.ledger.entries.credit[:] = -1e6
    given = round_input(np.ones((2, 1)), capacity=[1], waiting=np.array([0]), steps_heard=np.array([1e9, alone]))
    waited = 0
    while not any(run.members == (1,) for run in given.running):
        runs = decided(mechanism, given)
        account(mechanism, runs, ROUND_SECONDS)
        waited += bool(given.running) and runs[0].members == (0,)
        given = replace(next_input(given, runs), waiting=np.array([1 - runs[0].members[0]]))
    assert waited + 1 == rounds


def test_accelerators_are_held_for_a_gang_that_waits_for_its_first_turn() -> None:
    types = [AcceleratorType("v100", 4)]
    jobs = [Job("gang", {"v100": 4.0}, workers=4), *(Job(f"s{n}", {"v100": 1.0}) for n in range(3))]
    running = [Run((1,), 0, 1), Run((2,), 0, 1)]
    given = round_input(
        np.ones((4, 1)),
        capacity=[4],
        workers=np.array([4, 1, 1, 1]),
        running=running,
        waiting=np.array([0, 3]),
        started=np.array([0, 1, 1, 1]),
        received=np.array([[0.0], [1000.0], [1000.0], [1000.0]]),
        time=50.0,
    )
    for holding, count in ((True, 2), (False, 3)):
        mechanism = adopted(Problem.of(types, jobs), Rules(holding=holding))
        assert len(decided(mechanism, given)) == count
    mechanism = adopted(Problem.of(types, jobs))
    assert [run.members for run in decided(mechanism, replace(given, time=TURN))] == [(0,)]


@pytest.mark.parametrize(("left", "stays"), [(4 * PATIENCE, True), (4 * PATIENCE + 60, False), (np.nan, False)])
@pytest.mark.parametrize("rates", [(1.0, 1.0), (1.0, 2.0)], ids=["equal jobs", "other jobs"])
def test_a_run_that_is_about_to_end_is_not_displaced(left: float, stays: bool, rates: tuple[float, float]) -> None:
    """This needs a known length: jobs of unknown length are treated like new ones."""
    speed = np.array(rates)
    jobs = [Job(f"j{number}", {"v100": rate}) for number, rate in enumerate(rates)]
    mechanism = adopted(Problem.of([AcceleratorType("v100", 1)], jobs))
    given = round_input(speed[:, None], capacity=[1], started=np.ones(2, dtype=np.intp), steps_heard=left * speed)
    seen = set()
    for _ in range(30):
        runs = decided(mechanism, given)
        seen.add(runs[0].members)
        account(mechanism, runs, ROUND_SECONDS)
        given = next_input(given, runs)
    assert (len(seen) == 1) is stays


FAST_AND_SLOW = Problem.of(
    [AcceleratorType("v100", 1, 3.0), AcceleratorType("k80", 1, 0.5)], [Job("a", {"v100": 4.0, "k80": 1.0})]
)


def moves_to_idle(steps: float, rate: float = 4.0, mechanism: Credits | None = None, **changed: Any) -> bool:
    """Whether a job on a K80 with these steps left moves to an idle V100."""
    mechanism = mechanism or Credits()
    mechanism.adopt(allocate(FAST_AND_SLOW), np.arange(1))
    given = round_input(
        [[rate, 1.0]], capacity=[1, 1], running=[Run((0,), 1, 1)], waiting=np.empty(0, dtype=np.intp), time=1000.0
    )
    (run,) = decided(
        mechanism, replace(given, steps_heard=np.array([steps]), started=np.ones(1, dtype=np.intp), **changed)
    )
    return run.type_index == 0


def test_a_run_moves_at_once_to_an_idle_type_where_it_ends_much_sooner() -> None:
    assert moves_to_idle(3600.0)
    assert moves_to_idle(3600.0, mid_round=True)
    assert moves_to_idle(27.0)  # 20.25 s sooner; a restart costs 10
    assert not moves_to_idle(26.0)
    assert not moves_to_idle(27.0, restart=np.array([60.0]))
    assert moves_to_idle(1e5, rate=1.5)
    assert not moves_to_idle(1e5, rate=1.4)


def test_a_run_of_unknown_length_is_assumed_to_be_half_done_when_it_may_move() -> None:
    assert moves_to_idle(np.nan)
    assert not moves_to_idle(np.nan, restart=np.array([60.0]), received=np.zeros((1, 2)), rate=1.2)


def test_runs_do_not_move_if_the_policy_ignores_speeds_or_if_a_step_would_cost_more() -> None:
    assert not moves_to_idle(3600.0, mechanism=Credits(knows_speeds=False))
    assert not moves_to_idle(3600.0, mechanism=Credits(price_aware=True))  # 4 times as fast for 6 times the price
    assert moves_to_idle(3600.0, rate=7.0, mechanism=Credits(price_aware=True))


@given(problem=problems(), seed=st.integers(0, 99))
@settings(max_examples=40)
@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_during_a_round_no_run_is_stopped_for_another_job(
    mechanism: type[Mechanism], problem: Problem, seed: int
) -> None:
    chooser, rng = mechanism(), np.random.default_rng(seed)
    allocation = allocate(problem)
    capacity = [kind.count for kind in problem.types]
    jobs = problem.jobs.profile
    chooser.adopt(allocation, np.arange(len(jobs)))
    given = round_input(problem.type_rates[jobs], capacity=capacity, workers=problem.profiles.workers[jobs])
    for _ in range(10):
        runs = decided(chooser, given)
        account(chooser, runs, 100.0)
        after = next_input(given, runs, 100.0)
        staying = [run for run in runs if rng.random() < 0.7]
        freed = {slot for run in runs if run not in staying for slot in run.members}
        waiting = np.array(sorted({*after.waiting.tolist(), *freed}), dtype=np.intp)
        later = replace(after, running=staying, waiting=waiting, mid_round=True)
        filled = decided(chooser, later)
        assert_fits(filled, capacity, later.workers)
        placed = {slot for run in filled for slot in run.members}
        assert all(slot in placed for run in staying for slot in run.members)
        account(chooser, filled, 260.0)
        given = replace(next_input(later, filled, 260.0), mid_round=False)


def test_during_a_round_no_run_yields_to_a_gang_however_much_it_is_owed() -> None:
    """One accelerator is free, and three runs have long had their turn: they yield when the round ends."""
    types = [AcceleratorType("v100", 4)]
    jobs = [Job("gang", {"v100": 4.0}, workers=4), *(Job(f"s{n}", {"v100": 1.0}) for n in range(3))]
    mechanism = adopted(Problem.of(types, jobs))
    entries = mechanism.ledger.entries
    entries.credit[:] = 0.0
    entries.credit[entries.find((int(mechanism.ledger.class_of[0]), -1, 0))] = 1e6
    given = round_input(
        np.ones((4, 1)),
        capacity=[4],
        workers=np.array([4, 1, 1, 1]),
        running=[Run((slot,), 0, 1) for slot in (1, 2, 3)],
        waiting=np.array([0]),
        started=np.ones(4, dtype=np.intp),
        time=1e5,
    )
    assert decided(mechanism, replace(given, mid_round=True)) == given.running
    assert [run.members for run in decided(mechanism, given)] == [(0,)]


def test_room_during_a_round_goes_to_the_job_that_is_owed_most() -> None:
    types = [AcceleratorType("v100", 2)]
    mechanism = adopted(Problem.of(types, [Job("a", {"v100": 1.0}), Job("b", {"v100": 2.0}), Job("c", {"v100": 3.0})]))
    ledger = mechanism.ledger
    given = round_input(
        [[1.0], [2.0], [3.0]],
        capacity=[2],
        running=[Run((0,), 0, 1)],
        waiting=np.array([1, 2]),
        started=np.ones(3, dtype=np.intp),
        mid_round=True,
    )
    for owed, chosen in ((1, 1), (2, 2)):
        ledger.entries.credit[:] = 0.0
        ledger.entries.credit[ledger.entries.find((int(ledger.class_of[owed]), -1, 0))] = 5000.0
        assert {run.members[0] for run in decided(mechanism, given)} == {0, chosen}


# Teams that are served in order


def in_order(jobs: int, accelerators: int, **changed: Any) -> RoundInput:
    return round_input(
        np.ones((jobs, 1)),
        capacity=[accelerators],
        team=np.zeros(jobs, dtype=np.intp),
        arrival=np.arange(jobs, dtype=float),
        **changed,
    )


@given(
    sizes=st.lists(st.sampled_from([1, 1, 2, 3]), min_size=2, max_size=8),
    teams=st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=8, max_size=8),
    slow=st.lists(st.booleans(), min_size=8, max_size=8),
)
@settings(max_examples=60)
@example(sizes=[1, 1, 1, 1], teams=[0, 0, 0, 0, 0, 0, 0, 0], slow=[False] * 8)
def test_no_later_job_of_an_ordered_team_starts_in_place_of_an_earlier_one_or_displaces_it(
    sizes: list[int], teams: list[int], slow: list[bool]
) -> None:
    types = [AcceleratorType("v100", 3), AcceleratorType("k80", 2)]
    jobs = [
        Job(f"j{n}", {"v100": float(size), "k80": 0.0 if slow[n] else size / 4}, workers=size)
        for n, size in enumerate(sizes)
    ]
    problem = Problem.of(types, jobs)
    mechanism = adopted(problem)
    given = round_input(
        problem.type_rates[problem.jobs.profile],
        capacity=[3, 2],
        workers=np.array(sizes, dtype=np.intp),
        team=np.array(teams[: len(sizes)]),
        arrival=np.arange(len(sizes), dtype=float),
    )
    for number in range(40):
        runs = decided(mechanism, given)
        _assert_in_order(given, runs)
        account(mechanism, runs, ROUND_SECONDS)
        given = replace(next_input(given, runs), mid_round=number % 3 == 0)


def _assert_in_order(given: RoundInput, runs: list[Run]) -> None:
    placed = {slot: run for run in runs for slot in run.members}
    begun = [run for run in runs if run not in given.running]
    for slot in range(len(given.workers)):
        for run in begun:
            (other,) = run.members
            earlier = given.team[slot] == given.team[other] >= 0 and slot < other
            if earlier and slot not in placed and given.rates[slot, run.type_index] > 0:
                assert given.workers[slot] > given.workers[other]


def test_a_team_in_order_is_served_in_order_as_accelerators_become_free() -> None:
    """Six jobs, two accelerators, short rounds: the third job must not start before the second."""
    mechanism = adopted(equals(6, accelerators=2))
    given = in_order(6, 2, round_seconds=4.0)
    order: list[int] = []
    for _ in range(200):
        runs = decided(mechanism, given)
        order += [run.members[0] for run in runs if run not in given.running]
        account(mechanism, runs, 4.0)
        given = next_input(given, runs)
    assert order == [0, 1]  # jobs that never end are never displaced
    mechanism.leave(0)
    given = replace(given, running=[run for run in given.running if run.members != (0,)], mid_round=True)
    assert [run.members for run in decided(mechanism, given)] == [(1,), (2,)]


# Deciding, accounting and caches


@given(problem=mixed_problems())
@settings(max_examples=15)
@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_accounting_for_recorded_plans_gives_the_state_of_having_decided_them(
    mechanism: type[Mechanism], problem: Problem
) -> None:
    allocation = allocate(problem)
    deciding, replaying = mechanism(), mechanism()
    replaying.adopt(allocation, np.arange(len(problem.jobs)))
    recorded: list[list[Run]] = []
    play(deciding, allocation, 60, look=lambda _, runs: recorded.append(runs))
    for runs in recorded:
        account(replaying, runs, ROUND_SECONDS)
    assert_same_state(deciding, replaying)


def places(runs: Iterable[Run]) -> set[tuple[Members, int]]:
    """Who runs on which type; a plan that stops a run and starts it again in its place leaves it where it is."""
    return {(run.members, run.type_index) for run in runs}


def assert_same_state(one: Mechanism, other: Mechanism) -> None:
    if isinstance(one, Credits) and isinstance(other, Credits):
        np.testing.assert_array_equal(one.ledger.entries.credit, other.ledger.entries.credit)
        np.testing.assert_array_equal(one.ledger.lag, other.ledger.lag)
        assert one.ledger.entry_of == other.ledger.entry_of
    if isinstance(one, Priorities) and isinstance(other, Priorities):
        np.testing.assert_array_equal(one._seconds, other._seconds)


@given(problem=mixed_problems())
@settings(max_examples=15)
def test_deciding_changes_nothing(problem: Problem) -> None:
    mechanism, allocation = Credits(), allocate(problem)

    def look(given: RoundInput, runs: list[Run]) -> None:
        credit, lag = mechanism.ledger.entries.credit.copy(), mechanism.ledger.lag.copy()
        again = draw_up(mechanism.ledger, given, mechanism.rules)
        assert places(again.entry_of) == places(runs)
        np.testing.assert_array_equal(mechanism.ledger.entries.credit, credit)
        np.testing.assert_array_equal(mechanism.ledger.lag, lag)

    play(mechanism, allocation, 40, look=look)


@given(problem=mixed_problems())
@settings(max_examples=25)
def test_a_settled_plan_is_what_the_rules_give_in_every_round(problem: Problem) -> None:
    """Compare the cache with the rules, on jobs that never end: both decide from the same ledger."""
    mechanism, held = Credits(), 0

    def look(given: RoundInput, runs: list[Run]) -> None:
        nonlocal held
        held += mechanism._settled is not None and mechanism._settled.holds(given)
        fresh = draw_up(mechanism.ledger, given, mechanism.rules).entry_of
        assert places(fresh) == places(runs)

    play(mechanism, allocate(problem), 120, look=look)


def test_the_plan_is_settled_when_all_jobs_run_where_they_should() -> None:
    """Otherwise the test above would compare the rules with themselves."""
    mechanism, held = adopted(equals(3, accelerators=3)), []
    play(mechanism, allocate(equals(3, accelerators=3)), 20, look=lambda given, _: held.append(given))
    assert isinstance(mechanism._settled, Settled)
    assert mechanism._settled.holds(held[-1])


def test_a_new_class_starts_with_the_usual_credit() -> None:
    """A job that should always run beside a gang of two that should run half of the time: credit keeps growing."""
    types = [AcceleratorType("v100", 2)]
    old = [Job("single", {"v100": 1.0}), Job("gang", {"v100": 2.0}, workers=2)]
    mechanism = Credits()
    play(mechanism, allocate(Problem.of(types, old)), 600)
    entries = mechanism.ledger.entries
    owed = entries.credit[entries.target > 0]
    assert owed.min() > 2 * PATIENCE
    new = Job("new", {"v100": 1.5}, workers=2)
    mechanism.adopt(allocate(Problem.of(types, [*old, new])), np.arange(3))
    entry = mechanism.ledger.entries.find((int(mechanism.ledger.class_of[2]), -1, 0))
    assert owed.min() <= mechanism.ledger.entries.credit[entry] <= owed.max()


def test_as_few_runs_as_possible_yield_to_a_gang() -> None:
    runs = [Run((slot,), 0, workers) for slot, workers in enumerate((1, 1, 4, 2, 1))]
    assert [run.workers for run in fewest(runs, 4) or []] == [4]
    assert [run.members for run in fewest(runs, 3) or []] == [(3,), (0,)]
    assert [run.workers for run in fewest(runs, 6) or []] == [4, 2]
    assert fewest(runs, 10) is None
    assert [run.workers for run in fewest([Run((0,), 0, 8), Run((1,), 0, 1)], 3) or []] == [8]


# The paper's priorities


def test_under_priorities_no_job_always_comes_first_among_equals() -> None:
    """This holds even if every round has a new allocation, which makes all jobs equal again."""
    allocation = allocate(equals(4))
    mechanism, times = Priorities(), np.zeros(4)
    for number in range(200):
        mechanism.adopt(allocation, np.arange(4))
        (run,) = decided(mechanism, round_input(np.ones((4, 1)), capacity=[1], number=number))
        times[run.members[0]] += 1
    assert times.min() >= 30


def test_priorities_serve_the_fastest_type_first_if_the_policy_knows_it() -> None:
    types = [AcceleratorType("k80", 1), AcceleratorType("v100", 1)]
    allocation = allocate(Problem.of(types, [Job("a", {"k80": 1.0, "v100": 4.0})]), "isolated")
    assert shares(allocation).tolist() == [[0.5, 0.5]]
    rounds = [play(Priorities(knows_speeds=known), allocation, 100).received[0] for known in (True, False)]
    assert [round_[1] for round_ in rounds] == [100.0, pytest.approx(50.0, abs=20)]


def test_priorities_keep_the_queue_of_fifo_but_let_new_jobs_use_what_is_idle() -> None:
    types = [AcceleratorType("v100", 3)]
    jobs = [Job(f"gang{n}", {"v100": 3.0}, workers=3, arrival=float(n)) for n in range(2)]
    allocation = allocate(Problem.of(types, [*jobs, Job("late", {"v100": 1.0}, arrival=9.0)]), "fifo")
    mechanism = Priorities()
    mechanism.adopt(allocation, np.arange(3))
    mechanism.leave(0)
    given = round_input(np.ones((4, 1)), capacity=[3], workers=np.array([3, 3, 1, 1]), waiting=np.array([1, 2, 3]))
    assert [run.members for run in decided(mechanism, given)] == [(3,)]  # the policy does not know it yet


@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_a_price_aware_policy_uses_idle_accelerators_only_where_a_step_is_cheapest(
    mechanism: Callable[..., Mechanism],
) -> None:
    types = [AcceleratorType("v100", 2, 2.5), AcceleratorType("k80", 2, 0.5)]
    jobs = [Job("best", {"v100": 20.0, "k80": 1.0}), *(Job(f"j{n}", {"v100": 4.0, "k80": 1.0}) for n in range(4))]
    allocation = allocate(Problem.of(types, jobs), "min_cost")
    assert shares(allocation).sum(axis=1)[1:].max() == 0.0
    assert play(mechanism(price_aware=True), allocation, 10).received[1:, 0].sum() == 0.0
    assert play(mechanism(price_aware=True), allocation, 10).received[1:, 1].sum() == 20.0


class Forgetful(Priorities):
    """Priorities without the cache of steady plans."""

    def decide(self, given: RoundInput) -> Plan:
        self._steady = None
        return super().decide(given)


@given(problems())
def test_priorities_plan_the_same_with_and_without_their_cache_of_steady_plans(problem: Problem) -> None:
    allocation = allocate(problem, "max_min_fairness")
    quick, slow = (play(kind(), allocation, 12).received for kind in (Priorities, Forgetful))
    np.testing.assert_array_equal(quick, slow)


def test_priorities_keep_a_plan_in_which_all_jobs_run_all_the_time() -> None:
    types = [AcceleratorType("v100", 2), AcceleratorType("k80", 2)]
    allocation = allocate(Problem.of(types, [Job(f"j{n}", {"v100": 4.0, "k80": 1.0}) for n in range(2)]), "fifo")
    mechanism = Priorities()
    played = play(mechanism, allocation, 5)
    assert mechanism._steady is not None
    assert played.received.tolist() == [[5.0, 0.0], [5.0, 0.0]]
