"""The ledger: the accounts of the credit mechanism, all in seconds. It holds the credit of entries and the lag of jobs.

An *entry* (a class combo on a type, see `entries`) earns its target every second and pays one second for each of its
runs; the balance is its *credit*, the running time that it is owed. Credit decides which class runs. A job's *lag* is
how far it is behind its allocated throughput; lag decides which job of the class runs. A *guest* is a run that pays for
no entry. Credit and lag change only in `adopt`, `account` and `leave`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter, itemgetter

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Bools, Floats, Ints
from gavel.scheduler.entries import GUEST, NO_CLASS, EntryKey, LedgerEntries
from gavel.scheduler.rounds import Elapsed, Run


@dataclass(slots=True)
class Ledger:
    """Credit by entry, lag by job, and the entry that each run pays for."""

    entries: LedgerEntries = field(default_factory=LedgerEntries.none)
    lag: Floats = field(default_factory=lambda: np.zeros(0))
    """By slot: how far a job is behind, in seconds at its allocated throughput; negative if it is ahead."""
    members: list[list[int]] = field(default_factory=list)
    """By class: the slots of its jobs."""
    class_rate: Floats = field(default_factory=lambda: np.empty(0))
    """By class: the steps per second that the allocation gives each of its jobs."""
    alone: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """By class and type: steps per second of a job that has accelerators to itself."""
    entry_of: dict[Run, int] = field(default_factory=dict)
    """The entry of each run that was last accounted for; GUEST for runs that pay nothing."""
    run_of: dict[int, Run] = field(default_factory=dict)
    """The same runs by slot."""
    class_of: Ints = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """By slot: the class of its job; NO_CLASS for slots that are not part of the allocation."""
    _rows: RunRows | None = None
    _order: Ints | None = None
    _present: Ints | None = None
    _meant: Bools | None = None
    _classes: list[int] | None = None
    _by_class: list[list[int]] | None = None
    _drift: Drift | None = None
    """How credit and lag change per second while the same runs continue; None if it must be computed again."""

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        """Replace the entries by those of an allocation; classes keep their credit and jobs their lag."""
        self._drift = self._by_class = self._classes = self._present = self._meant = None
        self.cover(int(slots.max(initial=-1)) + 1)
        here = slots >= 0
        slots, classes = slots[here], allocation.classes.of_job[here]
        before, old = self.class_of, self.entries
        self.class_of = np.full(len(before), NO_CLASS)
        self.class_of[slots] = classes
        self.members = in_groups(slots, classes, len(allocation.classes))
        self._order = np.zeros(len(before), dtype=np.intp)
        self._order[slots] = np.arange(len(slots))
        self.class_rate = allocation.class_throughput
        problem = allocation.problem
        self.alone = problem.type_rates[problem.jobs.profile[allocation.classes.first]]
        columns = self.columns()
        keys, which = columns.keys(self.class_of)
        paying = [keys[at] for at in np.bincount(which[columns.entry != GUEST]).nonzero()[0].tolist()]
        self.entries = LedgerEntries.of(allocation, [key for key in paying if key is not None])
        self._carry_over(old, _first_in_groups(before[slots], classes, len(allocation.classes)))
        found = np.array([self.entries.find(key) for key in keys], dtype=np.intp)
        entry = found[which]
        self.entry_of = dict(zip(self.entry_of, entry.tolist(), strict=True))
        if self._rows is not None:
            self._rows.pay_for(entry)

    def cover(self, size: int) -> None:
        """Grow the arrays to this many slots."""
        more = size - len(self.lag)
        if more > 0:
            self.lag = np.concatenate([self.lag, np.zeros(more)])
            self.class_of = np.concatenate([self.class_of, np.full(more, NO_CLASS)])
            self._drift = self._classes = self._present = self._order = None

    def _carry_over(self, old: LedgerEntries, was: list[int]) -> None:
        """Copy the credit of old entries to the new ones; `was` is each class's number before.

        Where gangs cannot fill all accelerators, the credit of all entries on a type keeps growing. A new class
        therefore starts with the average credit, weighted by target, if that is positive: starting at zero, it would
        have to catch up first.
        """
        was.append(NO_CLASS)  # maps "no second class" (-1) to itself
        usual = old.usual_credit()
        for number, (first, second, type_index) in enumerate(self.entries.keys):
            one, other = was[first], was[second]
            found = old.index.get((one, other, type_index), old.index.get((other, one, type_index)))
            self.entries.credit[number] = usual.get(type_index, 0.0) if found is None else old.credit[found]

    def entries_of(self, number: int) -> list[int]:
        """The entries with a target above 0 that a class is part of."""
        if self._by_class is None:
            self._by_class = [[] for _ in self.members]
            for entry in (self.entries.target > 0).nonzero()[0].tolist():
                for part in {self.entries.first[entry], self.entries.second[entry]} - {NO_CLASS}:
                    self._by_class[part].append(entry)
        return self._by_class[number]

    def entry(self, run: Run) -> int:
        """The entry that a run pays for, or would pay for if it started; GUEST if there is none."""
        found = self.entry_of.get(run)
        return self._lookup(run) if found is None else found

    @property
    def classes(self) -> list[int]:
        """`class_of` as a list, which is faster for single lookups."""
        if self._classes is None:
            self._classes = self.class_of.tolist()
        return self._classes

    def _lookup(self, run: Run) -> int:
        if len(run.members) > 1:
            return self.entries.find(_key(run, self.classes))
        slot, classes = run.members[0], self.classes
        if slot >= len(classes) or classes[slot] == NO_CLASS:
            return GUEST
        return self.entries.index.get((classes[slot], NO_CLASS, run.type_index), GUEST)

    @property
    def meant(self) -> Bools:
        """By class, the last for "no class": whether the allocation gives its jobs any throughput."""
        if self._meant is None:
            self._meant = np.append(self.class_rate > 0, False)
        return self._meant

    @property
    def present(self) -> Ints:
        """The slots that are part of the allocation."""
        if self._present is None:
            self._present = np.flatnonzero(self.class_of != NO_CLASS)
        return self._present

    @property
    def order(self) -> Ints:
        """By slot: a sort key that increases in the order of `members` within each class."""
        if self._order is None:
            self._order = np.zeros(len(self.class_of), dtype=np.intp)
            for slots in self.members:
                self._order[slots] = np.arange(len(slots))
        return self._order

    def columns(self) -> RunColumns:
        """The runs of `entry_of` as columns, in the same order."""
        if self._rows is None:
            self._rows = RunRows.of(self.entry_of)
        return self._rows.columns()

    def leave(self, slot: int) -> None:
        """Forget a job and its run."""
        if slot < len(self.class_of) and self.class_of[slot] != NO_CLASS:
            self.members[self.class_of[slot]].remove(slot)
            self.class_of[slot] = NO_CLASS
            self._present = None
            self.lag[slot] = 0.0
            self.classes[slot] = NO_CLASS
            if self._drift is not None:
                self._drift.pace[slot] = 0.0
        if slot in self.run_of:
            self._end(self.run_of[slot])

    def account(self, elapsed: Elapsed) -> None:
        """Let time pass: entries earn and pay, and lags change, after the runs that began or ended are updated."""
        if elapsed.ended:
            self._end_all([run for run in elapsed.ended if run in self.entry_of])  # `leave` has removed the others
        if elapsed.begun:
            self._begin_all([run for run in elapsed.begun if run not in self.entry_of])
        if elapsed.seconds:
            drift = self.drift
            self.entries.credit[:] += (self.entries.target - drift.paid) * elapsed.seconds
            self.lag += drift.pace * elapsed.seconds

    def _begin_all(self, runs: Sequence[Run]) -> None:
        self.cover(max((slot for run in runs for slot in run.members), default=-1) + 1)
        begun = {run: self._lookup(run) for run in runs}
        self.entry_of |= begun
        for run, entry in begun.items():
            for slot in run.members:
                self.run_of[slot] = run
            if self._rows is not None:
                self._rows.begin(run, entry)
        if self._drift is not None:
            self._drift.begin_all(self, begun)

    def _end_all(self, runs: Sequence[Run]) -> None:
        ended = {run: self._remove(run) for run in runs}
        if self._drift is not None:
            self._drift.end_all(self, ended)

    def _end(self, run: Run) -> None:
        entry = self._remove(run)
        if self._drift is not None:
            self._drift.end(self, run, entry)

    def _remove(self, run: Run) -> int:
        """Forget a run and return the entry that it paid for."""
        for slot in run.members:
            del self.run_of[slot]
        if self._rows is not None:
            self._rows.end(run)
        return self.entry_of.pop(run)

    def _work_out(self) -> Drift:
        pace = self.meant[self.class_of].astype(float)
        self._drift = Drift(np.zeros(len(self.entries.keys)), pace)
        columns = self.columns()
        self._drift.begin_alone(self, columns)
        runs = list(self.entry_of)
        for at in (columns.first != columns.last).nonzero()[0].tolist():
            self._drift.begin(self, runs[at])
        return self._drift

    def is_meant(self, slot: int) -> bool:
        """Whether the allocation gives a job any throughput."""
        classes = self.classes
        return slot < len(classes) and classes[slot] != NO_CLASS and bool(self.class_rate[classes[slot]] > 0)

    def speed(self, run: Run, position: int, entry: int) -> float:
        """Steps per second of one of a run's jobs, as assumed by the allocation."""
        if entry != GUEST and self.entries.speed[entry, position] > 0:
            return float(self.entries.speed[entry, position])
        known = run.type_index < self.alone.shape[1]
        return float(self.alone[self.class_of[run.members[position]], run.type_index]) if known else 0.0

    def spread(self, values: Floats) -> Floats:
        """By class: the largest minus the smallest value of its jobs; -inf if it has no jobs."""
        slots = self.present
        most, least = np.full(len(self.members), -np.inf), np.full(len(self.members), np.inf)
        np.maximum.at(most, self.class_of[slots], values[slots])
        np.minimum.at(least, self.class_of[slots], values[slots])
        return np.asarray(most - least)

    @property
    def drift(self) -> Drift:
        """How credit and lag change per second while the runs that were last accounted for continue."""
        return self._drift or self._work_out()


