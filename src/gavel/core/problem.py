"""A Problem: one immutable question to a policy, stored as arrays so that a million jobs take little memory.

Jobs with the same workers and rates share a *profile*; jobs that a policy cannot tell apart form a *class*.
Space sharing adds combos (pairs of profiles) and placement sensitivity adds columns; policies need not know of either.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Entity, Job, Pair, PlacedRate, Rate
from gavel.core.locality import Locality
from gavel.core.serialization import stored_as
from gavel.core.throughputs import Throughputs, ThroughputTable

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

JobField = Literal["weight", "steps", "arrival", "age", "isolated_age", "deadline", "entity"]


@dataclass(frozen=True, slots=True)
class Column:
    """One way to run on a type: with any placement, or with all workers closer together."""

    type_index: int
    locality: Locality = field(metadata=stored_as("consolidated"))


@dataclass(frozen=True, slots=True)
class CloserColumn:
    """A column for gangs whose workers sit closer together than anywhere on the type."""

    index: int
    wider: int
    """The column of the same type for gangs of the next wider locality."""
    type: AcceleratorType
    locality: Locality

    def most_gangs(self, workers: int) -> int | None:
        """How many gangs of this size have room there at once; None if placement does not limit them."""
        return self.type.gangs_at_once(workers, self.locality)


@dataclass(frozen=True, slots=True, eq=False)
class Profiles:
    """The distinct profiles of jobs: workers, and steps per second in every column (0: cannot run)."""

    workers: Ints
    rates: Floats
    """Shape (profiles, columns), as given, even where there are too few accelerators."""


@dataclass(frozen=True, slots=True, eq=False)
class ProblemJobs:
    """Every job, one array per attribute."""

    ids: Sequence[str]
    profile: Ints
    weight: Floats
    steps: Floats
    """Steps left; NaN if unknown."""
    arrival: Floats
    age: Floats
    isolated_age: Floats
    deadline: Floats
    """Seconds from now; infinite without a deadline."""
    entity: Ints
    """The index of the job's entity; -1 if it has none."""

    def __len__(self) -> int:
        return len(self.profile)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Profiles whose jobs may share accelerators, two at a time."""

    first: Ints
    second: Ints
    rates: Floats
    """Shape (pairs, 2, columns): the rate of the first and of the second while they share."""

    def __len__(self) -> int:
        return len(self.first)

    def between(self, first: Ints, second: Ints) -> Floats:
        """The rates (2, columns) of two profiles, which must be a pair, in the order of the arguments."""
        size = int(max(self.first.max(initial=0), self.second.max(initial=0))) + 1
        row_of = np.zeros((size, size), dtype=np.intp)
        row_of[self.first, self.second] = row_of[self.second, self.first] = np.arange(len(self))
        row = row_of[first, second]
        rates = self.rates[row]
        return np.asarray(np.where((self.first[row] == first)[:, None, None], rates, rates[:, ::-1]))


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Jobs grouped by what a policy can tell apart."""

    of_job: Ints
    count: Ints
    first: Ints
    """By class: the index of one member."""

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, eq=False)
class Problem:
    """Jobs, accelerator types, and the rates of all combos.

    >>> v100, k80 = AcceleratorType("v100", 1), AcceleratorType("k80", 1)
    >>> problem = Problem.of([v100, k80], [Job("a", {"v100": 4.0, "k80": 1.0}), Job("b", {"v100": 4.0, "k80": 1.0})])
    >>> len(problem.jobs), len(problem.classes("weight"))
    (2, 1)
    """

    types: tuple[AcceleratorType, ...]
    columns: tuple[Column, ...]
    profiles: Profiles
    jobs: ProblemJobs
    pairs: Pairs
    entities: Mapping[str, Entity] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        types: Iterable[AcceleratorType],
        jobs: Iterable[Job],
        pairs: Iterable[Pair] = (),
        entities: Mapping[str, Entity] | None = None,
        *,
        table: ThroughputTable | None = None,
    ) -> Problem:
        """Build a problem from plain descriptions. They are assumed to be valid; files are checked when they are read.

        With a table, jobs that name a template may share accelerators as the table says.
        """
        types, jobs, pairs = tuple(types), tuple(jobs), tuple(pairs)
        columns = _columns(types, (rate for job in jobs for rate in job.rates.items()))
        tree = with_ancestors(entities or {}, (job.entity for job in jobs if job.entity))
        paired = {name for pair in pairs for name in pair.jobs}
        keys = [_profile_key(job, types, columns, job.id if job.id in paired else "") for job in jobs]
        # Sorted, so that the answer does not depend on the order in which jobs are listed.
        numbers = {key: index for index, key in enumerate(sorted(set(keys)))}
        profile = np.array([numbers[key] for key in keys], dtype=np.intp)
        return cls(
            types,
            columns,
            Profiles(
                np.array([key[0] for key in numbers], dtype=np.intp),
                np.array([key[1] for key in numbers], dtype=float).reshape(len(numbers), len(columns)),
            ),
            _job_arrays(jobs, profile, {path: index for index, path in enumerate(tree)}),
            _all_pairs(
                pairs, dict(zip((job.id for job in jobs), profile, strict=True)), types, columns, numbers, table
            ),
            tree,
        )

    @classmethod
    def from_table(
        cls,
        types: Iterable[AcceleratorType],
        table: Throughputs,
        profiles: Sequence[tuple[str, int]],
        jobs: ProblemJobs,
        *,
        entities: Mapping[str, Entity] | None = None,
        allowed: Bools | None = None,
        sharing: bool = True,
    ) -> Problem:
        """Build a problem whose rates come from a table: `jobs.profile` indexes `profiles`, (template, workers).

        `allowed` says by profile and type where jobs may run; None: wherever they can. Without `sharing`, no two jobs
        may share accelerators, and pairs are not looked up.
        """
        types = tuple(types)
        names = [t.name for t in types]
        placed = table.rates(profiles, names)
        if allowed is not None:
            placed = np.where(allowed[:, :, None], placed, 0.0)
        sensitive = (placed[..., :-1] != placed[..., 1:]).any(axis=(0, 2))
        columns = _all_columns({index for index, flag in enumerate(sensitive) if flag}, len(types))
        rates = np.stack([_gained(placed[:, c.type_index], c.locality) for c in columns], axis=1)
        pairs = no_pairs(len(columns))
        if sharing:
            first, second, pair_rates = table.pairs(profiles, names)
            if allowed is not None:
                pair_rates = np.where((allowed[first] & allowed[second])[:, None, :], pair_rates, 0.0)
            pairs = Pairs(first, second, _by_column(pair_rates, columns))
        workers = np.array([workers for _, workers in profiles], dtype=np.intp)
        tree = with_ancestors(entities or {})
        return cls(types, columns, Profiles(workers, rates), jobs, pairs, tree)

    def without_pairs(self) -> Problem:
        """The same problem without space sharing."""
        return replace(self, pairs=no_pairs(len(self.columns)))

    def with_jobs(self, jobs: ProblemJobs) -> Problem:
        """The same problem with other jobs; what depends only on types and profiles is computed once and shared."""
        other = Problem(self.types, self.columns, self.profiles, jobs, self.pairs, self.entities)
        vars(other).update((name, getattr(self, name)) for name in _KNOWN_BEFORE_JOBS)
        return other

    @cached_property
    def kept(self) -> dict[Hashable, object]:
        """A cache for values that depend only on types and profiles; shared with every `with_jobs`."""
        return {}

    @cached_property
    def counts(self) -> Floats:
        """By type: the number of accelerators."""
        return np.array([t.count for t in self.types], dtype=float)

    @cached_property
    def column_type(self) -> Ints:
        """By column: the index of its type."""
        return np.array([c.type_index for c in self.columns], dtype=np.intp)

    @cached_property
    def closer_columns(self) -> tuple[CloserColumn, ...]:
        """The columns of gangs that do not sit just anywhere, wider ones first."""
        index_of = {column: index for index, column in enumerate(self.columns)}
        return tuple(
            CloserColumn(index, index_of[Column(c.type_index, c.locality.wider)], self.types[c.type_index], c.locality)
            for c, index in index_of.items()
            if c.locality is not Locality.CLUSTER
        )

    @cached_property
    def rates(self) -> Floats:
        """Rates by profile and column; 0 where the type has fewer accelerators than the job has workers."""
        fits = self.profiles.workers[:, None] <= self.counts[self.column_type][None, :]
        return np.where(fits, self.profiles.rates, 0.0)

    @cached_property
    def type_rates(self) -> Floats:
        """Rates by profile and type, at the best placement."""
        best = np.zeros((len(self.rates), len(self.types)))
        for index, column in enumerate(self.columns):
            best[:, column.type_index] = np.maximum(best[:, column.type_index], self.rates[:, index])
        return best

    @cached_property
    def equal_share_rates(self) -> Floats:
        """By profile: the throughput of a job that spends an equal share of its time on every accelerator."""
        total = self.counts.sum()
        return self.type_rates @ (self.counts / total) if total > 0 else np.zeros(len(self.rates))

    @cached_property
    def normalised_gains(self) -> Floats:
        """By profile: the factor from steps per second to normalised throughput; 0 for jobs that cannot run."""
        equal = self.equal_share_rates
        return np.divide(self.profiles.workers, equal, out=np.zeros(len(equal)), where=equal > 0)

    @cached_property
    def fastest_rates(self) -> Floats:
        """By profile: the throughput on the fastest type."""
        return np.asarray(self.rates.max(axis=1, initial=0.0))

    @cached_property
    def runnable(self) -> Bools:
        """By profile: whether it can run on any type."""
        return self.fastest_rates > 0

    @cached_property
    def room(self) -> Floats:
        """By profile and type: how many such jobs fit at once."""
        return np.asarray(self.counts[None, :] / self.profiles.workers[:, None] * (self.type_rates > 0))

    @cached_property
    def whole_cluster(self) -> tuple[Floats, Floats]:
        """By profile: how many such jobs fit at once, and the steps per second that they make together."""
        return self.room.sum(axis=1), (self.room * self.type_rates).sum(axis=1)

    @cached_property
    def isolated_shares(self) -> Floats:
        """By profile and type: 1/n of the room there, for n jobs that can run; at most all of a job's time."""
        jobs, _ = self.whole_cluster
        return np.asarray(self.room / np.maximum(jobs, self._runnable_jobs)[:, None])

    @cached_property
    def isolated_rates(self) -> Floats:
        """By profile: the throughput of a job that has its isolated shares."""
        jobs, together = self.whole_cluster
        return np.asarray(together / np.maximum(jobs, self._runnable_jobs))

    @property
    def _runnable_jobs(self) -> int:
        return max(int(self.runnable[self.jobs.profile].sum()), 1)

    @cached_property
    def worthwhile_pairs(self) -> tuple[Ints, Ints]:
        """Pairs and columns in which sharing beats taking turns.

        If the two normalised rates add up to at most 1, running one after the other gives both as much in no more
        time, so leaving out such pairs does not change the optimum.
        """
        pairs, alone = self.pairs, self.rates
        ratio = np.zeros((len(pairs), len(self.columns)))
        for side, ends in enumerate((pairs.first, pairs.second)):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio += np.nan_to_num(pairs.rates[:, side] / alone[ends], nan=0.0, posinf=2.0)
        fits = self.profiles.workers[pairs.first][:, None] <= self.counts[self.column_type]
        worth = (ratio > 1 + 1e-9) & (pairs.rates > 0).all(axis=1) & fits
        pair, column = np.nonzero(worth)
        return pair, column

    def classes(self, *fields: JobField, rank: Ints | None = None) -> Classes:
        """Group the jobs with the same profile, the same given attributes and, if given, the same rank."""
        code = self.jobs.profile
        if rank is not None:
            code = _combined(code, rank, int(rank.max(initial=0)) + 1)
        for name in fields:
            values = getattr(self.jobs, name)
            if len(values) and (values != values[0]).any():
                distinct, inverse = np.unique(values, return_inverse=True)
                code = _combined(code, inverse, len(distinct))
        first, of_job, count = grouped(code)
        return Classes(of_job, count, first)

    def why_not_runnable(self, profile: int) -> str:
        """Why a profile cannot run, as a clause."""
        if not (self.profiles.rates[profile] > 0).any():
            return "it has no rate on any type"
        return f"it needs {self.profiles.workers[profile]} workers, and no type that runs it has that many accelerators"


