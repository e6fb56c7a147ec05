"""If there is room for all jobs, nothing has to be solved, and the answer is the same as a solver's."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.policies.registry import allocate
from gavel.program import program as module
from gavel.program.program import Program
from strategies import Case, cases

EGALITARIAN = ["max_min_fairness", "max_min_fairness_water_filling", "finish_time_fairness", "makespan", "hierarchical"]


def roomy(case: Case) -> Problem:
    """The same jobs on a much larger cluster."""
    types = tuple(AcceleratorType(kind.name, 50 * max(kind.count, 1), kind.price) for kind in case.types)
    return replace(case, types=types).problem()


@pytest.mark.parametrize("policy", EGALITARIAN)
@given(case=cases(max_jobs=6))
def test_the_answer_is_that_of_a_solver(policy: str, case: Case) -> None:
    problem = roomy(case)
    ours = allocate(problem, policy)
    with patch.object(Program, "_unhindered", None):
        solved = allocate(problem, policy)
    assert ours.certificate.objective == pytest.approx(solved.certificate.objective, rel=1e-6)
    assert ours.certificate.gap <= 1e-6
    assert ours.certificate.prices == pytest.approx(solved.certificate.prices, abs=1e-9)


@pytest.mark.parametrize("policy", EGALITARIAN)
def test_nothing_is_solved(policy: str) -> None:
    types = [AcceleratorType("fast", 4), AcceleratorType("slow", 4)]
    jobs = [Job(f"job{n}", {"fast": 4.0, "slow": 1.0}, workers=2, steps=100.0 + n, age_seconds=5.0) for n in range(2)]
    with patch.object(module, "solve", side_effect=AssertionError("a solver was used")):
        allocation = allocate(Problem.of(types, jobs), policy)
        assert allocation.job_throughput == pytest.approx(np.full(2, 4.0))
        with pytest.raises(AssertionError, match="a solver was used"):
            allocate(Problem.of(types, [*jobs, replace(jobs[0], id="one too many")]), policy)


def test_equally_fast_types_are_filled_in_proportion() -> None:
    types = [AcceleratorType("left", 3), AcceleratorType("right", 6)]
    jobs = [Job(f"job{n}", {"left": 2.0, "right": 2.0}) for n in range(9)]
    with patch.object(module, "solve", side_effect=AssertionError("a solver was used")):
        allocation = allocate(Problem.of(types, jobs))
    assert allocation.busy == pytest.approx([3.0, 6.0])
