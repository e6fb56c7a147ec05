"""The baselines do what they say: isolation splits, Gandiva packs at random by seed, AlloX matches."""

from __future__ import annotations

from itertools import combinations, product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.bench.generate import generated_problem
from gavel.core.cluster import AcceleratorType
from gavel.core.errors import InputError, SolverError
from gavel.core.jobs import Job, Pair
from gavel.core.problem import Floats, Ints, Problem
from gavel.policies import baselines
from gavel.policies.baselines import _greedy_matching, _random_packing
from gavel.policies.registry import allocate
from gavel.program import transport
from strategies import Case, cases

V100, K80 = AcceleratorType("v100", 1), AcceleratorType("k80", 1)


def test_isolation_gives_each_of_n_jobs_one_nth_of_every_type() -> None:
    jobs = [Job(f"job{n}", {"v100": 4.0, "k80": 1.0}) for n in range(4)]
    allocation = allocate(Problem.of([V100, K80], jobs), "isolated")
    for row in allocation.rows():
        assert row.shares == pytest.approx({"v100": 0.25, "k80": 0.25})


def test_isolation_gives_no_job_more_than_all_of_its_time() -> None:
    types = [AcceleratorType("v100", 6), AcceleratorType("k80", 2)]
    jobs = [Job("one", {"v100": 4.0, "k80": 1.0}), Job("two", {"v100": 4.0, "k80": 1.0}, workers=2)]
    rows = {row.jobs[0]: row.shares for row in allocate(Problem.of(types, jobs), "isolated").rows()}
    assert rows["one"] == pytest.approx({"v100": 0.75, "k80": 0.25})
    assert rows["two"] == pytest.approx({"v100": 0.75, "k80": 0.25})


@given(seed=st.integers(0, 10**6))
def test_gandiva_is_reproducible_by_its_seed(seed: int) -> None:
    problem = generated_problem(40, space_sharing=True, seed=1)
    one, other = (allocate(problem, "gandiva", seed=seed) for _ in range(2))
    assert (one.instances == other.instances).all()


def test_gandiva_packs_differently_with_another_seed() -> None:
    problem = generated_problem(40, space_sharing=True, seed=1)
    assert len({allocate(problem, "gandiva", seed=seed).certificate.objective for seed in range(6)}) > 1


def test_gandiva_keeps_only_pairs_that_help() -> None:
    jobs = [Job(name, {"v100": 1.0}) for name in "ab"]
    for rates, expected in (((0.9, 0.8), {"a": 0.9, "b": 0.8}), ((0.3, 0.3), {"a": 0.5, "b": 0.5})):
        problem = Problem.of([V100], jobs, [Pair(("a", "b"), {"v100": rates})])
        assert allocate(problem, "gandiva").throughput == pytest.approx(expected)


def test_gandiva_packs_no_jobs_if_there_is_room_for_all() -> None:
    jobs = [Job(name, {"v100": 1.0}) for name in "ab"]
    problem = Problem.of([AcceleratorType("v100", 2)], jobs, [Pair(("a", "b"), {"v100": (0.9, 0.9)})])
    assert allocate(problem, "gandiva").throughput == pytest.approx({"a": 1.0, "b": 1.0})


def packed_pairs(count: int) -> set[frozenset[str]]:
    """The pairs that Gandiva packs among the first jobs of a queue in which all pairs help."""
    jobs = [Job(f"job-{number}", {"v100": 1.0}) for number in range(count)]
    pairs = [Pair((one.id, other.id), {"v100": (0.9, 0.9)}) for one, other in combinations(jobs, 2)]
    problem = Problem.of([V100], jobs, pairs)
    partner = _random_packing(problem, seed=0).tolist()
    return {frozenset((jobs[number].id, jobs[mate].id)) for number, mate in enumerate(partner) if mate >= 0}