_KNOWN_BEFORE_JOBS = (
    "counts",
    "column_type",
    "closer_columns",
    "rates",
    "type_rates",
    "equal_share_rates",
    "normalised_gains",
    "fastest_rates",
    "runnable",
    "room",
    "whole_cluster",
    "worthwhile_pairs",
    "kept",
)


def grouped(code: Ints) -> tuple[Ints, Ints, Ints]:
    """Group equal non-negative numbers, in ascending order: the first position, the group of each, and the sizes.

    >>> [part.tolist() for part in grouped(np.array([7, 3, 7]))]
    [[1, 0], [1, 0, 1], [1, 2]]
    """
    if int(code.max(initial=0)) > 4 * len(code) + 10_000:
        _, first, group, count = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
        return first.astype(np.intp), group.astype(np.intp), count.astype(np.intp)
    # Small numbers are counted instead of sorted.
    count = np.bincount(code)
    first = np.empty(len(count), dtype=np.intp)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)  # reversed, because the last assignment wins
    present = count.nonzero()[0]
    number = np.empty(len(count), dtype=np.intp)
    number[present] = np.arange(len(present))
    return first[present], number[code], count[present]


def _combined(code: Ints, other: Ints, others: int) -> Ints:
    """Combine two numbers into one, the second being less than `others`; renumbered if the product would overflow."""
    if int(code.max(initial=0)) >= 2**62 // others:
        code = np.unique(code, return_inverse=True)[1].astype(np.intp)
    return np.asarray(code * others + other)


