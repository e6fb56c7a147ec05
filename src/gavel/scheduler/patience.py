"""When a run yields: the cost of a restart weighed against the cost of waiting, in seconds, not in rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.problem import Floats
from gavel.scheduler.rounds import RoundInput

WEEK_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How much more a waiting job must be owed than a running one before it takes the running job's place.

    A job that is displaced every P seconds loses H/P restarts of R seconds each over H seconds, and waits up to P
    seconds for its turn. The sum of both costs is smallest at P = sqrt(R x H), the job's *patience*: 41 minutes if a
    restart costs 10 s.
    """

    horizon_seconds: float = WEEK_SECONDS
    """H: the longest time for which jobs are expected to compete for the cluster."""
    turn_restarts: float = 10.0
    """The length of a *turn*, in restarts: a run that has started is left alone for this many restart costs."""
    cheapest_restart_seconds: float = 10.0
    """The least that a restart is assumed to cost, because a measurement misses some of its cost."""

    def restart_seconds(self, given: RoundInput) -> Floats:
        """By slot: what a restart costs."""
        return np.maximum(given.restart, self.cheapest_restart_seconds)

    def turns(self, given: RoundInput) -> Floats:
        """By slot: how long a run is left alone once it has started."""
        return self.turn_restarts * self.restart_seconds(given)

    def of(self, given: RoundInput) -> Floats:
        """By slot: the patience, in seconds."""
        return np.sqrt(self.restart_seconds(given) * self.horizon_seconds)
