"""The structured interior-point method agrees with HiGHS or reports failure: it never returns a wrong answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.bench.generate import generated_problem
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.program import highs, interior
from gavel.program.lp import Lp, SolverFailed
from gavel.program.program import Program
from gavel.program.solve import solve


def random_program(seed: int, decades: float) -> tuple[Program, np.random.Generator]:
    """Distinct jobs whose rates span this many decades between types and between jobs."""
    rng = np.random.default_rng(seed)
    types = [AcceleratorType(f"t{n}", int(rng.integers(1, 30))) for n in range(int(rng.integers(1, 5)))]
    jobs = [
        Job(
            f"job{n}",
            {kind.name: float(10 ** rng.uniform(-decades, decades)) for kind in types if rng.random() > 0.2},
            workers=int(rng.choice([1, 1, 1, 2, 4])),
        )
        for n in range(int(rng.integers(2, 60)))
    ]
    return Program(Problem.of(types, jobs), rank=np.arange(len(jobs))), rng


def gain_lp(program: Program, rng: np.random.Generator) -> Lp:
    """Maximise a weighted sum; some classes have floors that half of an equal split meets."""
    share = 1.0 / (2.0 * len(program) * program.workers)
    floors = np.where(rng.random(len(program)) > 0.5, program.fastest * share, 0.0)
    cost = rng.random(len(program.polytope.combos))
    lp, _ = program.polytope.lp(cost / cost.max(), floors, None)
    return lp


def level_lp(program: Program, rng: np.random.Generator, decades: float) -> Lp:
    target = program.fastest * 10 ** rng.uniform(-decades, 0.0, size=len(program))
    lp, _ = program.polytope.lp(np.zeros(len(program.polytope.combos)), np.zeros(len(program)), target)
    return lp


def assert_agrees(lp: Lp) -> bool:
    """Return whether the program was solved; if so, assert that the answer is feasible and as good as an exact one."""
    exact = highs.solve(lp, "dual simplex")
    value = float(lp.cost @ exact.x)
    try:
        ours = interior.solve(lp)
    except SolverFailed:
        return False
    assert lp.violation(ours.x) <= 1e-6
    assert float(lp.cost @ ours.x) == pytest.approx(value, rel=2e-6, abs=1e-9)
    assert lp.bound(ours.duals).value >= value - 1e-9
    return True


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_ordinary_programs_are_solved_to_the_same_objective(seed: int) -> None:
    program, rng = random_program(seed, 0.7)
    if len(program):
        assert assert_agrees(gain_lp(program, rng))
        assert assert_agrees(level_lp(program, rng, 1.0))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), decades=st.sampled_from([2.0, 4.0, 6.0]))
def test_badly_scaled_programs_are_solved_to_the_same_objective_or_given_up(seed: int, decades: float) -> None:
    program, rng = random_program(seed, decades / 2)
    if len(program):
        assert_agrees(gain_lp(program, rng))
        assert_agrees(level_lp(program, rng, decades))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), decades=st.sampled_from([2.0, 4.0, 6.0]))
def test_at_any_scale_some_solver_has_a_certified_answer(seed: int, decades: float) -> None:
    program, rng = random_program(seed, decades / 2)
    if len(program):
        for lp in (gain_lp(program, rng), level_lp(program, rng, decades)):
            checked = solve(lp)
            assert checked.bound.value == pytest.approx(float(lp.cost @ checked.solution.x), rel=2e-6, abs=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_distinct_jobs_are_solved_to_the_same_objective(seed: int) -> None:
    program = Program(generated_problem(1000, distinct=True, seed=seed), "steps")
    target = program.steps * float((program.fastest / program.steps).min())
    lp, _ = program.polytope.lp(np.zeros(len(program.polytope.combos)), np.zeros(len(program)), target)
    assert assert_agrees(lp)


def test_columns_that_run_two_classes_are_declined() -> None:
    program = Program(generated_problem(30, space_sharing=True))
    lp, _ = program.polytope.lp(np.zeros(len(program.polytope.combos)), np.zeros(len(program)), program.fastest)
    with pytest.raises(SolverFailed, match="two classes"):
        interior.solve(lp)
