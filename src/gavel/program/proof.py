"""Points of a program, and what its duals prove about all other points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.problem import Floats
from gavel.program.grouping import Grouping
from gavel.program.lp import LpSolution

STUCK = 1e-6
"""A class is stuck if it provably cannot rise by more than this fraction of its reach."""
DUAL_ROUNDING = 1e-12
"""The tolerance of an inequality, relative to what is affordable: a worth that is only rounding proves nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class FeasiblePoint:
    """A valid allocation: the amounts of each combo by group, and the throughput of each class that follows."""

    grouping: Grouping
    amounts: Floats
    """By combo of the groups, in units of the program."""
    throughput: Floats
    """By class: steps per second of a member."""


@dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """A start for solving a similar program."""

    grouping: Grouping
    solution: LpSolution


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """An inequality that every valid allocation satisfies, by weak duality.

    The throughputs of all classes, each times its worth, total at most all resources at their prices (`affordable`). If
    an allocation reaches that total, a class of positive worth can gain only if another loses.
    """

    worth: Floats
    """By class: the worth of one step per second of a member, times the number of members."""
    time: Floats
    """By class: the price of all the time of a member, times the number of members."""
    prices: Floats
    """By named coupling row."""
    affordable: float

    def headroom(self, throughput: Floats) -> Floats:
        """By class: the most that a member could gain while no other class falls below its throughput."""
        left = max(self.affordable - float(self.worth @ throughput), DUAL_ROUNDING * self.affordable)
        return np.asarray(np.divide(left, self.worth, out=np.full(len(self.worth), np.inf), where=self.worth > 0))

    def times(self, factor: float) -> Proof:
        """The same inequality, multiplied."""
        return Proof(self.worth * factor, self.time * factor, self.prices * factor, self.affordable * factor)

    def plus(self, other: Proof) -> Proof:
        """The sum of two inequalities, which also holds."""
        return Proof(
            self.worth + other.worth,
            self.time + other.time,
            self.prices + other.prices,
            self.affordable + other.affordable,
        )
