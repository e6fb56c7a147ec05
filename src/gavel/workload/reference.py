"""The reference type: how durations become steps and back, and which templates can be drawn for a number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gavel.core.errors import InputError
from gavel.core.throughputs import Profile, ThroughputTable
from gavel.limits import LARGEST, SMALLEST


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

    @classmethod
    def of(cls, table: ThroughputTable, kind: str) -> Reference:
        """The rates on a type; an unknown type is refused with the known ones."""
        rates = table.rates(table.profiles, [kind])[:, 0, 0]
        return cls(kind, {profile: float(rate) for profile, rate in zip(table.profiles, rates, strict=True) if rate})

    def rate(self, template: str, workers: int) -> float:
        """Steps per second; 0 if it cannot run here."""
        return self.rates.get((template, workers), 0.0)

    def steps(self, template: str, workers: int, seconds: float) -> float:
        """What it does in that time; a number of steps beyond the limits is refused."""
        steps = seconds * self.rate(template, workers)
        if not SMALLEST <= steps <= LARGEST:
            raise InputError(
                f"a job of {seconds:g} s would make {steps:g} steps as {template!r} with {workers} "
                f"worker{'' if workers == 1 else 's'} on {self.type}; take other durations or mend the throughput table"
            )
        return steps

    def templates(self, workers: int, among: Sequence[str] | None = None) -> list[str]:
        """The templates that run here with so many workers, in the table's order."""
        return self._by_workers.get(workers, []) if among is None else [t for t in among if (t, workers) in self.rates]

    def nearest_workers(self, wanted: int) -> int:
        """The known number of workers nearest to a wanted one; of two equally near, the larger."""
        return min(self._by_workers, key=lambda known: (abs(known - wanted), -known))

    @cached_property
    def _by_workers(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for template, workers in self.rates:
            found.setdefault(workers, []).append(template)
        return found


def drawn(uniform: NDArray[np.float64], choices: int) -> list[int]:
    """Numbers in [0, 1) as indices of equally likely choices."""
    # The largest uniform number, 1 - 2**-53, times any count rounds to less than the count.
    found: list[int] = (uniform * choices).astype(np.intp).tolist()
    return found
