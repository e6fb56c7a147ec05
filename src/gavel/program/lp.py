"""The form in which solvers get every program: maximise cost . x subject to matrix x <= rhs, 0 <= x <= 1."""

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
    """A scaled linear program in the form that all our programs have.

    Each column runs one or two classes; the last column is the level that all floors share, which is
    empty unless `has_level`. By definition every column is at most 1, although no row says so; the bound relies on it.
    Balance rows are equations with right-hand side 0; all other rows are upper limits.
    """

    cost: Floats
    matrix: Columns
    rhs: Floats
    rows: Rows
    has_level: bool
    grid: tuple[Ints, Ints] | None
    """Class and position of each column except the level; a position has the same coupling rows in every class.
    None if a column runs two classes or shares accelerators."""
    sharing: Sharing | None = None
    """Which columns share accelerators; None if none does."""

    @property
    def classes(self) -> int:
        return self.rows.classes

    @property
    def lower(self) -> Floats:
        """The lower limits of rows: none, except for equations."""
        lower = np.full(len(self.rhs), -np.inf)
        lower[self.rows.balances_at] = 0.0
        return lower

    def bound(self, duals: Floats) -> Bound:
        """An upper bound on the objective that holds for any duals, by weak duality and 0 <= x <= 1."""
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
    """By column except the level: what a solver that adds columns step by step needs to know."""

    alone: Bools
    """Whether it runs one class on accelerators that are not shared."""
    balance: Ints
    """The number of its balance row; -1 if it has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """An upper bound on all points of a program, and the prices that prove it."""

    value: float
    prices: Floats
    """By row; negative only for equations."""
    charges: Floats
    """By column: the price of the rows that it uses."""


@dataclass(frozen=True, slots=True, eq=False)
class LpSolution:
    """A solver's answer; it counts only after `bound` and `violation` have confirmed it."""

    x: Floats
    duals: Floats
    """By row: at least 0, up to rounding, except for equations."""
    basis: object | None = None
    """A start for simplex on a similar program."""
    vertex: bool = True
    """Whether its duals are exact up to rounding; those of an interior-point method are only approximate."""


class SolverFailed(Exception):  # noqa: N818 - an outcome that is answered by trying the next solver, not an error of ours
    """The solver gave no answer; the message is the solver's status."""