@dataclass(frozen=True, slots=True, eq=False)
class RunColumns:
    """Runs as columns: one array per attribute, one element per run."""

    entry: Ints
    first: Ints
    """The slot of the first job."""
    last: Ints
    """The slot of the last job; equal to `first` where a job runs alone."""
    type_index: Ints

    @classmethod
    def of(cls, entry_of: Mapping[Run, int]) -> RunColumns:
        members = list(map(attrgetter("members"), entry_of))
        columns: list[Iterable[int]] = [
            entry_of.values(),
            map(itemgetter(0), members),
            map(itemgetter(-1), members),
            map(attrgetter("type_index"), entry_of),
        ]
        return cls(*(np.fromiter(column, dtype=np.intp, count=len(members)) for column in columns))

    def where(self, chosen: Bools) -> RunColumns:
        """The runs selected by a mask."""
        return RunColumns(self.entry[chosen], self.first[chosen], self.last[chosen], self.type_index[chosen])

    def followed_by(self, others: RunColumns) -> RunColumns:
        """These runs, followed by others."""
        if not len(others.entry):
            return self
        return RunColumns(
            np.concatenate([self.entry, others.entry]),
            np.concatenate([self.first, others.first]),
            np.concatenate([self.last, others.last]),
            np.concatenate([self.type_index, others.type_index]),
        )

    def keys(self, class_of: Ints) -> tuple[list[EntryKey | None], Ints]:
        """Return the distinct entry keys of the runs, and the position among them of each run's key.

        The key is None for runs with a job of no class.
        """
        one, other = class_of[self.first], class_of[self.last]
        nobody = (one == NO_CLASS) | (other == NO_CLASS)
        second = np.where(self.first == self.last, NO_CLASS, other)
        classes, types = int(class_of.max(initial=0)) + 2, int(self.type_index.max(initial=0)) + 1
        codes, which = np.unique(
            np.where(nobody, -1, (one * classes + second + 1) * types + self.type_index), return_inverse=True
        )
        pairs, type_indices = codes // types, codes % types
        found = zip((pairs // classes).tolist(), (pairs % classes - 1).tolist(), type_indices.tolist(), strict=True)
        return [None if code < 0 else key for code, key in zip(codes.tolist(), found, strict=True)], which


@dataclass(slots=True, eq=False)
class RunRows:
    """The columns of runs that begin and end over time, in the order in which they began.

    Updates are cheap: the row of a run that ended is only marked as dead, and is removed once most rows are dead.
    """

    _row: dict[Run, int]
    """The row number of every run that has a row and has not ended, in the order of rows."""
    _all: RunColumns
    _alive: Bools
    """By row: whether its run has not ended."""
    _dead: int = 0
    _begun: dict[Run, int] = field(default_factory=dict)
    """Runs without a row yet, with their entries."""
    _now: RunColumns | None = None

    @classmethod
    def of(cls, entry_of: Mapping[Run, int]) -> RunRows:
        rows = {run: number for number, run in enumerate(entry_of)}
        return cls(rows, RunColumns.of(entry_of), np.ones(len(rows), dtype=bool))

    def begin(self, run: Run, entry: int) -> None:
        self._begun[run] = entry
        self._now = None

    def end(self, run: Run) -> None:
        self._now = None
        if self._begun.pop(run, None) is None:
            self._alive[self._row.pop(run)] = False
            self._dead += 1

    def pay_for(self, entry: Ints) -> None:
        """Assign the runs to other entries; `entry` is in the order of `columns`."""
        now = self.columns()
        entries = self._all.entry.copy()
        entries[self._alive] = entry
        self._all, self._now = replace(self._all, entry=entries), replace(now, entry=entry)

    def columns(self) -> RunColumns:
        """The runs that have not ended."""
        if self._now is None:
            self._take_in()
            if 2 * self._dead > len(self._alive):
                self._drop_rows()
            self._now = self._all.where(self._alive) if self._dead else self._all
        return self._now

    def _take_in(self) -> None:
        """Append rows for runs that have begun."""
        if self._begun:
            size = len(self._alive)
            self._row |= zip(self._begun, range(size, size + len(self._begun)), strict=True)
            self._all = self._all.followed_by(RunColumns.of(self._begun))
            self._alive = np.concatenate([self._alive, np.ones(len(self._begun), dtype=bool)])
            self._begun.clear()

    def _drop_rows(self) -> None:
        """Drop the rows of runs that have ended."""
        self._all = self._all.where(self._alive)
        self._row = {run: number for number, run in enumerate(self._row)}
        self._alive, self._dead = np.ones(len(self._row), dtype=bool), 0


MANY_RUNS = 8
"""From this number of runs on, array operations are faster than a loop over the runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """How credit and lag change per second while the same runs continue."""

    paid: Floats
    """By entry: the number of its runs, which is what it pays per second."""
    pace: Floats
    """By slot: how much the job's lag grows per second; negative while it catches up.

    1 while the job waits, 0 if it is allocated nothing.
    """

    def begin(self, ledger: Ledger, run: Run) -> None:
        entry = ledger.entry_of[run]
        if entry != GUEST:
            self.paid[entry] += 1
        for position, slot in enumerate(run.members):
            if ledger.is_meant(slot):
                meant = ledger.class_rate[ledger.class_of[slot]]
                self.pace[slot] = 1.0 - ledger.speed(run, position, entry) / meant

    def begin_all(self, ledger: Ledger, begun: Mapping[Run, int]) -> None:
        if len(begun) < MANY_RUNS or any(len(run.members) > 1 for run in begun):
            for run in begun:
                self.begin(ledger, run)
        else:
            self.begin_alone(ledger, RunColumns.of(begun))

    def end_all(self, ledger: Ledger, ended: Mapping[Run, int]) -> None:
        if len(ended) < MANY_RUNS:
            for run, entry in ended.items():
                self.end(ledger, run, entry)
            return
        columns = RunColumns.of(ended)
        np.subtract.at(self.paid, columns.entry[columns.entry != GUEST], 1.0)
        self.pace[columns.first] = ledger.meant[ledger.class_of[columns.first]]
        self.pace[columns.last] = ledger.meant[ledger.class_of[columns.last]]

    def begin_alone(self, ledger: Ledger, columns: RunColumns) -> None:
        """Do the same as `begin` for all runs with a single job at once."""
        alone = columns.first == columns.last
        entry, slots, type_indices = columns.entry[alone], columns.first[alone], columns.type_index[alone]
        paying = entry != GUEST
        np.add.at(self.paid, entry[paying], 1.0)
        number = ledger.class_of[slots]
        meant = np.append(ledger.class_rate, 0.0)[number]
        known = (number != NO_CLASS) & (type_indices < ledger.alone.shape[1])
        speed = np.zeros(len(slots))
        speed[known] = ledger.alone[number[known], type_indices[known]]
        as_allocated = np.append(ledger.entries.speed[:, 0], 0.0)[entry]
        speed = np.where(paying & (as_allocated > 0), as_allocated, speed)
        here = meant > 0
        self.pace[slots[here]] = 1.0 - speed[here] / meant[here]

    def end(self, ledger: Ledger, run: Run, entry: int) -> None:
        if entry != GUEST:
            self.paid[entry] -= 1
        for slot in run.members:
            self.pace[slot] = float(ledger.is_meant(slot))


def _key(run: Run, classes: Sequence[int]) -> EntryKey | None:
    """The entry key of a run; None if one of its jobs is not part of the allocation."""
    one, other = run.members[0], run.members[-1]
    if max(one, other) >= len(classes):
        return None
    first, second = classes[one], classes[other]
    if NO_CLASS in (first, second):
        return None
    return first, NO_CLASS if one == other else second, run.type_index


def in_groups(slots: Ints, group: Ints, groups: int) -> list[list[int]]:
    """The slots of each group, in the order given."""
    ordered = slots[group.argsort(kind="stable")].tolist()
    ends = np.bincount(group, minlength=groups).cumsum().tolist()
    return [ordered[begin:end] for begin, end in pairwise([0, *ends])]


def _first_in_groups(numbers: Ints, group: Ints, groups: int) -> list[int]:
    """By group: its first number that is not NO_CLASS; -2 if there is none."""
    first = np.full(groups, -2)
    known = (numbers != NO_CLASS).nonzero()[0][::-1]  # reversed, because the last assignment wins
    first[group[known]] = numbers[known]
    return first.tolist()
