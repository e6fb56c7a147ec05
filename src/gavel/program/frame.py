"""What programs of the same profiles have in common, however many jobs there are of each: combos, rows and places.

In a running cluster jobs come and go all the time, and new profiles rarely: a frame serves for many programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gavel.core.errors import InputError
from gavel.core.problem import Bools, Floats, Ints, Problem
from gavel.program.columns import Columns, Places

MOST_COMBOS = 20_000_000
"""Beyond this the columns alone take gigabytes."""
KEPT_CLASSES = 150
"""Larger frames are made anew for every program: they take much memory, and hardly ever serve twice."""
KEPT_FRAMES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Combos:
    """The columns of a program but the last: who runs where, and how fast."""

    first: Ints
    second: Ints
    """-1 where one class runs alone."""
    column: Ints
    kind: Ints
    """The type of the column."""
    rate: Floats
    second_rate: Floats
    shared: Ints
    """Those that run two classes."""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, eq=False)
class Gangs:
    """Combos of which at most this many sit on one server each."""

    combos: Ints
    limit: int


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Classes by their profiles, and all that follows from those."""

    workers: Floats
    fastest: Floats
    reach: Floats
    """By class: the throughput of a member with the cluster to itself; measured pairs may beat running alone."""
    normalised_gain: Floats
    """Turns steps/s into the paper's normalised throughput: per equal share, times workers."""
    counts: Floats
    """Accelerators by type."""
    combos: Combos
    best: Floats
    """By combo: the part of its time for a class to spend there that wants to be as fast as it can be alone."""
    best_load: Floats
    """By class and type: the accelerators that a member then takes."""
    gangs: tuple[Gangs, ...]
    places: Places
    """Of time rows, throughput rows and coupling rows; the last column is the level."""
    throughput_entries: Ints
    """Where the values of the throughput rows are, without the level's."""
    throughput_classes: Ints
    """Of which class each of them is."""
    limits: Floats
    """What rows allow, in units; of throughput rows each program says."""

    @classmethod
    def of(cls, problem: Problem, profile: Ints, repeated: Bools) -> Frame:
        """The frame of classes of these profiles, perhaps one that was made before.

        Members of a class may share accelerators with each other where it is `repeated`: has more than one.
        """
        if len(profile) >= KEPT_CLASSES:
            return _made(problem, profile, repeated)
        key = profile.tobytes(), repeated.tobytes() if len(problem.pairs) else b""
        frame = problem.kept.get(key)
        if not isinstance(frame, Frame):
            if len(problem.kept) >= KEPT_FRAMES:
                problem.kept.clear()
            frame = problem.kept[key] = _made(problem, profile, repeated)
        return frame

    def matrix(self, unit: Floats, count: Floats) -> Columns:
        """The rows in units, for classes of so many members; the level's values are 0."""
        c = self.combos
        share = unit / count[c.first]
        values = [_interleaved(share, c.rate * share, self.workers[c.first] * unit / self.counts[c.kind])]
        if len(c.shared):
            share = unit[c.shared] / count[c.second[c.shared]]
            values += [share, c.second_rate[c.shared] * share]
        values += [unit[gangs.combos] / max(gangs.limit, 1e-9) for gangs in self.gangs]
        values.append(np.zeros(len(count)))
        return self.places.holding(np.concatenate(values))


def _made(problem: Problem, profile: Ints, repeated: Bools) -> Frame:
    workers, fastest = problem.profiles.workers[profile].astype(float), problem.fastest_rates[profile]
    combos = _combos(problem, profile, repeated)
    gangs = tuple(_gangs(problem, combos, workers))
    places = _places(combos, gangs, len(profile), len(problem.types))
    m, rows = len(profile), places.indices[: len(places.indices) - len(profile)]
    entries = ((rows >= m) & (rows < 2 * m)).nonzero()[0]
    best = _best(fastest, problem.counts, combos)
    best_load = np.zeros((m, len(problem.types)))
    np.add.at(best_load, (combos.first, combos.kind), best * workers[combos.first])
    return Frame(
        workers,
        fastest,
        _reach(fastest, combos),
        problem.normalised_gains[profile],
        problem.counts,
        combos,
        best,
        best_load,
        gangs,
        places,
        entries,
        rows[entries] - m,
        np.concatenate([np.ones(2 * m + len(problem.types)), [1.0 if group.limit else 0.0 for group in gangs]]),
    )