def no_pairs(columns: int) -> Pairs:
    """An empty set of pairs."""
    return Pairs(np.empty(0, np.intp), np.empty(0, np.intp), np.empty((0, 2, columns)))


def job_arrays(
    ids: Sequence[str],
    profile: Ints,
    *,
    weight: Floats | float = 1.0,
    steps: Floats | float = np.nan,
    arrival: Floats | float = 0.0,
    age: Floats | float = 0.0,
    isolated_age: Floats | float = 0.0,
    deadline: Floats | float = np.inf,
    entity: Ints | int = -1,
) -> ProblemJobs:
    """Build jobs from arrays; a single number applies to all jobs."""
    n = len(ids)

    def spread(values: Floats | Ints | float, dtype: type) -> NDArray[Any]:
        return np.broadcast_to(np.asarray(values, dtype=dtype), (n,))

    floats = [spread(v, np.float64) for v in (weight, steps, arrival, age, isolated_age, deadline)]
    return ProblemJobs(ids, profile, *floats, entity=spread(entity, np.intp))  # type: ignore[misc] # mypy cannot count a list


def _job_arrays(jobs: Sequence[Job], profile: Ints, entity_numbers: Mapping[str, int]) -> ProblemJobs:
    def column(values: Iterable[float]) -> Floats:
        return np.fromiter(values, dtype=float, count=len(jobs))

    return job_arrays(
        tuple(job.id for job in jobs),
        profile,
        weight=column(job.weight for job in jobs),
        steps=column(np.nan if job.steps is None else job.steps for job in jobs),
        arrival=column(job.arrival for job in jobs),
        age=column(job.age_seconds for job in jobs),
        isolated_age=column(job.isolated_age_seconds for job in jobs),
        deadline=column(np.inf if job.deadline_seconds is None else job.deadline_seconds for job in jobs),
        entity=np.array([entity_numbers[job.entity] if job.entity else -1 for job in jobs], dtype=np.intp),
    )


