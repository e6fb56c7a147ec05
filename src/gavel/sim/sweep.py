"""A sweep: policies x loads x seeds. Owns the list of experiments and the aggregation of their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from gavel.core.errors import InputError
from gavel.core.problem import Floats
from gavel.core.throughputs import find_table
from gavel.policies.registry import find_policy
from gavel.sim.experiment import Experiment, check_policy, check_settings, prepare
from gavel.sim.frames import frame
from gavel.sim.pool import answers
from gavel.sim.report import Figures
from gavel.sim.results import Result, ResultsFiles, point_of, settings_of

if TYPE_CHECKING:
    import pandas as pd

VARIANTS: dict[str, dict[str, Any]] = {
    "agnostic": {"agnostic": True},
    "space-sharing": {"space_sharing": True},
    "normalised": {"normalised": True},
    "priorities": {"mechanism": "priorities"},
    "plain": {"mechanism": "plain"},
    "ideal": {"ideal": True},
}
"""The variants that may follow a policy's name after a colon, and the settings that each changes."""
MECHANISM = "mechanism="
"""The prefix of the variant that names a user-defined mechanism: mechanism=module.NAME."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with its variants, as a sweep compares them."""

    policy: str
    variants: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Contender:
        """Read "policy" or "policy:variant+variant".

        >>> Contender.parse("max_min_fairness:space-sharing+agnostic").label
        'max_min_fairness:agnostic+space-sharing'
        """
        policy, colon, rest = text.partition(":")
        find_policy(policy)
        named = [part.strip() for part in rest.split("+")] if colon else []
        for name in named:
            if name not in VARIANTS and not name.startswith(MECHANISM):
                known = ", ".join((*VARIANTS, f"{MECHANISM}module.NAME"))
                raise InputError(f"{text}: there is no variant {name!r}; the variants are {known}")
        mechanisms = sorted({name for name in named if "mechanism" in _changes(name)})
        if len(mechanisms) > 1:
            raise InputError(f"{text}: {' and '.join(mechanisms)} are two mechanisms; give one")
        theirs = (name for name in mechanisms if name not in VARIANTS)
        return cls(policy, (*(name for name in VARIANTS if name in named), *theirs))

    @property
    def label(self) -> str:
        """Its name in tables and legends."""
        return f"{self.policy}:{'+'.join(self.variants)}" if self.variants else self.policy

    def settings(self) -> dict[str, Any]:
        """The settings that it changes in an experiment."""
        changed: dict[str, Any] = {"policy": self.policy}
        for variant in self.variants:
            changed |= _changes(variant)
        return changed


