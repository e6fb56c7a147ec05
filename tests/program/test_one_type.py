"""On a cluster of one type, programs are solved by sorting, with the same answer as a solver's."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.policies import agnostic
from gavel.policies.registry import POLICIES, allocate
from gavel.program import highs, interior, one_type
from gavel.program.lp import LpSolution, SolverFailed
from gavel.program.program import Program
from strategies import Case, cases

LINEAR = [policy.name for policy in POLICIES.values() if not policy.baseline]
SPEEDS_ONLY = [name for name in LINEAR if not POLICIES[name].price_aware]


def speed(job: Job) -> float:
    """A number for the job's speed: its rate on some type."""
    return next((rate for rate in job.rates.values() if isinstance(rate, float)), 1.5)


def on_one_type(case: Case) -> Problem:
    """The same jobs on a cluster with only the first type."""
    kind = case.types[0]
    alone = replace(case, types=(replace(kind, count=max(kind.count, 2), servers=()),), pairs=())
    jobs = tuple(replace(job, rates=dict.fromkeys([kind.name][: len(job.rates)], speed(job))) for job in alone.jobs)
    return replace(alone, jobs=jobs).problem()


@pytest.mark.parametrize("policy", LINEAR)
@given(case=cases(max_jobs=6))
def test_the_answer_is_that_of_a_solver(policy: str, case: Case) -> None:
    problem = on_one_type(case)
    ours = allocate(problem, policy)
    with patch.object(one_type, "fits", return_value=False):
        solved = allocate(problem, policy)
    assert ours.certificate.objective == pytest.approx(solved.certificate.objective, rel=1e-6)
    assert ours.certificate.gap <= 1e-6
    assert ours.certificate.unmet == solved.certificate.unmet


def crowded(jobs: int = 9) -> Problem:
    rates = [{"only": 2.0 + n % 4} for n in range(jobs)]
    return Problem.of(
        [AcceleratorType("only", 4, price=1.0)],
        [Job(f"job{n}", rates[n], workers=1 + n % 2, steps=1e3 * (n + 1), age_seconds=5.0 * n) for n in range(jobs)],
    )


@pytest.mark.parametrize("policy", LINEAR)
def test_no_other_solver_is_used(policy: str) -> None:
    asked = AssertionError("a solver was used")
    with patch.object(highs, "solve", side_effect=asked), patch.object(interior, "solve", side_effect=asked):
        allocation = allocate(crowded(), policy)
    assert allocation.busy == pytest.approx([4.0]) or POLICIES[policy].price_aware


def test_equals_share_what_is_left() -> None:
    types = [AcceleratorType("only", 3)]
    jobs = [Job("slow", {"only": 1.0}), *(Job(f"fast{n}", {"only": 2.0}) for n in range(4))]
    given = allocate(Problem.of(types, jobs), "max_throughput").throughput
    assert [given[job.id] for job in jobs] == pytest.approx([0.0, 1.5, 1.5, 1.5, 1.5])


def test_a_program_that_asks_for_too_much_is_left_to_other_solvers() -> None:
    program = Program(crowded())
    lp, _ = program.polytope.lp(np.zeros(len(program)), program.fastest, None)
    assert one_type.fits(lp)
    with pytest.raises(SolverFailed, match="more than the capacity"):
        one_type.solve(lp)


def test_two_types_do_not_fit() -> None:
    types = [AcceleratorType("left", 1), AcceleratorType("right", 1)]
    program = Program(Problem.of(types, [Job("a", {"left": 1.0, "right": 2.0})]))
    lp, _ = program.polytope.lp(None, np.zeros(1), program.fastest)
    assert not one_type.fits(lp)


MIXED = [AcceleratorType("a", 4), AcceleratorType("b", 2), AcceleratorType("c", 6)]


def mixed(*extra: Job) -> Problem:
    jobs = [
        Job(f"job{n}", {"a": 3.0 + n % 5, "b": 2.0, "c": 1.0 + n % 3}, workers=1 + n % 2, steps=1e3 * (n + 1))
        for n in range(14)
    ]
    return Problem.of(MIXED, [*jobs, *extra])


def as_seen(problem: Problem, policy: str) -> Allocation:
    return allocate(problem, policy, heterogeneity_agnostic=True, compare=False)


@pytest.mark.parametrize("policy", SPEEDS_ONLY)
def test_equally_fast_types_are_decided_as_one(policy: str) -> None:
    with patch.object(highs, "solve", side_effect=AssertionError("a solver was used")):
        ours = as_seen(mixed(), policy)
    with patch.object(agnostic, "as_one_type", return_value=None):
        by_type = as_seen(mixed(), policy)
    assert ours.certificate.objective == pytest.approx(by_type.certificate.objective, rel=1e-6)
    assert ours.certificate.prices.keys() == by_type.certificate.prices.keys()
    assert ours.busy == pytest.approx(by_type.busy, rel=1e-6)


@pytest.mark.parametrize(
    "odd",
    [Job("picky", {"a": 1.0, "c": 1.0}), Job("wide", {"a": 1.0, "b": 1.0, "c": 1.0}, workers=4)],
    ids=["cannot run on one", "too wide for one"],
)
def test_types_that_some_job_cannot_use_are_not_merged(odd: Job) -> None:
    problem = mixed(odd)
    assert agnostic.as_one_type(agnostic.alike(problem)) is None
    allocation = as_seen(problem, "max_min_fairness")
    assert "b" not in [kind for row in allocation.rows() if odd.id in row.jobs for kind, x in row.shares.items() if x]


def test_a_job_too_wide_for_every_type_does_not_fit_the_merged_type() -> None:
    problem = mixed(Job("wide", {"a": 1.0, "b": 1.0, "c": 1.0}, workers=8))
    assert agnostic.as_one_type(agnostic.alike(problem)) is not None
    allocation = as_seen(problem, "max_min_fairness")
    assert allocation.throughput["wide"] == 0.0
    assert allocation.limits()["wide"].kind == "not_runnable"


def test_the_level_and_its_prices_prove_each_other() -> None:
    program = Program(crowded(), "steps")
    lp, _ = program.polytope.lp(None, np.zeros(len(program)), program.fastest)
    found: LpSolution = one_type.solve(lp)
    assert lp.bound(found.duals).value == pytest.approx(float(lp.cost @ found.x), rel=1e-12)
    assert lp.violation(found.x) <= 1e-12
