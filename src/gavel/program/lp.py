"""The one form in which every question reaches a solver: maximise cost . x subject to matrix x <= rhs, 0 <= x <= 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gavel.program.columns import Columns
from gavel.program.rows import Rows

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Lp:
    """A scaled linear program with the shape that all of ours have.

    Columns: each belongs to the one or two classes it runs; the last one is the level that all floors share, which is
    empty unless `has_level`. Every column is at most 1 by its meaning, though no row says so: the bound relies on it.
    Balance rows are equations with right-hand side 0; all other rows are upper limits.
    """

    cost: Floats
    matrix: Columns
    rhs: Floats
    rows: Rows
    has_level: bool
    grid: tuple[Ints, Ints] | None
    """Class and position of each column without the level, a position meeting the same coupling rows in every class;
    None if some column runs two classes or shares accelerators."""
    sharing: Sharing | None = None
    """Which columns share accelerators, if some do."""

    @property
    def classes(self) -> int:
        return self.rows.classes

    @property
    def lower(self) -> Floats:
        """What rows are at least: no limit, but for the equations."""
        lower = np.full(len(self.rhs), -np.inf)
        lower[self.rows.balances_at] = 0.0
        return lower

    def bound(self, duals: Floats) -> Bound:
        """An upper bound on the objective that holds whatever the duals are, by weak duality and 0 <= x <= 1."""
        prices = np.maximum(duals, 0.0)
        prices[self.rows.balances_at] = duals[self.rows.balances_at]
        charges = self.matrix.transposed_times(prices)
        shortfall = np.maximum(self.cost - charges, 0.0)
        return Bound(float(self.rhs @ prices + shortfall.sum()), prices, charges)

    def violation(self, x: Floats) -> float:
        """The largest amount by which a row is exceeded, or a column is below 0 or above 1."""
        over = self.matrix.times(x) - self.rhs
        balances = np.abs(over[self.rows.balances_at]).max(initial=0.0)
        return float(max(over.max(initial=0.0), balances, -x.min(initial=0.0), x.max(initial=0.0) - 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """By column without the level: what a solver that adds columns one by one has to know."""

    alone: Bools
    """Whether it runs one class, on accelerators that it shares with no other."""
    balance: Ints
    """The balance row that it is in, counted from the first; -1 if none."""


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """What no point of a program can pass, and the prices that say so."""

    value: float
    prices: Floats
    """By row; negative only for equations."""
    charges: Floats
    """By column: what it pays for the rows that it uses."""


@dataclass(frozen=True, slots=True, eq=False)
class LpSolution:
    """What a solver says; nothing is believed before `bound` and `violation` confirm it."""

    x: Floats
    duals: Floats
    """One per row, at least 0 up to rounding but for equations."""
    basis: object | None = None
    """Where a simplex solver may start the next, similar program."""
    vertex: bool = True
    """Whether its duals are exact but for rounding; those of an interior-point method are close only."""


class SolverFailed(Exception):  # noqa: N818 - an outcome that is answered by trying the next solver, not an error of ours
    """The solver gave no answer; the message is its own status."""