def _combos(problem: Problem, profile: Ints, repeated: Bools) -> Combos:
    """Every combo worth considering, in every column where it runs."""
    rates = problem.rates[profile]
    first, column = (rates > 0).nonzero()
    second, rate, second_rate = np.full(len(first), -1), rates[first, column], np.zeros(len(first))
    if len(problem.pairs):
        alone = first, second, column, rate, second_rate
        parts = zip(alone, _paired(problem, profile, repeated), strict=True)
        first, second, column, rate, second_rate = (np.concatenate(part) for part in parts)
    return Combos(first, second, column, problem.column_type[column], rate, second_rate, (second >= 0).nonzero()[0])


def _paired(problem: Problem, profile: Ints, repeated: Bools) -> tuple[Ints, Ints, Ints, Floats, Floats]:
    """Pairs of classes, where sharing beats taking turns: first, second, column, and the rate of either."""
    pairs, (row, column) = problem.pairs, problem.worthwhile_pairs
    first, second, source = _class_pairs(profile, len(problem.rates), pairs.first[row], pairs.second[row])
    keep = (first < second) | (pairs.first[row] != pairs.second[row])[source]
    keep |= (first == second) & repeated[first]
    first, second, source = first[keep], second[keep], source[keep]
    rates = pairs.rates[row[source], :, column[source]]
    return first, second, column[source], rates[:, 0], rates[:, 1]


def _class_pairs(profile: Ints, profiles: int, first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """Every class of each first profile with every class of its second, and which entry a pair comes from."""
    by_profile = np.argsort(profile, kind="stable")
    count = np.bincount(profile, minlength=profiles)
    begin = np.cumsum(count) - count
    size = count[first] * count[second]
    if size.sum() > MOST_COMBOS:
        raise InputError(
            f"space sharing among {len(profile):,} different jobs makes {int(size.sum()):,} combos, more than "
            f"{MOST_COMBOS:,}; leave out --space-sharing, or use a policy that tells fewer jobs apart"
        )
    source = np.repeat(np.arange(len(first)), size)
    within = np.arange(len(source)) - np.repeat(np.cumsum(size) - size, size)
    one = by_profile[begin[first[source]] + within // count[second[source]]]
    other = by_profile[begin[second[source]] + within % count[second[source]]]
    return one, other, source


def _reach(fastest: Floats, c: Combos) -> Floats:
    if not len(c.shared):
        return fastest
    reach, s = fastest.copy(), c.shared
    np.maximum.at(reach, c.first[s], c.rate[s])
    np.maximum.at(reach, c.second[s], c.second_rate[s])
    return reach


def _best(fastest: Floats, counts: Floats, c: Combos) -> Floats:
    """All on the fastest column; of equally fast ones, more where there are more accelerators."""
    best = ((c.second < 0) & (c.rate >= fastest[c.first])) * counts[c.kind]
    return np.asarray(best / np.bincount(c.first, weights=best, minlength=len(fastest))[c.first])


def _gangs(problem: Problem, c: Combos, workers: Floats) -> list[Gangs]:
    """By column and size: at most so many gangs of at least this size sit on one server each."""
    found = []
    for index, column in enumerate(problem.columns):
        if column.consolidated:
            here = c.column == index
            for size in np.unique(workers[c.first[here]]).astype(int).tolist():
                limit = problem.types[column.type_index].gangs_on_one_server(size)
                if limit is not None:
                    found.append(Gangs((here & (workers[c.first] >= size)).nonzero()[0], limit))
    return found


def _places(c: Combos, gangs: tuple[Gangs, ...], m: int, types: int) -> Places:
    """Entries column by column as far as that goes, so that without pairs and gangs nothing has to be sorted."""
    second = c.second[c.shared]
    rows = [_interleaved(c.first, m + c.first, 2 * m + c.kind), second, m + second]
    columns = [np.arange(len(c)).repeat(3), c.shared, c.shared]
    for number, group in enumerate(gangs):
        rows.append(np.full(len(group.combos), 2 * m + types + number))
        columns.append(group.combos)
    rows.append(np.arange(m, 2 * m))
    columns.append(np.full(m, len(c)))
    return Places.of(np.concatenate(rows), np.concatenate(columns), (2 * m + types + len(gangs), len(c) + 1))


Numbers = TypeVar("Numbers", Ints, Floats)


def _interleaved(*parts: Numbers) -> Numbers:
    """The first of each part, then the second of each, and so on."""
    whole = np.empty((len(parts[0]), len(parts)), dtype=parts[0].dtype)
    for position, part in enumerate(parts):
        whole[:, position] = part
    return whole.ravel()
