"""The Program of a problem: the polytope of valid allocations by class, and the few questions that policies ask of it.

Jobs that the policy cannot tell apart form one *class* with a multiplicity. By convexity and symmetry, the optimum by
class is the optimum by job, so the size of a program does not grow with identical jobs.

Egalitarian policies raise all classes to the highest common *level* (the `demand` says what throughput a level asks of
each class); others maximise a total or a ratio. A *floor* is throughput that a class must keep, and its *reach* is the
most that it could get. Every answer comes with a proof from its duals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gavel.core.allocation import Allocation, Certificate, Stage, StageKind, Stages
from gavel.core.errors import SolverError
from gavel.core.problem import Bools, Classes, Floats, Ints, JobField, Problem, grouped
from gavel.program import highs
from gavel.program.demand import Demand
from gavel.program.grouping import ComboTimes, Grouping
from gavel.program.lp import Lp
from gavel.program.polytope import Polytope
from gavel.program.proof import STUCK, FeasiblePoint, Proof, WarmStart
from gavel.program.solve import TOLERANCE, CheckedSolution, solve

LEVEL_TOLERANCE = 5e-8
LEVEL_STEPS = 60
FILLING = 1e-3
"""If one program both raises and fills: the weight of filling, relative to raising all classes to the ceiling."""
RATIO_TOLERANCE = 1e-7
REFINEMENTS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A feasible point with its value, the bound on the value, and the duals that prove it."""

    point: FeasiblePoint
    value: float
    bound: float
    proof: Proof
    start: WarmStart
    program: Program

    @property
    def prices(self) -> Floats:
        """By type: how much the value would rise with one more accelerator."""
        return self.program.polytope.structure.rows.by_type(self.proof.prices)

    @property
    def stages(self) -> Stages:
        return Stages(lambda: (self.program.stage("total", self.value, self.bound, self.proof, self.program.everyone),))


