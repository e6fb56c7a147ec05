"""What programs with the same profiles have in common, for any number of jobs: combos, rows and places.

In a running cluster, jobs come and go all the time but new profiles are rare, so one structure serves many programs.

Two profiles that may share accelerators are modelled in one of two ways. If one is a single class, each class of
the other has a column for the pair. If both have several classes, it does not matter with *which* job of the other
profile a job is paired. Each class then has one column, the time that it spends beside the other profile, in a *pool*
of the two, and a balance row makes both sides spend the same time there. Any such times can be converted to pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gavel.core.allocation import gang_row
from gavel.core.errors import InputError
from gavel.core.problem import Bools, Floats, Ints, Problem
from gavel.program.columns import Columns, Places
from gavel.program.rows import Rows

MOST_COMBOS = 20_000_000
"""With more combos than this, the columns alone take gigabytes."""
KEPT_CLASSES = 150
"""Larger structures are not cached: they take much memory and are rarely used twice."""
KEPT_STRUCTURES = 16
SMALL_POOL = 6
"""In a pool of one profile with more classes than this, no class is likely to need half of the time of all."""

Cuts = frozenset[tuple[int, int]]
"""(Column of the problem, class): the class would share accelerators with itself there unless a row forbids it."""


@dataclass(frozen=True, slots=True, eq=False)
class Combos:
    """The columns of a program except the level: which classes run where, and how fast."""

    first: Ints
    second: Ints
    """The second class; -1 where one class runs alone, or in a pool."""
    column: Ints
    type_index: Ints
    """The type of the column."""
    rate: Floats
    second_rate: Floats
    shared: Ints
    """The positions of the combos that run two classes."""
    pool: Ints
    """The pool in which the class shares accelerators; -1 if it is in none."""
    side: Floats
    """In a pool of two profiles: 1 for the classes of one and -1 for those of the other; otherwise 0."""
    load: Floats
    """The fraction of its workers' accelerators that a class takes: one half in a pool."""
    sharing: bool
    """Whether any combo shares accelerators, as a pair or in a pool."""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, eq=False)
class CouplingLimit:
    """A coupling row with a name: at most this many instances of some combos at once."""

    name: str
    combos: Ints
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class LpStructure:
    """Classes by their profiles, and everything that follows from these."""

    rows: Rows
    workers: Floats
    fastest: Floats
    reach: Floats
    """By class: the most throughput that a member can get; a measured pair may be faster than running alone."""
    counts: Floats
    """By type: the number of accelerators."""
    combos: Combos
    best: Floats
    """By combo: the part of its time that a class spends there if it runs as fast as it can alone."""
    best_load: Floats
    """By class and type: the accelerators that a member takes at `best`."""
    limits: tuple[CouplingLimit, ...]
    partners: tuple[tuple[int, Ints], ...]
    """For each partner row: the combo that it limits, and all combos of the pool."""
    places: Places
    """The sparsity pattern of all rows; the last column is the level."""
    throughput_entries: Ints
    """The positions of the values of the throughput rows, without the level's."""
    throughput_classes: Ints
    """The class of each of these values."""
    most: Floats
    """The upper limits of rows, in units; each program sets those of throughput rows."""

    @classmethod
    def of(cls, problem: Problem, profile: Ints, repeated: Bools, cuts: Cuts = frozenset()) -> LpStructure:
        """The structure of classes with these profiles, cached if it is small.

        Members of a class can share accelerators with each other if it is `repeated`, that is, has several members.
        """
        if len(profile) >= KEPT_CLASSES:
            return _made(problem, profile, repeated, cuts)
        key = profile.tobytes(), repeated.tobytes() if len(problem.pairs) else b"", cuts
        structure = problem.kept.get(key)
        if not isinstance(structure, LpStructure):
            if len(problem.kept) >= KEPT_STRUCTURES:
                problem.kept.clear()
            structure = problem.kept[key] = _made(problem, profile, repeated, cuts)
        return structure

    def unit(self, count: Floats) -> Floats:
        """By combo: the simultaneous instances that 1 in a program means: as many as members or accelerators allow."""
        c = self.combos
        room = self.counts[c.type_index] / self.workers[c.first]
        if c.sharing:
            room[(c.pool >= 0) & (c.side == 0)] *= 2.0
        unit = np.minimum(count[c.first], room)
        if len(c.shared):
            s = c.shared
            unit[s] = np.minimum(unit[s], count[c.second[s]])
            itself = c.first == c.second
            unit[itself] = np.minimum(unit[itself], count[c.first[itself]] / 2)
        return np.asarray(unit)

    def matrix(self, unit: Floats, count: Floats) -> Columns:
        """The rows in units, for classes with these numbers of members; the level's values are 0."""
        c = self.combos
        share = unit / count[c.first]
        used = self.workers[c.first] * unit / self.counts[c.type_index]
        values = [_interleaved(share, c.rate * share, used * c.load)]
        if len(c.shared):
            share = unit[c.shared] / count[c.second[c.shared]]
            values += [share, c.second_rate[c.shared] * share]
        values += [unit[limit.combos] / max(limit.most, 1e-9) for limit in self.limits]
        if self.rows.balances:
            balanced = c.side.nonzero()[0]
            values.append((c.side * used)[balanced])
        for held, pool in self.partners:
            values.append(np.where(pool == held, used[pool], -used[pool]))
        values.append(np.zeros(len(count)))
        return self.places.holding(np.concatenate(values))


