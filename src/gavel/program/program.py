"""The Program of a problem: the polytope of valid allocations by class, and the few questions a policy asks of it.

Jobs that the policy cannot tell apart are one class with a multiplicity. By convexity and symmetry the optimum by
class is the optimum by job, with or without space sharing, so identical jobs cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gavel.core.allocation import Allocation, Certificate
from gavel.core.errors import SolverError
from gavel.core.problem import Bools, Classes, Floats, Ints, JobField, Problem, grouped
from gavel.program import highs
from gavel.program.columns import Columns
from gavel.program.demand import Demand
from gavel.program.frame import Combos, Frame
from gavel.program.lp import Bound, Lp, LpSolution
from gavel.program.solve import TOLERANCE, is_large, solve

FLOOR_SLACK = 1e-9
INTERIOR_FLOOR_SLACK = 4e-8
"""Floors that a solution has just met are asked for again with this much less, so that rounding leaves them feasible;
an interior-point method needs more room. Half of it is what a class may lack where it counts as having reached a level:
less than the floors forgive, more than the solvers err."""
LEVEL_TOLERANCE = 5e-8
LEVEL_STEPS = 60
STUCK = 1e-6
"""A dual above this, relative to the largest, says that a class is stuck; below, it may be rounding."""
FILLING = 1e-3
"""What filling may gain, in parts of what raising everyone to the ceiling does, where one program does both."""
RATIO_TOLERANCE = 1e-7
LEAST_SHARE = 1e-11
"""Whoever is asked for a smaller part of its best throughput gets this much: solvers cannot tell less from nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A feasible point and what its duals say."""

    amounts: Floats
    """By combo, in units."""
    value: float
    bound: float
    prices: Floats
    """By type: by how much the value would rise with one more accelerator."""
    start: LpSolution
    """Where a similar program may begin."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The highest level that all classes can stand at together."""

    value: float
    bound: float
    needed: Floats
    """The throughput of each class at this level, at most what a point that was found gives it: together feasible."""
    pressure: Floats
    """By class: how much the level would rise if it needed less; positive means that it is bottlenecked."""
    prices: Floats
    amounts: Floats
    """A point at which everyone stands there."""
    start: LpSolution
    """Where a similar program may begin."""

    @property
    def stuck(self) -> Bools:
        """By class: whether it cannot have more than this level asks for, unless another has less."""
        return np.asarray(self.pressure > STUCK * float(self.pressure.max(initial=0.0)))