@pytest.mark.parametrize("count", [30, 31, 40])
def test_gandiva_keeps_most_pairs_when_a_job_arrives(count: int) -> None:
    before, after = packed_pairs(count), packed_pairs(count + 1)
    assert len(before) == count // 2
    assert len(before - after) <= 3


@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] != pair[1])))
def test_greedy_matching_takes_each_pair_whose_jobs_are_free(pairs: list[tuple[int, int]]) -> None:
    expected, busy = [], set[int]()
    for number, pair in enumerate(pairs):
        if busy.isdisjoint(pair):
            expected.append(number)
            busy.update(pair)
    first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    assert _greedy_matching(first, second, 10).tolist() == expected


def test_allox_refuses_jobs_of_many_workers_and_says_what_to_do() -> None:
    jobs = [Job("fine", {"v100": 1.0}, steps=1.0), Job("wide", {"v100": 1.0}, steps=1.0, workers=2)]
    with pytest.raises(InputError, match=r"job 'wide' has 2 workers; use another policy"):
        allocate(Problem.of([AcceleratorType("v100", 2)], jobs), "allox")


@given(case=cases(max_jobs=4, max_types=2, pairs=False, placed=False, entities=False, max_workers=1))
def test_allox_matches_brute_force(case: Case) -> None:
    runnable = [job for job in case.jobs if options(job, case)]
    allocation = allocate(case.problem(), "allox")
    if not runnable:
        return
    assert allocation.certificate.objective == pytest.approx(best_average(runnable, case), rel=1e-6)
    assert allocation.certificate.gap <= 1e-6


def options(job: Job, case: Case) -> list[tuple[str, int, float]]:
    """Every accelerator that runs the job, with the job's duration there."""
    assert job.steps is not None
    found = []
    for kind in case.types:
        rate = job.rates.get(kind.name, 0.0)
        assert isinstance(rate, float)
        if rate > 0:
            found += [(kind.name, number, job.steps / rate) for number in range(min(kind.count, len(case.jobs)))]
    return found


def best_average(jobs: list[Job], case: Case) -> float:
    """Try every assignment of jobs to accelerators; on each, the shortest job goes first."""
    best = float("inf")
    for choice in product(*(options(job, case) for job in jobs)):
        queues: dict[tuple[str, int], list[float]] = {}
        for kind, number, seconds in choice:
            queues.setdefault((kind, number), []).append(seconds)
        total = 0.0
        for queue in queues.values():
            clock = 0.0
            for seconds in sorted(queue):
                clock += seconds
                total += clock
        best = min(best, total)
    return (best + sum(job.age_seconds for job in jobs)) / len(jobs)


@given(case=cases(max_workers=1, placed=False))
def test_allox_runs_no_job_on_two_accelerators_and_leaves_none_idle_that_has_a_queue(case: Case) -> None:
    allocation = allocate(case.problem(), "allox")
    for row in allocation.rows():
        assert sorted(row.shares.values(), reverse=True)[:1] in ([0.0], [1.0])
        assert sum(row.shares.values()) in (0.0, 1.0)


def test_a_matching_without_enough_places_is_an_error_and_not_an_answer() -> None:
    ways, both = np.ones(2), np.array([True, True])
    with pytest.raises(SolverError, match="Infeasible"):
        transport.solve(ways, np.array([0, 1]), np.array([0, 0]), np.ones(2), np.ones(1), both)


@pytest.mark.parametrize("seed", range(5))
def test_allox_lengthens_queues_that_were_estimated_too_short(seed: int) -> None:
    problem = generated_problem(60, seed=seed)
    found = allocate(problem, "allox").certificate.objective
    with patch.object(baselines, "_in_turn", _all_on_the_first_type):
        assert allocate(problem, "allox").certificate.objective == pytest.approx(found, rel=1e-9)


def _all_on_the_first_type(seconds: Floats, counts: Floats) -> tuple[Ints, Ints]:
    jobs = np.arange(len(seconds))
    return np.zeros_like(jobs), jobs // int(counts[0]) + 1
