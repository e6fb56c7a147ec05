"""Points of a program, and what its duals prove of every other point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.problem import Floats
from gavel.program.grouping import Grouping
from gavel.program.lp import LpSolution

STUCK = 1e-6
"""A class that is proven unable to rise by more than this part of its reach counts as stuck."""
DUAL_ROUNDING = 1e-12
"""What an inequality may be off by, relative to what is affordable: a worth that is mere rounding proves nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class FeasiblePoint:
    """A valid allocation: what groups of classes get of each combo, and so what each class gets."""

    grouping: Grouping
    amounts: Floats
    """By combo of the groups, in units."""
    throughput: Floats
    """By class: steps per second of a member."""


@dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """Where a similar program may begin."""

    grouping: Grouping
    solution: LpSolution


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """An inequality that every valid allocation satisfies, by weak duality.

    The throughputs of all classes, each times its worth, come to no more than all resources do at their prices. Where
    an allocation comes to exactly that, a class of positive worth gains only if another loses.
    """

    worth: Floats
    """By class: of one step per second of a member, times its members."""
    time: Floats
    """By class: of all the time of a member, times its members."""
    prices: Floats
    """By named coupling row."""
    affordable: float

    def headroom(self, throughput: Floats) -> Floats:
        """By class: how much more a member could have at most while no other class falls below this throughput."""
        left = max(self.affordable - float(self.worth @ throughput), DUAL_ROUNDING * self.affordable)
        return np.asarray(np.divide(left, self.worth, out=np.full(len(self.worth), np.inf), where=self.worth > 0))

    def times(self, factor: float) -> Proof:
        """The same inequality, multiplied."""
        return Proof(self.worth * factor, self.time * factor, self.prices * factor, self.affordable * factor)

    def plus(self, other: Proof) -> Proof:
        """The sum of two inequalities, which holds too."""
        return Proof(
            self.worth + other.worth,
            self.time + other.time,
            self.prices + other.prices,
            self.affordable + other.affordable,
        )
