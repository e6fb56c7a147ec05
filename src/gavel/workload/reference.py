"""The reference type: converts durations to steps and back, and lists the templates for a number of workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gavel.core.errors import InputError
from gavel.core.locality import Locality
from gavel.core.throughputs import Profile, ThroughputTable
from gavel.limits import LARGEST, SMALLEST
from gavel.workload.trace import TraceJob


@dataclass(frozen=True)
class Reference:
    """The consolidated rates of a table on one type, for the profiles that can run there.

    >>> from gavel.core.throughputs import builtin_table
    >>> reference = Reference.of(builtin_table(), "v100")
    >>> reference.rate("A3C", 1), len(reference.templates(1)), len(reference.templates(8))
    (7.176, 26, 19)
    >>> [reference.nearest_workers(wanted) for wanted in (1, 3, 5, 64)]
    [1, 4, 4, 8]
    """

    type: str
    rates: dict[Profile, float]
    table: ThroughputTable
    """The source of the rates."""
    _choices: dict[tuple[int, tuple[str, ...] | None], list[str]] = field(default_factory=dict, repr=False)
    _modelled: dict[Profile, float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: ThroughputTable, type_name: str) -> Reference:
        """The rates on a type; an unknown type is refused with the known ones."""
        rates = table.rates(table.profiles, [type_name])[:, 0, Locality.SERVER]
        found = {profile: float(rate) for profile, rate in zip(table.profiles, rates, strict=True) if rate}
        return cls(type_name, found, table)

    def rate(self, template: str, workers: int) -> float:
        """Steps per second, scaled if the table lists none; 0 if it cannot run here."""
        profile = (template, workers)
        if profile in self.rates:
            return self.rates[profile]
        if profile not in self._modelled:
            self._modelled[profile] = self._scaled(template, workers)
        return self._modelled[profile]

    def _scaled(self, template: str, workers: int) -> float:
        if workers in self.table.workers(template) or not self.table.can_scale(template, workers):
            return 0.0
        return float(self.table.scaled_rates(template, workers)[self.table.types.index(self.type), Locality.SERVER])

    def steps(self, template: str, workers: int, seconds: float) -> float:
        """The steps made in that time; a number beyond the limits is refused."""
        steps = seconds * self.rate(template, workers)
        if not SMALLEST <= steps <= LARGEST:
            raise InputError(
                f"a job of {seconds:g} s would make {steps:g} steps as {template!r} with {workers} "
                f"worker{'' if workers == 1 else 's'} on {self.type}; use other durations or fix the throughput table"
            )
        return steps

    def templates(self, workers: int, among: Sequence[str] | None = None) -> list[str]:
        """The templates that run here with this number of workers, in the table's order."""
        return self._by_workers.get(workers, []) if among is None else [t for t in among if (t, workers) in self.rates]

    def choices(self, workers: int, types: tuple[str, ...] | None = None) -> list[str]:
        """The templates for a job of a log: those listed with its number of workers, else those that can be scaled.

        With types, only those that run on one of them, if there are any.
        """
        if (workers, types) not in self._choices:
            found = self.templates(workers) or [t for t in self.table.templates if self.rate(t, workers)]
            there = found if types is None else [t for t in found if self._runs(t, workers, types)]
            self._choices[workers, types] = there or found
        return self._choices[workers, types]

    def _runs(self, template: str, workers: int, types: tuple[str, ...]) -> bool:
        profile = (template, workers)
        return bool(self.table.scaled([profile]).rates([profile], types).any())

    def workers_for(self, wanted: int) -> int:
        """The requested number of workers, or the nearest listed one if no template runs with it."""
        return wanted if self.choices(wanted) else self.nearest_workers(wanted)

    def nearest_workers(self, wanted: int) -> int:
        """The listed number of workers nearest to the requested one; of two equally near, the larger."""
        return min(self._by_workers, key=lambda known: (abs(known - wanted), -known))

    @cached_property
    def _by_workers(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for template, workers in self.rates:
            found.setdefault(workers, []).append(template)
        return found


def gpu_hours_on(reference: Reference, jobs: Iterable[TraceJob]) -> float:
    """Workers times the duration alone on the reference type; jobs that cannot run there are left out."""
    rates = ((job, reference.rate(job.template, job.workers)) for job in jobs)
    return math.fsum(job.workers * job.steps / rate for job, rate in rates if rate) / 3600.0


def drawn(uniform: NDArray[np.float64], choices: int) -> list[int]:
    """Numbers in [0, 1) as indices of equally likely choices."""
    # The largest uniform number, 1 - 2**-53, times any count rounds to less than the count.
    found: list[int] = (uniform * choices).astype(np.intp).tolist()
    return found
