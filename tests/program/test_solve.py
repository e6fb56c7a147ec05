"""No solver is trusted: an answer counts if its own duals prove it; otherwise the next solver is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from gavel.bench.generate import generated_problem
from gavel.core.errors import SolverError, TimeLimitError
from gavel.policies.registry import allocate
from gavel.program import deadline, highs, interior
from gavel.program.lp import Lp, LpSolution, SolverFailed
from gavel.program.program import Program
from gavel.program.solve import SolverCall, solve


def level_lp() -> Lp:
    program = Program(generated_problem(30, distinct=True, seed=3))
    lp, _ = program.polytope.lp(np.zeros(len(program.polytope.combos)), np.zeros(len(program)), program.fastest)
    return lp


LP = level_lp()
TRUTH = highs.solve(LP, "dual simplex")


def honest() -> LpSolution:
    return TRUTH


def gives_up() -> LpSolution:
    raise SolverFailed("time limit")


LIES: dict[str, Callable[[], LpSolution]] = {
    "too much": lambda: replace(TRUTH, x=TRUTH.x * 1.01),
    "too little": lambda: replace(TRUTH, x=TRUTH.x * 0.99),
    "nothing at all": lambda: replace(TRUTH, x=np.zeros_like(TRUTH.x)),
    "less than nothing": lambda: replace(TRUTH, x=np.where(np.arange(len(TRUTH.x)) == 0, -1.0, TRUTH.x)),
    "not a number": lambda: replace(TRUTH, x=np.full_like(TRUTH.x, np.nan)),
    "infinite": lambda: replace(TRUTH, x=np.full_like(TRUTH.x, np.inf)),
    "duals too small": lambda: replace(TRUTH, duals=TRUTH.duals * 0.9),
    "duals too large": lambda: replace(TRUTH, duals=TRUTH.duals * 1.1),
    "no duals": lambda: replace(TRUTH, duals=np.zeros_like(TRUTH.duals)),
    "duals that are not numbers": lambda: replace(TRUTH, duals=np.full_like(TRUTH.duals, np.nan)),
    "gives up": gives_up,
}


def test_an_honest_answer_is_accepted() -> None:
    checked = solve(LP, attempts=iter([honest]))
    assert checked.solution is TRUTH
    assert checked.bound.value == pytest.approx(float(LP.cost @ TRUTH.x))


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_wrong_answer_is_noticed_and_the_next_solver_is_tried(lie: str) -> None:
    assert solve(LP, attempts=iter([LIES[lie], honest])).solution is TRUTH


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_if_every_solver_is_wrong_or_fails_the_error_lists_their_answers() -> None:
    attempts: list[SolverCall] = list(LIES.values())
    with pytest.raises(SolverError, match=r"no solver reached a certified optimum .*time limit"):
        solve(LP, attempts=iter(attempts))


@pytest.mark.parametrize("method", ["primal simplex", "dual simplex", "interior point"])
def test_all_methods_give_the_same_answer(method: highs.Method) -> None:
    assert highs.solve(LP, method).x @ LP.cost == pytest.approx(TRUTH.x @ LP.cost, rel=1e-8)


def test_an_infeasible_model_is_a_failure_and_not_an_answer() -> None:
    impossible = replace(LP, rhs=np.where(np.arange(len(LP.rhs)) == LP.classes, -1e6, LP.rhs))
    for method in ("primal simplex", "dual simplex", "interior point"):
        with pytest.raises(SolverFailed, match="nfeasible"):
            highs.solve(impossible, method)
    with pytest.raises(SolverFailed):
        interior.solve(impossible)
    with pytest.raises(SolverError):
        solve(impossible)


def test_sifting_gives_the_answer_of_simplex_on_all_columns() -> None:
    program = Program(generated_problem(300, space_sharing=True, seed=3))
    lp, _ = program.polytope.lp(np.zeros(len(program.polytope.combos)), np.zeros(len(program)), program.fastest)
    sifted, whole = highs.sift(lp), highs.solve(lp, "primal simplex")
    assert sifted.x @ lp.cost == pytest.approx(whole.x @ lp.cost, rel=1e-9)
    assert lp.violation(sifted.x) <= 1e-9


def test_the_time_limit_applies_to_each_solve_and_not_to_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a scheduler that runs for months, or a simulation of hours, would reach it."""
    monkeypatch.setattr(highs, "SECONDS", 0.1)
    monkeypatch.setattr(highs, "SECONDS_EACH", 0.0)
    monkeypatch.setattr(highs, "_reused", highs._Reused())
    highs.solve(LP, "primal simplex")
    while highs._reused.by_method["primal simplex"].highs.getRunTime() < 0.3:
        highs.solve(LP, "primal simplex")


def test_a_method_that_does_not_terminate_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(generated_problem(60, seed=3))
    lp, _ = program.polytope.lp(np.zeros(len(program.polytope.combos)), np.zeros(len(program)), program.fastest)
    monkeypatch.setattr(highs, "_reused", highs._Reused())
    monkeypatch.setattr(highs, "ITERATIONS", 1)
    monkeypatch.setattr(highs, "ITERATIONS_EACH", 0)
    with pytest.raises(SolverFailed, match="Iteration limit"):
        highs.solve(lp, "primal simplex")
    monkeypatch.undo()
    assert solve(lp).bound.value == pytest.approx(float(lp.cost @ highs.solve(lp, "primal simplex").x), rel=1e-9)


@pytest.mark.parametrize("kind", ["interior", "simplex", "sifting"])
def test_a_solve_ends_when_time_is_up(kind: str) -> None:
    problem = generated_problem(
        60 if kind == "simplex" else 400, distinct=kind != "simplex", space_sharing=kind == "sifting", seed=3
    )
    with pytest.raises(TimeLimitError, match=r"no answer within the time limit of 0 s"):
        allocate(problem, "max_min_fairness", limit_seconds=0.0)


def test_a_program_that_would_take_too_long_is_not_begun() -> None:
    """A queue of 400 jobs with space sharing has some ten million elements as a dense matrix."""
    problem = generated_problem(400, distinct=True, space_sharing=True, accelerators=20)
    with (
        patch.object(deadline, "SECONDS_EACH", 1e-3),
        patch.object(highs, "sift", side_effect=AssertionError("it was started")),
        pytest.raises(TimeLimitError, match=r"would take about .* s, longer than the time limit of 60 s"),
    ):
        allocate(problem, "fifo", limit_seconds=60.0)


def test_a_timed_out_solve_leaves_no_state_for_the_next_one() -> None:
    problem = generated_problem(100, seed=3)
    with pytest.raises(TimeLimitError):
        allocate(problem, limit_seconds=0.0)
    assert allocate(problem).certificate.gap <= 1e-6
