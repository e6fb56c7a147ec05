"""Max-min fairness over weighted normalised throughput (least attained service), plain and by water filling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Bools, Floats, Problem
from gavel.policies import scores
from gavel.policies.finish import certified
from gavel.program.demand import Capped, Demand, Proportional
from gavel.program.lp import LpSolution
from gavel.program.program import Level, Program

IMPROVED = 1e-7
"""A gain below this, relative to the most that a class can reach, is rounding."""


def max_min_fairness(problem: Problem) -> Allocation:
    """Maximise the smallest weighted normalised throughput; ties broken for total normalised throughput."""
    program = Program(problem, "weight")
    gain = program.normalised_gain
    level, amounts = program.raise_and_fill(Proportional(program.weight / gain), gain)
    return certified(program, amounts, "max_min_fairness", scores.fairness, bound=level.bound, prices=level.prices)


def max_min_fairness_water_filling(problem: Problem) -> Allocation:
    """Maximise the smallest weighted normalised throughput, then the second smallest, and so on."""
    program = Program(problem, "weight")
    cap = program.reach * program.normalised_gain

    def stage(position: Floats, active: Bools) -> Demand:
        gain = program.normalised_gain
        return Capped(position / gain, np.where(active, program.weight, 0.0) / gain, cap / gain)

    first, amounts = water_fill(program, stage)
    bound = min(first.bound, float(np.min(cap / program.weight)))
    return certified(
        program,
        amounts,
        "max_min_fairness_water_filling",
        scores.fairness,
        bound=bound,
        prices=first.prices,
    )


def water_fill(program: Program, stage: Callable[[Floats, Bools], Demand]) -> tuple[Level, Floats]:
    """Raise all classes together, freeze those that are stuck, and go on with the rest.

    `stage` says how the active classes rise from a position (in normalised throughput). A class is stuck if it
    reached its cap, or if its floor has a positive dual at the highest level: then no allocation gives it more
    without taking from another. Returns the first level and the final amounts.
    """
    gain = program.normalised_gain
    cap = program.reach * gain
    position = np.zeros(len(program))
    active = np.ones(len(program), dtype=bool)
    first: Level | None = None
    start: LpSolution | None = None
    while True:
        level = program.max_level(stage(position, active), floors=position / gain, start=start)
        first = first or level
        position = level.needed * gain
        if level.stuck.all():
            return first, level.amounts
        still = active & ~level.stuck & (position < cap * (1 - IMPROVED))
        if not still.any():
            return first, program.maximise(gain, floors=position / gain, start=level.start).amounts
        # What the active classes can still gain together; nothing at all means that everyone is stuck.
        rest = program.maximise(np.where(still, gain, 0.0), floors=position / gain, start=level.start)
        start = rest.start
        gained = (program.throughput(rest.amounts) * gain - position) / cap
        if not (gained[still] > IMPROVED).any():
            return first, program.maximise(gain, floors=position / gain, start=start).amounts
        if (still == active).all():  # the duals were too weak to tell: whoever gained least goes
            still[np.flatnonzero(active)[gained[active].argmin()]] = False
        active = still
