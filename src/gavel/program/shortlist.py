"""Programs in which most classes get nothing, as where a queue is long and comes in order. Solved for a few of them.

Whoever gains most for what it takes is on the list; the prices of the coupling rows say who else would pay them, and
those join until nobody would. The duals of the others follow from the prices, so the bound holds for all.
"""

from __future__ import annotations

import numpy as np

from gavel.program import highs
from gavel.program.columns import Columns
from gavel.program.lp import Bools, Floats, Ints, Lp, LpSolution, SolverFailed

LENGTH = 150
"""How many are on the list at first, and join at once at most."""
ROUNDS = 20
MOST_CLASSES = 5000
"""Beyond this lists grow long, and the interior-point method is faster."""
PAYS = 1e-9
"""Who would gain less than this by joining, in parts of the largest cost, gains by rounding only."""


def fits(lp: Lp) -> bool:
    """Whether a program is of this kind: nobody has a floor, and one class runs in each column."""
    asked = lp.rhs[lp.classes : 2 * lp.classes]
    return lp.grid is not None and not lp.has_level and LENGTH < lp.classes <= MOST_CLASSES and not asked.any()


def solve(lp: Lp) -> LpSolution:
    """Solve a program that fits."""
    m, owner, cost = lp.classes, _owner(lp), lp.cost[:-1]
    time, load = _entries(lp)
    listed = np.zeros(m, dtype=bool)
    listed[_most(cost / load, owner, m).argsort(kind="stable")[-LENGTH:]] = True
    for _ in range(ROUNDS):
        columns = np.append(listed[owner].nonzero()[0], len(owner))
        found = highs.solve(_part(lp, listed, columns), "primal simplex")
        count = int(listed.sum())
        prices = np.zeros(len(lp.rhs))
        prices[2 * m :] = np.maximum(found.duals[count:], 0.0)
        # What a class would pay for its time, once it has paid for all else.
        prices[:m] = np.maximum(_most((cost - lp.matrix.transposed_times(prices)[:-1]) / time, owner, m), 0.0)
        others = np.where(listed, 0.0, prices[:m])
        joining = (others > PAYS * float(np.abs(cost).max(initial=0.0))).nonzero()[0]
        if not len(joining):
            x = np.zeros(len(lp.cost))
            x[columns] = found.x
            return LpSolution(x, prices)
        listed[joining[np.argsort(-others[joining], kind="stable")[:LENGTH]]] = True
    raise SolverFailed(f"the shortlist still grows after {ROUNDS} rounds")


def _owner(lp: Lp) -> Ints:
    if lp.grid is None:
        raise SolverFailed("columns that run two classes need a general solver")
    return lp.grid[0]


def _entries(lp: Lp) -> tuple[Floats, Floats]:
    """By column but the level: what it takes of its class's time, and of the coupling row that it fills most."""
    places, columns = lp.matrix.places, lp.matrix.shape[1] - 1
    time, load = np.ones(columns), np.full(columns, 1e-12)
    timed, coupled = places.indices < lp.classes, places.indices >= 2 * lp.classes
    time[places.column[timed]] = lp.matrix.data[timed]
    np.maximum.at(load, places.column[coupled], lp.matrix.data[coupled])
    return time, load


def _most(values: Floats, owner: Ints, classes: int) -> Floats:
    """By class: the largest value of its columns."""
    most = np.full(classes, -np.inf)
    np.maximum.at(most, owner, values)
    return most


def _part(lp: Lp, listed: Bools, columns: Ints) -> Lp:
    """The program of the listed classes, without floors."""
    m, count = lp.classes, int(listed.sum())
    rows = len(lp.rhs) - 2 * m + count
    number = np.full(len(lp.rhs), -1)
    number[:m][listed] = np.arange(count)
    number[2 * m :] = np.arange(count, rows)
    part = lp.matrix.select(columns)
    row = number[part.places.indices]
    kept = row >= 0
    matrix = Columns.of(row[kept], part.places.column[kept], part.data[kept], (rows, len(columns)))
    return Lp(lp.cost[columns], matrix, lp.rhs[number >= 0], count, has_level=False, grid=None)
