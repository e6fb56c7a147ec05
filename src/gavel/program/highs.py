"""HiGHS as a solver of our programs: primal simplex (exact vertices, warm starts) or interior point."""

from __future__ import annotations

from typing import Literal

import highspy
import numpy as np

from gavel.program.lp import Lp, LpSolution, SolverFailed

Method = Literal["primal simplex", "dual simplex", "interior point"]

_OPTIONS: dict[Method, dict[str, object]] = {
    # Doing nothing is feasible in most of our programs, so primal simplex starts at once and is by far the fastest.
    "primal simplex": {"solver": "simplex", "simplex_strategy": 4, "presolve": "off"},
    "dual simplex": {"solver": "simplex", "simplex_strategy": 1, "presolve": "on"},
    "interior point": {"solver": "ipm", "run_crossover": "on", "presolve": "on"},
}


def solve(lp: Lp, method: Method, *, basis: object | None = None, time_limit: float = 600.0) -> LpSolution:
    """Solve by HiGHS; raises SolverFailed unless it reports optimality."""
    highs = highspy.Highs()
    highs.silent()
    options = {
        "threads": 1,
        "time_limit": time_limit,
        "primal_feasibility_tolerance": 1e-10,
        "dual_feasibility_tolerance": 1e-10,
    }
    for name, value in (options | _OPTIONS[method]).items():
        highs.setOptionValue(name, value)
    if highs.passModel(_model(lp)) != highspy.HighsStatus.kOk:
        raise SolverFailed(f"{method}: HiGHS did not accept the model")
    if basis is not None:
        highs.setBasis(basis)
    # The return code and the model status can disagree after a warm start: both must be good.
    code, status = highs.run(), highs.getModelStatus()
    if code != highspy.HighsStatus.kOk or status != highspy.HighsModelStatus.kOptimal:
        raise SolverFailed(f"{method}: HiGHS ended with {highs.modelStatusToString(status)!r}")
    solution = highs.getSolution()
    # HiGHS minimises, so its row duals have the opposite sign.
    return LpSolution(np.array(solution.col_value), -np.array(solution.row_dual), highs.getBasis())


def _model(lp: Lp) -> highspy.HighsLp:
    rows, columns = lp.matrix.shape
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, rows
    model.col_cost_ = -lp.cost
    model.col_lower_, model.col_upper_ = np.zeros(columns), np.full(columns, np.inf)
    model.row_lower_, model.row_upper_ = np.full(rows, -np.inf), lp.rhs
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = lp.matrix.indptr
    model.a_matrix_.index_ = lp.matrix.indices
    model.a_matrix_.value_ = lp.matrix.data
    return model