@dataclass(frozen=True, eq=False)
class Level:
    """The highest level that all classes can reach at the same time."""

    value: float
    bound: float
    needed: Floats
    """By class: the throughput at this level, limited to that of the point found; together these are feasible."""
    proof: Proof
    """Proves that no level is higher; prices and worths are in units of the level."""
    point: FeasiblePoint
    """A point at which every class reaches the level."""
    start: WarmStart
    program: Program
    filled: Callable[[], Solution] | None = None
    """The program that gave out what was left beyond the level, if there was one."""

    @property
    def prices(self) -> Floats:
        """By type: how much the level would rise with one more accelerator."""
        return self.program.polytope.structure.rows.by_type(self.proof.prices)

    @cached_property
    def stuck(self) -> Bools:
        """By class: whether it provably cannot get more than this level asks for unless another class gets less."""
        return np.asarray(self.proof.headroom(self.needed) <= STUCK * self.program.reach)

    @property
    def stages(self) -> Stages:
        return Stages(self._stages)

    def _stages(self) -> tuple[Stage, ...]:
        program, filled = self.program, self.filled and self.filled()
        if filled is None:
            return (program.stage("level", self.value, self.bound, self.proof, program.everyone),)
        stuck = self.stuck
        level = program.stage("level", self.value, self.bound, self.proof, stuck.nonzero()[0])
        return level, program.stage("total", filled.value, filled.bound, filled.proof, (~stuck).nonzero()[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """A solved linear program of groups, and what their classes get."""

    lp: Lp
    scale: Floats
    checked: CheckedSolution
    point: FeasiblePoint
    start: WarmStart


class Program:
    """The valid allocations of one problem, by class. Jobs are in the same class if the attributes `tell_apart` agree.

    It contains only classes that can run somewhere; arrays by class have the order of `live`.
    """

    def __init__(self, problem: Problem, *tell_apart: JobField, rank: Ints | None = None) -> None:
        self.problem = problem
        self.classes: Classes = problem.classes(*tell_apart, rank=rank)
        profile = problem.jobs.profile[self.classes.first]
        self.live: Ints = problem.runnable[profile].nonzero()[0]
        self.member: Ints = self.classes.first[self.live]
        self.profile: Ints = profile[self.live]
        self.count: Floats = self.classes.count[self.live].astype(float)
        self.weight: Floats = problem.jobs.weight[self.member]
        self.steps: Floats = problem.jobs.steps[self.member]
        self.workers: Floats = problem.profiles.workers[self.profile].astype(float)
        self.fastest: Floats = problem.fastest_rates[self.profile]
        self.normalised_gain: Floats = problem.normalised_gains[self.profile]
        """The factor from steps/s to the paper's normalised throughput: per equal share, times workers."""
        self._apart: Bools = np.zeros(len(self.live), dtype=bool)
        """By class: whether it is a group by itself, although other classes have the same profile."""
        self._cuts: set[tuple[int, int]] = set()
        """(Column, class) of classes of one job that a row must keep from sharing with themselves."""
        self._groupings: dict[bytes, Grouping] = {}

    def __len__(self) -> int:
        return len(self.live)

    @property
    def everyone(self) -> Ints:
        """All classes, by number."""
        return np.arange(len(self))

    @cached_property
    def reach(self) -> Floats:
        """By class: the most throughput that a member can get; a measured pair may be faster than running alone."""
        grouping = self._grouping(None)
        return grouping.each(grouping.polytope.structure.reach)

    @property
    def polytope(self) -> Polytope:
        """The valid allocations by group, all classes of a profile being one group."""
        return self._grouping(None).polytope

    @cached_property
    def _mergeable(self) -> bool:
        """Whether to merge classes of the same profile: only with space sharing, where pairs make programs large."""
        return len(self.problem.pairs) > 0 and len(np.unique(self.profile)) < len(self)

    def _grouping(self, gain: Floats | None) -> Grouping:
        """Group the classes with the same profile and gain; classes that were set apart are groups by themselves."""
        if not self._mergeable:
            return self._each_alone
        code = self.profile
        if gain is not None:
            _, number = np.unique(gain, return_inverse=True)
            code = code * (len(number) + 1) + number
        code = np.where(self._apart, int(code.max()) + 1 + self.everyone, code)
        label = np.unique(code, return_inverse=True)[1].astype(np.intp)
        key = label.tobytes()
        found = self._groupings.get(key)
        if found is None:
            found = Grouping.of(self.problem, self.profile, self.count, label, frozenset(self._cuts))
            self._groupings[key] = found
        return found

    @cached_property
    def _each_alone(self) -> Grouping:
        """The grouping in which every class is a group by itself."""
        return Grouping.of(self.problem, self.profile, self.count, self.everyone, frozenset())

    def _solve(
        self,
        cost: Callable[[Grouping], Floats] | None,
        floors: Floats,
        target: Floats | None,
        *,
        gain: Floats | None = None,
        start: WarmStart | None = None,
        exact: bool = False,
        refine: bool = True,
    ) -> _Solved:
        """Solve a program by group; with `refine`, split groups until every class gets at least what it needs."""
        for _ in range(REFINEMENTS):
            grouping = self._grouping(gain)
            polytope = grouping.polytope
            kept = floors * (1 - polytope.slack)
            # The target of a class that does not rise is exactly its floor, so it must not use the floor's slack.
            goal = None if target is None else np.where(target > floors, target, kept)
            lp, scale = polytope.lp(
                None if cost is None else cost(grouping),
                grouping.mean(kept),
                None if goal is None else grouping.mean(goal),
            )
            begin = start.solution if start is not None and start.grouping is grouping else None
            checked = solve(lp, start=begin, exact=exact)
            amounts = polytope.feasible(checked.solution.x[:-1])
            least = kept if goal is None else kept + float(checked.solution.x[-1]) * np.maximum(goal - kept, 0.0)
            if not refine or not self._refined(grouping, amounts, least):
                point = FeasiblePoint(grouping, amounts, grouping.dealt(amounts, least))
                return _Solved(lp, scale, checked, point, WarmStart(grouping, checked.solution))
        raise SolverError("groups of jobs with equal rates were refined without end; please report the problem file")

    def _refined(self, grouping: Grouping, amounts: Floats, least: Floats) -> bool:
        """Set apart the classes that do not get enough from their group; return whether there were any."""
        if not self._mergeable:
            return False
        late = grouping.needing_more(amounts, least)
        class_of = np.zeros(len(grouping.polytope), dtype=np.intp)
        class_of[grouping.of_class] = self.everyone
        cuts = {(column, int(class_of[group])) for column, group in grouping.cuts(amounts)} - self._cuts
        if late.any() or cuts:
            self._apart |= late
            self._cuts |= cuts
            self._groupings.clear()
        return bool(late.any() or cuts)

    def _proof(
        self, solved: _Solved, gain: Floats | None = None, size: float = 1.0, held: Bools | None = None
    ) -> Proof:
        """What the duals of a program prove; `size` is the factor by which its cost was divided.

        Only classes that are `held` up by a floor can be worth more than they gain.
        """
        grouping = solved.point.grouping
        duals = grouping.polytope.duals(solved.lp, solved.checked.bound, solved.scale)
        worth = grouping.parts(duals.worth) * size
        if held is not None:
            worth = np.where(held, worth, 0.0)
        if gain is not None:
            worth = worth + gain * self.count
        return Proof(worth, grouping.parts(duals.time) * size, duals.prices * size, duals.affordable * size)

    def stage(self, kind: StageKind, value: float, bound: float, proof: Proof, stopped: Ints) -> Stage:
        """One stage of a certificate, by class of the problem, with worths per job."""
        worth, time = np.zeros((2, len(self.classes)))
        worth[self.live], time[self.live] = proof.worth / self.count, proof.time / self.count
        names = self.polytope.structure.rows.names
        prices = dict(zip(names, proof.prices.tolist(), strict=True))
        return Stage(kind, value, bound, prices, worth, time, self.live[stopped])

    def raise_and_fill(self, demand: Demand, gain: Floats) -> tuple[Level, FeasiblePoint]:
        """Find the highest level, then give out what is left so that the total gain of all jobs is largest.

        The optimum of a max-min problem is highly degenerate: one of its vertices may leave accelerators idle. A second
        program makes sure that no job can gain without another losing. Mostly one program is enough: either some class
        is as fast as it can be, or nothing is left.
        """
        start: WarmStart | None = None
        if self._may_reach_ceiling(demand):
            point, start, filled = self._filled_ceiling(demand, gain)
            reached = demand.reached(point.throughput * (1 + point.grouping.polytope.slack / 2))
            if reached >= demand.ceiling(self.reach):
                return self._at_ceiling(demand, np.zeros(len(self)), point, start, filled), point
        level = self.max_level(demand, start=start)
        if self._unhindered is None and level.stuck.all():
            return level, level.point
        rest = self.maximise(gain, floors=level.needed, start=level.start)
        return replace(level, filled=lambda: rest), rest.point

    def _may_reach_ceiling(self, demand: Demand) -> bool:
        """Whether to try raising and filling in one program: it is small, and all classes may fit at the ceiling.

        With merged classes, a relaxed program by group tells whether there is room; else, one accelerator per worker.
        """
        polytope = self.polytope
        if polytope.unhindered is not None or len(polytope) >= len(polytope.combos) or polytope.is_large:
            return False
        if self._mergeable:
            top = demand.at(demand.ceiling(self.reach))
            relaxed = self._solve(None, np.zeros(len(self)), top, refine=False)
            return float(relaxed.checked.solution.x[-1]) >= 1.0 - self.polytope.slack
        return bool(self.count @ self.workers <= self.problem.counts.sum())

    def _filled_ceiling(self, demand: Demand, gain: Floats) -> tuple[FeasiblePoint, WarmStart, Callable[[], Solution]]:
        """Raise and fill in one program: if the ceiling can be reached, a point there with the largest total gain.

        It starts from the best columns of every class, which saves two thirds of the usual steps. The proof is computed
        on demand.
        """

        def cost(grouping: Grouping) -> Floats:
            return grouping.polytope.worth(grouping.mean(gain)) * grouping.polytope.unit

        grouping = self._grouping(gain)
        size = float(np.abs(cost(grouping)).max()) / FILLING
        start = None
        if not grouping.polytope.shares:
            used = grouping.polytope.structure.best.nonzero()[0]
            first = grouping.polytope.combos.first
            each = used[np.unique(first[used], return_index=True)[1]]
            start = WarmStart(grouping, highs.whole_time(grouping.polytope.structure.rows, len(first) + 1, each))
        floors = demand.at(demand.ceiling(self.reach))
        solved = self._solve(
            lambda grouping: cost(grouping) / size, np.zeros(len(self)), floors, gain=gain, start=start
        )

        def filled() -> Solution:
            value = float(cost(solved.point.grouping) @ solved.point.amounts)
            proof = self._proof(solved, gain, size)
            bound = proof.affordable - float((proof.worth - gain * self.count) @ floors)
            return Solution(solved.point, value, max(bound, value), proof, solved.start, self)

        return solved.point, solved.start, filled

    def _at_ceiling(
        self,
        demand: Demand,
        floors: Floats,
        point: FeasiblePoint,
        start: WarmStart,
        filled: Callable[[], Solution] | None = None,
    ) -> Level:
        """The level at which some class is as fast as it can be: more accelerators would not help."""
        top = demand.ceiling(self.reach)
        asked = np.minimum(np.maximum(demand.at(top), floors), self.reach)
        return Level(top, top, asked, self._ceiling_proof(demand, top), point, start, self, filled)

    def _ceiling_proof(self, demand: Demand, top: float) -> Proof:
        """Proves that the ceiling is the highest level: some class would need more than all of its time."""
        worth = np.zeros(len(self))
        fastest = int(np.argmax(demand.at(top) / self.reach))
        slope = float(demand.slope(top)[fastest])
        worth[fastest] = 1.0 / slope if slope > 0 else 1.0 / self.reach[fastest]
        names = len(self.polytope.structure.rows.names)
        return Proof(worth, worth * self.reach, np.zeros(names), float(worth @ self.reach))

    def max_level(
        self, demand: Demand, *, floors: Floats | None = None, start: WarmStart | None = None, exact: bool = False
    ) -> Level:
        """The highest feasible level of `demand`, with each class at least at its floor.

        Newton's method: starting from a level that is too high, a program finds what fraction of the way from the
        floors to the demand is feasible. Its duals weigh the classes; the level at which the weighted demand equals
        what is affordable at these duals is again an upper bound, and much closer. A proportional demand needs one
        program. `exact` asks for the duals of a vertex, which separate stuck classes from the others.
        """
        floors = np.zeros(len(self)) if floors is None else floors
        top = demand.ceiling(self.reach)
        unhindered = self._unhindered
        if unhindered is not None and demand.reached(self.reach) >= top:
            grouping = unhindered.grouping
            begin = WarmStart(grouping, grouping.polytope.start(unhindered.amounts, level=1.0))
            return self._at_ceiling(demand, floors, unhindered, begin)
        low, high, sharp = -np.inf, top, False
        asked, given, point, proof = high, floors, None, None
        for _ in range(LEVEL_STEPS):
            solved = self._solve(None, floors, demand.at(asked), start=start, exact=sharp)
            start, got = solved.start, solved.point.throughput
            slack = solved.point.grouping.polytope.slack
            reached = min(demand.reached(got * (1 + slack / 2)), high)
            if reached >= low or point is None:
                low, given, point = reached, got, solved.point
            found = self._proof(solved)
            before, high = high, _meet(demand, found.worth, found.affordable, low, high)
            # At a level that is just reached the duals are 0; those of the step before prove that it is the highest.
            proof = found if proof is None or (found.worth.any() and high <= before) else proof
            close = high - low <= LEVEL_TOLERANCE * max(abs(high), 1e-3 * abs(top))
            if (close and (not exact or solved.checked.solution.vertex)) or (sharp and high >= before):
                break
            # The answer may be too coarse to continue with: then solve the same program more exactly.
            sharp = sharp or close or high >= before
            asked, start = (asked, start) if close else (high, start if solved.checked.solution.vertex else None)
        if point is None or start is None or proof is None or high - low > TOLERANCE * max(abs(high), 1e-3 * abs(top)):
            raise SolverError(
                f"the highest level is between {low:.9g} and {high:.9g}, and no solver could narrow it down"
            )
        slope = float(proof.worth @ demand.slope(low))
        if exact and slope > 0:
            # The point found uses the slack of the floors; what is affordable at the duals does not.
            excess = float(proof.worth @ demand.at(low)) - proof.affordable
            low, high = (low - excess / slope,) * 2 if excess > 0 else (low, high)
        if high >= top and float(proof.worth @ demand.at(top)) <= proof.affordable:
            proof = self._ceiling_proof(demand, top)  # only the ceiling limits the level
        else:
            proof = proof.times(1.0 / slope) if slope > 0 else proof.times(0.0)
        asked_for = demand.at(low)
        needed = np.where(asked_for > floors, np.minimum(asked_for, given), floors)
        return Level(low, max(high, low), needed, proof, point, start, self)

    @cached_property
    def _unhindered(self) -> FeasiblePoint | None:
        """The point at which every class runs as fast as it can, if there is room for that; else None."""
        grouping = self._grouping(None)
        amounts = grouping.polytope.unhindered
        return None if amounts is None else FeasiblePoint(grouping, amounts, self.fastest)

    def maximise(
        self,
        gain: Floats,
        *,
        floors: Floats | None = None,
        charge: Floats | None = None,
        start: WarmStart | None = None,
        exact: bool = False,
    ) -> Solution:
        """Maximise the sum over jobs of gain x throughput, minus `charge` (by column) for each busy accelerator."""
        floors = np.zeros(len(self)) if floors is None else floors
        unhindered = self._unhindered
        if charge is None and unhindered is not None and (gain >= 0).all():
            grouping = unhindered.grouping
            most = float(gain * self.count @ self.fastest)
            worth = gain * self.count
            names = len(grouping.polytope.structure.rows.names)
            proof = Proof(worth, worth * self.fastest, np.zeros(names), most)
            begin = WarmStart(grouping, grouping.polytope.start(unhindered.amounts))
            return Solution(unhindered, most, most, proof, begin, self)

        def value(grouping: Grouping) -> Floats:
            worth = grouping.polytope.worth(grouping.mean(gain))
            return worth if charge is None else worth - grouping.polytope.charged(charge)

        return self._best(value, gain, floors, start, exact=exact)

    def _best(
        self,
        value: Callable[[Grouping], Floats],
        gain: Floats,
        floors: Floats,
        start: WarmStart | None = None,
        *,
        exact: bool = False,
    ) -> Solution:
        """Maximise the total of a value by combo."""
        first = self._grouping(gain)
        size = float(np.abs(value(first) * first.polytope.unit).max(initial=0.0)) or 1.0
        solved = self._solve(
            lambda grouping: value(grouping) * grouping.polytope.unit / size,
            floors,
            None,
            gain=gain,
            start=start,
            exact=exact,
        )
        grouping, amounts = solved.point.grouping, solved.point.amounts
        total = float(value(grouping) * grouping.polytope.unit @ amounts)
        proof = self._proof(solved, gain, size, floors > 0)
        return Solution(solved.point, total, solved.checked.bound.value * size, proof, solved.start, self)

    def max_ratio(self, gain: Floats, charge: Floats, *, floors: Floats | None = None) -> Ratio:
        """Maximise gain per charge (Dinkelbach's method); among points with the best ratio, the one with the most gain.

        An empty allocation has charge 0, so the last program asks for slightly less than the best ratio and then runs
        everything that reaches it.
        """
        first = self._grouping(gain).polytope
        best_single = float(np.max(first.worth(self._grouping(gain).mean(gain)) / first.charged(charge), initial=0.0))
        if floors is None or not floors.any():
            # Only the best combos reach the best ratio, so nothing else may run, and more accelerators would not help.
            def among_best(grouping: Grouping) -> Floats:
                worth, each = grouping.polytope.worth(grouping.mean(gain)), grouping.polytope.charged(charge)
                return np.where(worth >= best_single * each * (1 - RATIO_TOLERANCE), worth, -worth)

            last = self._best(among_best, gain, np.zeros(len(self)))
            return self._ratio(replace(last, proof=last.proof.times(0.0)), gain, charge, best_single, least=None)
        cheapest = self.maximise(np.zeros(len(self)), charge=charge, floors=floors)
        ratio, solution = self._ratio_at(cheapest.point, gain, charge), cheapest
        for _ in range(LEVEL_STEPS):
            solution = self.maximise(gain, charge=charge * ratio, floors=floors, start=solution.start)
            better = self._ratio_at(solution.point, gain, charge)
            if better <= ratio * (1 + 1e-9):
                break
            ratio = better
        bound = min(best_single, ratio + max(solution.bound, 0.0) / max(-cheapest.bound, 1e-12))
        last = self.maximise(gain, charge=charge * ratio * (1 - RATIO_TOLERANCE), floors=floors)
        if self._ratio_at(last.point, gain, charge) < ratio * (1 - 2 * RATIO_TOLERANCE):
            last = solution  # charges differ too much in size: rounding is larger than the tolerance
        found = self._ratio(last, gain, charge, bound, least=cheapest)
        return replace(found, at=solution, ratio=ratio)

    def _ratio_at(self, point: FeasiblePoint, gain: Floats, charge: Floats) -> float:
        polytope = point.grouping.polytope
        spent = float(polytope.charged(charge) * polytope.unit @ point.amounts)
        return float(gain * self.count @ point.throughput) / spent if spent > 0 else 0.0

    def _ratio(self, last: Solution, gain: Floats, charge: Floats, bound: float, *, least: Solution | None) -> Ratio:
        """The same point with the ratio as its value; a price is what an accelerator adds to it at this charge."""
        polytope = last.point.grouping.polytope
        spent = float(polytope.charged(charge) * polytope.unit @ last.point.amounts)
        ratio = self._ratio_at(last.point, gain, charge)
        prices = last.prices / spent if spent > 0 else np.zeros_like(last.prices)
        # Asking for slightly less than the best ratio gives tiny prices to types that are merely full.
        prices = np.where(prices * self.problem.counts > 2 * RATIO_TOLERANCE * ratio, prices, 0.0)
        return Ratio(last.point, ratio, max(bound, ratio), prices, self, last, ratio, least)

    def point(self, instances: Floats) -> FeasiblePoint:
        """The point at which this many jobs of each class run alone in each column."""
        grouping = self._grouping(None)
        c = grouping.polytope.combos
        alone = (c.second < 0) & (c.pool < 0)
        amounts = np.where(alone, instances[c.first, c.column], 0.0) / grouping.polytope.unit
        return FeasiblePoint(grouping, amounts, grouping.polytope.throughput(amounts))

    def allocation(self, policy: str, point: FeasiblePoint, certificate: Certificate) -> Allocation:
        """Convert a point to an allocation of the problem."""
        e, columns = self._entries(point), len(self.problem.columns)
        combo = e.first
        combos = np.full((len(self), 2), -1)
        combos[:, 0] = self.live
        if len(self.problem.pairs):
            index, combo, _ = grouped(e.first * (len(self) + 1) + e.second + 1)
            second = e.second[index]
            combos = np.stack([self.live[e.first[index]], np.where(second >= 0, self.live[second], -1)], axis=1)
        instances, rates = np.zeros((len(combos), columns)), np.zeros((len(combos), 2, columns))
        if point.grouping.merged or point.grouping.polytope.shares:
            np.add.at(instances, (combo, e.column), e.instances)  # a combo may have several entries in a column
        else:
            instances[combo, e.column] = e.instances
        rates[combo, 0, e.column] = e.rate
        rates[combo, 1, e.column] = e.second_rate
        return Allocation(self.problem, policy, self.classes, combos, instances, rates, certificate)

    def _entries(self, point: FeasiblePoint) -> ComboTimes:
        """The combos of a point by class; every class is also listed alone in every column where it can run."""
        grouping = point.grouping
        c = grouping.polytope.combos
        if not grouping.merged and not (c.sharing and (c.pool >= 0).any()):
            return ComboTimes(
                c.first, c.second, c.column, point.amounts * grouping.polytope.unit, c.rate, c.second_rate
            )
        spelled = grouping.spelled(point.amounts, point.throughput)
        rates = self.problem.rates[self.profile]
        who, where = (rates > 0).nonzero()
        nothing = np.zeros(len(who))
        idle = ComboTimes(who, np.full(len(who), -1), where, nothing, rates[who, where], nothing)
        return ComboTimes(
            *(np.concatenate([getattr(e, name) for e in (spelled, idle)]) for name in ComboTimes.__slots__)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """The best ratio of gain to charge, and its proof."""

    point: FeasiblePoint
    value: float
    bound: float
    prices: Floats
    """By type."""
    program: Program
    at: Solution
    """The optimum of gain minus `ratio` x charge: its bound proves that no ratio is better."""
    ratio: float
    least: Solution | None
    """The smallest possible total charge, if there are floors."""

    @property
    def stages(self) -> Stages:
        return Stages(self._stages)

    def _stages(self) -> tuple[Stage, ...]:
        program = self.program
        best = program.stage("ratio", self.ratio, self.bound, self.at.proof, program.everyone)
        if self.least is None:
            return (best,)
        charge = program.stage("charge", -self.least.value, -self.least.bound, self.least.proof, program.everyone[:0])
        return charge, best


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
