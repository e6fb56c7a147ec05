"""When a run yields: what a restart costs against what waiting costs, in seconds, whatever the length of a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.problem import Floats
from gavel.scheduler.rounds import RoundInput

WEEK_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long jobs wait for each other.

    A job that is displaced every P seconds while it is in the cluster for H seconds loses H/P restarts of R seconds,
    and waits up to P seconds for its turn. Both together cost least at P = sqrt(R x H), which is its *patience*: 41
    minutes where a restart costs 10 s.
    """

    horizon_seconds: float = WEEK_SECONDS
    """H: the longest time that jobs are expected to share the cluster with each other."""
    turn_restarts: float = 10.0
    """A run that has started is left alone for this many times what a restart costs: its *turn*."""
    cheapest_restart_seconds: float = 10.0
    """A restart is never taken to cost less: not all that it loses is measured."""

    def restart_seconds(self, given: RoundInput) -> Floats:
        """By slot: what a restart costs."""
        return np.maximum(given.restart, self.cheapest_restart_seconds)

    def turns(self, given: RoundInput) -> Floats:
        """By slot: how long a run is left alone once it has started."""
        return self.turn_restarts * self.restart_seconds(given)

    def of(self, given: RoundInput) -> Floats:
        """By slot: by how many seconds more than a run a waiting job must be owed to take its place."""
        return np.sqrt(self.restart_seconds(given) * self.horizon_seconds)
