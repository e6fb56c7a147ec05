"""The speed of emulated accelerators: the pace of a job by template, workers, type, placement and neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.locality import Locality
from gavel.core.throughputs import Profile, ThroughputTable
from gavel.errors import InputError

SHARED = 0.5
"""Share of its rate that a job keeps beside a job that the table does not know: they take turns."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """Hardware emulated by a table: rates of templates, all scaled by one factor."""

    table: ThroughputTable
    time_scale: float = 1.0

    def check_types(self, types: tuple[str, ...]) -> None:
        """Refuse types that cannot be emulated."""
        for name in types:
            if name not in self.table.types:
                known = ", ".join(self.table.types)
                raise InputError(f"emulated type {name!r} has no throughputs; use one of {known}, or give a table")

    def pace(self, profile: Profile, type_name: str, *, locality: Locality, beside: Profile | None = None) -> float:
        """Steps per second of a job, alone or while it shares its accelerators."""
        alone = self._alone(profile, type_name, locality)
        if beside is None:
            return alone * self.time_scale
        return (self._shared(profile, beside, type_name) or alone * SHARED) * self.time_scale

    def _alone(self, profile: Profile, type_name: str, locality: Locality) -> float:
        known = profile in self.table.profiles
        rate = float(self.table.rates([profile], [type_name])[0, 0, locality]) if known else 0.0
        return rate or self.usual(type_name)

    def usual(self, type_name: str) -> float:
        """The rate assumed for a template that is not in the table: that of the median template with one worker."""
        single = [profile for profile in self.table.profiles if profile[1] == 1] or list(self.table.profiles)
        rates = self.table.rates(single, [type_name])[:, 0, Locality.SERVER]
        running = rates[rates > 0]
        return float(np.median(running)) if running.size else 1.0

    def _shared(self, profile: Profile, beside: Profile, type_name: str) -> float:
        if not {profile, beside} <= set(self.table.profiles):
            return 0.0
        return self.table.together(profile, beside, type_name)[0]
