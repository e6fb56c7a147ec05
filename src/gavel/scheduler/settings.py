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
    """Ask for a new allocation this long after the last one even if nothing changed."""
    solve_patience_seconds: float = 1.0
    """How long a round waits for a new allocation before it goes on with the old one."""
    start_mid_round: bool = True
    """Start jobs on accelerators that are idle during a round, instead of when the next one begins."""
    restart_seconds: float = 10.0
    """What a restart costs a job, saving and loading a checkpoint together, where it has not been measured."""
    weigh_restarts: bool = True
    """Ask for a new allocation when measured restarts cost much more or less than believed.

    Needless where the mechanism does not look at the cost, and harmful where each allocation starts its accounts again.
    """
    open_entities: bool = False
    """Take in jobs of entities that nobody described: they get the defaults."""
