"""Raising and filling takes one program where one is enough, with the same answer as two programs."""

from __future__ import annotations

from unittest.mock import PropertyMock, patch

import numpy as np
import pytest
from hypothesis import given

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.policies import scores
from gavel.policies.registry import allocate
from gavel.program import program as module
from gavel.program.program import Level, Program
from gavel.program.solve import solve
from strategies import Case, cases

EGALITARIAN = ["max_min_fairness", "makespan", "finish_time_fairness"]


def by_two_programs(problem: Problem, policy: str) -> Allocation:
    nobody = PropertyMock(return_value=np.zeros(1, dtype=bool))
    with patch.object(Program, "_may_reach_ceiling", return_value=False), patch.object(Level, "stuck", nobody):
        return allocate(problem, policy)


@pytest.mark.parametrize("policy", EGALITARIAN)
@given(case=cases(max_jobs=6))
def test_the_answer_is_that_of_two_programs(policy: str, case: Case) -> None:
    problem = case.problem()
    ours, two = allocate(problem, policy), by_two_programs(problem, policy)
    assert ours.certificate.objective == pytest.approx(two.certificate.objective, rel=1e-6)
    assert ours.certificate.gap <= 1e-6
    assert scores.total_normalised_throughput(ours) >= scores.total_normalised_throughput(two) * (1 - 1e-5)


TYPES = [AcceleratorType("fast", 4), AcceleratorType("slow", 4)]


def jobs(count: int) -> list[Job]:
    return [
        Job(f"job{n}", {"fast": 4.0 + n % 3, "slow": 2.0 + n % 2}, steps=100.0 * (n + 1), age_seconds=5.0)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "programs"), [(4, 0), (6, 1), (20, 1)], ids=["all on the fastest", "at the ceiling", "all are bound"]
)
def test_at_most_one_program_is_solved(count: int, programs: int) -> None:
    flat = Job("flat", {"fast": 1.0, "slow": 1.0}, steps=10.0)
    problem = Problem.of(TYPES, [flat, *jobs(count - 1)])
    with patch.object(module, "solve", side_effect=solve) as asked:
        allocation = allocate(problem)
    assert asked.call_count == programs
    assert allocation.certificate.gap <= 1e-6
    assert allocation.busy.sum() == pytest.approx(min(count, 8), rel=1e-6)


def test_a_ceiling_that_is_not_reached_costs_a_second_program_and_nothing_else() -> None:
    """There is an accelerator for every job, but all jobs would have to be on the fast type."""
    problem = Problem.of(TYPES, [Job(f"job{n}", {"fast": 4.0, "slow": 0.1 * (n + 1)}) for n in range(8)])
    with patch.object(module, "solve", side_effect=solve) as asked:
        allocation = allocate(problem)
    assert asked.call_count > 1
    assert allocation.certificate.gap <= 1e-6
    expected = by_two_programs(problem, "max_min_fairness").certificate
    assert allocation.certificate.objective == pytest.approx(expected.objective, rel=1e-6)
    assert allocation.certificate.prices == pytest.approx(expected.prices, rel=1e-4)