def _made(problem: Problem, profile: Ints, repeated: Bools, cuts: Cuts) -> LpStructure:
    workers, fastest = problem.profiles.workers[profile].astype(float), problem.fastest_rates[profile]
    combos = _combos(problem, profile, repeated)
    limits = tuple(_gang_limits(problem, combos, workers))
    partners: tuple[tuple[int, Ints], ...] = ()
    balances = 0
    if len(problem.pairs):
        partners = tuple(_partners(combos, repeated, cuts))
        balances = int(combos.pool[combos.side != 0].max(initial=-1)) + 1
    names = tuple(accelerator_type.name for accelerator_type in problem.types)
    rows = Rows(len(profile), names, tuple(limit.name for limit in limits), balances, len(partners))
    places = _places(combos, rows, limits, partners)
    m = len(profile)
    at = places.indices[: len(places.indices) - m]
    entries = ((at >= rows.floors.start) & (at < rows.floors.stop)).nonzero()[0]
    best = _best(fastest, problem.counts, combos)
    best_load = np.zeros((m, len(problem.types)))
    np.add.at(best_load, (combos.first, combos.type_index), best * workers[combos.first])
    most = np.ones(rows.count)
    if limits:
        most[rows.limits] = [1.0 if limit.most else 0.0 for limit in limits]
    most[rows.balances_at] = most[rows.partners_at] = 0.0
    return LpStructure(
        rows,
        workers,
        fastest,
        _reach(fastest, combos),
        problem.counts,
        combos,
        best,
        best_load,
        limits,
        partners,
        places,
        entries,
        at[entries] - rows.floors.start,
        most,
    )


def _combos(problem: Problem, profile: Ints, repeated: Bools) -> Combos:
    """Every combo worth considering, in every column where it runs."""
    rates = problem.rates[profile]
    first, column = (rates > 0).nonzero()
    alone = len(first)
    second, rate, second_rate = np.full(alone, -1), rates[first, column], np.zeros(alone)
    pool, side, load = second, second_rate, np.ones(alone)
    if len(problem.pairs):
        parts = [(first, second, column, rate, second_rate, pool, side)]
        parts += _sharing(problem, profile, repeated)
        first, second, column, rate, second_rate, pool, side = map(np.concatenate, zip(*parts, strict=True))
        load = np.where(pool >= 0, 0.5, 1.0)
    return Combos(
        first,
        second,
        column,
        problem.column_type[column],
        rate,
        second_rate,
        (second >= 0).nonzero()[0],
        pool,
        side,
        load,
        len(first) > alone,
    )


_Part = tuple[Ints, Ints, Ints, Floats, Floats, Ints, Floats]


def _sharing(problem: Problem, profile: Ints, repeated: Bools) -> list[_Part]:
    """Pairs of classes and pools of profiles, where sharing beats taking turns."""
    pairs, (row, column) = problem.pairs, problem.worthwhile_pairs
    one, other = pairs.first[row], pairs.second[row]
    count = np.bincount(profile, minlength=len(problem.rates))
    fewer = np.minimum(count[one], count[other])
    row, column, one, other, fewer = (part[fewer > 0] for part in (row, column, one, other, fewer))
    rates = pairs.rates[row, :, column]
    paired, pooled = (fewer == 1), (fewer > 1)
    itself = one == other
    _check_size(profile, int(np.where(paired, count[one] * count[other], count[one] + count[other]).sum()))
    number = np.cumsum(pooled) - 1
    # Pools of two profiles come first, in the order of their balance rows.
    number[pooled & ~itself] = np.arange(int((pooled & ~itself).sum()))
    number[pooled & itself] = int((pooled & ~itself).sum()) + np.arange(int((pooled & itself).sum()))
    members = np.argsort(profile, kind="stable"), count, np.cumsum(count) - count
    first, second, source = _class_pairs(members, one[paired], other[paired])
    keep = (first != second) | repeated[first]
    first, second, source = first[keep], second[keep], paired.nonzero()[0][source[keep]]
    nothing = np.full(len(first), -1)
    parts: list[_Part] = [
        (first, second, column[source], rates[source, 0], rates[source, 1], nothing, np.zeros(len(first)))
    ]
    for end, side in ((0, 1.0), (1, -1.0)):
        within = (pooled if end == 0 else pooled & ~itself).nonzero()[0]
        first, source = _class_list(members, (one, other)[end][within])
        source = within[source]
        nothing = np.full(len(first), -1)
        sides = np.where(itself[source], 0.0, side)
        parts.append((first, nothing, column[source], rates[source, end], np.zeros(len(first)), number[source], sides))
    return parts


