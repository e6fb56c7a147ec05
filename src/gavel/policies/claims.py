"""What a policy claims of its answer, in terms that need no solver: its formula as demands, gains and floors.

A policy and `verify` share these, so that what is proven is what was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gavel.core.problem import Floats
from gavel.program.demand import Demand
from gavel.program.filling import Rise


@dataclass(frozen=True, slots=True, eq=False)
class LevelClaim:
    """No level is higher; then, with every class at that level, no total gain is larger."""

    demand: Demand
    gain: Floats
    objective: Callable[[float], float]
    """From the level to the objective."""
    per_level: Callable[[float], float]
    """By how much the objective improves with the level, there."""


@dataclass(frozen=True, slots=True, eq=False)
class FillingClaim:
    """Classes rise together, and each stops only where it cannot rise unless another falls."""

    rise: Rise


@dataclass(frozen=True, slots=True, eq=False)
class TotalClaim:
    """No total gain is larger, with every class at its floor at least."""

    gain: Floats
    floors: Floats
    objective: float | None = None
    """What the floors alone prove, where that is the objective; None: the total is."""


@dataclass(frozen=True, slots=True, eq=False)
class RatioClaim:
    """No ratio of total gain to charge is larger, with every class at its floor at least."""

    gain: Floats
    charge: Floats
    """By column, for one accelerator."""
    floors: Floats


Claim = LevelClaim | FillingClaim | TotalClaim | RatioClaim
