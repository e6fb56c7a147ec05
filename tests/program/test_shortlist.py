"""If most classes get nothing, solving for a shortlist gives the same answer as solving for all classes."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.bench.generate import generated_problem
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job, PlacedRate
from gavel.core.problem import Problem
from gavel.policies.registry import allocate
from gavel.program import highs, interior, shortlist
from gavel.program.lp import Lp, SolverFailed
from gavel.program.program import Program


def queue(seed: int, jobs: int) -> Problem:
    """Single workers and gangs, some sensitive to placement, on three types; some jobs cannot run on some types."""
    rng = np.random.default_rng(seed)
    types = [AcceleratorType.uniform(f"t{n}", count=int(rng.integers(2, 9)), per_server=4) for n in range(3)]
    sizes = rng.choice([1, 1, 1, 2, 4], size=jobs).tolist()
    return Problem.of(types, [_job(rng, number, workers, types) for number, workers in enumerate(sizes)])


def _job(rng: np.random.Generator, number: int, workers: int, types: list[AcceleratorType]) -> Job:
    rates = {kind.name: float(10 ** rng.uniform(-1, 1)) for kind in types if rng.random() > 0.2}
    if workers > 1:
        placed = {name: PlacedRate(rate, rate * float(rng.uniform(0.5, 1.0))) for name, rate in rates.items()}
        return Job(f"job{number}", placed, workers=workers, arrival=float(number))
    return Job(f"job{number}", rates, arrival=float(number))


def linear(seed: int, jobs: int) -> Lp:
    """Maximise a sum in which every class has another weight, some of them negative."""
    program = Program(queue(seed, jobs), rank=np.arange(jobs))
    rng = np.random.default_rng(seed)
    worth = (
        rng.uniform(0.1, 1.0, len(program))[program.polytope.combos.first]
        * program.polytope.combos.rate
        * program.polytope.unit
    )
    cost = np.where(rng.random(len(worth)) < 0.1, -worth, worth)
    lp, _ = program.polytope.lp(cost / np.abs(cost).max(), np.zeros(len(program)), None)
    return lp


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), filling=st.sampled_from([0.01, 0.3, 1.5]))
def test_the_answer_and_its_bound_are_those_of_the_whole_program(seed: int, filling: float) -> None:
    lp = linear(seed, 60)
    with patch.multiple(shortlist, FILLING=filling):
        found = shortlist.solve(lp)
    value = float(lp.cost @ found.x)
    assert lp.violation(found.x) <= 1e-9
    assert value == pytest.approx(float(lp.cost @ highs.solve(lp, "dual simplex").x), rel=1e-7)
    assert lp.bound(found.duals).value == pytest.approx(value, rel=1e-7)


def test_a_long_queue_is_served_in_order_by_solving_for_a_part_of_it() -> None:
    problem = queue(3, 400)
    with patch.object(interior, "solve", side_effect=AssertionError("all classes were solved")):
        allocation = allocate(problem, "fifo")
    assert allocation.certificate.gap <= 1e-9
    with patch.object(shortlist, "fits", return_value=False):
        everyone = allocate(problem, "fifo")
    assert allocation.certificate.objective == pytest.approx(everyone.certificate.objective, rel=1e-6)


def test_a_shortlist_that_keeps_growing_is_given_up_and_all_classes_are_solved() -> None:
    problem = queue(4, 400)
    with patch.multiple(shortlist, FILLING=0.01, ROUNDS=1):
        program = Program(problem, rank=np.arange(400))
        lp, _ = program.polytope.lp(
            program.polytope.combos.rate / program.polytope.combos.rate.max(), np.zeros(len(program)), None
        )
        with pytest.raises(SolverFailed, match="still grows after 1 rounds"):
            shortlist.solve(lp)
        allocation = allocate(problem, "fifo")
    assert allocation.certificate.gap <= 1e-6


def test_programs_with_floors_a_level_or_few_classes_do_not_fit_a_shortlist() -> None:
    program = Program(queue(5, 200), rank=np.arange(200))
    cost, nothing = program.polytope.combos.rate, np.zeros(len(program))
    assert shortlist.fits(program.polytope.lp(cost, nothing, None)[0])
    assert not shortlist.fits(program.polytope.lp(cost, program.fastest * 1e-3, None)[0])
    assert not shortlist.fits(program.polytope.lp(None, nothing, program.fastest)[0])
    assert not shortlist.fits(linear(5, 60))


def test_no_shortlist_is_made_if_there_is_room_for_most() -> None:
    program = Program(generated_problem(400, distinct=True), rank=np.arange(400))
    assert not shortlist.fits(program.polytope.lp(program.polytope.combos.rate, np.zeros(len(program)), None)[0])
