"""HiGHS as a solver of our programs: primal simplex (exact vertices, warm starts) or interior point."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

import highspy
import numpy as np

from gavel.program import deadline
from gavel.program.lp import Bools, Floats, Ints, Lp, LpSolution, SolverFailed
from gavel.program.rows import Rows

Method = Literal["primal simplex", "dual simplex", "interior point"]

_OPTIONS: dict[Method, dict[str, object]] = {
    # Zero is feasible in most of our programs, so primal simplex needs no first phase and is by far the fastest.
    # The programs are already scaled.
    "primal simplex": {"solver": "simplex", "simplex_strategy": 4, "simplex_scale_strategy": 0, "presolve": "off"},
    "dual simplex": {"solver": "simplex", "simplex_strategy": 1, "presolve": "on"},
    "interior point": {"solver": "ipm", "run_crossover": "on", "presolve": "on"},
}


SECONDS, SECONDS_EACH = 30.0, 0.01
"""The time limit of a solve: a constant, plus a part for each row and column. Most take a few milliseconds."""
ITERATIONS, ITERATIONS_EACH = 1000, 20
"""The same for simplex iterations. Our programs take less than one for each row and column."""
SIFTING_BATCH, SIFTING_PART = 250, 16
"""The most columns to add at once: this number, or this fraction (1/16) of all."""
SIFTING_ROUNDS = 200


def solve(lp: Lp, method: Method, *, start: LpSolution | None = None) -> LpSolution:
    """Solve with HiGHS; raise SolverFailed unless it reports optimality."""
    highs = reused(method, sum(lp.matrix.shape))
    _pass(highs, lp)
    if start is not None and start.basis is not None:
        highs.setBasis(start.basis)
    _run(highs, method)
    solution = highs.getSolution()
    # HiGHS minimises, so its row duals have the opposite sign.
    return LpSolution(np.array(solution.col_value), -np.array(solution.row_dual), highs.getBasis())


def vertex(lp: Lp, near: LpSolution) -> LpSolution:
    """The optimal vertex, with exact duals, near a solution of an interior-point method.

    Variables far from their bounds there are almost always basic at the vertex; simplex corrects the exceptions.
    """
    bound = lp.bound(near.duals)
    size = float(lp.classes) if lp.has_level else 1.0 / max(float(np.abs(lp.cost).max(initial=0.0)), 1e-300)
    columns = near.x > np.maximum(bound.charges - lp.cost, 0.0) * size
    rows = lp.rhs - lp.matrix.times(near.x) > bound.prices * size
    basic, lower, upper = (getattr(highspy.HighsBasisStatus, name) for name in ("kBasic", "kLower", "kUpper"))
    basis = highspy.HighsBasis()
    basis.col_status = [basic if used else lower for used in columns.tolist()]
    basis.row_status = [basic if free else upper for free in rows.tolist()]
    basis.valid = basis.alien = True
    return solve(lp, "primal simplex", start=LpSolution(near.x, near.duals, basis))


def whole_time(rows: Rows, count: int, columns: Ints) -> LpSolution:
    """A start for simplex: every class spends all of its time in one of these columns, feasible or not."""
    basic, lower = highspy.HighsBasisStatus.kBasic, highspy.HighsBasisStatus.kLower
    x = np.zeros(count)
    x[columns] = 1.0
    basis = highspy.HighsBasis()
    basis.col_status = [basic if used else lower for used in x.tolist()]
    row_status = [basic] * rows.count
    row_status[rows.times] = [highspy.HighsBasisStatus.kUpper] * rows.classes
    basis.row_status = row_status
    basis.valid = True
    return LpSolution(x, np.zeros(rows.count), basis)


def sift(lp: Lp, *, start: LpSolution | None = None) -> LpSolution:
    """Primal simplex on a few columns; columns that would improve the answer are added until there are none.

    With space sharing, most columns are pairs that no optimum uses. One matrix product prices all of them.
    """
    if lp.sharing is None:
        raise SolverFailed("sifting: no column shares accelerators")
    method: Method = "primal simplex"
    active = np.append(lp.sharing.alone, True)  # jobs alone, and the level
    if start is not None:
        active |= start.x > 0
    columns = np.flatnonzero(active)
    highs = reused(method, sum(lp.matrix.shape))
    _pass(highs, lp, columns)
    batch = max(SIFTING_BATCH, len(lp.cost) // SIFTING_PART)
    for _ in range(SIFTING_ROUNDS):
        deadline.check()
        _run(highs, method)
        solution = highs.getSolution()
        duals = _completed(lp, -np.array(solution.row_dual), active)
        reduced = lp.cost - lp.matrix.transposed_times(duals)
        reduced[active] = 0.0
        better = np.flatnonzero(reduced > 1e-10)
        if not len(better):
            x = np.zeros(lp.matrix.shape[1])
            x[columns] = solution.col_value
            return LpSolution(x, duals)
        best = better[np.argsort(-reduced[better], kind="stable")[:batch]]
        part = lp.matrix.select(best)
        unbounded = np.full(len(best), np.inf)
        highs.addCols(
            len(best),
            -lp.cost[best],
            np.zeros(len(best)),
            unbounded,
            len(part.data),
            part.places.indptr[:-1],
            part.places.indices,
            part.data,
        )
        active[best] = True
        columns = np.concatenate([columns, best])
    raise SolverFailed(f"sifting: no end after {SIFTING_ROUNDS} rounds")


def _completed(lp: Lp, duals: Floats, active: Bools) -> Floats:
    """The duals, with prices for the balance rows of pools that are still empty.

    While a pool is empty, any price is valid. With a price half-way between what the two sides would pay, a column of a
    pool looks worthwhile only if both sides together gain by entering.
    """
    rows, sharing = lp.rows, lp.sharing
    if sharing is None or not rows.balances:
        return duals
    entered = np.zeros(rows.balances, dtype=bool)
    inside = sharing.balance >= 0
    entered[sharing.balance[inside & active[:-1]]] = True
    duals[rows.balances_at] = np.where(entered, duals[rows.balances_at], 0.0)
    column = np.flatnonzero(inside)
    weight = lp.matrix.of_row_range(rows.balances_at)[column]
    gain = (lp.cost - lp.matrix.transposed_times(duals))[column] / np.abs(weight)
    most = np.full((2, rows.balances), -np.inf)
    for end, side in enumerate((weight > 0, weight < 0)):
        np.maximum.at(most[end], sharing.balance[column[side]], gain[side])
    duals[rows.balances_at] += np.where(entered, 0.0, (most[0] - most[1]) / 2)
    return duals


@dataclass(slots=True)
class _Kept:
    """A HiGHS object, and the limits that were last set."""

    highs: highspy.Highs
    seconds: float = 0.0
    """The time limit on its clock, which accumulates over solves."""
    iterations: int = 0


class _Reused(threading.local):
    """One HiGHS object per method and thread: creating one costs as much as solving a small program."""

    def __init__(self) -> None:
        self.by_method: dict[Method, _Kept] = {}


_reused = _Reused()


def reused(method: Method, size: int) -> highspy.Highs:
    """The HiGHS object of this thread for a method; a new model replaces the last one.

    `size` is the number of rows and columns of the model. The limits end a method that cycles, so another can be tried.
    """
    kept = _reused.by_method.get(method)
    if kept is None:
        kept = _reused.by_method[method] = _Kept(_made(method))
    clock = kept.highs.getRunTime()
    seconds, iterations = SECONDS + SECONDS_EACH * size, ITERATIONS + ITERATIONS_EACH * size
    if (left := deadline.seconds_left()) < 2 * seconds:
        seconds = max(left, 0.0) / 2
        kept.seconds = 0.0
    # Setting an option takes as long as a few iterations, so limits that are about right are kept.
    if not seconds <= kept.seconds - clock <= 2 * seconds:
        kept.seconds = clock + 2 * seconds
        kept.highs.setOptionValue("time_limit", kept.seconds)
    if not iterations <= kept.iterations <= 4 * iterations:
        kept.iterations = 2 * iterations
        kept.highs.setOptionValue("simplex_iteration_limit", kept.iterations)
    return kept.highs


def _made(method: Method) -> highspy.Highs:
    highs = highspy.Highs()
    highs.silent()
    options = {"threads": 1, "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for name, value in (options | _OPTIONS[method]).items():
        highs.setOptionValue(name, value)
    return highs


def _run(highs: highspy.Highs, method: Method) -> None:
    # The return code and the model status can disagree after a warm start: check both.
    code, status = highs.run(), highs.getModelStatus()
    if code != highspy.HighsStatus.kOk or status != highspy.HighsModelStatus.kOptimal:
        raise SolverFailed(f"{method}: HiGHS ended with {highs.modelStatusToString(status)!r}")


_BY_COLUMN, _MINIMISE = int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMinimize)


def _pass(highs: highspy.Highs, lp: Lp, chosen: Ints | None = None) -> None:
    """Pass a program to HiGHS, or some of its columns, with the level last."""
    matrix, cost = (lp.matrix, lp.cost) if chosen is None else (lp.matrix.select(chosen), lp.cost[chosen])
    rows, columns = matrix.shape
    # Rows limit every column to 1 except the level, which is unlimited if no class can rise.
    upper = np.full(columns, np.inf)
    upper[-1] = 1.0
    status = highs.passModel(
        columns,
        rows,
        len(matrix.data),
        _BY_COLUMN,
        _MINIMISE,
        0.0,
        -cost,
        np.zeros(columns),
        upper,
        lp.lower,
        lp.rhs,
        *matrix.places.narrow,
        matrix.data,
        np.zeros(columns, dtype=np.int32),
    )
    # A warning means that entries below 1e-9 were dropped; the answer's certificate shows whether that mattered.
    if status == highspy.HighsStatus.kError:
        raise SolverFailed("HiGHS did not accept the model")
