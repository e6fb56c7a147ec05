"""How late renewals are, from agents' observations alone, without asking the scheduler about its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Rounds:
    """Renewals by round."""

    late: list[float]
    """Seconds from the end of a round, as its leases had announced, to each renewal."""
    spread: list[float]
    """Seconds from the first agent that received a round's renewal to each other one."""
    starts: list[float]
    """When the first renewal of each round arrived."""

    def on_time(self, allowed: float) -> int:
        """Number of rounds that began within the given seconds of the announced time; the first was not announced."""
        return sum(wait <= allowed for wait in self._waits)

    _waits: tuple[float, ...] = ()


def rounds_of(leases: Sequence[tuple[float, float]], round_seconds: float) -> Rounds:
    """Sort renewals (arrival, end of the round by what the message says) into rounds.

    The end announced by a message is late by its transit time, so the earliest one of a round is right.

    >>> found = rounds_of([(0.0, 5.0), (0.2, 5.2), (5.1, 10.1), (5.4, 10.4)], 5.0)
    >>> [round(late, 1) for late in found.late], [round(wait, 1) for wait in found.spread], found.on_time(0.5)
    ([0.1, 0.4], [0.0, 0.2, 0.0, 0.3], 1)
    """
    groups: list[list[tuple[float, float]]] = []
    for lease in sorted(leases, key=lambda each: each[1]):
        if not groups or lease[1] - groups[-1][0][1] > round_seconds / 2:
            groups.append([])
        groups[-1].append(lease)
    firsts = [min(received for received, _ in group) for group in groups]
    announced = [group[0][1] for group in groups]
    late = [
        max(received - end, 0.0) for end, group in zip(announced, groups[1:], strict=False) for received, _ in group
    ]
    waits = tuple(first - end for end, first in zip(announced, firsts[1:], strict=False))
    spread = [received - first for first, group in zip(firsts, groups, strict=True) for received, _ in group]
    return Rounds(late, spread, firsts, waits)


def spread_of(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum of times, by name; empty if there are none."""
    if not len(seconds):
        return {}
    return {
        f"{name}_p50_seconds": float(np.median(seconds)),
        f"{name}_p99_seconds": float(np.quantile(seconds, 0.99)),
        f"{name}_longest_seconds": float(np.max(seconds)),
    }
