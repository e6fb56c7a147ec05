"""What a policy claims about its answer, in terms that need no solver: its formula as demands, gains and floors.

A policy and `verify` share these claims, so what is proven is what was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gavel.core.problem import Floats
from gavel.program.demand import Demand
from gavel.program.filling import Rise


@dataclass(frozen=True, slots=True, eq=False)
class LevelClaim:
    """No level is higher; and with every class at that level, no total gain is larger."""

    demand: Demand
    gain: Floats
    objective: Callable[[float], float]
    """Converts the level to the objective."""
    per_level: Callable[[float], float]
    """The derivative of the objective by the level, at a level."""


@dataclass(frozen=True, slots=True, eq=False)
class FillingClaim:
    """Classes rise together, and each stops only where it cannot rise unless another class falls."""

    rise: Rise


@dataclass(frozen=True, slots=True, eq=False)
class TotalClaim:
    """No total gain is larger, with every class at least at its floor."""

    gain: Floats
    floors: Floats
    objective: float | None = None
    """The objective, if the floors alone prove it; None: the total is the objective."""


@dataclass(frozen=True, slots=True, eq=False)
class RatioClaim:
    """No ratio of total gain to charge is larger, with every class at least at its floor."""

    gain: Floats
    charge: Floats
    """By column: the charge for one accelerator."""
    floors: Floats


Claim = LevelClaim | FillingClaim | TotalClaim | RatioClaim
