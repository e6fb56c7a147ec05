"""How a scheduler works: the settings that are the same in every world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the scheduler works; the same in every world."""

    round_seconds: float = 360.0
    space_sharing: bool = False
    min_seconds_between_allocations: float = 0.0
    recompute_every_seconds: float = np.inf
    """Ask for a new allocation after this time even if nothing has changed."""
    solve_patience_seconds: float = 1.0
    """How long a round waits for a new allocation before it continues with the old one."""
    start_mid_round: bool = True
    """Start jobs on idle accelerators during a round, instead of only when the next round begins."""
    restart_seconds: float = 10.0
    """The assumed cost of a restart, saving and loading a checkpoint together, until it has been measured."""
    weigh_restarts: bool = True
    """Ask for a new allocation when measured restarts cost much more or less than assumed.

    Switch this off for mechanisms that ignore the cost, above all if a new allocation resets their accounts.
    """
    open_entities: bool = False
    """Accept jobs of entities that are not described; such entities get the defaults."""
