"""A study of the paper as described by its file: its experiments, and the claims that they must confirm.

Files are in `studies/`, one for each study, and are meant for readers; `Study.read` refuses unknown fields.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from typing import Any, Literal

from gavel.core.errors import InputError
from gavel.sim.experiment import Experiment
from gavel.sim.results import point_of, settings_of

Pick = Literal["most", "least", "last"]
"""Over several loads: the largest figure, the smallest, or that at the highest load where all are known."""

EXPERIMENT = {field.name for field in fields(Experiment)}


@dataclass(frozen=True, slots=True)
class Scope:
    """How much of a study to run."""

    full: bool = False
    throughputs: str = "builtin"

    @property
    def name(self) -> str:
        return "full" if self.full else "quick"


@dataclass(frozen=True, slots=True)
class StudyContender:
    """A policy, or a variant of it, that a study compares."""

    key: str
    label: str
    settings: Mapping[str, Any]
    loads: tuple[float, ...] | None = None
    """The loads to run it at, if not all."""
    published: Mapping[float, float] | None = None
    """The authors' figure by load, in the unit of the study's figure."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the paper, and how our result is checked."""

    says: str
    paper: float | None = None
    value: str | None = None
    """A number measured by the study itself; otherwise `figure` of contender `of`, divided by that of `to` if given."""
    figure: str | None = None
    of: str | None = None
    to: str | None = None
    yardstick: str | None = None
    """Instead of a figure: a job's time divided by its time under this contender, averaged over jobs."""
    pick: Pick | float = "most"
    from_load: float = 0.0
    at_least: float | None = None
    at_most: float | None = None
    quick_at_least: float | None = None
    """In a quick run: a short window on a small cluster shows the direction, not the size."""
    why: str = ""
    """Why ours may differ."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The settings in which `--quick` and `--full` differ."""

    loads: tuple[float, ...] = ()
    """Jobs per hour on the paper's cluster; with `static`, numbers of jobs."""
    seeds: tuple[int, ...] = (0,)
    scale: int = 1
    """Factor by which cluster and load are smaller than the paper's."""
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StudyPoint:
    """One experiment of a study."""

    contender: str
    load: float
    experiment: Experiment

    @property
    def id(self) -> str:
        """The key of its lines on disk; studies may share points."""
        return point_of(settings_of(self.experiment))


@dataclass(frozen=True, slots=True)
class Study:
    """One table or figure of the paper."""

    name: str
    title: str
    section: str
    about: str
    kind: str = "sweep"
    figure: str = "average_jct_seconds"
    """What is plotted against load."""
    distributions: bool = False
    """Whether to show the distribution of completion times too."""
    static: bool = False
    cluster: Mapping[str, int] | None = None
    settings: Mapping[str, Any] | None = None
    full: Sizes = Sizes()
    quick: Sizes = Sizes()
    contenders: tuple[StudyContender, ...] = ()
    claims: tuple[Claim, ...] = ()

    @classmethod
    def read(cls, name: str, text: str) -> Study:
        """Read a study from its file."""
        try:
            data = tomllib.loads(text)
            contenders = tuple(_contender(key, part) for key, part in data.pop("contenders", {}).items())
            claims = tuple(Claim(**part) for part in data.pop("claims", []))
            full, quick = _sizes(data.pop("full", {})), _sizes(data.pop("quick", {}))
            study = cls(name=name, contenders=contenders, claims=claims, full=full, quick=quick, **data)
        except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
            raise InputError(f"study {name}: {error}") from None
        study._check()
        return study

    def _check(self) -> None:
        """Refuse claims about figures that are not measured."""
        known = {contender.key for contender in self.contenders}
        for claim in self.claims:
            unknown = {claim.of, claim.to, claim.yardstick} - known - {None}
            if unknown:
                raise InputError(
                    f"study {self.name}: the claim {claim.says!r} names {unknown}, which is not a contender"
                )
            if claim.yardstick and (claim.of is None or claim.to is None or claim.figure is not None):
                raise InputError(
                    f"study {self.name}: the claim {claim.says!r} has a yardstick: give `of` and `to`, not `figure`"
                )
            if claim.at_least is None and claim.at_most is None:
                raise InputError(f"study {self.name}: the claim {claim.says!r} cannot fail; give at_least or at_most")

    def sizes(self, scope: Scope) -> Sizes:
        return self.full if scope.full else self.quick

    def points(self, scope: Scope) -> Iterator[StudyPoint]:
        """Every experiment, in the order of their start."""
        sizes = self.sizes(scope)
        for contender in self.contenders:
            for load in sizes.loads:
                if contender.loads is None or load in contender.loads:
                    for seed in sizes.seeds:
                        yield StudyPoint(contender.key, load, self._experiment(contender, load, seed, scope))

    def _experiment(self, contender: StudyContender, load: float, seed: int, scope: Scope) -> Experiment:
        sizes = self.sizes(scope)
        cluster = {type_name: count // sizes.scale for type_name, count in (self.cluster or {}).items()}
        settings = {**(self.settings or {}), **(sizes.settings or {}), **contender.settings}
        base = Experiment.of(
            {"cluster": ",".join(f"{type_name}={count}" for type_name, count in cluster.items()), **settings}
        )
        arriving: dict[str, Any] = (
            {"jobs": round(load / sizes.scale)} if self.static else {"arrivals_per_hour": load / sizes.scale}
        )
        return replace(base, seed=seed, throughputs=scope.throughputs, **arriving)

    @property
    def load_unit(self) -> str:
        return "jobs" if self.static else "jobs/hour"


def _contender(key: str, part: Mapping[str, Any]) -> StudyContender:
    own = {"label", "loads", "published"}
    settings = {name: value for name, value in part.items() if name not in own}
    if unknown := settings.keys() - EXPERIMENT:
        raise ValueError(f"contender {key}: {min(unknown)!r} is not a setting of an experiment")
    published = {float(load): float(value) for load, value in part.get("published", {}).items()} or None
    loads = part.get("loads")
    return StudyContender(key, part["label"], settings, None if loads is None else tuple(map(float, loads)), published)


def _sizes(part: Mapping[str, Any]) -> Sizes:
    own = {"loads", "seeds", "scale"}
    settings = {name: value for name, value in part.items() if name not in own}
    if unknown := settings.keys() - EXPERIMENT:
        raise ValueError(f"{min(unknown)!r} is not a setting of an experiment")
    loads, seeds = tuple(map(float, part.get("loads", ()))), tuple(part.get("seeds", (0,)))
    return Sizes(loads, seeds, part.get("scale", 1), settings)


def all_studies() -> dict[str, Study]:
    """Every built-in study, by name, in the order of the paper."""
    folder = files("gavel.reproduce") / "studies"
    found = {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}
    order = (folder / "order.txt").read_text(encoding="utf-8").split()
    return {name: Study.read(name, found[name].read_text(encoding="utf-8")) for name in order}