def _changes(variant: str) -> dict[str, Any]:
    """The settings that a variant changes in an experiment."""
    return VARIANTS.get(variant) or {"mechanism": variant.removeprefix(MECHANISM)}


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One experiment of a sweep."""

    contender: Contender
    load: float
    experiment: Experiment

    @property
    def id(self) -> str:
        """The key of its lines on disk."""
        return point_of(settings_of(self.experiment))

    @property
    def label(self) -> str:
        """Its name in messages."""
        unit = "jobs/hour" if self.experiment.arrivals_per_hour is not None else "jobs"
        return f"{self.contender.label}, {self.load:g} {unit}, seed {self.experiment.seed}"


@dataclass(frozen=True)
class Sweep:
    """What to compare: contenders x loads x seeds."""

    base: Experiment
    """All other settings. Every point has its `jobs`, unless loads are numbers of jobs."""
    contenders: tuple[Contender, ...]
    loads: tuple[float, ...]
    """Jobs per hour; with `static`, numbers of jobs that all arrive at the start."""
    seeds: tuple[int, ...] = (0,)
    static: bool = False

    @property
    def load_unit(self) -> str:
        return "jobs" if self.static else "jobs/hour"

    @cached_property
    def points(self) -> tuple[SweepPoint, ...]:
        """Every experiment, in the order in which they start."""
        return tuple(
            SweepPoint(contender, load, self._experiment(contender, load, seed))
            for contender in self.contenders
            for load in self.loads
            for seed in self.seeds
        )

    def _experiment(self, contender: Contender, load: float, seed: int) -> Experiment:
        arriving: dict[str, Any] = {"jobs": int(load)} if self.static else {"arrivals_per_hour": load}
        return replace(self.base, seed=seed, **arriving, **contender.settings())

    def check(self) -> None:
        """Raise InputError for settings that no point could run, before any time is spent."""
        for name, values in {"policies": self.contenders, "loads": self.loads, "seeds": self.seeds}.items():
            if not values:
                raise InputError(f"there are no {name} to sweep over; give at least one")
        for load in self.loads:
            if not 0 < load < np.inf or (self.static and load != int(load)):
                wanted = "a whole number of jobs" if self.static else "a number of jobs an hour"
                raise InputError(f"a load of {load:g} makes no sense; give {wanted} greater than 0")
        table = find_table(self.base.throughputs)
        for load in self.loads:
            for seed in self.seeds:
                one, *others = (self._experiment(contender, load, seed) for contender in self.contenders)
                scene = prepare(one, table=table)
                for other in others:  # they differ in the policy only
                    check_settings(other)
                    check_policy(other, scene)


@dataclass(frozen=True)
class SweepCell:
    """A contender at one load: the results of all seeds."""

    contender: Contender
    load: float
    results: tuple[Result, ...]
    seeds: tuple[int, ...] = ()
    """The seeds of the results, in the same order."""

    def values(self, figure: str) -> Floats:
        """A figure by seed, without seeds in which no job finished."""
        counted = [r.figures[figure] for r in self.results if r.figures["jobs_completed"]]
        return np.array([value for value in counted if value is not None], dtype=float)

    def mean(self, figure: str) -> float:
        """The mean over the seeds; NaN if no seed has the figure."""
        values = self.values(figure)
        return float(values.mean()) if len(values) else np.nan

    def deviation(self, figure: str) -> float:
        """The standard deviation over the seeds; 0 with one seed."""
        values = self.values(figure)
        return float(values.std(ddof=1)) if len(values) > 1 else 0.0

    @property
    def drained(self) -> bool:
        """Whether all jobs of all seeds finished before the time limit."""
        return all(result.figures["drained"] for result in self.results)

    @cached_property
    def completion_seconds(self) -> Floats:
        """The completion times of all jobs of all seeds, sorted."""
        return np.sort(np.concatenate([np.asarray(result.completion_seconds) for result in self.results]))


POINT = ("policy", "load", "seed")


@dataclass(frozen=True, slots=True)
class PointRecord:
    """What one point measured."""

    policy: str
    """The policy with its variants, as in "fifo:agnostic"."""
    load: float
    seed: int
    figures: Figures

    def row(self) -> dict[str, Any]:
        """The record as flat columns."""
        return {name: getattr(self, name) for name in POINT} | self.figures.document()


@dataclass(frozen=True, slots=True)
class Failure:
    """A point without a result."""

    point: SweepPoint
    reason: str


@dataclass(frozen=True, repr=False)
class SweepOutcome:
    """The results of a sweep."""

    sweep: Sweep
    cells: tuple[SweepCell, ...]
    """By contender and load; without those of which every seed failed."""
    failures: tuple[Failure, ...]
    already_known: int
    """Points that an earlier run had finished."""

    def __repr__(self) -> str:
        done = sum(len(cell.results) for cell in self.cells)
        return f"<SweepOutcome on {self.sweep.base.cluster}: {done} of {len(self.sweep.points)} points>"

    def points(self) -> list[PointRecord]:
        """A record of every point that has a result, by policy, load and seed in the given order."""
        return [
            PointRecord(cell.contender.label, cell.load, seed, Figures(**result.figures))
            for cell in self.cells
            for seed, result in zip(cell.seeds, cell.results, strict=True)
        ]

    def to_frame(self) -> pd.DataFrame:
        """The points as a pandas data frame, with a column for each figure."""
        figures = get_type_hints(Figures)
        floats = [name for name, hint in figures.items() if hint in {float, float | None}]
        return frame((point.row() for point in self.points()), [*POINT, *figures], ["load", *floats])


def run_sweep(
    sweep: Sweep,
    files: ResultsFiles,
    *,
    workers: int,
    on_end: Callable[[SweepPoint, Result | str], None] = lambda _point, _answer: None,
) -> SweepOutcome:
    """Run the points that have no result yet, several at once, and store each result as it arrives."""
    sweep.check()
    open_points = [point for point in sweep.points if point.id not in files.known]
    failures: list[Failure] = []
    with closing(answers([point.experiment for point in open_points], workers)) as arriving:
        for index, answer in arriving:
            point = open_points[index]
            if isinstance(answer, Result):
                files.append(settings_of(point.experiment), answer)
            else:
                failures.append(Failure(point, answer))
            on_end(point, answer)
    known = len(sweep.points) - len(open_points)
    return SweepOutcome(sweep, _cells(sweep.points, files), tuple(failures), known)


def said(answer: Result | str) -> str:
    """The result of a point as a clause for a message."""
    if isinstance(answer, str):
        return answer
    seconds = answer.figures["average_jct_seconds"]
    return "no job finished" if seconds is None else f"average JCT {seconds / 3600:.2f} h"


def _cells(points: Sequence[SweepPoint], files: ResultsFiles) -> tuple[SweepCell, ...]:
    found: dict[tuple[Contender, float], dict[int, Result]] = {}
    for point in points:
        if result := files.known.get(point.id):
            found.setdefault((point.contender, point.load), {})[point.experiment.seed] = result
    return tuple(SweepCell(*where, tuple(results.values()), tuple(results)) for where, results in found.items())