def _columns(types: Sequence[AcceleratorType], rates: Iterable[tuple[str, Rate]]) -> tuple[Column, ...]:
    index = {t.name: position for position, t in enumerate(types)}
    return _all_columns({index[name] for name, rate in rates if isinstance(rate, PlacedRate)}, len(types))


def _all_columns(sensitive: set[int], types: int) -> tuple[Column, ...]:
    return tuple(
        Column(index, locality)
        for index in range(types)
        for locality in (reversed(Locality) if index in sensitive else (Locality.CLUSTER,))
    )


ProfileKey = tuple[int, tuple[float, ...], str, str]
"""Workers, rates by column, template, and the job's own name if it has a profile to itself."""


def _profile_key(job: Job, types: Sequence[AcceleratorType], columns: Sequence[Column], own: str) -> ProfileKey:
    """The key by which jobs share a profile; it has the name of a job in a pair, which has a profile to itself."""
    rates = [job.rates.get(types[c.type_index].name, 0.0) for c in columns]
    return (
        job.workers,
        tuple(_placed(rate, c.locality) for rate, c in zip(rates, columns, strict=True)),
        job.template or "",
        own,
    )


def _gained(rates: Floats, locality: Locality) -> Floats:
    """Rates at a locality, by profile; 0 where the next wider one is as good. The last axis of `rates` is locality."""
    here = rates[:, locality]
    return here if locality is Locality.CLUSTER else np.where(here != rates[:, locality.wider], here, 0.0)


