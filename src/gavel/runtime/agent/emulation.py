"""How fast an emulated accelerator would be: the pace of a job by its template, workers, type, place and neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.locality import Locality
from gavel.core.throughputs import Profile, ThroughputTable
from gavel.errors import InputError

SHARED = 0.5
"""Of its rate alone, what a job keeps next to one of which the table knows nothing: they take turns."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """Hardware that is a table: rates of templates, faster or slower by one factor for all."""

    table: ThroughputTable
    time_scale: float = 1.0

    def check_types(self, types: tuple[str, ...]) -> None:
        """Refuse what cannot be emulated."""
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
        """Find the rate of a template that nobody knows: that of the median template with one worker."""
        single = [profile for profile in self.table.profiles if profile[1] == 1] or list(self.table.profiles)
        rates = self.table.rates(single, [type_name])[:, 0, Locality.SERVER]
        running = rates[rates > 0]
        return float(np.median(running)) if running.size else 1.0

    def _shared(self, profile: Profile, beside: Profile, type_name: str) -> float:
        if not {profile, beside} <= set(self.table.profiles):
            return 0.0
        return self.table.together(profile, beside, type_name)[0]
