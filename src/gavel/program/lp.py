"""The one form in which every question reaches a solver: maximise cost . x subject to matrix x <= rhs, 0 <= x <= 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gavel.program.columns import Columns

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Lp:
    """A scaled linear program with the shape that all of ours have.

    Rows: one *time* row for each class, one *floor* row for each class, then the few *coupling* rows (capacities).
    Columns: each belongs to the one or two classes it runs; the last one is the level that all floors share, which is
    empty unless `has_level`. Every column is at most 1 by its meaning, though no row says so: the bound relies on it.
    """

    cost: Floats
    matrix: Columns
    rhs: Floats
    classes: int
    has_level: bool
    grid: tuple[Ints, Ints] | None
    """Class and position of each column without the level, a position meeting the same coupling rows in every class;
    None if some column runs two classes."""

    def bound(self, duals: Floats) -> Bound:
        """An upper bound on the objective that holds whatever the duals are, by weak duality and 0 <= x <= 1."""
        prices = np.maximum(duals, 0.0)
        charges = self.matrix.transposed_times(prices)
        shortfall = np.maximum(self.cost - charges, 0.0)
        return Bound(float(self.rhs @ prices + shortfall.sum()), prices, charges)

    def violation(self, x: Floats) -> float:
        """The largest amount by which a row is exceeded, or a column is below 0 or above 1."""
        rows = (self.matrix.times(x) - self.rhs).max(initial=0.0)
        return float(max(rows, -x.min(initial=0.0), x.max(initial=0.0) - 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """What no point of a program can pass, and the prices that say so."""

    value: float
    prices: Floats
    """By row, none negative."""
    charges: Floats
    """By column: what it pays for the rows that it uses."""


@dataclass(frozen=True, slots=True, eq=False)
class LpSolution:
    """What a solver says; nothing is believed before `bound` and `violation` confirm it."""

    x: Floats
    duals: Floats
    """One per row, at least 0 up to rounding."""
    basis: object | None = None
    """Where a simplex solver may start the next, similar program."""


class SolverFailed(Exception):  # noqa: N818 - an outcome that is answered by trying the next solver, not an error of ours
    """The solver gave no answer; the message is its own status."""
