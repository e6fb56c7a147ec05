"""Programs in which most classes get nothing, as with a long queue that is served in order. Solved for a shortlist.

The list starts with the classes that gain most for what they take. Classes that would gain at the resulting prices of
the coupling rows join until there are none. The duals of the others follow from the prices, so the bound holds for all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gavel.program import highs
from gavel.program.columns import Columns
from gavel.program.lp import Bools, Floats, Ints, Lp, LpSolution, SolverFailed

FEWEST_CLASSES = 150
"""With fewer classes, simplex on all of them is as fast."""
LONGEST = 300
"""If the first list would be longer, the interior-point method on all classes is faster."""
FILLING = 1.5
"""The classes of the first list would fill the cluster this many times."""
ROUNDS = 20
PAYS = 1e-9
"""A gain by joining below this, relative to the largest cost, is only rounding."""


def fits(lp: Lp) -> bool:
    """Whether a program has this form: one class per column, no floors, and most classes get nothing."""
    if lp.grid is None or lp.has_level or lp.classes < FEWEST_CLASSES or lp.rhs[lp.rows.floors].any():
        return False
    return len(_first(lp)) <= min(LONGEST, lp.classes - 1)


def solve(lp: Lp) -> LpSolution:
    """Solve a program that fits."""
    m, owner, cost = lp.classes, _owner(lp), lp.cost[:-1]
    time, _, _ = _entries(lp)
    listed = np.zeros(m, dtype=bool)
    listed[_first(lp)] = True
    for _ in range(ROUNDS):
        columns = np.append(listed[owner].nonzero()[0], len(owner))
        part, count = _part(lp, listed, columns), int(listed.sum())
        found = highs.solve(part, "primal simplex")
        prices = np.zeros(len(lp.rhs))
        prices[lp.rows.coupling] = np.maximum(found.duals[part.rows.coupling], 0.0)
        # The price of a class's time: what it gains beyond the prices of the coupling rows.
        prices[lp.rows.times] = np.maximum(
            _most((cost - lp.matrix.transposed_times(prices)[:-1]) / time, owner, m), 0.0
        )
        others = np.where(listed, 0.0, prices[lp.rows.times])
        joining = (others > PAYS * float(np.abs(cost).max(initial=0.0))).nonzero()[0]
        if not len(joining):
            x = np.zeros(len(lp.cost))
            x[columns] = found.x
            return LpSolution(x, prices)
        listed[joining[np.argsort(-others[joining], kind="stable")[:count]]] = True
    raise SolverFailed(f"the shortlist still grows after {ROUNDS} rounds")


def _first(lp: Lp) -> Ints:
    """The classes that gain most for what they take, enough to fill the cluster one and a half times."""
    m, owner = lp.classes, _owner(lp)
    time, load, type_index = _entries(lp)
    at_once = np.zeros((m, int(type_index.max(initial=0)) + 1))
    np.maximum.at(at_once, (owner, type_index), time / load)  # how many would fit on a type at once
    ranked = np.argsort(-_most(lp.cost[:-1] / load, owner, m), kind="stable")
    filled = (1.0 / np.maximum(at_once.sum(axis=1), 1e-12))[ranked].cumsum()
    return ranked[: int(np.searchsorted(filled, FILLING)) + 1]


def _owner(lp: Lp) -> Ints:
    if lp.grid is None:
        raise SolverFailed("columns that run two classes need a general solver")
    return lp.grid[0]


def _entries(lp: Lp) -> tuple[Floats, Floats, Ints]:
    """By column except the level: the part of its class's time and of its type that it takes, and the type."""
    places = lp.matrix.places
    time, _, load = lp.rows.own(places.indptr[:-2])
    return lp.matrix.data[time], lp.matrix.data[load], places.indices[load] - lp.rows.types.start


def _most(values: Floats, owner: Ints, classes: int) -> Floats:
    """By class: the largest value of its columns."""
    most = np.full(classes, -np.inf)
    np.maximum.at(most, owner, values)
    return most


def _part(lp: Lp, listed: Bools, columns: Ints) -> Lp:
    """The program of the listed classes; their floors ask for nothing."""
    rows = replace(lp.rows, classes=int(listed.sum()))
    every, number, rhs = np.arange(rows.count), np.full(lp.rows.count, -1), np.empty(rows.count)
    number[lp.rows.times][listed], number[lp.rows.floors][listed] = every[rows.times], every[rows.floors]
    number[lp.rows.coupling] = every[rows.coupling]
    rhs[number[number >= 0]] = lp.rhs[number >= 0]
    part = lp.matrix.select(columns)
    row = number[part.places.indices]
    kept = row >= 0
    matrix = Columns.of(row[kept], part.places.column[kept], part.data[kept], (rows.count, len(columns)))
    return Lp(lp.cost[columns], matrix, rhs, rows, has_level=False, grid=None)