def _check_size(profile: Ints, combos: int) -> None:
    if combos > MOST_COMBOS:
        raise InputError(
            f"space sharing among {len(profile):,} different jobs makes {combos:,} combos, more than "
            f"{MOST_COMBOS:,}; leave out --space-sharing, or use a policy that tells fewer jobs apart"
        )


_Members = tuple[Ints, Ints, Ints]
"""Classes sorted by profile, the number of classes of each profile, and where they begin."""


def _class_list(members: _Members, profile: Ints) -> tuple[Ints, Ints]:
    """Every class of each of these profiles, and the position of its profile in the list."""
    ordered, count, begin = members
    size = count[profile]
    source = np.repeat(np.arange(len(profile)), size)
    within = np.arange(len(source)) - np.repeat(np.cumsum(size) - size, size)
    return ordered[begin[profile[source]] + within], source


def _class_pairs(members: _Members, first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """Every class of each first profile with every class of its second, and the position of the pair in the lists."""
    ordered, count, begin = members
    size = count[first] * count[second]
    source = np.repeat(np.arange(len(first)), size)
    within = np.arange(len(source)) - np.repeat(np.cumsum(size) - size, size)
    one = ordered[begin[first[source]] + within // count[second[source]]]
    other = ordered[begin[second[source]] + within % count[second[source]]]
    return one, other, source


def _reach(fastest: Floats, c: Combos) -> Floats:
    if not c.sharing:
        return fastest
    reach, s = fastest.copy(), c.shared
    np.maximum.at(reach, c.first, c.rate)
    np.maximum.at(reach, c.second[s], c.second_rate[s])
    return reach


def _best(fastest: Floats, counts: Floats, c: Combos) -> Floats:
    """All time in the fastest column; equally fast columns share it in proportion to their accelerators."""
    best = ((c.second < 0) & (c.pool < 0) & (c.rate >= fastest[c.first])) * counts[c.type_index]
    return np.asarray(best / np.bincount(c.first, weights=best, minlength=len(fastest))[c.first])


def _gang_limits(problem: Problem, c: Combos, workers: Floats) -> list[CouplingLimit]:
    """By column and size: the most gangs of at least this size that can each be on one server."""
    found = []
    for column in problem.closer_columns:
        here = c.column == column.index
        for size in np.unique(workers[c.first[here]]).astype(int).tolist():
            most = column.most_gangs(size)
            if most is not None:
                combos = (here & (workers[c.first] >= size)).nonzero()[0]
                found.append(CouplingLimit(gang_row(column.type.name, size), combos, most))
    return found


def _partners(c: Combos, repeated: Bools, cuts: Cuts) -> list[tuple[int, Ints]]:
    """Single jobs in pools of one profile that need a row to keep them from being paired with themselves."""
    found: list[tuple[int, Ints]] = []
    alike = ((c.pool >= 0) & (c.side == 0)).nonzero()[0]
    if not len(alike):
        return found
    for number in np.unique(c.pool[alike]).tolist():
        pool = alike[c.pool[alike] == number]
        single = pool[~repeated[c.first[pool]]].tolist()
        small = len(pool) <= SMALL_POOL
        found += [(combo, pool) for combo in single if small or (int(c.column[combo]), int(c.first[combo])) in cuts]
    return found


def _places(c: Combos, rows: Rows, limits: tuple[CouplingLimit, ...], partners: tuple[tuple[int, Ints], ...]) -> Places:
    """The pattern of all rows, built in column order where possible: without pairs and limits, nothing is sorted."""
    time, floor, second = rows.times.start, rows.floors.start, c.second[c.shared]
    at = [_interleaved(time + c.first, floor + c.first, rows.types.start + c.type_index), time + second, floor + second]
    columns = [np.arange(len(c)).repeat(3), c.shared, c.shared]
    for number, limit in enumerate(limits):
        at.append(np.full(len(limit.combos), rows.limits.start + number))
        columns.append(limit.combos)
    if rows.balances:
        balanced = c.side.nonzero()[0]
        at.append(rows.balances_at.start + c.pool[balanced])
        columns.append(balanced)
    for number, (_, pool) in enumerate(partners):
        at.append(np.full(len(pool), rows.partners_at.start + number))
        columns.append(pool)
    at.append(np.arange(floor, rows.floors.stop))
    columns.append(np.full(rows.classes, len(c)))
    return Places.of(np.concatenate(at), np.concatenate(columns), (rows.count, len(c) + 1))


Numbers = TypeVar("Numbers", Ints, Floats)


def _interleaved(*parts: Numbers) -> Numbers:
    """Interleave parts: the first element of each, then the second of each, and so on."""
    whole = np.empty((len(parts[0]), len(parts)), dtype=parts[0].dtype)
    for position, part in enumerate(parts):
        whole[:, position] = part
    return whole.ravel()
