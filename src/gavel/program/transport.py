"""Transportation problems: meet demands from supplies over given ways at the least cost."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from gavel.core.errors import SolverError
from gavel.core.problem import Bools, Floats, Ints
from gavel.program import highs


@dataclass(frozen=True, slots=True, eq=False)
class Transport:
    """The optimal amount on each way, and the prices."""

    x: Floats
    demand_prices: Floats
    """By demand: how much the cost would rise with one more unit."""
    supply_prices: Floats
    """By supply: how much the cost would fall with one more unit."""


def solve(cost: Floats, to: Ints, origin: Ints, demand: Floats, supply: Floats, begin: Bools) -> Transport:
    """Minimise the cost of shipping; each way leads from an origin to a destination.

    `begin` is any answer that uses one way to each destination; one near the optimum saves nine tenths of the steps.

    >>> ways, begin = np.array([1.0, 3.0, 2.0, 2.5]), np.array([False, True, True, False])
    >>> found = solve(ways, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.ones(2), np.ones(2), begin)
    >>> found.x.round().astype(int).tolist()
    [1, 0, 0, 1]
    """
    rows, columns = len(demand) + len(supply), len(cost)
    solver = highs.reused("primal simplex", rows + columns)
    index = np.empty(2 * columns, dtype=np.int32)
    index[0::2], index[1::2] = to, len(demand) + origin
    solver.passModel(
        columns,
        rows,
        2 * columns,
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        cost,
        np.zeros(columns),
        np.full(columns, np.inf),
        np.concatenate([demand, np.full(len(supply), -np.inf)]),
        np.concatenate([demand, supply]),
        np.arange(0, 2 * columns + 1, 2, dtype=np.int32),
        index,
        np.ones(2 * columns),
        np.zeros(columns, dtype=np.int32),
    )
    solver.setBasis(_basis(begin, len(demand), len(supply)))
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        solver.clearSolver()  # the problem is feasible, so a start from scratch must succeed
        solver.run()
        status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"the matching ended with {solver.modelStatusToString(status)!r}")
    solution = solver.getSolution()
    prices = np.array(solution.row_dual)
    return Transport(np.array(solution.col_value), prices[: len(demand)], np.maximum(-prices[len(demand) :], 0.0))


def _basis(ways: Bools, demands: int, supplies: int) -> highspy.HighsBasis:
    """A start for simplex that uses one way to each destination."""
    basic, lower = highspy.HighsBasisStatus.kBasic, highspy.HighsBasisStatus.kLower
    basis = highspy.HighsBasis()
    basis.col_status = [basic if way else lower for way in ways.tolist()]
    basis.row_status = [lower] * demands + [basic] * supplies
    basis.valid = True
    return basis