class Program:
    """The polytope of valid allocations of one problem, by class of jobs that share the given attributes.

    Only classes that can run at all are here; arrays by class follow `live`.
    """

    def __init__(self, problem: Problem, *tell_apart: JobField, rank: Ints | None = None) -> None:
        self.problem = problem
        self.classes: Classes = problem.classes(*tell_apart, rank=rank)
        profile = problem.jobs.profile[self.classes.first]
        self.live: Ints = problem.runnable[profile].nonzero()[0]
        self.member: Ints = self.classes.first[self.live]
        self.profile: Ints = profile[self.live]
        self.count: Floats = self.classes.count[self.live].astype(float)
        self.frame: Frame = Frame.of(problem, self.profile, self.count > 1)
        self.weight: Floats = problem.jobs.weight[self.member]
        self.steps: Floats = problem.jobs.steps[self.member]

    def __len__(self) -> int:
        return len(self.live)

    @property
    def combos(self) -> Combos:
        return self.frame.combos

    @property
    def workers(self) -> Floats:
        return self.frame.workers

    @property
    def fastest(self) -> Floats:
        return self.frame.fastest

    @property
    def reach(self) -> Floats:
        return self.frame.reach

    @property
    def normalised_gain(self) -> Floats:
        return self.frame.normalised_gain

    @cached_property
    def unit(self) -> Floats:
        """By combo: the instances at once that stand for 1 in the program, as many as members or accelerators allow."""
        c, s = self.combos, self.combos.shared
        unit = np.minimum(self.count[c.first], self.problem.counts[c.kind] / self.workers[c.first])
        if len(s):
            unit[s] = np.minimum(unit[s], self.count[c.second[s]])
            itself = c.first == c.second
            unit[itself] = np.minimum(unit[itself], self.count[c.first[itself]] / 2)
        return np.asarray(unit)

    @cached_property
    def _matrix(self) -> Columns:
        """Time rows, throughput rows and coupling rows, in units; each program sets the last column, the level."""
        return self.frame.matrix(self.unit, self.count)

    @cached_property
    def _slack(self) -> float:
        return INTERIOR_FLOOR_SLACK if self._is_large and not len(self.combos.shared) else FLOOR_SLACK

    @property
    def _is_large(self) -> bool:
        return is_large(len(self), len(self.combos))

    def throughput(self, amounts: Floats) -> Floats:
        """Steps per second of a member of each class."""
        c, s = self.combos, self.combos.shared
        total = np.bincount(c.first, weights=c.rate * self.unit * amounts, minlength=len(self))
        if len(s):
            total += np.bincount(c.second[s], weights=(c.second_rate * self.unit * amounts)[s], minlength=len(self))
        return total / self.count

    def raise_and_fill(self, demand: Demand, gain: Floats) -> tuple[Level, Floats]:
        """The highest level, and the amounts that give away what is left so that the jobs together gain most.

        The optimum of a max-min problem is hugely degenerate: a vertex of it leaves accelerators idle. With a second
        program nobody can gain without another losing. Mostly one is enough: either somebody is as fast as can be, or
        nothing is left.
        """
        start: LpSolution | None = None
        if self._may_reach_ceiling:
            start = self._filled_ceiling(demand, gain)
            amounts = self.feasible(start.x[:-1])
            if demand.reached(self.throughput(amounts) * (1 + self._slack / 2)) >= demand.ceiling(self.reach):
                return self._at_ceiling(demand, np.zeros(len(self)), amounts, start), amounts
        level = self.max_level(demand, start=start)
        if level.stuck.all():
            return level, level.amounts
        return level, self.maximise(gain, floors=level.needed, start=level.start).amounts

    @property
    def _may_reach_ceiling(self) -> bool:
        """Whether there is something to solve, by simplex, and an accelerator for everyone."""
        by_simplex = len(self) < len(self.combos) and not self._is_large
        enough = self.count @ self.workers <= self.problem.counts.sum()
        return bool(by_simplex and enough and self._unhindered is None)

    def _filled_ceiling(self, demand: Demand, gain: Floats) -> LpSolution:
        """A point at the ceiling that gains most, if the ceiling can be reached: one program raises and fills.

        It begins where everyone has what is best for it, which a third of the usual steps makes fit.
        """
        cost = self._worth(gain) * self.unit
        small = FILLING / float(np.abs(cost).max())
        lp, _ = self._lp(cost * small, np.zeros(len(self)), demand.at(demand.ceiling(self.reach)))
        if len(self.combos.shared):
            return solve(lp).solution
        used = self.frame.best.nonzero()[0]
        each = used[np.unique(self.combos.first[used], return_index=True)[1]]
        return solve(lp, start=highs.whole_time(lp, each)).solution

    def _at_ceiling(self, demand: Demand, floors: Floats, amounts: Floats, start: LpSolution) -> Level:
        """The level at which somebody is as fast as can be: no accelerator more would help."""
        top = demand.ceiling(self.reach)
        asked = np.minimum(np.maximum(demand.at(top), floors), self.reach)
        return Level(top, top, asked, np.zeros(len(self)), np.zeros(len(self.problem.types)), amounts, start)

    def max_level(self, demand: Demand, *, floors: Floats | None = None, start: LpSolution | None = None) -> Level:
        """The highest level of `demand` that is feasible, each class keeping at least its floor.

        From a level that is too high, a program asks how much of the way from the floors to the demand can be gone.
        Its duals weigh the classes; the level at which the weighted demand equals what those duals can pay for is
        again an upper bound, and much closer (Newton's method). A proportional demand needs one program.
        """
        floors = np.zeros(len(self)) if floors is None else floors
        top = demand.ceiling(self.reach)
        if self._unhindered is not None and demand.reached(self.reach) >= top:
            return self._at_ceiling(demand, floors, self._unhindered, self._start(self._unhindered, level=1.0))
        low, high, exact = -np.inf, top, False
        kept, given, point = floors * (1 - self._slack), floors, np.zeros(len(self.combos))
        for _ in range(LEVEL_STEPS):
            asked = demand.at(high)
            target = np.where(asked > floors, asked, kept)  # whoever does not rise has no way to go, not even a hair
            lp, scale = self._lp(None, kept, target)
            checked = solve(lp, start=start, exact=exact)
            start = checked.solution
            amounts = self.feasible(checked.solution.x[:-1])
            got = self.throughput(amounts)
            reached = min(demand.reached(got * (1 + self._slack / 2)), high)
            low, given, point = (reached, got, amounts) if reached >= low else (low, given, point)
            pressure = checked.bound.prices[len(self) : 2 * len(self)] * scale
            affordable = self._affordable(lp, checked.bound)
            before, high = high, _meet(demand, pressure, affordable, low, high)
            if high - low <= LEVEL_TOLERANCE * max(abs(high), 1e-3 * abs(top)) or (exact and high >= before):
                break
            exact = high >= before  # what was said is too coarse to go on
        if high - low > TOLERANCE * max(abs(high), 1e-3 * abs(top)):
            raise SolverError(
                f"the highest level is between {low:.9g} and {high:.9g}, and no solver could tell more closely"
            )
        slope = float(pressure @ demand.slope(low))
        prices = self._type_prices(checked.bound) / slope if slope > 0 else np.zeros(len(self.problem.types))
        return Level(
            low,
            max(high, low),
            np.minimum(np.maximum(demand.at(low), floors), given),
            pressure * self.fastest,
            prices,
            point,
            checked.solution,
        )

    @cached_property
    def _unhindered(self) -> Floats | None:
        """Amounts by which everyone has the most that it can reach, if there is room for that; None if not.

        Where a cluster has more than its jobs need, as at night, this is all there is to solve.
        """
        if (self.count @ self.frame.best_load > self.problem.counts).any() or (self.reach > self.fastest).any():
            return None
        amounts = self.frame.best * self.count[self.combos.first] / self.unit
        used = self._matrix.times(np.append(amounts, 0.0))[2 * len(self) :]
        return amounts if (used <= 1.0).all() and (amounts <= 1.0).all() else None

    def _start(self, amounts: Floats, *, level: float = 0.0) -> LpSolution:
        """A point as if a program without any bottleneck had been solved."""
        return LpSolution(np.append(amounts, level), np.zeros(len(self.frame.limits)))

    def _affordable(self, lp: Lp, bound: Bound) -> float:
        """The most that the weighted throughput can be: time and capacity at their prices, plus what is overpriced."""
        m = len(self)
        rhs, prices = (np.concatenate([rows[:m], rows[2 * m :]]) for rows in (lp.rhs, bound.prices))
        shortfall = np.maximum(-bound.charges[:-1], 0.0)
        return float(rhs @ prices + shortfall.sum())

    def _type_prices(self, bound: Bound) -> Floats:
        """The worth of one more accelerator of each type, in the terms of the program that was solved."""
        duals = bound.prices[2 * len(self) :][: len(self.problem.types)]
        return np.asarray(duals / np.maximum(self.problem.counts, 1.0))

    def maximise(
        self,
        gain: Floats,
        *,
        floors: Floats | None = None,
        charge: Floats | None = None,
        start: LpSolution | None = None,
    ) -> Solution:
        """Maximise the sum over jobs of gain x throughput, less `charge` by column for each busy accelerator."""
        floors = np.zeros(len(self)) if floors is None else floors
        c = self.combos
        value = self._worth(gain)
        if charge is not None:
            value = value - charge[c.column] * self.workers[c.first]
        elif self._unhindered is not None and (gain >= 0).all():
            most = float(value * self.unit @ self._unhindered)
            nothing = np.zeros(len(self.problem.types))
            return Solution(self._unhindered, most, most, nothing, self._start(self._unhindered))
        return self._best(value * self.unit, floors, start)

    def _worth(self, gain: Floats) -> Floats:
        """By combo: what one instance gains."""
        c, s = self.combos, self.combos.shared
        worth = gain[c.first] * c.rate
        if len(s):
            worth[s] += gain[c.second[s]] * c.second_rate[s]
        return np.asarray(worth)

    def _best(self, cost: Floats, floors: Floats, start: LpSolution | None = None) -> Solution:
        """Maximise a cost by combo, in units."""
        size = float(np.abs(cost).max(initial=0.0)) or 1.0
        lp, _ = self._lp(cost / size, floors * (1 - self._slack), None)
        checked = solve(lp, start=start)
        amounts = self.feasible(checked.solution.x[:-1])
        prices = self._type_prices(checked.bound) * size
        return Solution(amounts, float(cost @ amounts), checked.bound.value * size, prices, checked.solution)

    def max_ratio(self, gain: Floats, charge: Floats, *, floors: Floats | None = None) -> Solution:
        """Maximise gain per charge (Dinkelbach's method); of the best ratios, the one that does most.

        The charge of nothing is 0, so the last program asks for a hair less than the best ratio: it then runs
        everything that reaches it.
        """
        c = self.combos
        worth = self._worth(gain)
        each = charge[c.column] * self.workers[c.first]
        best_single = float(np.max(worth / each, initial=0.0))
        if floors is None or not floors.any():
            # The best combos alone reach the best ratio, so nothing else may run, and prices cannot help either.
            among_best = worth >= best_single * each * (1 - RATIO_TOLERANCE)
            last = self._best(np.where(among_best, worth, -worth) * self.unit, np.zeros(len(self)))
            last = replace(last, prices=np.zeros_like(last.prices))
            return self._ratio_solution(last, worth, each, best_single)
        cheapest = self.maximise(np.zeros(len(self)), charge=charge, floors=floors)
        least_charge = max(-cheapest.bound, 0.0)
        ratio, solution = _ratio(cheapest.amounts * self.unit, worth, each), cheapest
        for _ in range(LEVEL_STEPS):
            solution = self.maximise(gain, charge=charge * ratio, floors=floors, start=solution.start)
            better = _ratio(solution.amounts * self.unit, worth, each)
            if better <= ratio * (1 + 1e-9):
                break
            ratio = better
        bound = min(best_single, ratio + max(solution.bound, 0.0) / max(least_charge, 1e-12))
        last = self.maximise(gain, charge=charge * ratio * (1 - RATIO_TOLERANCE), floors=floors)
        if _ratio(last.amounts * self.unit, worth, each) < ratio * (1 - 2 * RATIO_TOLERANCE):
            last = solution  # charges of very different size: what the hair buys is lost in rounding
        return self._ratio_solution(last, worth, each, bound)

    def _ratio_solution(self, last: Solution, worth: Floats, each: Floats, bound: float) -> Solution:
        """The same point with the ratio as its value; a price is what it adds to the ratio at this charge."""
        amounts = last.amounts * self.unit
        spent = float(each @ amounts)
        ratio = _ratio(amounts, worth, each)
        prices = last.prices / spent if spent > 0 else np.zeros_like(last.prices)
        # Asking for a hair less than the best ratio puts a hair of a price on what is merely full.
        prices = np.where(prices * self.problem.counts > 2 * RATIO_TOLERANCE * ratio, prices, 0.0)
        return replace(last, value=ratio, bound=max(bound, ratio), prices=prices)

    def _lp(self, cost: Floats | None, floors: Floats, target: Floats | None) -> tuple[Lp, Floats]:
        """The program with the given cost; with a target, the level goes from the floors (0) to the target (1).

        Floor rows are scaled by what they ask for, so that a job with few steps is served as exactly as one with many.
        """
        m, base = len(self), self._matrix
        floors = self._at_least(floors)
        target = None if target is None else self._at_least(np.maximum(target, floors))
        asked = floors if target is None else target
        scale = 1.0 / np.where(asked > 0, asked, self.fastest)
        data = base.data.copy()
        data[self.frame.throughput_entries] *= -scale[self.frame.throughput_classes]
        if target is not None:
            data[len(data) - m :] = (target - floors) * scale
        rhs = self.frame.limits.copy()
        rhs[m : 2 * m] = -floors * scale
        c = self.combos
        gain = np.zeros(len(c) + 1)
        if cost is not None:
            gain[:-1] = cost
        gain[-1] = 0.0 if target is None else 1.0
        grid = None if len(c.shared) else (c.first, c.column)
        return Lp(gain, Columns(base.places, data), rhs, m, target is not None, grid), scale

    def _at_least(self, asked: Floats) -> Floats:
        return np.where(asked > 0, np.maximum(asked, self._least), 0.0)

    @cached_property
    def _least(self) -> Floats:
        return LEAST_SHARE * self.fastest

    def feasible(self, amounts: Floats) -> Floats:
        """The same amounts with rounding taken off: nothing negative, no time or capacity exceeded."""
        c, m = self.combos, len(self)
        x = np.zeros(len(c) + 1)  # the level is nothing that anyone gets
        x[:-1] = np.where(amounts < 1e-13, 0.0, amounts)
        over = 1.0 / np.maximum(self._matrix.times(x)[:m], 1.0)
        factor, s = over[c.first], c.shared
        if len(s):
            factor[s] = np.minimum(factor[s], over[c.second[s]])
        x[:-1] *= factor
        used = self._matrix.times(x)[2 * m :]
        x = x[:-1] / np.maximum(used[: len(self.problem.types)], 1.0)[c.kind]
        for number, gangs in enumerate(self.frame.gangs):
            x[gangs.combos] /= max(used[len(self.problem.types) + number], 1.0)
        return x

    def allocation(self, policy: str, amounts: Floats, certificate: Certificate) -> Allocation:
        """Spell a solution out as an allocation of the problem."""
        c, combo, columns = self.combos, self.combos.first, len(self.problem.columns)
        combos = np.full((len(self), 2), -1)
        combos[:, 0] = self.live
        if len(c.shared):
            index, combo, _ = grouped(c.first * (len(self) + 1) + c.second + 1)
            second = c.second[index]
            combos = np.stack([self.live[c.first[index]], np.where(second >= 0, self.live[second], -1)], axis=1)
        instances, rates = np.zeros((len(combos), columns)), np.zeros((len(combos), 2, columns))
        instances[combo, c.column] = amounts * self.unit
        rates[combo, 0, c.column] = c.rate
        rates[combo, 1, c.column] = c.second_rate
        return Allocation(self.problem, policy, self.classes, combos, instances, rates, certificate)


def _ratio(amounts: Floats, worth: Floats, each: Floats) -> float:
    spent = float(each @ amounts)
    return float(worth @ amounts) / spent if spent > 0 else 0.0


def _meet(demand: Demand, pressure: Floats, affordable: float, low: float, high: float) -> float:
    """The highest level at which the weighted demand is affordable: an upper bound on every feasible level."""

    def excess(level: float) -> float:
        with np.errstate(invalid="ignore"):
            asked = demand.at(level)
            return float(np.sum(np.where(pressure > 0, pressure * asked, 0.0))) - affordable

    if not pressure.any() or excess(high) <= 0:
        return high
    if not np.isfinite(low):
        raise SolverError("no level is feasible: some class gets nothing at all")
    if excess(low) >= 0:
        return low
    from scipy.optimize import brentq  # noqa: PLC0415 - takes longer to import than most programs to solve

    return float(brentq(excess, low, high, xtol=1e-14 * max(abs(low), abs(high)), rtol=1e-14))
