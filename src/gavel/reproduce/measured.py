"""The measurements of a study, and the paper's claims checked against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gavel.core.problem import Floats
from gavel.plots.figures import Picture, Plot
from gavel.plots.page import NumberTable
from gavel.reproduce.study import Claim, Scope, Study, StudyPoint
from gavel.sim.results import Result


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a study: by contender and load, or single numbers, with tables and plots."""

    study: Study
    results: Mapping[tuple[str, float], Sequence[Result]] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    tables: Sequence[tuple[str, NumberTable]] = ()
    plots: Sequence[Plot | Picture] = ()
    notes: Sequence[str] = ()

    def series(self, contender: str, figure: str) -> dict[float, float]:
        """A figure by load, averaged over seeds; loads without data are left out."""
        return {load: float(np.mean(values)) for load, values in self._values(contender, figure).items()}

    def deviations(self, contender: str, figure: str) -> dict[float, float]:
        """The standard deviation over seeds, by load; 0 with one seed."""
        found = self._values(contender, figure)
        return {load: float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for load, values in found.items()}

    def times(self, contender: str) -> dict[float, Floats]:
        """Completion times in seconds by load, all seeds together; loads without data are left out."""
        found = {
            load: np.concatenate([result.completion_seconds for result in results])
            for (key, load), results in self.results.items()
            if key == contender
        }
        return {load: times for load, times in found.items() if len(times)}

    def relative(self, contender: str, yardstick: str) -> dict[float, list[Floats]]:
        """By load, for each seed: every job's completion time divided by its time under another contender.

        Loads at which a seed or job is missing for one of them are left out.
        """
        found = {}
        for (key, load), mine in sorted(self.results.items()):
            its = self.results.get((yardstick, load), ())
            if key == contender and len(mine) == len(its):  # same seeds
                times = [(one.completion_seconds, two.completion_seconds) for one, two in zip(mine, its, strict=True)]
                if all(len(one) == len(two) > 0 for one, two in times):  # and same jobs
                    found[load] = [np.divide(one, two) for one, two in times]
        return found

    def against(self, contender: str, yardstick: str) -> dict[float, float]:
        """By load: the ratio of completion times to another contender, averaged over jobs and seeds."""
        ratios = self.relative(contender, yardstick)
        return {load: float(np.mean([seed.mean() for seed in seeds])) for load, seeds in ratios.items()}

    def _values(self, contender: str, figure: str) -> dict[float, list[float]]:
        """By load, the figure of every seed that has it."""
        found = {
            load: [r.figures[figure] for r in results if r.figures[figure] is not None]
            for (key, load), results in sorted(self.results.items())
            if key == contender
        }
        return {load: values for load, values in found.items() if values}


def gather(study: Study, points: Iterable[StudyPoint], known: Mapping[str, Result]) -> Measured:
    """The measurements of a sweep's finished points."""
    results: dict[tuple[str, float], list[Result]] = {}
    for point in points:
        result = known.get(point.id)
        if result is not None:
            results.setdefault((point.contender, point.load), []).append(result)
    return Measured(study, results)


@dataclass(frozen=True, slots=True)
class Check:
    """A claim and our result."""

    claim: Claim
    ours: float | None
    """None if it was not measured."""
    at_least: float | None
    at_most: float | None

    @property
    def passed(self) -> bool | None:
        if self.ours is None:
            return None
        low, high = self.at_least, self.at_most
        return bool((low is None or self.ours >= low) and (high is None or self.ours <= high))

    @property
    def verdict(self) -> str:
        return {True: "holds", False: "FAILS", None: "not measured"}[self.passed]

    @property
    def wanted(self) -> str:
        low, high = self.at_least, self.at_most
        parts = ["" if low is None else f"at least {low:g}", "" if high is None else f"at most {high:g}"]
        return ", ".join(filter(None, parts))


def checks(measured: Measured, scope: Scope) -> list[Check]:
    """Every claim of a study with our result."""
    found = []
    for claim in measured.study.claims:
        quick = None if scope.full else claim.quick_at_least
        least = claim.at_least if quick is None else quick
        found.append(Check(claim, _answer(claim, measured), least, claim.at_most))
    return found


def _answer(claim: Claim, measured: Measured) -> float | None:
    if claim.value is not None:
        return measured.values.get(claim.value)
    assert claim.of is not None  # noqa: S101 - a study is checked when it is read
    figure = claim.figure or measured.study.figure
    if claim.to is None:
        series = measured.series(claim.of, figure)
    elif claim.yardstick is not None:
        series = _ratios(*(measured.against(key, claim.yardstick) for key in (claim.of, claim.to)))
    else:
        series = _ratios(*(measured.series(key, figure) for key in (claim.of, claim.to)))
    return _picked(claim, {load: value for load, value in series.items() if load >= claim.from_load})


def _ratios(mine: Mapping[float, float], other: Mapping[float, float]) -> dict[float, float]:
    """By load, where both are known."""
    return {load: mine[load] / other[load] for load in mine if other.get(load)}


def _picked(claim: Claim, series: Mapping[float, float]) -> float | None:
    if not series:
        return None
    match claim.pick:
        case "most":
            return max(series.values())
        case "least":
            return min(series.values())
        case "last":
            return series[max(series)]
        case load:
            return series.get(float(load))
