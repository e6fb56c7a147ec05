"""What every class combo is owed on every type, and how far every job is behind: the state of the credit mechanism.

It changes in three ways: a new allocation is adopted, time passes for what runs, and a job leaves. All amounts are in
seconds: an entry earns its target number of runs for every second, and pays one second for each run it has.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.scheduler.entries import GUEST, NOBODY, Entries, EntryKey
from gavel.scheduler.rounds import Run


@dataclass(slots=True)
class Ledger:
    """Credit by entry, lag by job, and which runs pay for which entry."""

    entries: Entries = field(default_factory=Entries.none)
    lag: Floats = field(default_factory=lambda: np.zeros(0))
    """By slot: seconds of its target throughput that a job is behind, or, negative, ahead."""
    members: list[list[int]] = field(default_factory=list)
    """By class: the slots of its jobs."""
    class_rate: Floats = field(default_factory=lambda: np.empty(0))
    """By class: the steps per second that the allocation gives each of its jobs."""
    alone: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """By class and type: steps per second of a job that has accelerators to itself."""
    entry_of: dict[Run, int] = field(default_factory=dict)
    """The runs that were last accounted for; GUEST for those that pay nothing."""
    class_of: Ints = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """By slot; NOBODY for slots that are not part of the allocation."""
    _by_class: list[list[int]] | None = None
    _drift: Drift | None = None
    """How credit and lag change each second while the same runs continue; None if that has to be worked out."""

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        """Take up an allocation: what a class was owed it is still owed."""
        self._drift = self._by_class = None
        self.cover(int(slots.max(initial=-1)) + 1)
        here = slots >= 0
        slots, classes = slots[here], allocation.classes.of_job[here]
        before, old = self.class_of, self.entries
        self.class_of = np.full(len(before), NOBODY)
        self.class_of[slots] = classes
        self.members = in_groups(slots, classes, len(allocation.classes))
        self.class_rate = allocation.class_throughput
        problem = allocation.problem
        self.alone = problem.type_rates[problem.jobs.profile[allocation.classes.first]]
        class_of: list[int] = self.class_of.tolist()
        keys = {run: _key(run, class_of) for run in self.entry_of}
        paying = [key for run, entry in self.entry_of.items() if entry != GUEST and (key := keys[run]) is not None]
        self.entries = Entries.of(allocation, paying)
        self._carry_over(old, _first_in_groups(before[slots], classes, len(allocation.classes)))
        self.entry_of = {run: self.entries.find(key) for run, key in keys.items()}

    def cover(self, size: int) -> None:
        """Make room for slots that are new."""
        more = size - len(self.lag)
        if more > 0:
            self.lag = np.concatenate([self.lag, np.zeros(more)])
            self.class_of = np.concatenate([self.class_of, np.full(more, NOBODY)])
            self._drift = None

    def _carry_over(self, old: Entries, was: list[int]) -> None:
        """Entries keep their credit; `was` is each class's number before.

        Gangs that do not pack are owed ever more, all of them alike. A class that is new starts with the usual credit.
        """
        was.append(NOBODY)  # no second class is still none
        usual = old.usual_credit()
        for number, (first, second, kind) in enumerate(self.entries.keys):
            one, other = was[first], was[second]
            found = old.index.get((one, other, kind), old.index.get((other, one, kind)))
            self.entries.credit[number] = usual.get(kind, 0.0) if found is None else old.credit[found]

    def entries_of(self, number: int) -> list[int]:
        """The entries with a target that a class has part in."""
        if self._by_class is None:
            self._by_class = [[] for _ in self.members]
            for entry in (self.entries.target > 0).nonzero()[0].tolist():
                for part in {self.entries.first[entry], self.entries.second[entry]} - {NOBODY}:
                    self._by_class[part].append(entry)
        return self._by_class[number]

    def entry(self, run: Run) -> int:
        """The entry that a run pays for; GUEST if there is none."""
        found = self.entry_of.get(run)
        return self._lookup(run) if found is None else found

    def _lookup(self, run: Run) -> int:
        if max(run.members) >= len(self.class_of):
            return GUEST
        return self.entries.find(_key(run, self.class_of))

    def leave(self, slot: int) -> None:
        """Forget a job."""
        if slot < len(self.class_of) and self.class_of[slot] != NOBODY:
            self.members[self.class_of[slot]].remove(slot)
            self.class_of[slot] = NOBODY
            self.lag[slot] = 0.0
            if self._drift is not None:
                self._drift.pace[slot] = 0.0
        for run in [run for run in self.entry_of if slot in run.members]:
            self._end(run)

    def account(self, runs: Collection[Run], seconds: float) -> None:
        """Let time pass for these runs."""
        if len(runs) != len(self.entry_of) or not all(map(self.entry_of.__contains__, runs)):
            now = set(runs)
            for run in [run for run in self.entry_of if run not in now]:
                self._end(run)
            for run in runs:
                if run not in self.entry_of:
                    self._begin(run)
        drift = self._drift or self._work_out()
        self.entries.credit[:] += (self.entries.target - drift.paid) * seconds
        self.lag += drift.pace * seconds

    def _begin(self, run: Run) -> None:
        self.cover(max(run.members) + 1)
        self.entry_of[run] = self._lookup(run)
        if self._drift is not None:
            self._drift.begin(self, run)

    def _end(self, run: Run) -> None:
        entry = self.entry_of.pop(run)
        if self._drift is not None:
            self._drift.end(self, run, entry)

    def _work_out(self) -> Drift:
        pace = np.append(self.class_rate > 0, False)[self.class_of].astype(float)
        self._drift = Drift(np.zeros(len(self.entries.keys)), pace)
        for run in self.entry_of:
            self._drift.begin(self, run)
        return self._drift

    def is_meant(self, slot: int) -> bool:
        """Whether the allocation gives a job any throughput."""
        number = self.class_of[slot] if slot < len(self.class_of) else NOBODY
        return bool(number != NOBODY and self.class_rate[number] > 0)

    def speed(self, run: Run, position: int, entry: int) -> float:
        """Steps per second that one of a run's jobs makes, as the allocation counts on it."""
        if entry != GUEST and self.entries.speed[entry, position] > 0:
            return float(self.entries.speed[entry, position])
        known = run.type_index < self.alone.shape[1]
        return float(self.alone[self.class_of[run.members[position]], run.type_index]) if known else 0.0

    def spread(self, values: Floats) -> Floats:
        """By class: the largest less the smallest of its jobs' values; -inf where it has no jobs."""
        slots = np.flatnonzero(self.class_of != NOBODY)
        most, least = np.full(len(self.members), -np.inf), np.full(len(self.members), np.inf)
        np.maximum.at(most, self.class_of[slots], values[slots])
        np.minimum.at(least, self.class_of[slots], values[slots])
        return np.asarray(most - least)

    @property
    def drift(self) -> Drift:
        """How credit and lag change each second while what was last accounted for continues."""
        return self._drift or self._work_out()


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """What changes each second while the same runs continue."""

    paid: Floats
    """Runs by entry."""
    pace: Floats
    """By slot: seconds by which a job falls further behind."""

    def begin(self, ledger: Ledger, run: Run) -> None:
        entry = ledger.entry_of[run]
        if entry != GUEST:
            self.paid[entry] += 1
        for position, slot in enumerate(run.members):
            if ledger.is_meant(slot):
                meant = ledger.class_rate[ledger.class_of[slot]]
                self.pace[slot] = 1.0 - ledger.speed(run, position, entry) / meant

    def end(self, ledger: Ledger, run: Run, entry: int) -> None:
        if entry != GUEST:
            self.paid[entry] -= 1
        for slot in run.members:
            self.pace[slot] = float(ledger.is_meant(slot))


def _key(run: Run, class_of: Sequence[int] | Ints) -> EntryKey | None:
    """The classes of a run's jobs and its type; None if one of them is not part of the allocation."""
    first, second = int(class_of[run.members[0]]), int(class_of[run.members[-1]])
    if NOBODY in (first, second):
        return None
    return first, second if len(run.members) == 2 else NOBODY, run.type_index


def in_groups(slots: Ints, group: Ints, groups: int) -> list[list[int]]:
    """The slots of each group, in the order given."""
    ordered = slots[group.argsort(kind="stable")].tolist()
    ends = np.bincount(group, minlength=groups).cumsum().tolist()
    return [ordered[begin:end] for begin, end in pairwise([0, *ends])]


def _first_in_groups(numbers: Ints, group: Ints, groups: int) -> list[int]:
    """The first number of each group that is not NOBODY; -2 if there is none."""
    first = np.full(groups, -2)
    known = (numbers != NOBODY).nonzero()[0][::-1]  # of several the last one stays
    first[group[known]] = numbers[known]
    return first.tolist()
