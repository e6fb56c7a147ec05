"""Measurements while jobs run: smoothed, with their uncertainty, and rejected reports with the reason."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from gavel.core.locality import Locality
from gavel.core.throughputs import Condition
from gavel.estimator.sheet import Sheet

MATTERS = 0.05
"""A rate that changes by less than this is not worth a new allocation."""
SLOWEST = 0.2
"""A new measurement counts at least this much against all that came before."""
LEAP = 2.0
"""A measurement that is off by more than this factor is clipped to it."""
REMEMBERED = 20
"""Number of rejected reports to keep."""


@dataclass(slots=True)
class Estimate:
    """A measured rate."""

    rate: float
    count: int
    used: float
    """The rate in use, as last reported; measurements that differ little from it change nothing."""
    variance: float = 0.0
    """Variance of single measurements, relative to the rate."""

    def take_in(self, rate: float) -> None:
        """Smooth: the mean of the first measurements, then a moving average."""
        self.count += 1
        weight = max(1.0 / self.count, SLOWEST)
        change = min(max(rate, self.rate / LEAP), self.rate * LEAP) - self.rate
        self.variance = (1.0 - weight) * (self.variance + weight * (change / self.rate) ** 2)
        self.rate += weight * change

    @property
    def uncertainty(self) -> float:
        """The relative standard error of the rate; for a single measurement, the smallest difference that matters."""
        return math.sqrt(max(self.variance, MATTERS**2) / min(self.count, 1.0 / SLOWEST))


class Measurements:
    """Rates by the condition under which they were measured, and failures of jobs that shared."""

    def __init__(self) -> None:
        self.estimates: dict[Condition, Estimate] = {}
        self.failures: dict[Condition, int] = {}
        """Number of failures of a job beside another."""
        self.ignored: deque[str] = deque(maxlen=REMEMBERED)
        """The newest rejected reports, with the reason."""
        self._alone: dict[str, list[Condition]] = {}
        """The conditions in which a template was measured alone."""
        self._shared: dict[str, list[Condition]] = {}
        """By template: the sharing conditions in which it was measured or was the partner."""
        self.together = Sheet()
        """The rates in use of jobs that shared."""

    def take_in(self, condition: Condition, rate: float, before: float) -> bool:
        """Record a measurement, given the rate believed before; True if the difference matters."""
        known = self.estimates.get(condition)
        if known is None:
            self._add(condition, Estimate(rate, 1, rate))
            return not math.isclose(rate, before, rel_tol=MATTERS)
        known.take_in(rate)
        if math.isclose(known.rate, known.used, rel_tol=MATTERS):
            return False
        known.used = known.rate
        if condition.beside is not None:
            self.together.put(condition, known.used)
        return True

    def fail(self, condition: Condition) -> None:
        """Count a failure of a job that shared."""
        self._list(condition)
        self.failures[condition] = self.failures.get(condition, 0) + 1

    def refuses(self, condition: Condition) -> bool:
        """Whether a pair must not be tried again: it failed at least as often as it was measured."""
        failures = self.failures.get(condition, 0)
        if failures == 0:
            return False
        measured = self.estimates.get(condition)
        return failures >= (measured.count if measured else 0)

    def sharing(self, template: str) -> Sequence[Condition]:
        """The sharing conditions in which a template was measured or was the partner."""
        return self._shared.get(template, ())

    def used(self, template: str, workers: int, type_name: str, locality: Locality = Locality.SERVER) -> float | None:
        """A rate alone."""
        found = self.estimates.get(Condition(template, workers, type_name, locality))
        return None if found is None else found.used

    @property
    def templates(self) -> dict[str, None]:
        """The templates of which something is known."""
        return dict.fromkeys((*self._alone, *self._shared))

    @property
    def size(self) -> int:
        """About how many templates that are, at once."""
        return max(len(self._alone), len(self._shared))

    def knows(self, template: str) -> bool:
        return template in self._alone or template in self._shared

    def forget(self, templates: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Take out all that involves these templates, as plain data; what two of them share goes with the first."""
        taken = {template: self._take(template) for template in templates if self.knows(template)}
        if taken:
            self.together = Sheet()
            for condition, found in self.estimates.items():
                if condition.beside is not None:
                    self.together.put(condition, found.used)
        return taken

    def _take(self, template: str) -> dict[str, Any]:
        conditions = [*self._alone.pop(template, ()), *self._shared.pop(template, ())]
        entries = [(condition, self.estimates.pop(condition, None)) for condition in conditions]
        failures = [(condition, self.failures.pop(condition, 0)) for condition in conditions]
        for condition in conditions:
            for other in {condition.template, condition.beside or template} - {template}:
                self._unlist(other, condition)
        return {
            "estimates": [[*_stored(condition), *astuple(found)] for condition, found in entries if found],
            "failures": [[*_stored(condition), count] for condition, count in failures if count],
        }

    def _unlist(self, template: str, condition: Condition) -> None:
        self._shared[template].remove(condition)
        if not self._shared[template]:
            del self._shared[template]

    def recall(self, document: Mapping[str, Any]) -> list[Condition]:
        """Take in what `forget` gave, where nothing was measured since; returns the conditions that are new."""
        fresh = [entry for entry in document["estimates"] if _condition(entry) not in self.estimates]
        for entry in fresh:
            self._add(_condition(entry), Estimate(*entry[5:]))
        failed = [entry for entry in document["failures"] if _condition(entry) not in self.failures]
        for entry in failed:
            self._list(_condition(entry))
            self.failures[_condition(entry)] = entry[5]
        return [_condition(entry) for entry in (*fresh, *failed)]

    def _add(self, condition: Condition, estimate: Estimate) -> None:
        self._list(condition)
        self.estimates[condition] = estimate
        if condition.beside is not None:
            self.together.put(condition, estimate.used)

    def _list(self, condition: Condition) -> None:
        """Index a condition before its first use."""
        if condition in self.estimates or condition in self.failures:
            return
        if condition.beside is None:
            self._alone.setdefault(condition.template, []).append(condition)
        else:
            for name in {condition.template: None, condition.beside: None}:
                self._shared.setdefault(name, []).append(condition)

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "estimates": [[*_stored(condition), *astuple(found)] for condition, found in self.estimates.items()],
            "failures": [[*_stored(condition), count] for condition, count in self.failures.items()],
            "ignored": list(self.ignored),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Measurements:
        """Restore from `document`; documents of older versions lack some fields."""
        found = cls()
        for entry in document["estimates"]:
            found._add(_condition(entry), Estimate(*entry[5:]))
        for entry in document.get("failures", ()):
            found._list(_condition(entry))
            found.failures[_condition(entry)] = entry[5]
        found.ignored.extend(document.get("ignored", ()))
        return found


def _stored(condition: Condition) -> list[Any]:
    """The fields of a condition as documents hold them."""
    return [part.consolidated if isinstance(part, Locality) else part for part in astuple(condition)]


def _condition(entry: Sequence[Any]) -> Condition:
    """The condition that an entry of a document begins with."""
    template, workers, type_name, consolidated, beside = entry[:5]
    return Condition(template, workers, type_name, Locality.of(consolidated), beside)
