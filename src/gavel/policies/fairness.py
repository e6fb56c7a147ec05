"""Max-min fairness over weighted normalised throughput (least attained service), plain and by water filling."""

from __future__ import annotations

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Bools, Floats, Problem
from gavel.policies import scores
from gavel.policies.certify import certified
from gavel.policies.claims import FillingClaim, LevelClaim
from gavel.program.demand import Capped, Demand, Proportional
from gavel.program.filling import water_fill
from gavel.program.program import Program


def max_min_fairness(problem: Problem) -> Allocation:
    """Maximise the smallest weighted normalised throughput; among ties, the total normalised throughput."""
    program = Program(problem, "weight")
    asked = equal_levels(program)
    level, point = program.raise_and_fill(asked.demand, asked.gain)
    return certified(
        program,
        point,
        "max_min_fairness",
        scores.fairness,
        bound=level.bound,
        prices=level.prices,
        stages=level.stages,
    )


def equal_levels(program: Program) -> LevelClaim:
    """All jobs at the same level of weighted normalised throughput."""
    gain = program.normalised_gain
    return LevelClaim(Proportional(program.weight / gain), gain, lambda level: level, lambda _: 1.0)


def max_min_fairness_water_filling(problem: Problem) -> Allocation:
    """Maximise the smallest weighted normalised throughput, then the second smallest, and so on."""
    program = Program(problem, "weight")
    filled = water_fill(program, rising(program).rise)
    speed = program.weight / program.normalised_gain
    return certified(
        program,
        filled.point,
        "max_min_fairness_water_filling",
        scores.fairness,
        bound=min(filled.stages[0].bound, float(np.min(program.reach / speed))),
        prices=filled.prices,
        stages=filled.stages,
    )


def rising(program: Program) -> FillingClaim:
    """All classes rise at a speed in proportion to their weight, each up to its reach."""
    speed = program.weight / program.normalised_gain

    def rise(position: Floats, active: Bools) -> Demand:
        return Capped(position, np.where(active, speed, 0.0), program.reach)

    return FillingClaim(rise)
