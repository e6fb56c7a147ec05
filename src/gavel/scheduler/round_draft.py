"""A draft: the plan of one round while the rules of the credit mechanism work on it.

It knows what would run, which accelerators would be free, which jobs wait and which runs may *yield* (give up their
accelerators to another job). Runs are compared by *standing*: the number of seconds for which the missing runs of their
entry have been missing, as of the end of the round (see `entries`). Runs with the lowest standing yield first.
"""

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
from gavel.scheduler.entries import GUEST, NO_CLASS
from gavel.scheduler.ledger import Ledger, RunColumns
from gavel.scheduler.once import once
from gavel.scheduler.patience import Patience
from gavel.scheduler.placement import Where
from gavel.scheduler.room import Room
from gavel.scheduler.rounds import NO_TEAM, Members, Plan, RoundInput, Run

SELDOM = 64
"""So many runs stop or begin before lists are rid of those that have stopped."""
Key = TypeVar("Key")
Value = TypeVar("Value")


class Overlay(MutableMapping[Key, Value]):
    """A view of another mapping with a few changes on top; the other mapping stays as it is."""

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
    """The runs on one type that pay for the same entry, or a single guest."""

    entry: int
    rows: Ints
    """Their positions among all runs."""
    first: Run
    runs: deque[Run] | None = None
    """The runs that may yield; None before this has been computed."""


Rank = tuple[float, int, RunGroup]
"""A group's standing, and a number that breaks ties."""

PlaceInQueue = tuple[int, float, int]
"""A sort key; the job with the greatest is next: 0 if it has never run, else -1; its lag; minus its slot."""


