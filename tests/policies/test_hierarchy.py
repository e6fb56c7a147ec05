"""Weights are passed down the tree of entities; queues are served in order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given

from gavel.bench.textbook import EXACT, textbook
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Entity, Job, Pair
from gavel.core.problem import Problem
from gavel.policies.registry import allocate
from strategies import Case, cases

GPUS = AcceleratorType("gpu", 2)


def served(jobs: list[Job], entities: dict[str, Entity], gpus: AcceleratorType = GPUS) -> dict[str, float]:
    return allocate(Problem.of([gpus], jobs, (), entities), "hierarchical").throughput


def gpu_job(name: str, entity: str | None, *, weight: float = 1.0, arrival: float = 0.0) -> Job:
    return Job(name, {"gpu": 1.0}, entity=entity, weight=weight, arrival=arrival)


def test_entities_share_by_weight_and_their_jobs_share_that_by_theirs() -> None:
    jobs = [gpu_job(f"p{n}", "product") for n in range(8)]
    jobs += [gpu_job(f"r{n}", "research", weight=1.0 + (n == 0)) for n in range(3)]
    throughput = served(jobs, {"product": Entity(3.0), "research": Entity(1.0)})
    assert sum(throughput[f"p{n}"] for n in range(8)) == pytest.approx(1.5)
    assert [throughput[f"p{n}"] for n in range(8)] == pytest.approx([1.5 / 8] * 8)
    assert [throughput[f"r{n}"] for n in range(3)] == pytest.approx([0.25, 0.125, 0.125])


def test_a_first_in_first_out_entity_serves_in_order_of_arrival() -> None:
    jobs = [gpu_job(f"q{n}", "queue", arrival=float(-n)) for n in range(3)]
    jobs += [gpu_job(f"f{n}", "fair") for n in range(3)]
    throughput = served(jobs, {"queue": Entity(3.0, "fifo"), "fair": Entity(1.0)})
    # Weight 3 fills q2's GPU first; the rest is divided 3 : 1 between q1 and the three fair jobs.
    assert throughput["q2"] == pytest.approx(1.0)
    assert throughput["q0"] == pytest.approx(0.0, abs=1e-7)
    fair = [throughput[f"f{n}"] for n in range(3)]
    assert fair == pytest.approx([fair[0]] * 3)
    assert throughput["q1"] == pytest.approx(3 * (sum(fair) - 1 / 3))
    assert sum(throughput.values()) == pytest.approx(2.0)


def test_weights_hold_at_every_depth() -> None:
    entities = {"a": Entity(1.0), "a/x": Entity(2.0), "a/y": Entity(1.0), "a/x/p": Entity(1.0), "b": Entity(1.0)}
    jobs = [gpu_job(f"{path}-{n}", path) for path in ("a/x/p", "a/x", "a/y", "b") for n in range(4)]
    throughput = served(jobs, entities)
    by_entity = {path: sum(throughput[f"{path}-{n}"] for n in range(4)) for path in ("a/x/p", "a/x", "a/y", "b")}
    # a has 1, of which x has 2/3, divided equally among its own four jobs and p (one weight each).
    assert by_entity == pytest.approx({"a/x/p": 2 / 15, "a/x": 8 / 15, "a/y": 1 / 3, "b": 1.0})


def test_an_entity_without_jobs_changes_nothing_not_even_the_objective() -> None:
    jobs = [gpu_job("one", "a"), gpu_job("two", "b"), gpu_job("three", "b")]
    some = {"a": Entity(1.0), "b": Entity(2.0)}
    both = [
        allocate(Problem.of([GPUS], jobs, (), entities), "hierarchical")
        for entities in (some, some | {"idle": Entity(7.0), "a/idle": Entity(3.0)})
    ]
    assert both[0].throughput == pytest.approx(both[1].throughput)
    assert both[0].certificate.objective == pytest.approx(both[1].certificate.objective)


@given(case=cases(entities=False))
def test_without_entities_it_is_plain_water_filling(case: Case) -> None:
    flat, tree = (allocate(case.problem(), p) for p in ("max_min_fairness_water_filling", "hierarchical"))
    assert tree.certificate.objective == pytest.approx(flat.certificate.objective, rel=3e-6)
    for job in case.jobs:
        assert tree.throughput[job.id] == pytest.approx(flat.throughput[job.id], rel=1e-4, abs=1e-9)


def test_sharing_accelerators_does_not_end_the_filling_early() -> None:
    """Five jobs on two GPUs, paired at rates of 0.9 each, get more than two GPUs could give them alone."""
    jobs = [gpu_job(f"j{n}", f"e{n}") for n in range(5)]
    entities = {f"e{n}": Entity(float(n + 1)) for n in range(5)}
    pairs = [Pair((f"j{a}", f"j{b}"), {"gpu": (0.9, 0.9)}) for a in range(5) for b in range(a)]
    problem = Problem.of([GPUS], jobs, pairs, entities)
    ours, theirs = allocate(problem, "hierarchical"), textbook(problem, "hierarchical", solver=EXACT)
    assert sum(ours.throughput.values()) > 2.5
    assert ours.job_throughput == pytest.approx(theirs.throughput, rel=1e-6)