def _placed(rate: Rate, locality: Locality) -> float:
    if isinstance(rate, PlacedRate):
        return rate.at(locality)
    return rate if locality is Locality.CLUSTER else 0.0


def _all_pairs(
    pairs: Sequence[Pair],
    profile_of: Mapping[str, int],
    types: Sequence[AcceleratorType],
    columns: Sequence[Column],
    keys: Iterable[ProfileKey],
    table: ThroughputTable | None,
) -> Pairs:
    """Pairs by profile: those given for jobs and, for all other jobs with a template, those of the table."""
    names = [t.name for t in types]
    known = [name for name in names if table is not None and name in table.types]
    found: dict[tuple[int, int], Floats] = {}
    if table is not None:
        templated = [(index, (key[2], key[0])) for index, key in enumerate(keys) if key[2]]
        first, second, rates = table.pairs([profile for _, profile in templated], known)
        position = [names.index(name) for name in known]
        for a, b, by_type in zip(first.tolist(), second.tolist(), rates, strict=True):
            spread = np.zeros((2, len(types)))
            spread[:, position] = by_type
            found[templated[a][0], templated[b][0]] = spread
    for pair in pairs:
        one, other = (profile_of[name] for name in pair.jobs)
        given = np.array([pair.rates.get(name, (0.0, 0.0)) for name in names]).reshape(len(names), 2).T
        found[min(one, other), max(one, other)] = given if one <= other else given[::-1]
    if not found:
        return no_pairs(len(columns))
    ends = np.array(list(found), dtype=np.intp)
    return Pairs(ends[:, 0], ends[:, 1], _by_column(np.array(list(found.values())), columns))


def _by_column(rates: Floats, columns: Sequence[Column]) -> Floats:
    """Rates of pairs by column; the last axis is the type. Pairs run with any placement on a type."""
    by_column = np.zeros((*rates.shape[:-1], len(columns)))
    for index, column in enumerate(columns):
        if column.locality is Locality.CLUSTER:
            by_column[..., index] = rates[..., column.type_index]
    return by_column


def with_ancestors(entities: Mapping[str, Entity], used: Iterable[str] = ()) -> dict[str, Entity]:
    """The entities with all their ancestors, parents first; those that are not described get the defaults."""
    paths = set(entities) | set(used)
    for path in tuple(paths):
        parts = path.split("/")
        paths.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return {path: entities.get(path, Entity()) for path in sorted(paths)}