@dataclass
class Draft:
    """A plan in the making. It reads the ledger and the round's input and modifies neither."""

    given: RoundInput
    ledger: Ledger
    rule: Patience
    free: list[int]
    """By type: idle accelerators."""
    paid: list[int]
    """By entry: the number of its runs."""
    entry_of: MutableMapping[Run, int] = field(default_factory=dict)
    """The entry that each run pays for; GUEST for guests."""
    run_of: MutableMapping[int, Run] = field(default_factory=dict)
    """The run of each job, by slot; jobs without a run wait."""
    fresh: dict[Run, None] = field(default_factory=dict)
    """Runs that this plan starts."""
    begun: set[Run] = field(default_factory=set)
    """The `fresh` runs, and runs that were stopped and started again; none of them yields before the next plan."""
    stopped: dict[tuple[Members, int], Run] = field(default_factory=dict)
    """Runs that this plan stops, by their jobs and type."""
    room: Room | None = None
    """Where runs are and where others fit; None: they fit wherever accelerators are free."""
    _places: dict[Run, Where] = field(default_factory=dict)
    """Where the runs were that this plan stops; only with a room."""
    _new_guests: dict[Run, None] = field(default_factory=dict)
    """The guests among the runs that this plan starts, or has stopped and started again."""
    _ranks: dict[int, list[Rank]] = field(default_factory=dict)
    _rank_of: dict[int, Rank] = field(default_factory=dict)
    """By entry: its rank, as listed in the ranks of its type."""
    _outdated: set[int] = field(default_factory=set)
    """Entries whose runs have changed since they were ranked."""
    _excess: dict[float, Floats] = field(default_factory=dict)
    _queues: dict[int, list[int]] = field(default_factory=dict)
    _starting: set[int] = field(default_factory=set)
    """Classes of jobs that this plan starts."""
    _returned: dict[int, list[PlaceInQueue]] = field(default_factory=dict)
    """By class: jobs that this plan has stopped; the last is next, as in the queues."""
    _left: dict[int, Floats] = field(default_factory=dict)
    _longest: dict[int, deque[Run]] = field(default_factory=dict)
    _pruned: dict[int, int] = field(default_factory=dict)
    """By type: how many runs had been stopped or begun when `_longest` was last rid of them."""
    _movable: dict[float, dict[int, list[deque[int]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Ledger, given: RoundInput, rule: Patience) -> Draft:
        """Create a draft in which everything that runs continues."""
        assert len(given.running) == len(ledger.entry_of), "not all runs were accounted for"  # noqa: S101
        ledger.cover(len(given.workers))
        paid = ledger.drift.paid.astype(int).tolist()
        draft = cls(given, ledger, rule, list(given.free), paid)
        draft.room = None if given.room is None else given.room()
        if given.mid_round:  # few changes: an overlay is cheaper than a copy
            draft.entry_of, draft.run_of = Overlay(ledger.entry_of), Overlay(ledger.run_of)
        else:
            draft.entry_of, draft.run_of = dict(ledger.entry_of), dict(ledger.run_of)
        return draft

    def plan(self) -> Plan:
        """The finished plan."""
        places = {} if self.room is None else {run: self.room.where[run] for run in self.fresh}
        return Plan(list(self.stopped.values()), list(self.fresh), places)

    def fits(self, members: Members, type_index: int, leaving: Sequence[Run] = ()) -> bool:
        """Whether a combo could start on a type now, once runs of its own jobs have left."""
        workers = int(self.given.workers[members[0]])
        if self.room is None:
            own = sum(run.workers for run in leaving if run.type_index == type_index)
            return workers <= self.free[type_index] + own
        if not leaving:
            return self.room.find(members, type_index, workers) is not None
        return self.room.clearing(members, type_index, workers, (), leaving) is not None

    def fewest(
        self, able: Iterable[Run], members: Members, type_index: int, needed: int, leaving: Sequence[Run] = ()
    ) -> list[Run] | None:
        """As few of these runs as possible whose accelerators a combo could use, preferring earlier ones.

        None if all together are not enough. `needed` is how many accelerators are missing. With a room, no more of the
        runs are looked at than necessary.
        """
        if self.room is None:
            return fewest(list(able), needed)
        return self.room.clearing(members, type_index, int(self.given.workers[members[0]]), able, leaving)

    @once
    def restart_seconds(self) -> Floats:
        """By slot: what a restart costs."""
        return self.rule.restart_seconds(self.given)

    @once
    def patience(self) -> Floats:
        """By slot: how much more a job must be owed than a run to take its place, in seconds."""
        return self.rule.of(self.given)

    @once
    def turns(self) -> Floats:
        """By slot: how long a run is left alone after its start, in seconds."""
        return self.rule.turns(self.given)

    @once
    def served(self) -> Floats:
        """By slot: seconds received so far."""
        return self.given.served()

    @once
    def never_run(self) -> Ints:
        """Slots of jobs that have never run, waited before this plan and are allocated time."""
        waiting = self.given.waiting
        new = waiting[self.given.started[waiting] == 0]
        return np.asarray(new[self.ledger.meant[self.ledger.class_of[new]]])

    @property
    def waiting(self) -> int:
        """The number of jobs that do not run in this draft."""
        return len(self.ledger.run_of) + len(self.given.waiting) - len(self.run_of)

    def jobs_to_seat(self) -> Ints:
        """The slots of the jobs that did not run before this plan or that it has stopped; some may run by now."""
        stopped = [slot for run in self.stopped.values() for slot in run.members]
        return np.append(self.given.waiting, np.array(stopped, dtype=np.intp)) if stopped else self.given.waiting

    def standing(self, entry: int) -> float:
        """The standing of an entry: for how long each missing run will have been missing when the round ends."""
        credit, target = self._owed[entry]
        missing = target - self.paid[entry]
        return (credit + missing * self.given.round_seconds) / max(abs(missing), 1.0)

    def standing_of(self, run: Run) -> float:
        """The standing of a run: that of its entry or, for a guest, minus its running time when the round ends."""
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
        """The runs before this plan."""
        return self.ledger.columns()

    @once
    def _runs_at_first(self) -> list[Run]:
        """The runs before this plan, in the order of `columns`."""
        return list(self.ledger.entry_of)

    def guests(self) -> Iterator[Run]:
        """Iterate over the guests; a guest that was stopped and started again may occur twice."""
        yield from (run for run in self._guests_at_first if run in self.entry_of)
        yield from self._new_guests

    @once
    def _guests_at_first(self) -> list[Run]:
        runs = self._runs_at_first
        return [runs[row] for row in (self.columns.entry == GUEST).nonzero()[0].tolist()]

    # What changes the plan

    def stop(self, run: Run) -> None:
        """Stop a run; its jobs join the queues of their classes."""
        entry = self.entry_of.pop(run)
        self.free[run.type_index] += run.workers
        if self.room is not None:
            self._places[run] = self.room.leave(run)
        if entry == GUEST:
            self._new_guests.pop(run, None)
        else:
            self.paid[entry] -= 1
            self._outdated.add(entry)
        for slot in run.members:
            del self.run_of[slot]
            if (number := self.class_of(slot)) != NO_CLASS:
                insort(self._returned.setdefault(number, []), self._place_in_queue(slot))
        self.stopped[run.members, run.type_index] = run

    def start(self, members: Members, type_index: int) -> None:
        """Start a combo on a type; if this plan stopped it on the same type, it continues as if never stopped."""
        run = self.stopped.get((members, type_index))
        if run is not None and (self.room is None or self.room.fits_at(run, self._places[run])):
            del self.stopped[members, type_index]
            where = self._places.get(run)
        else:
            run = Run(members, type_index, int(self.given.workers[members[0]]))
            where = None if self.room is None else self.room.find(members, type_index, run.workers)
            self.fresh[run] = None
        if self.room is not None:
            assert where is not None, "a run was started where it does not fit"  # noqa: S101
            self.room.enter(run, where)
        self.begun.add(run)
        entry = self.entry_of[run] = self.ledger.entry(run)
        self.free[type_index] -= run.workers
        if entry == GUEST:
            self._new_guests[run] = None
        else:
            self.paid[entry] += 1
            self._outdated.add(entry)
        for slot in members:
            self.run_of[slot] = run
            self._starting.add(self.class_of(slot))

    # Waiting jobs

    def class_of(self, slot: int) -> int:
        return self.ledger.classes[slot]

    def _place_in_queue(self, slot: int) -> PlaceInQueue:
        return -int(self.given.started[slot]), float(self.ledger.lag[slot]), -slot

    def _queue(self, number: int) -> list[int]:
        """The jobs of a class that waited before this plan; the last is next: jobs that never ran, then by lag."""
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
        """By class: whether one of its jobs waited before this plan and still does. The last element is "no class"."""
        waits = np.zeros(len(self.ledger.members) + 1, dtype=bool)
        waits[self._class_of_waiting] = True
        waits[NO_CLASS] = False
        for number in self._starting - {NO_CLASS}:
            waits[number] = any(slot not in self.run_of for slot in reversed(self._queue(number)))
        return waits

    def next_in_queue(self, number: int, taken: Sequence[int] = ()) -> int | None:
        """The job of a class to start next, other than those taken; None if no job of the class waits."""
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

    # Teams, whose jobs are served in order of arrival

    @once
    def _teams(self) -> dict[int, list[int]]:
        """By team: its jobs in order of arrival."""
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

    def jumps_the_queue(self, slot: int, type_index: int) -> bool:
        """Whether an earlier job of the same team waits and could run in this job's place."""
        workers, rates = self.given.workers, self.given.rates
        return self.has_teams and any(
            other not in self.run_of and rates[other, type_index] > 0 and workers[other] <= workers[slot]
            for other in self.earlier(slot)
        )

    def is_before(self, run: Run, members: Members) -> bool:
        """Whether a run has a job that comes before one of the members in the same team."""
        if not self.has_teams:
            return False
        team, arrival = self.given.team, self.given.arrival
        return any(
            team[slot] == team[other] != NO_TEAM and (arrival[other], other) < (arrival[slot], slot)
            for slot in members
            for other in run.members
        )

    # Runs that may yield

    def ranked(self, type_index: int) -> Iterator[tuple[float, RunGroup]]:
        """Iterate over the runs on a type that have had their turn, with their standing, lowest first."""
        if type_index not in self._ranks:
            groups = enumerate(group for group in self._groups[type_index] if group.entry != GUEST)
            ranks = [(self.standing(group.entry), number, group) for number, group in groups]
            self._rank_of |= {rank[2].entry: rank for rank in ranks}
            self._ranks[type_index] = sorted(ranks, key=itemgetter(0))
        for entry in self._outdated & self._rank_of.keys():
            self._rank_again(entry)
        self._outdated.clear()
        found: Iterable[Rank] = self._ranks[type_index]
        if self._guests[type_index]:
            found = merge(found, self.guests_with_turns(type_index), key=itemgetter(0))
        return ((standing, group) for standing, _, group in found)

    def guests_with_turns(self, type_index: int) -> Iterator[Rank]:
        """Iterate over the guests on a type that have had their turn, lowest standing first."""
        return (guest for guest in self._guests[type_index] if guest[2].first in self.entry_of)

    @once
    def entries_with_turns(self) -> Ints:
        """The entries with a run that has had its turn."""
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
        """By type: the runs that have had their turn, grouped by the entry that they pay for."""
        columns, ready = self.columns, self._rows_with_turns
        found: list[list[RunGroup]] = [[] for _ in self.free]
        if len(ready):
            code = columns.entry[ready] * len(found) + columns.type_index[ready]
            ready = ready[code.argsort(kind="stable")]
            code = columns.entry[ready] * len(found) + columns.type_index[ready]
            ends = ((code[1:] != code[:-1]).nonzero()[0] + 1).tolist()
            parts = [ready[begin:end] for begin, end in pairwise([0, *ends, len(ready)])]
            for rows in sorted(parts, key=itemgetter(0)):
                entry, type_index = int(columns.entry[rows[0]]), int(columns.type_index[rows[0]])
                found[type_index].append(RunGroup(entry, rows, self._runs_at_first[rows[0]]))
        return found

    @once
    def _rows_with_turns(self) -> Ints:
        """The rows of `columns` whose runs have had their turn."""
        columns = self.columns
        return (self._had_turn[columns.first] & self._had_turn[columns.last]).nonzero()[0]

    @once
    def _guests(self) -> list[list[Rank]]:
        """By type: the guests that have had their turn, in order of launch."""
        columns, rows = self.columns, self._rows_with_turns
        found: list[list[Rank]] = [[] for _ in self.free]
        for row in rows[columns.entry[rows] == GUEST].tolist():
            guest = RunGroup(GUEST, np.array([row]), self._runs_at_first[row])
            found[columns.type_index[row]].append((self._standing_of_guest(guest.first), 0, guest))
        return [sorted(guests, key=itemgetter(0)) for guests in found]

    def lasting(self, group: RunGroup, times: float) -> deque[Run]:
        """The runs of a group that still run and will not finish within `times` times the least patience of any job.

        Stopped runs are removed only from the front.
        """
        if group.runs is None:
            columns, rows = self.columns, group.rows
            left = self._seconds_left(int(columns.type_index[rows[0]]))
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
        """By class: the greatest excess of a job's lag over `times` times its patience; -inf if it has no jobs.

        The last element is "no class".
        """
        if times not in self._excess:
            ledger, slots = self.ledger, self.ledger.present
            most = np.full(len(ledger.members) + 1, -np.inf)
            np.maximum.at(most, ledger.class_of[slots], ledger.lag[slots] - times * self.patience[slots])
            self._excess[times] = most
        return self._excess[times]

    def movable(self, number: int, times: float) -> list[deque[int]]:
        """The running jobs of a class that have had their turn and whose lag exceeds `times` times their patience.

        Jobs on the same type that pay for the same entry form one group, in order of launch.
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
        slots = ((row_of >= 0) & (ledger.lag > times * self.patience) & (ledger.class_of != NO_CLASS)).nonzero()[0]
        slots = slots[np.lexsort((ledger.order[slots], self.given.launched[slots]))]
        row, number = row_of[slots], ledger.class_of[slots].tolist()
        groups: dict[tuple[int, int, int], deque[int]] = {}
        keys = zip(number, columns.entry[row].tolist(), columns.type_index[row].tolist(), strict=True)
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
        """Whether a run began before this plan and has not been stopped."""
        return run in self.entry_of and run not in self.begun

    def has_had_its_turn(self, run: Run) -> bool:
        """Whether every job of a run has run for at least a turn since its last start."""
        had = self._had_turn_list
        return had[run.members[0]] and had[run.members[-1]]

    @once
    def _had_turn(self) -> Bools:
        """By slot: whether a job has run for at least a turn since its last start."""
        return np.asarray(self.given.time - self.given.launched >= self.turns)

    @once
    def _had_turn_list(self) -> list[bool]:
        """`_had_turn` as a list, which is faster for single lookups."""
        had: list[bool] = self._had_turn.tolist()
        return had

    def seconds_left(self, run: Run) -> float:
        """Seconds until the first of a run's jobs finishes; infinite if unknown."""
        left = self._seconds_left(run.type_index)
        return float(left[run.members[0]] if len(run.members) == 1 else min(left[list(run.members)]))

    def _seconds_left(self, type_index: int) -> Floats:
        if type_index not in self._left:
            left = self.given.seconds_left(type_index)
            self._left[type_index] = np.where(np.isnan(left), np.inf, left)
        return self._left[type_index]

    def longest_left(self, type_index: int) -> deque[Run]:
        """The runs on a type that have had their turn, those with the longest remaining time first."""
        if type_index not in self._longest:
            columns, left = self.columns, self._seconds_left(type_index)
            rows = (
                (columns.type_index == type_index) & self._had_turn[columns.first] & self._had_turn[columns.last]
            ).nonzero()[0]
            shortest = np.minimum(left[columns.first[rows]], left[columns.last[rows]])
            rows = rows[np.argsort(-shortest, kind="stable")]
            self._longest[type_index] = deque(self._runs_at_first[row] for row in rows.tolist())
            self._pruned[type_index] = len(self.begun) + len(self.stopped)
        gone = len(self.begun) + len(self.stopped)
        if gone > self._pruned[type_index] + SELDOM:
            self._longest[type_index] = deque(filter(self.still_runs, self._longest[type_index]))
            self._pruned[type_index] = gone
        longest = self._longest[type_index]
        while longest and not self.still_runs(longest[0]):
            longest.popleft()
        return longest


def fewest(runs: list[Run], needed: int) -> list[Run] | None:
    """As few runs as possible with this many workers, preferring earlier ones; None if all together have fewer."""
    chosen: list[Run] = []
    for run in sorted(runs, key=lambda run: -run.workers):
        if run.workers <= needed:
            chosen.append(run)
            needed -= run.workers
        if not needed:
            return chosen
    left = [run for run in runs if run.workers > needed and run not in chosen]
    if not left:
        return None
    last = min(left, key=lambda run: run.workers)
    while chosen and chosen[-1].workers <= last.workers - needed:
        needed += chosen.pop().workers  # `last` alone frees enough accelerators for both
    return [*chosen, last]
