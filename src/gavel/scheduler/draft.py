"""A round while the rules of the credit mechanism plan it: what runs, what is free, who waits, who may yield."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from typing import TypeVar

import numpy as np

from gavel.core.problem import Bools, Floats, Ints
from gavel.scheduler.entries import GUEST, NOBODY
from gavel.scheduler.ledger import Ledger, RunColumns
from gavel.scheduler.once import once
from gavel.scheduler.patience import Patience
from gavel.scheduler.rounds import NO_TEAM, Members, Plan, RoundInput, Run

Key = TypeVar("Key")
Value = TypeVar("Value")


class Overlay(MutableMapping[Key, Value]):
    """A mapping as another one with a few changes, which that one does not see."""

    def __init__(self, base: Mapping[Key, Value]) -> None:
        self._base = base
        self._set: dict[Key, Value] = {}
        self._gone: set[Key] = set()

    def __getitem__(self, key: Key) -> Value:
        if key in self._set:
            return self._set[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        return key in self._set or (key in self._base and key not in self._gone)

    def __setitem__(self, key: Key, value: Value) -> None:
        self._set[key] = value
        if key in self._base:
            self._gone.add(key)

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self._set.pop(key, None)
        if key in self._base:
            self._gone.add(key)

    def __iter__(self) -> Iterator[Key]:
        yield from (key for key in self._base if key not in self._gone)
        yield from self._set

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._set)


@dataclass(slots=True, eq=False)
class RunGroup:
    """Runs on one type that pay for the same entry, or a run that pays for none."""

    entry: int
    rows: Ints
    """Their positions among all runs."""
    first: Run
    runs: deque[Run] | None = None
    """Those that may yield; None if that has not been found out."""


Rank = tuple[float, int, RunGroup]
"""What runs stand at, and a number that decides between equals."""

PlaceInQueue = tuple[int, float, int]
"""What decides who is next, the greatest first: whether a job has never run, how far it is behind, minus its slot."""


@dataclass
class Draft:
    """A plan in the making. It reads the ledger and the round's input and changes neither."""

    given: RoundInput
    ledger: Ledger
    rule: Patience
    free: list[int]
    """Accelerators by type."""
    paid: list[int]
    """Runs by entry."""
    entry_of: MutableMapping[Run, int] = field(default_factory=dict)
    """Everything that runs, with the entry that pays for it."""
    run_of: MutableMapping[int, Run] = field(default_factory=dict)
    """By slot; jobs that are not here wait."""
    fresh: dict[Run, None] = field(default_factory=dict)
    """Runs that this plan starts."""
    begun: set[Run] = field(default_factory=set)
    """These, and those that it has stopped and started again: none of them yields before the next plan."""
    stopped: dict[tuple[Members, int], Run] = field(default_factory=dict)
    """Runs that this plan stops, by their jobs and type."""
    _new_guests: dict[Run, None] = field(default_factory=dict)
    """Runs that this plan starts, or has stopped and started again, and that pay for no entry."""
    _ranks: dict[int, list[Rank]] = field(default_factory=dict)
    _rank_of: dict[int, Rank] = field(default_factory=dict)
    """By entry: where it stands in the ranks of its type."""
    _outdated: set[int] = field(default_factory=set)
    """Entries that have other runs than when they were ranked."""
    _excess: dict[float, Floats] = field(default_factory=dict)
    _queues: dict[int, list[int]] = field(default_factory=dict)
    _starting: set[int] = field(default_factory=set)
    """Classes of jobs that this plan starts."""
    _returned: dict[int, list[PlaceInQueue]] = field(default_factory=dict)
    """By class: jobs that this plan has stopped, in the order of the queues."""
    _left: dict[int, Floats] = field(default_factory=dict)
    _longest: dict[int, deque[Run]] = field(default_factory=dict)
    _movable: dict[float, dict[int, list[deque[int]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Ledger, given: RoundInput, rule: Patience) -> Draft:
        """Start with everything that runs."""
        assert len(given.running) == len(ledger.entry_of), "not all runs were accounted for"  # noqa: S101
        ledger.cover(len(given.workers))
        paid = ledger.drift.paid.astype(int).tolist()
        draft = cls(given, ledger, rule, list(given.free), paid)
        if given.mid_round:  # little will change
            draft.entry_of, draft.run_of = Overlay(ledger.entry_of), Overlay(ledger.run_of)
        else:
            draft.entry_of, draft.run_of = dict(ledger.entry_of), dict(ledger.run_of)
        return draft

    def plan(self) -> Plan:
        """What the draft has come to."""
        return Plan(list(self.stopped.values()), list(self.fresh))

    @once
    def restart_seconds(self) -> Floats:
        """By slot: what a restart costs."""
        return self.rule.restart_seconds(self.given)

    @once
    def patience(self) -> Floats:
        """By slot."""
        return self.rule.of(self.given)

    @once
    def turns(self) -> Floats:
        """By slot."""
        return self.rule.turns(self.given)

    @once
    def served(self) -> Floats:
        """By slot: seconds received so far."""
        return self.given.served()

    @once
    def never_run(self) -> Ints:
        """Slots of jobs that waited before, have never run and are allocated time."""
        waiting = self.given.waiting
        new = waiting[self.given.started[waiting] == 0]
        return np.asarray(new[self.ledger.meant[self.ledger.class_of[new]]])

    @property
    def waiting(self) -> int:
        """How many jobs do not run."""
        return len(self.ledger.run_of) + len(self.given.waiting) - len(self.run_of)

    def jobs_to_seat(self) -> Ints:
        """The slots of the jobs that did not run before this plan or that it has stopped; some may run by now."""
        stopped = [slot for run in self.stopped.values() for slot in run.members]
        return np.append(self.given.waiting, np.array(stopped, dtype=np.intp)) if stopped else self.given.waiting

    def standing(self, entry: int) -> float:
        """Seconds for which an entry's missing runs will have been missing at the end of the coming round."""
        credit, target = self._owed[entry]
        missing = target - self.paid[entry]
        return (credit + missing * self.given.round_seconds) / max(abs(missing), 1.0)

    def standing_of(self, run: Run) -> float:
        """The same for a run; one that pays for no entry is owed nothing and has had its time since it started."""
        entry = self.entry_of[run]
        return self.standing(entry) if entry != GUEST else self._standing_of_guest(run)

    def _standing_of_guest(self, run: Run) -> float:
        return float(self.given.launched[run.members[0]]) - self.given.time - self.given.round_seconds

    @once
    def _owed(self) -> list[tuple[float, float]]:
        """By entry: credit and target."""
        entries = self.ledger.entries
        return list(zip(entries.credit.tolist(), entries.target.tolist(), strict=True))

    @property
    def columns(self) -> RunColumns:
        """Everything that ran before this plan."""
        return self.ledger.columns()

    @once
    def _runs_at_first(self) -> list[Run]:
        """The same as runs."""
        return list(self.ledger.entry_of)

    def guests(self) -> Iterator[Run]:
        """The runs that pay for no entry; one that was stopped and started again may come twice."""
        yield from (run for run in self._guests_at_first if run in self.entry_of)
        yield from self._new_guests

    @once
    def _guests_at_first(self) -> list[Run]:
        runs = self._runs_at_first
        return [runs[row] for row in (self.columns.entry == GUEST).nonzero()[0].tolist()]

    # What changes the plan

    def stop(self, run: Run) -> None:
        """Take a run off its accelerators, and let its jobs wait in line with the others of their class."""
        entry = self.entry_of.pop(run)
        self.free[run.type_index] += run.workers
        if entry == GUEST:
            self._new_guests.pop(run, None)
        else:
            self.paid[entry] -= 1
            self._outdated.add(entry)
        for slot in run.members:
            del self.run_of[slot]
            if (number := self.class_of(slot)) != NOBODY:
                insort(self._returned.setdefault(number, []), self._place_in_queue(slot))
        self.stopped[run.members, run.type_index] = run

    def start(self, members: Members, kind: int) -> None:
        """Start a combo; one that was stopped a moment ago on the same type has not moved at all."""
        run = self.stopped.pop((members, kind), None)
        if run is None:
            run = Run(members, kind, int(self.given.workers[members[0]]))
            self.fresh[run] = None
        self.begun.add(run)
        entry = self.entry_of[run] = self.ledger.entry(run)
        self.free[kind] -= run.workers
        if entry == GUEST:
            self._new_guests[run] = None
        else:
            self.paid[entry] += 1
            self._outdated.add(entry)
        for slot in members:
            self.run_of[slot] = run
            self._starting.add(self.class_of(slot))

    # Who waits

    def class_of(self, slot: int) -> int:
        return self.ledger.classes[slot]

    def _place_in_queue(self, slot: int) -> PlaceInQueue:
        return -int(self.given.started[slot]), float(self.ledger.lag[slot]), -slot

    def _queue(self, number: int) -> list[int]:
        """The jobs of a class that waited before: the one furthest behind is last, then those that never ran."""
        if number not in self._queues:
            slots = self.given.waiting[self._class_of_waiting == number]
            if len(slots) > 1:
                slots = slots[np.lexsort((-slots, self.ledger.lag[slots], -self.given.started[slots]))]
            self._queues[number] = slots.tolist()
        return self._queues[number]

    @once
    def _class_of_waiting(self) -> Ints:
        return self.ledger.class_of[self.given.waiting]

    def classes_that_wait(self) -> Bools:
        """By class, the last for "no class": whether a job of it waited before and still does."""
        waits = np.zeros(len(self.ledger.members) + 1, dtype=bool)
        waits[self._class_of_waiting] = True
        waits[NOBODY] = False
        for number in self._starting - {NOBODY}:
            waits[number] = any(slot not in self.run_of for slot in reversed(self._queue(number)))
        return waits

    def next_in_queue(self, number: int, taken: Sequence[int] = ()) -> int | None:
        """The job of a class that starts next."""
        queue, run_of = self._queue(number), self.run_of
        while queue and queue[-1] in run_of:
            queue.pop()
        first = next((slot for slot in reversed(queue) if slot not in taken and slot not in run_of), None)
        returned = self._returned.get(number)
        if not returned:
            return first
        while returned and -returned[-1][2] in run_of:
            returned.pop()
        back = next((place for place in reversed(returned) if -place[2] not in taken and -place[2] not in run_of), None)
        return first if back is None or (first is not None and self._place_in_queue(first) > back) else -back[2]

    # Teams that are served in order

    @once
    def _teams(self) -> dict[int, list[int]]:
        """By team: its jobs in order."""
        given = self.given
        found: dict[int, list[int]] = {}
        if (given.team != NO_TEAM).any():
            slots = [*given.waiting.tolist(), *(slot for run in given.running for slot in run.members)]
            for slot in sorted(slots, key=lambda slot: (given.arrival[slot], slot)):
                if given.team[slot] != NO_TEAM:
                    found.setdefault(int(given.team[slot]), []).append(slot)
        return found

    @property
    def has_teams(self) -> bool:
        return bool(self._teams)

    def earlier(self, slot: int) -> Iterator[int]:
        """The jobs that come before this one in its team."""
        for other in self._teams.get(int(self.given.team[slot]), ()):
            if other == slot:
                return
            yield other

    def jumps_the_queue(self, slot: int, kind: int) -> bool:
        """Whether an earlier job of the same team waits that could run in this one's place."""
        workers, rates = self.given.workers, self.given.rates
        return self.has_teams and any(
            other not in self.run_of and rates[other, kind] > 0 and workers[other] <= workers[slot]
            for other in self.earlier(slot)
        )

    def is_before(self, run: Run, members: Members) -> bool:
        """Whether a run has a job that comes before one of these in their team."""
        if not self.has_teams:
            return False
        team, arrival = self.given.team, self.given.arrival
        return any(
            team[slot] == team[other] != NO_TEAM and (arrival[other], other) < (arrival[slot], slot)
            for slot in members
            for other in run.members
        )

    # Who may yield

    def ranked(self, kind: int) -> Iterator[tuple[float, RunGroup]]:
        """Runs on a type that have had their turn, by what they stand at, the lowest first."""
        if kind not in self._ranks:
            groups = enumerate(group for group in self._groups[kind] if group.entry != GUEST)
            ranks = [(self.standing(group.entry), number, group) for number, group in groups]
            self._rank_of |= {rank[2].entry: rank for rank in ranks}
            self._ranks[kind] = sorted(ranks, key=itemgetter(0))
        for entry in self._outdated & self._rank_of.keys():
            self._rank_again(entry)
        self._outdated.clear()
        found: Iterable[Rank] = self._ranks[kind]
        if self._guests[kind]:
            found = merge(found, self.guests_with_turns(kind), key=itemgetter(0))
        return ((standing, group) for standing, _, group in found)

    def guests_with_turns(self, kind: int) -> Iterator[Rank]:
        """Runs on a type that pay for no entry and have had their turn, the lowest first."""
        return (guest for guest in self._guests[kind] if guest[2].first in self.entry_of)

    @once
    def entries_with_turns(self) -> Ints:
        """The entries for which runs have had their turn."""
        entry = self.columns.entry[self._rows_with_turns]
        return np.bincount(entry[entry != GUEST]).nonzero()[0]

    def _rank_again(self, entry: int) -> None:
        _, number, group = old = self._rank_of[entry]
        ranks = self._ranks[self.ledger.entries.keys[entry][2]]
        del ranks[bisect_left(ranks, old[:2], key=itemgetter(0, 1))]
        new = self._rank_of[entry] = self.standing(entry), number, group
        insort(ranks, new, key=itemgetter(0, 1))

    @once
    def _groups(self) -> list[list[RunGroup]]:
        """By type: runs that have had their turn, those that pay for the same entry together."""
        columns, ready = self.columns, self._rows_with_turns
        found: list[list[RunGroup]] = [[] for _ in self.free]
        if len(ready):
            code = columns.entry[ready] * len(found) + columns.kind[ready]
            ready = ready[code.argsort(kind="stable")]
            code = columns.entry[ready] * len(found) + columns.kind[ready]
            ends = ((code[1:] != code[:-1]).nonzero()[0] + 1).tolist()
            parts = [ready[begin:end] for begin, end in pairwise([0, *ends, len(ready)])]
            for rows in sorted(parts, key=itemgetter(0)):
                entry, kind = int(columns.entry[rows[0]]), int(columns.kind[rows[0]])
                found[kind].append(RunGroup(entry, rows, self._runs_at_first[rows[0]]))
        return found

    @once
    def _rows_with_turns(self) -> Ints:
        """Positions of the runs that have had their turn, among all that ran before this plan."""
        columns = self.columns
        return (self._had_turn[columns.first] & self._had_turn[columns.last]).nonzero()[0]

    @once
    def _guests(self) -> list[list[Rank]]:
        """By type: runs that pay for no entry and have had their turn, the one that started first at the front."""
        columns, rows = self.columns, self._rows_with_turns
        found: list[list[Rank]] = [[] for _ in self.free]
        for row in rows[columns.entry[rows] == GUEST].tolist():
            guest = RunGroup(GUEST, np.array([row]), self._runs_at_first[row])
            found[columns.kind[row]].append((self._standing_of_guest(guest.first), 0, guest))
        return [sorted(guests, key=itemgetter(0)) for guests in found]

    def lasting(self, group: RunGroup, times: float) -> deque[Run]:
        """Those runs of a group that still run, without those that end within so many times the least patience."""
        if group.runs is None:
            columns, rows = self.columns, group.rows
            left = self._seconds_left(int(columns.kind[rows[0]]))
            shortest = np.minimum(left[columns.first[rows]], left[columns.last[rows]])
            lasting = rows[shortest > times * self._least_of_all]
            group.runs = deque(self._runs_at_first[row] for row in lasting.tolist())
        while group.runs and not self.still_runs(group.runs[0]):
            group.runs.popleft()
        return group.runs

    @once
    def _least_of_all(self) -> float:
        """The least patience of any job."""
        return float(self.patience.min(initial=np.inf))

    @once
    def least_patience(self) -> Floats:
        """By entry: the least patience of a job that could run for it."""
        ledger, entries, slots = self.ledger, self.ledger.entries, self.ledger.present
        least = np.full(len(ledger.members) + 1, np.inf)
        np.minimum.at(least, ledger.class_of[slots], self.patience[slots])
        return np.asarray(np.minimum(least[entries.first], least[entries.second]))

    def excess_lag(self, times: float) -> Floats:
        """By class, the last for "no class": by how much a job is behind by more than so many patiences; or -inf."""
        if times not in self._excess:
            ledger, slots = self.ledger, self.ledger.present
            most = np.full(len(ledger.members) + 1, -np.inf)
            np.maximum.at(most, ledger.class_of[slots], ledger.lag[slots] - times * self.patience[slots])
            self._excess[times] = most
        return self._excess[times]

    def movable(self, number: int, times: float) -> list[deque[int]]:
        """Jobs of a class that run, had their turn and are behind by more than so many times their patience.

        Those on the same type that pay for the same entry are together, the one that was launched first at the front.
        """
        if times not in self._movable:
            self._movable[times] = self._jobs_behind(times)
        groups = self._movable[times].get(number, [])
        for group in groups:
            while group and not self.still_runs_at(group[0]):
                group.popleft()
        return groups

    def _jobs_behind(self, times: float) -> dict[int, list[deque[int]]]:
        """By class: jobs that ran before this plan, had their turn and are behind, in the groups of `movable`."""
        ledger, columns, rows = self.ledger, self.columns, self._rows_with_turns
        row_of = np.full(len(ledger.class_of), -1)
        row_of[columns.first[rows]] = row_of[columns.last[rows]] = rows
        slots = ((row_of >= 0) & (ledger.lag > times * self.patience) & (ledger.class_of != NOBODY)).nonzero()[0]
        slots = slots[np.lexsort((ledger.order[slots], self.given.launched[slots]))]
        row, number = row_of[slots], ledger.class_of[slots].tolist()
        groups: dict[tuple[int, int, int], deque[int]] = {}
        keys = zip(number, columns.entry[row].tolist(), columns.kind[row].tolist(), strict=True)
        for key, slot in zip(keys, slots.tolist(), strict=True):
            groups.setdefault(key, deque()).append(slot)
        by_class: dict[int, list[deque[int]]] = {}
        for key, group in groups.items():
            by_class.setdefault(key[0], []).append(group)
        return by_class

    def still_runs_at(self, slot: int) -> bool:
        """Whether a job ran before this plan and its run has not been stopped."""
        return slot in self.run_of and self.still_runs(self.run_of[slot])

    def still_runs(self, run: Run) -> bool:
        """Whether it ran before this plan and has not been stopped."""
        return run in self.entry_of and run not in self.begun

    def has_had_its_turn(self, run: Run) -> bool:
        """Whether every job of a run has run for at least a turn since its last start."""
        had = self._had_turn_list
        return had[run.members[0]] and had[run.members[-1]]

    @once
    def _had_turn(self) -> Bools:
        """By slot."""
        return np.asarray(self.given.time - self.given.launched >= self.turns)

    @once
    def _had_turn_list(self) -> list[bool]:
        """The same, for looking up one at a time."""
        had: list[bool] = self._had_turn.tolist()
        return had

    def seconds_left(self, run: Run) -> float:
        """Until the first of a run's jobs is done; infinite if unknown."""
        left = self._seconds_left(run.type_index)
        return float(left[run.members[0]] if len(run.members) == 1 else min(left[list(run.members)]))

    def _seconds_left(self, kind: int) -> Floats:
        if kind not in self._left:
            left = self.given.seconds_left(kind)
            self._left[kind] = np.where(np.isnan(left), np.inf, left)
        return self._left[kind]

    def longest_left(self, kind: int) -> deque[Run]:
        """Runs on a type that have had their turn, the one that will take longest first."""
        if kind not in self._longest:
            columns, left = self.columns, self._seconds_left(kind)
            rows = ((columns.kind == kind) & self._had_turn[columns.first] & self._had_turn[columns.last]).nonzero()[0]
            shortest = np.minimum(left[columns.first[rows]], left[columns.last[rows]])
            rows = rows[np.argsort(-shortest, kind="stable")]
            self._longest[kind] = deque(self._runs_at_first[row] for row in rows.tolist())
        longest = self._longest[kind]
        while longest and not self.still_runs(longest[0]):
            longest.popleft()
        return longest
