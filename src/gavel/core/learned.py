"""Rates that are learned while jobs run: a table to begin with, measurements that replace it, guesses for the rest.

What is not known is guessed from what is: a template's rate on a type is its *prior* there (the table's figure, or for
an unknown template how fast types are on average) times how much faster or slower than its priors the template was
measured to be elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gavel.core.throughputs import Condition, Profile, ThroughputTable

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

MATTERS = 0.05
"""A rate that changes by less than this is not worth a new allocation."""
SLOWEST = 0.2
"""A new measurement counts at least this much against all that came before."""


@dataclass(slots=True)
class _Estimate:
    rate: float
    count: int
    used: float
    """What was last told; measurements that differ little from it change nothing."""


class LearnedTable:
    """Rates by profile and type, like a ThroughputTable, of any template and on any type.

    >>> from gavel.core.throughputs import Condition, builtin_table
    >>> table = LearnedTable(builtin_table())
    >>> v100, k80 = table.rates([("my-model", 1)], ["v100", "k80"])[0, :, 0]
    >>> _ = table.learn(Condition("my-model", 1, "k80"), 20.0)
    >>> faster, measured = table.rates([("my-model", 1)], ["v100", "k80"])[0, :, 0]
    >>> float(measured), bool(np.isclose(faster / measured, v100 / k80))
    (20.0, True)
    """

    def __init__(self, base: ThroughputTable) -> None:
        self.base = base
        self.types: tuple[str, ...] = base.types
        self._estimates: dict[Condition, _Estimate] = {}
        single = [profile for profile in base.profiles if profile[1] == 1] or list(base.profiles)
        rates = base.rates(single, base.types)[:, :, 0]
        runs = rates[(rates > 0).all(axis=1)]
        relative = runs / runs.max(axis=1, keepdims=True) if len(runs) else np.ones((1, len(base.types)))
        self._usual: Floats = np.exp(np.log(relative).mean(axis=0))
        """By type of the table: how fast templates are there on average, the fastest type being about 1."""

    def admit(self, kind: str) -> None:
        """Make a type known; it is taken to be as fast as the fastest until somebody has run there."""
        if kind not in self.types:
            self.types = (*self.types, kind)

    def learn(self, condition: Condition, rate: float) -> bool:
        """Take in a measurement; True if it changes a rate enough to matter."""
        if not (rate > 0 and math.isfinite(rate)):
            return False
        known = self._estimates.get(condition)
        if known is None:
            before = self._believed(condition)
            self._estimates[condition] = _Estimate(rate, 1, rate)
            return not math.isclose(rate, before, rel_tol=MATTERS)
        known.count += 1
        known.rate += (rate - known.rate) * max(1.0 / known.count, SLOWEST)
        if math.isclose(known.rate, known.used, rel_tol=MATTERS):
            return False
        known.used = known.rate
        return True

    def measured(self) -> Mapping[Condition, float]:
        """What has been measured so far, smoothed."""
        return {condition: estimate.rate for condition, estimate in self._estimates.items()}

    def rates(self, profiles: Sequence[Profile], types: Sequence[str]) -> Floats:
        """Rates alone, shape (profiles, types, 2): consolidated and unconsolidated."""
        return np.array([self._alone(profile, types) for profile in profiles]).reshape(len(profiles), len(types), 2)

    def pairs(self, profiles: Sequence[Profile], types: Sequence[str]) -> tuple[Ints, Ints, Floats]:
        """Pairs that can share some type, as the table lists them: nobody packs jobs on a guess.

        Their rates follow what was measured of the two alone, and together.
        """
        known = [number for number, profile in enumerate(profiles) if profile in self.base.profiles]
        common = [kind for kind in types if kind in self.base.types]
        first, second, shared = self.base.pairs([profiles[number] for number in known], common)
        rates = np.zeros((len(first), 2, len(types)))
        rates[:, :, [types.index(kind) for kind in common]] = shared
        first, second = np.array(known, dtype=np.intp)[first], np.array(known, dtype=np.intp)[second]
        faster = self._faster(profiles, types)
        rates *= np.stack([faster[first], faster[second]], axis=1)
        self._put_measured_pairs(profiles, types, first, second, rates)
        return first, second, rates

    def _put_measured_pairs(
        self, profiles: Sequence[Profile], types: Sequence[str], first: Ints, second: Ints, rates: Floats
    ) -> None:
        together = {condition: estimate for condition, estimate in self._estimates.items() if condition.beside}
        if not together:
            return
        for pair, ends in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            for member, (mine, other) in enumerate((ends, ends[::-1])):
                template, workers = profiles[mine]
                for column, kind in enumerate(types):
                    found = together.get(Condition(template, workers, kind, True, profiles[other][0]))
                    if found is not None:
                        rates[pair, member, column] = found.used

    def _faster(self, profiles: Sequence[Profile], types: Sequence[str]) -> Floats:
        """By profile and type: how much faster than its prior a job is believed to be."""
        now = self.rates(profiles, types)[:, :, 0]
        prior = np.array([self._prior(profile, types)[:, 0] for profile in profiles]).reshape(now.shape)
        return np.asarray(np.divide(now, prior, out=np.ones_like(now), where=prior > 0))

    def _believed(self, condition: Condition) -> float:
        alone = self._alone((condition.template, condition.workers), [condition.type])
        return float(alone[0, 0 if condition.consolidated else 1]) if condition.beside is None else 0.0

    def _alone(self, profile: Profile, types: Sequence[str]) -> Floats:
        rates = self._prior(profile, types) * self._how_much_faster(profile)
        for column, kind in enumerate(types):
            for placement, close in enumerate((True, False)):
                # With one worker, or where nobody has seen it scattered, there is one figure for both.
                found = self._estimates.get(Condition(*profile, kind, close)) or (
                    self._estimates.get(Condition(*profile, kind, not close)) if profile[1] == 1 else None
                )
                if found is not None:
                    rates[column, placement] = found.used
        return rates

    def _how_much_faster(self, profile: Profile) -> float:
        """The mean ratio of what was measured alone to the prior, over the types where both are known."""
        ratios = []
        for kind in self.types:
            found = self._estimates.get(Condition(*profile, kind))
            prior = float(self._prior(profile, [kind])[0, 0]) if found else 0.0
            if found and prior > 0:
                ratios.append(math.log(found.used / prior))
        return math.exp(sum(ratios) / len(ratios)) if ratios else 1.0

    def _prior(self, profile: Profile, types: Sequence[str]) -> Floats:
        """(types, 2): the table's figures; for what it does not know, what is usual."""
        template, workers = profile
        known = self.base.workers(template)
        if known:
            nearest = min(known, key=lambda count: abs(count - workers))
            listed = self.base.rates([(template, nearest)], self.base.types)[0] * (workers / nearest)
        else:
            listed = np.repeat(self._usual[:, None], 2, axis=1) * workers
        by_type = dict(zip(self.base.types, listed, strict=True))
        fastest = listed.max(axis=0)  # what a type that the table does not have is taken to be
        return np.array([by_type.get(kind, fastest) for kind in types])

    def document(self) -> dict[str, Any]:
        """Everything learned, as plain data."""
        return {
            "types": list(self.types[len(self.base.types) :]),
            "estimates": [
                [c.template, c.workers, c.type, c.consolidated, c.beside, e.rate, e.count, e.used]
                for c, e in self._estimates.items()
            ],
        }

    @classmethod
    def of(cls, base: ThroughputTable, document: Mapping[str, Any]) -> LearnedTable:
        """What `document` gave, on top of a table."""
        table = cls(base)
        for kind in document["types"]:
            table.admit(kind)
        for entry in document["estimates"]:
            table._estimates[Condition(*entry[:5])] = _Estimate(*entry[5:])
        return table
