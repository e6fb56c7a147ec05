"""Water filling: raise all classes together, stop those that cannot rise, and continue with the rest.

A *stage* is a repetition that raises the level; one that does not is merged into the stage before. A class stops when
it has reached its own maximum (its *reach*), or when it is *stuck*: duals prove, within a tolerance, that it can gain
only at another's cost. The result is therefore lexicographically optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gavel.core.allocation import Stage
from gavel.core.errors import SolverError
from gavel.core.problem import Bools, Floats
from gavel.program.demand import Demand, Proportional
from gavel.program.program import Level, Program
from gavel.program.proof import STUCK, FeasiblePoint, Proof, WarmStart

SAME_LEVEL = 1e-9
"""A stage that rises by less than this, relative to all stages so far, is merged with the one before."""
SETTLED = 1e-7
"""How far a class may be from the throughput at which it stopped, as a fraction of its reach."""
LOOSEST = 1e-3
"""A larger tolerance would hide errors other than rounding."""

Rise = Callable[[Floats, Bools], Demand]
"""From the current throughput of all classes, and which of them may rise, to the demand along which they rise."""


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """The result of water filling, and its stages, lowest level first."""

    point: FeasiblePoint
    stages: tuple[Stage, ...]
    prices: Floats
    """By type, in units of the first level."""


@dataclass(slots=True)
class _OpenStage:
    """A stage in the making, with the inequality that proves its stopped classes stuck."""

    level: float
    bound: float
    proof: Proof
    stopped: Bools


def water_fill(program: Program, rise: Rise) -> Filled:
    """Raise all classes, stage by stage, until every class has stopped."""
    position = np.zeros(len(program))
    active = np.ones(len(program), dtype=bool)
    steps: list[_OpenStage] = []
    start: WarmStart | None = None
    point: FeasiblePoint | None = None
    while active.any():
        demand = rise(position, active)
        level = program.max_level(demand, floors=position, start=start, exact=True)
        position, start, point = level.needed, level.start, level.point
        saturated = active & (position >= program.reach * (1 - STUCK))
        proven = active & level.stuck
        proof = level.proof
        if not proven.any() and not saturated.any():
            proof, proven, start = _search(program, position, active, start)
            proof = _per_level(proof, demand.slope(level.value))
        _record(steps, level, proof, proven | saturated)
        active &= ~(proven | saturated)
    if point is None:
        raise SolverError("there is no class to raise")
    first = program.polytope.structure.rows.by_type(steps[0].proof.prices)
    stages = tuple(
        program.stage("level", step.level, step.bound, step.proof, step.stopped.nonzero()[0]) for step in steps
    )
    return Filled(_settled(program, position, point), stages, first)


def _settled(program: Program, position: Floats, point: FeasiblePoint) -> FeasiblePoint:
    """A point at which every class has the throughput at which it stopped.

    At the last level, some classes may have more: the tiny slack of the floors can free a lot where prices are high.
    Raising all classes in proportion to their positions, as far as possible, leaves nothing to give away.
    """

    def off(at: FeasiblePoint) -> float:
        return float((np.abs(at.throughput - position) / program.reach).max())

    if off(point) <= SETTLED or not position.any():
        return point
    level = program.max_level(Proportional(position), exact=True)
    return min(point, level.point, key=off)


def _per_level(proof: Proof, slope: Floats) -> Proof:
    """The same inequality, with worths and prices in units of the level."""
    total = float(proof.worth @ slope)
    return proof.times(1.0 / total) if total > 0 else proof


def _record(steps: list[_OpenStage], level: Level, proof: Proof, stopped: Bools) -> None:
    """Add a stage, or extend the last one if the level has not risen since."""
    reached = steps[-1].level if steps else 0.0
    total = reached + level.value
    if steps and level.value <= SAME_LEVEL * max(total, 1e-300):
        last = steps[-1]
        steps[-1] = _OpenStage(last.level, last.bound, last.proof.plus(proof), last.stopped | stopped)
        return
    steps.append(_OpenStage(total, reached + max(level.bound, level.value), proof, stopped))


def _search(
    program: Program, position: Floats, active: Bools, start: WarmStart | None
) -> tuple[Proof, Bools, WarmStart | None]:
    """Find classes that are stuck when the duals of the level prove none to be.

    Maximise the sum of gains of the classes in question while all classes keep their positions. Classes that gain are
    not stuck; repeat with the rest. When nothing more can be gained, all of the rest are stuck, and the last program
    proves it, because classes that could each rise could also all rise a little together.
    """
    gain = program.normalised_gain
    tolerance = STUCK
    while tolerance <= LOOSEST:
        asked = active.copy()
        while asked.any():
            rest = program.maximise(np.where(asked, gain, 0.0), floors=position, start=start, exact=True)
            start = rest.start
            headroom = rest.proof.headroom(position)
            if (headroom[asked] <= tolerance * program.reach[asked]).all():
                return rest.proof, asked, start
            gained = (rest.point.throughput - position) * gain * program.count
            average = float(gained[asked].sum()) / float(asked.sum())
            asked &= ~(gained > max(average / 2, 0.0))
        tolerance *= 10
    raise SolverError("the level stopped rising, but no class could be proven stuck; please report the problem file")
