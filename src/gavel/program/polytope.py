"""The polytope of valid allocations for some classes, and the linear programs over it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gavel.core.problem import Floats, Ints, Problem
from gavel.program.columns import Columns
from gavel.program.lp import Bound, Lp, LpSolution, Sharing
from gavel.program.solve import is_large
from gavel.program.structure import Combos, Cuts, LpStructure

FLOOR_SLACK = 1e-9
INTERIOR_FLOOR_SLACK = 4e-8
"""Floors that a solution just met are lowered by this in later programs, so that rounding leaves them feasible;
an interior-point method needs more room. A class that lacks at most half of it counts as having reached a level:
less than the floors allow for, more than the solvers' errors."""
LEAST_SHARE = 1e-11
"""The smallest floor, as a fraction of a class's best throughput: solvers cannot distinguish less from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Duals:
    """The duals of a program, in terms of the problem."""

    worth: Floats
    """By class: the worth of one step per second of a member, times the number of members."""
    time: Floats
    """By class: the price of all the time of a member, times the number of members."""
    prices: Floats
    """By named coupling row: the price of one accelerator, or of one more unit of what the row counts."""
    affordable: float
    """All resources at their prices: in no valid allocation are the steps per second worth more in total."""


class Polytope:
    """The valid allocations of classes, each with a profile and a number of members."""

    def __init__(self, problem: Problem, profile: Ints, count: Floats, cuts: Cuts = frozenset()) -> None:
        self.problem = problem
        self.profile = profile
        self.count = count
        self.structure = LpStructure.of(problem, profile, count > 1, cuts)

    def __len__(self) -> int:
        return len(self.count)

    @property
    def combos(self) -> Combos:
        return self.structure.combos

    @cached_property
    def unit(self) -> Floats:
        """By combo: the number of simultaneous instances that 1 in the program stands for."""
        return self.structure.unit(self.count)

    @cached_property
    def matrix(self) -> Columns:
        """All rows in units; each program sets the last column, the level."""
        return self.structure.matrix(self.unit, self.count)

    @property
    def shares(self) -> bool:
        """Whether any combo shares accelerators, as a pair or in a pool."""
        return self.combos.sharing

    @property
    def is_large(self) -> bool:
        """Whether the interior-point method solves these programs fastest."""
        return not self.shares and is_large(len(self), len(self.combos))

    @cached_property
    def slack(self) -> float:
        return INTERIOR_FLOOR_SLACK if self.is_large else FLOOR_SLACK

    def lp(self, cost: Floats | None, floors: Floats, target: Floats | None) -> tuple[Lp, Floats]:
        """The program with the given cost; with a target, the level goes from the floors (0) to the target (1).

        Floor rows are scaled by what they ask for, so that a job with few steps is served as exactly as one with many.
        Also returns the scale of each floor row.
        """
        structure, m, base = self.structure, len(self), self.matrix
        floors = self._at_least(floors)
        target = None if target is None else self._at_least(np.maximum(target, floors))
        asked = floors if target is None else target
        scale = 1.0 / np.where(asked > 0, asked, structure.fastest)
        data = base.data.copy()
        data[structure.throughput_entries] *= -scale[structure.throughput_classes]
        if target is not None:
            data[len(data) - m :] = (target - floors) * scale
        rhs = structure.most.copy()
        rhs[structure.rows.floors] = -floors * scale
        c = self.combos
        gain = np.zeros(len(c) + 1)
        if cost is not None:
            gain[:-1] = cost
        gain[-1] = 0.0 if target is None else 1.0
        grid = None if self.shares else (c.first, c.column)
        return Lp(gain, Columns(base.places, data), rhs, structure.rows, target is not None, grid, self._sharing), scale

    @cached_property
    def _sharing(self) -> Sharing | None:
        c = self.combos
        if not self.shares:
            return None
        return Sharing((c.second < 0) & (c.pool < 0), np.where(c.side == 0, -1, c.pool))

    def _at_least(self, asked: Floats) -> Floats:
        return np.where(asked > 0, np.maximum(asked, LEAST_SHARE * self.structure.fastest), 0.0)

    def duals(self, lp: Lp, bound: Bound, scale: Floats) -> Duals:
        """Convert a bound to duals in terms of the problem."""
        rows, prices = lp.rows, bound.prices
        # What a column gains beyond its prices is added to what is affordable: the bound's allowance for rounding.
        shortfall = np.maximum(lp.cost - bound.charges, 0.0)
        if lp.has_level:
            shortfall = shortfall[:-1]
        coupled = lp.rhs[rows.coupling] @ prices[rows.coupling]
        size = np.ones(rows.count)
        size[rows.types] = np.maximum(self.structure.counts, 1.0)
        size[rows.limits] = [max(row.most, 1.0) for row in self.structure.limits]
        return Duals(
            prices[rows.floors] * scale,
            prices[rows.times],
            prices[rows.named] / size[rows.named],
            float(lp.rhs[rows.times] @ prices[rows.times] + coupled + shortfall.sum()),
        )

    def throughput(self, amounts: Floats) -> Floats:
        """By class: steps per second of a member."""
        c, s = self.combos, self.combos.shared
        total = np.bincount(c.first, weights=c.rate * self.unit * amounts, minlength=len(self))
        if len(s):
            total += np.bincount(c.second[s], weights=(c.second_rate * self.unit * amounts)[s], minlength=len(self))
        return total / self.count

    def time(self, amounts: Floats) -> Floats:
        """By class: the share of its time that a member runs."""
        return self.matrix.times(np.append(amounts, 0.0))[self.structure.rows.times]

    def worth(self, gain: Floats) -> Floats:
        """By combo: the gain of one instance; `gain` is that of a step, by class."""
        c, s = self.combos, self.combos.shared
        worth = gain[c.first] * c.rate
        if len(s):
            worth[s] += gain[c.second[s]] * c.second_rate[s]
        return np.asarray(worth)

    def charged(self, charge: Floats) -> Floats:
        """By combo: the charge of one instance; `charge` is that of an accelerator, by column."""
        c = self.combos
        return charge[c.column] * self.structure.workers[c.first] * c.load

    @cached_property
    def unhindered(self) -> Floats | None:
        """Amounts with which every class runs as fast as it can, if there is room for that; else None.

        If a cluster has more than its jobs need, this answers the problem without a solver.
        """
        structure = self.structure
        if (self.count @ structure.best_load > self.problem.counts).any() or (
            structure.reach > structure.fastest
        ).any():
            return None
        amounts = structure.best * self.count[self.combos.first] / self.unit
        used = self.matrix.times(np.append(amounts, 0.0))[structure.rows.named]
        return amounts if (used <= 1.0).all() and (amounts <= 1.0).all() else None

    def start(self, amounts: Floats, *, level: float = 0.0) -> LpSolution:
        """A point as the solution of a program in which no row is a bottleneck."""
        return LpSolution(np.append(amounts, level), np.zeros(self.structure.rows.count))

    def feasible(self, amounts: Floats) -> Floats:
        """The same amounts without rounding errors: nothing negative, no time or capacity exceeded, pools balanced."""
        c, rows = self.combos, self.structure.rows
        x = np.zeros(len(c) + 1)  # without the level
        x[:-1] = np.where(amounts < 1e-13, 0.0, amounts)
        over = 1.0 / np.maximum(self.matrix.times(x)[rows.times], 1.0)
        factor, s = over[c.first], c.shared
        if len(s):
            factor[s] = np.minimum(factor[s], over[c.second[s]])
        x[:-1] *= factor
        if c.sharing and (c.pool >= 0).any():
            x[:-1] = self._balanced(x[:-1])
        used = self.matrix.times(x)
        x = x[:-1] / np.maximum(used[rows.types], 1.0)[c.type_index]
        for limit, taken in zip(self.structure.limits, used[rows.limits].tolist(), strict=True):
            x[limit.combos] /= max(taken, 1.0)
        return x

    def _balanced(self, x: Floats) -> Floats:
        """Reduce the side of a pool that has more, and the time of a job that would share with itself."""
        c = self.combos
        pools = int(c.pool.max()) + 1
        instances = x * self.unit
        one, other = (
            np.bincount(c.pool[here], weights=instances[here], minlength=pools) for here in (c.side > 0, c.side < 0)
        )
        common = np.minimum(one, other)
        for side, total in ((c.side > 0, one), (c.side < 0, other)):
            keep = np.divide(common, total, out=np.ones(pools), where=total > 0)
            x = np.where(side, x * keep[c.pool], x)
        for held, pool in self.structure.partners:
            others = float((x * self.unit)[pool[pool != held]].sum())
            x[held] = min(x[held], others / self.unit[held])
        return x
