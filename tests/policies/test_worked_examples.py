"""The worked examples of the paper, and a few whose answer is obvious."""

from __future__ import annotations

import pytest

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Entity, Job, Pair
from gavel.core.problem import Problem
from gavel.policies.registry import allocate

ONE_OF_EACH = [AcceleratorType("v100", 1, 2.48), AcceleratorType("k80", 1, 0.45)]
THREE = [Job(f"job{n}", {"v100": fast, "k80": 1.0}) for n, fast in enumerate([4.0, 3.0, 2.0])]


def shares(allocation: Allocation, kind: str) -> dict[str, float]:
    return {row.jobs[0]: row.shares[kind] for row in allocation.rows() if len(row.jobs) == 1}


def test_three_jobs_on_a_v100_and_a_k80_get_the_papers_matrix() -> None:
    """Section 4.1: 0.45/0, 0.45/0.09, 0.09/0.91, and about 10% more than if isolated."""
    problem = Problem.of(ONE_OF_EACH, THREE)
    fair, isolated = allocate(problem, "max_min_fairness"), allocate(problem, "isolated")
    assert shares(fair, "v100") == pytest.approx({"job0": 0.4545, "job1": 0.4545, "job2": 0.0909}, abs=1e-4)
    assert shares(fair, "k80") == pytest.approx({"job0": 0.0, "job1": 0.0909, "job2": 0.9091}, abs=1e-4)
    better = [fair.throughput[job.id] / isolated.throughput[job.id] for job in THREE]
    assert better == pytest.approx([12 / 11] * 3)


WEIGHTS = [3.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("policy", ["max_min_fairness_water_filling", "hierarchical"])
def test_weights_three_one_one_one_on_four_gpus_fill_in_two_stages(policy: str) -> None:
    """Section 4.3: at the first level, 1/3, job 1 has a whole GPU; at the end all jobs have one."""
    jobs = [Job(f"job{n}", {"gpu": 7.0}, weight=weight) for n, weight in enumerate(WEIGHTS)]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 4)], jobs), policy)
    assert allocation.certificate.objective == pytest.approx(1 / 3)
    assert list(allocation.throughput.values()) == pytest.approx([7.0] * 4)


def test_entities_with_those_weights_and_one_job_each_get_the_same() -> None:
    jobs = [Job(f"job{n}", {"gpu": 7.0}, entity=f"e{n}") for n in range(4)]
    entities = {f"e{n}": Entity(weight) for n, weight in enumerate(WEIGHTS)}
    allocation = allocate(Problem.of([AcceleratorType("gpu", 4)], jobs, (), entities), "hierarchical")
    assert allocation.certificate.objective == pytest.approx(1 / 3)
    assert list(allocation.throughput.values()) == pytest.approx([7.0] * 4)


def test_with_half_the_gpus_the_weights_decide() -> None:
    jobs = [Job(f"job{n}", {"gpu": 1.0}, weight=weight) for n, weight in enumerate(WEIGHTS)]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 2)], jobs), "max_min_fairness_water_filling")
    assert list(allocation.throughput.values()) == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3])


def test_a_job_of_many_workers_gets_the_same_share_of_the_cluster_not_of_time() -> None:
    """The scale factor in the objective: two workers for half of the time count as much as one for all of it."""
    jobs = [Job("wide", {"gpu": 2.0}, workers=2), Job("narrow", {"gpu": 1.0})]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 2)], jobs), "max_min_fairness")
    assert allocation.throughput == pytest.approx({"wide": 1.0, "narrow": 1.0})


def test_makespan_ends_all_jobs_together_where_one_type_is_all_there_is() -> None:
    jobs = [Job("long", {"gpu": 1.0}, steps=300.0), Job("short", {"gpu": 1.0}, steps=100.0)]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 1)], jobs), "makespan")
    assert allocation.certificate.objective == pytest.approx(400.0)
    assert allocation.throughput == pytest.approx({"long": 0.75, "short": 0.25})


def test_finish_time_fairness_of_equals_is_one() -> None:
    jobs = [Job(f"job{n}", {"v100": 4.0, "k80": 1.0}, steps=1000.0) for n in range(4)]
    allocation = allocate(Problem.of(ONE_OF_EACH, jobs), "finish_time_fairness")
    assert allocation.certificate.objective == pytest.approx(1.0)


