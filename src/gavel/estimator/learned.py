"""Rates learned while jobs run: an initial table, measurements that replace it, and estimates for the rest.

Unknown rates are estimated from known ones. Alone, a template's rate on a type is its *prior* there (the table's
figure or, for an unknown template, the average speed of the type) times the ratio of measured rates to priors on other
types. For pairs, fingerprints give the shares that templates keep; no jobs are packed on an estimate with low
confidence, or with a gain smaller than its possible error.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gavel.core.locality import Locality
from gavel.core.throughputs import Condition, Profile, ThroughputTable
from gavel.estimator.fingerprint import Fingerprint, Pair, Shares, fingerprint
from gavel.estimator.guesses import guessed_shares
from gavel.estimator.measurements import Measurements
from gavel.estimator.references import References

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


class LearnedTable:
    """Rates by profile and type, like a ThroughputTable, for any template and any type.

    >>> from gavel.core.throughputs import Condition, builtin_table
    >>> table = LearnedTable(builtin_table())
    >>> v100, k80 = table.rates([("my-model", 1)], ["v100", "k80"])[0, :, 0]
    >>> _ = table.learn(Condition("my-model", 1, "k80"), 20.0)
    >>> faster, measured = table.rates([("my-model", 1)], ["v100", "k80"])[0, :, 0]
    >>> float(measured), bool(np.isclose(faster / measured, v100 / k80))
    (20.0, True)
    """

    def __init__(
        self, base: ThroughputTable, measurements: Measurements | None = None, types: Sequence[str] | None = None
    ) -> None:
        self.base = base
        self.types: tuple[str, ...] = base.types if types is None else tuple(types)
        """In the order of those who ask; some may not be in the table, and some of the table may be missing."""
        self.measurements = measurements or Measurements()
        self._alone_of: dict[Profile, Floats] = {}
        """Cache by profile: its rates (types, localities), since the last measurement of its template."""
        self._fingerprints: dict[str, Fingerprint | None] = {}
        """Cache by template: its fingerprint, since the last measurement beside references."""
        self._lasting: set[str] = set(base.templates)
        """Templates that are never forgotten: every start begins with them."""
        self._guesses: tuple[dict[str, int], Floats] | None = None
        """Cache: the rows of templates, and their shares beside each other by the current fingerprints."""

    @cached_property
    def references(self) -> References:
        """The templates whose pairs the table lists."""
        return References.of(self.base)

    @cached_property
    def _usual(self) -> Floats:
        """By type of the table: the average relative speed of templates; about 1 for the fastest type."""
        single = [profile for profile in self.base.profiles if profile[1] == 1] or list(self.base.profiles)
        rates = self.base.rates(single, self.base.types)[:, :, Locality.SERVER]
        runs = rates[(rates > 0).all(axis=1)]
        relative = runs / runs.max(axis=1, keepdims=True) if len(runs) else np.ones((1, len(self.base.types)))
        return np.asarray(np.exp(np.log(relative).mean(axis=0)))

    def admit(self, type_name: str) -> None:
        """Add a type; it counts as fast as the fastest one until a job has run there."""
        if type_name not in self.types:
            self.types = (*self.types, type_name)
            self._alone_of.clear()

    def _listed(self) -> tuple[list[int], list[int]]:
        """The types that the table lists: their columns here and there."""
        both = [kind for kind in self.types if kind in self.base.types]
        return self._columns(both), [self.base.types.index(kind) for kind in both]

    def learn(self, condition: Condition, rate: float) -> bool:
        """Record a measurement; True if it changes a rate enough to matter."""
        if not (rate > 0 and math.isfinite(rate)):
            self.ignore(f"{named(condition)}: {rate:g} steps a second cannot be")
            return False
        fresh = condition not in self.measurements.estimates
        changed = self.measurements.take_in(condition, rate, self.believed(condition) if fresh else 0.0)
        if fresh or changed:
            self._forget(condition)
        return changed

    def begin_with(self, profiled: ThroughputTable) -> None:
        """Record a table of profiled templates as measurements, except where newer ones exist."""
        templates = [template for template, workers in profiled.profiles if workers == 1]
        self._lasting |= set(templates)
        for type_name in profiled.types:
            self.admit(type_name)
            alone = profiled.single_rates(templates, [type_name])[:, 0].tolist()
            figures = {Condition(one, 1, type_name): rate for one, rate in zip(templates, alone, strict=True)}
            for one, other in product(templates, templates):
                rate, _ = profiled.together((one, 1), (other, 1), type_name)
                figures[Condition(one, 1, type_name, beside=other)] = rate
            for condition, rate in figures.items():
                if rate > 0 and condition not in self.measurements.estimates:
                    self.learn(condition, rate)

    def fail(self, condition: Condition, reason: str) -> bool:
        """A job failed under a condition; True if a pair is not tried again because of it."""
        self.ignore(f"{named(condition)}: nothing was measured, because the job failed: {reason}")
        if condition.beside is None:
            return False
        self.measurements.fail(condition)
        self._forget(condition)
        return self.measurements.refuses(condition)

    def ignore(self, sentence: str) -> None:
        """Remember a rejected report and the reason."""
        self.measurements.ignored.append(sentence)

    @property
    def ignored(self) -> Sequence[str]:
        """Recently rejected reports, with reasons."""
        return tuple(self.measurements.ignored)

    def _forget(self, condition: Condition) -> None:
        """Invalidate everything derived from a condition."""
        if condition.beside is None:
            for profile in [profile for profile in self._alone_of if profile[0] == condition.template]:
                del self._alone_of[profile]
            shared = self.measurements.sharing(condition.template)
            touched = {name for found in shared for name in (found.template, found.beside or "")}
        elif {condition.template, condition.beside}.isdisjoint(self.references.row):
            return
        else:
            touched = {condition.template, condition.beside}
        for name in touched & self._fingerprints.keys():
            del self._fingerprints[name]
            self._guesses = None

    def knows(self, template: str) -> bool:
        """Whether anything is known of a template beyond what is usual."""
        return template in self._lasting or self.measurements.knows(template)

    @property
    def spare(self) -> int:
        """About how many templates are known that no start begins with."""
        return self.measurements.size - sum(map(self.measurements.knows, self._lasting))

    def forgettable(self) -> list[str]:
        """The templates that may be forgotten, in the order in which they were learned about."""
        return [template for template in self.measurements.templates if template not in self._lasting]

    def forget(self, templates: Collection[str]) -> dict[str, dict[str, Any]]:
        """Forget what was learned about templates; returns it by template, for `recall`."""
        taken = self.measurements.forget(templates)
        self._drop(set(templates))
        return taken

    def recall(self, document: Mapping[str, Any]) -> None:
        """Know again what was forgotten, where nothing was measured since."""
        for condition in self.measurements.recall(document):
            self.admit(condition.type)
            self._forget(condition)

    def _drop(self, templates: Container[str]) -> None:
        """Drop what was worked out about templates."""
        self._alone_of = {key: rates for key, rates in self._alone_of.items() if key[0] not in templates}
        self._fingerprints = {name: found for name, found in self._fingerprints.items() if name not in templates}
        self._guesses = None

    def measured(self) -> Mapping[Condition, float]:
        """The measurements so far, smoothed."""
        return {condition: found.rate for condition, found in self.measurements.estimates.items()}

    def believed(self, condition: Condition) -> float:
        """The measured or listed rate under a condition; 0 for a pair with only estimates."""
        if (measured := self.measurements.estimates.get(condition)) is not None:
            return measured.used
        mine = (condition.template, condition.workers)
        alone = float(self.rates([mine], [condition.type])[0, 0, condition.locality])
        return alone if condition.beside is None else alone * self._listed_share(condition, condition.beside)

    def _listed_share(self, condition: Condition, beside: str) -> float:
        mine, its = (condition.template, condition.workers), (beside, condition.workers)
        known = condition.workers in self._counts(mine[0]) and condition.workers in self._counts(beside)
        if not known or condition.type not in self.base.types:
            return 0.0
        rate = float(self.base.rates([mine], [condition.type])[0, 0, Locality.SERVER])
        return self.base.together(mine, its, condition.type)[0] / rate if rate > 0 else 0.0

    def rates(self, profiles: Sequence[Profile], types: Sequence[str]) -> Floats:
        """Rates alone, shape (profiles, types, localities)."""
        shape = len(profiles), len(self.types), len(Locality)
        return np.array([self._alone(profile) for profile in profiles]).reshape(shape)[:, self._columns(types)]

    def pairs(self, profiles: Sequence[Profile], types: Sequence[str]) -> tuple[Ints, Ints, Floats]:
        """The pairs that can share some type: listed, measured, or estimated with enough confidence."""
        together = self._together(profiles, types)
        first, second = np.triu_indices(len(profiles))
        rates = np.stack([together[first, second], together[second, first]], axis=1)
        runs = rates.any(axis=(1, 2))
        return first[runs], second[runs], rates[runs]

    def fingerprint(self, template: str) -> Fingerprint | None:
        """The fingerprint of a template from its measurements; None if there are none."""
        if template not in self._fingerprints:
            observed = self._observed(template)
            self._fingerprints[template] = fingerprint(self.references, observed) if observed else None
        return self._fingerprints[template]

    def _columns(self, types: Sequence[str]) -> list[int]:
        return [self.types.index(type_name) for type_name in types]

    def _together(self, profiles: Sequence[Profile], types: Sequence[str]) -> Floats:
        """(profiles, profiles, types): steps per second of the first beside the second."""
        shares = np.zeros((len(profiles), len(profiles), len(self.types)))
        self._put_guessed(profiles, shares)
        self._put_listed(profiles, shares)
        alone = self.rates(profiles, self.types)[:, :, Locality.SERVER]
        rates = shares * alone[:, None, :]
        self._put_measured(profiles, alone, rates)
        return rates[:, :, self._columns(types)]

    def _put_listed(self, profiles: Sequence[Profile], shares: Floats) -> None:
        """The table's figures."""
        known = [number for number, (template, workers) in enumerate(profiles) if workers in self._counts(template)]
        first, second, rates = self.base.pairs([profiles[number] for number in known], self.base.types)
        alone = self.base.rates([profiles[number] for number in known], self.base.types)[:, :, Locality.SERVER]
        both = np.stack([alone[first], alone[second]], axis=1)
        listed = np.divide(rates, both, out=np.zeros_like(rates), where=both > 0)
        where = np.array(known, dtype=np.intp)
        here, there = self._listed()
        one, other = where[first][:, None], where[second][:, None]
        shares[one, other, here] = listed[:, 0, there]
        shares[other, one, here] = listed[:, 1, there]

    def _put_guessed(self, profiles: Sequence[Profile], shares: Floats) -> None:
        """Estimates from fingerprints for templates that the table does not list."""
        single = [number for number, (_, workers) in enumerate(profiles) if workers == 1]
        row, guesses = self._guessed([profiles[number][0] for number in single])
        rows = [row[profiles[number][0]] for number in single]
        here, there = self._listed()
        shares[np.ix_(single, single, here)] = guesses[np.ix_(rows, rows, there)]

    def _guessed(self, templates: Sequence[str]) -> tuple[dict[str, int], Floats]:
        """The row of each of these templates (and possibly of others), and their shares beside each other."""
        if self._guesses is None or not self._guesses[0].keys() >= set(templates):
            known = self._guesses[0] if self._guesses else {}
            names = list(dict.fromkeys((*known, *templates)))
            found = {name: self.fingerprint(name) for name in names if name not in self.references.row}
            unknown = {name: one for name, one in found.items() if one is not None}
            rows = {name: number for number, name in enumerate(names)}
            self._guesses = rows, guessed_shares(self.references, names, unknown)
        return self._guesses

    def _put_measured(self, profiles: Sequence[Profile], alone: Floats, rates: Floats) -> None:
        """Replace rates by measured ones; drop pairs that failed or are slower together than in turns."""
        measured = self.measurements.together.look_up(profiles, self.types)
        seen = ~np.isnan(measured)
        rates[seen] = measured[seen]
        refused = np.zeros(rates.shape, dtype=bool)
        for condition in filter(self.measurements.refuses, self.measurements.failures):
            both = ((name, condition.workers) for name in (condition.template, condition.beside))
            mine, its = ([number for number, profile in enumerate(profiles) if profile == one] for one in both)
            refused[np.ix_(mine, its, self._columns([condition.type]))] = True
        shares = np.divide(rates, alone[:, None, :], out=np.zeros_like(rates), where=alone[:, None, :] > 0)
        useless = seen & seen.transpose(1, 0, 2) & (shares + shares.transpose(1, 0, 2) <= 1.0)
        alone_only = seen & (rates.transpose(1, 0, 2) == 0.0)  # nothing is known about the other
        rates[refused | refused.transpose(1, 0, 2) | useless | alone_only] = 0.0

    def _observed(self, template: str) -> dict[Pair, Shares]:
        """Measurements of a template beside references, as shares; 0 for pairs that failed.

        The order of the pairs, on which estimates depend slightly, does not follow the order of the measurements: a
        table that was stored and read gives the same estimates.
        """
        found: dict[Pair, tuple[float, float]] = {}
        refused: dict[Pair, tuple[float, float]] = {}
        for condition in sorted(self.measurements.sharing(template), key=_in_order):
            mine = condition.template == template
            other = condition.beside if mine else condition.template
            if condition.workers != 1 or other not in self.references.row or condition.type not in self.base.types:
                continue
            pair = (other, condition.type)
            kept, left = found.get(pair, (math.nan, math.nan))
            found[pair] = (self._share(condition), left) if mine else (kept, self._share(condition))
            if self.measurements.refuses(condition):
                refused[pair] = (0.0, 0.0)
        return found | refused

    def _share(self, condition: Condition) -> float:
        """Measured rate together divided by the rate alone; NaN if the rate alone is unknown."""
        rate = self.measurements.used(condition.template, 1, condition.type)
        if rate is None and condition.template in self.references.row:
            rate = float(self._alone((condition.template, 1))[self.types.index(condition.type), Locality.SERVER])
        found = self.measurements.estimates.get(condition)
        return found.used / rate if found and rate else math.nan

    def _alone(self, profile: Profile) -> Floats:
        """(types, localities): its rates."""
        if profile not in self._alone_of:
            self._alone_of[profile] = self._work_out_alone(profile)
        return self._alone_of[profile]

    def _work_out_alone(self, profile: Profile) -> Floats:
        template, workers = profile
        prior = self._prior(profile)
        rates = prior * self._how_much_faster(profile, prior)
        for column, type_name in enumerate(self.types):
            measured = [self.measurements.used(template, workers, type_name, locality) for locality in Locality]
            if workers == 1:  # one figure serves all
                measured = [next((found for found in measured if found is not None), None)] * len(Locality)
            for locality, found in zip(Locality, measured, strict=True):
                if found is not None:
                    rates[column, locality] = found
        return rates

    def _how_much_faster(self, profile: Profile, prior: Floats) -> float:
        """The mean ratio of measured rates alone to priors, over the types where both are known."""
        measured = [self.measurements.used(*profile, type_name) for type_name in self.types]
        known = zip(measured, prior[:, Locality.SERVER].tolist(), strict=True)
        ratios = [math.log(found / before) for found, before in known if found and before > 0]
        return math.exp(sum(ratios) / len(ratios)) if ratios else 1.0

    def _prior(self, profile: Profile) -> Floats:
        """(types, localities): the table's figures, or typical ones where it has none."""
        template, workers = profile
        known = self._counts(template)
        if known:
            nearest = min(known, key=lambda count: abs(count - workers))
            listed = self.base.rates([(template, nearest)], self.base.types)[0] * (workers / nearest)
        else:
            listed = np.repeat(self._usual[:, None], len(Locality), axis=1) * workers
        fastest = listed.max(axis=0)  # the assumption for a type that is not in the table
        prior = np.tile(fastest, (len(self.types), 1))
        here, there = self._listed()
        prior[here] = listed[there]
        return prior

    def _counts(self, template: str) -> tuple[int, ...]:
        return self._counts_of.get(template, ())

    @cached_property
    def _counts_of(self) -> dict[str, tuple[int, ...]]:
        return {template: self.base.workers(template) for template in self.base.templates}

    def document(self) -> dict[str, Any]:
        """Everything learned, as plain data; for readers also the most similar references, with confidence."""
        shared = (
            name
            for condition in self.measurements.estimates
            if condition.beside
            for name in (condition.template, condition.beside)
        )
        found = {name: self.fingerprint(name) for name in dict.fromkeys(shared) if name not in self.references.row}
        return {
            "types": [kind for kind in self.types if kind not in self.base.types],
            **self.measurements.document(),
            "resembles": {
                name: {"reference": one.reference, "distance": one.distance, "confidence": one.confidence}
                for name, one in found.items()
                if one is not None
            },
        }

    @classmethod
    def of(cls, base: ThroughputTable, document: Mapping[str, Any], types: Sequence[str] | None = None) -> LearnedTable:
        """Restore from `document`, on top of a table; with types in a given order, whatever the table's is."""
        table = cls(base, Measurements.of(document), types)
        for type_name in document["types"]:
            table.admit(type_name)
        return table


def named(condition: Condition) -> str:
    """A condition in a sentence.

    >>> named(Condition("A3C", 2, "k80", beside="CycleGAN"))
    'A3C with 2 workers on k80 beside CycleGAN'
    """
    workers = f" with {condition.workers} workers" if condition.workers > 1 else ""
    beside = f" beside {condition.beside}" if condition.beside else ""
    return f"{condition.template}{workers} on {condition.type}{beside}"


def _in_order(condition: Condition) -> tuple[str, str, str, int, int]:
    return condition.template, condition.beside or "", condition.type, condition.workers, condition.locality