def test_finish_time_fairness_favours_jobs_that_have_waited() -> None:
    jobs = [
        Job("waited", {"gpu": 1.0}, steps=1000.0, age_seconds=2000.0, isolated_age_seconds=500.0),
        Job("new", {"gpu": 1.0}, steps=1000.0),
    ]
    throughput = allocate(Problem.of([AcceleratorType("gpu", 1)], jobs), "finish_time_fairness").throughput
    assert throughput["waited"] > throughput["new"]


def test_fifo_serves_in_order_of_arrival_each_on_the_fastest_type_left() -> None:
    jobs = [Job(f"job{n}", {"v100": 4.0, "k80": 1.0}, arrival=float(-n)) for n in range(3)]
    throughput = allocate(Problem.of(ONE_OF_EACH, jobs), "fifo").throughput
    assert throughput == pytest.approx({"job2": 4.0, "job1": 1.0, "job0": 0.0})


def test_fifo_serves_a_large_job_before_small_ones_that_came_later() -> None:
    """They compete for four accelerators; by throughput alone, the small ones would count 4 + 3 + 2 + 1 against 5."""
    small = [Job(f"small{n}", {"gpu": 1.0}, arrival=float(n)) for n in range(1, 5)]
    jobs = [Job("large", {"gpu": 4.0}, workers=4, arrival=0.0), *small]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 4)], jobs), "fifo")
    assert allocation.throughput == pytest.approx({"large": 4.0, **dict.fromkeys((job.id for job in small), 0.0)})
    assert allocation.certificate.objective == pytest.approx(4 * 5)


def test_shortest_job_first_runs_the_shortest_all_of_the_time() -> None:
    jobs = [Job("long", {"v100": 4.0, "k80": 1.0}, steps=500.0), Job("short", {"v100": 4.0, "k80": 1.0}, steps=100.0)]
    allocation = allocate(Problem.of(ONE_OF_EACH, jobs), "shortest_job_first")
    assert allocation.certificate.objective == pytest.approx(25.0)
    assert allocation.throughput == pytest.approx({"short": 4.0, "long": 1.0})


def test_the_cheapest_steps_are_bought_and_only_those() -> None:
    """4 steps for $2.48 is fewer steps per dollar than 1 step for $0.45."""
    jobs = [Job("a", {"v100": 4.0, "k80": 1.0}), Job("b", {"v100": 4.0, "k80": 0.5})]
    allocation = allocate(Problem.of(ONE_OF_EACH, jobs), "min_cost")
    assert allocation.certificate.objective == pytest.approx(1 / 0.45)
    assert allocation.throughput == pytest.approx({"a": 1.0, "b": 0.0})


def test_prices_of_very_different_size_do_not_hide_the_best_buy() -> None:
    types = [AcceleratorType("dear", 4, 1000.0), AcceleratorType("cheap", 4, 0.001)]
    jobs = [Job("x", {"dear": 1.0, "cheap": 1.0}), Job("y", {"dear": 3.0})]
    allocation = allocate(Problem.of(types, jobs), "min_cost")
    assert allocation.certificate.objective == pytest.approx(1000.0)
    assert allocation.throughput == pytest.approx({"x": 1.0, "y": 0.0})


def test_two_jobs_that_hardly_disturb_each_other_share_a_gpu() -> None:
    jobs = [Job("a", {"gpu": 1.0}, steps=100.0), Job("b", {"gpu": 1.0}, steps=100.0)]
    pair = Pair(("a", "b"), {"gpu": (0.9, 0.8)})
    allocation = allocate(Problem.of([AcceleratorType("gpu", 1)], jobs, [pair]), "max_min_fairness_water_filling")
    rows = {row.jobs: row.shares["gpu"] for row in allocation.rows()}
    assert rows["a", "b"] == pytest.approx(10 / 11)
    assert allocation.throughput == pytest.approx({"a": 9 / 11, "b": 9 / 11})


def test_a_pair_measured_faster_than_its_jobs_alone_is_used_to_the_full() -> None:
    jobs = [Job("a", {"gpu": 1.0}, steps=100.0), Job("b", {"gpu": 1.0}, steps=100.0)]
    pair = Pair(("a", "b"), {"gpu": (1.02, 1.01)})
    problem = Problem.of([AcceleratorType("gpu", 1)], jobs, [pair])
    for policy, objective in {
        "max_min_fairness": 1.01,
        "max_min_fairness_water_filling": 1.01,
        "hierarchical": 1.01,
        "makespan": 100 / 1.01,
        "shortest_job_first": 100 / 1.02,
    }.items():
        assert allocate(problem, policy).certificate.objective == pytest.approx(objective)
