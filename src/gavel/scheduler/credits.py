"""The restart-aware mechanism: every combo earns its share as credit, and runs go on until others are owed more.

Each round a (class combo, type) earns its target number of accelerators' worth of rounds and pays one for each run.
Who runs stays, until somebody else's credit exceeds its own by `patience` rounds; then the one with most credit takes
its place. So what is received differs from the target by a bounded number of rounds, and jobs move rarely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.scheduler.rounds import Members, Question, Run, offers

GUEST = -1
"""The entry of a run on an accelerator that would be idle: it pays nothing and goes first."""


@dataclass(slots=True)
class _Round:
    """A round while it is being planned."""

    question: Question
    free: list[int]
    entry_of: dict[Run, int]
    """Everything that runs, in order of planning."""
    run_of: dict[int, Run]
    """By slot."""
    waiting: set[int]
    stopped: list[Run] = field(default_factory=list)

    def stop(self, run: Run) -> None:
        self.free[run.type_index] += run.workers
        del self.entry_of[run]
        for slot in run.members:
            del self.run_of[slot]
            self.waiting.add(slot)
        self.stopped.append(run)

    def start(self, members: Members, kind: int, entry: int) -> None:
        # Whoever was stopped a moment ago and comes back to the same type has not moved at all.
        run = next((r for r in self.stopped if r.members == members and r.type_index == kind), None)
        run = run or Run(members, kind, int(self.question.workers[members[0]]))
        self.free[kind] -= run.workers
        self.entry_of[run] = entry
        for slot in members:
            self.run_of[slot] = run
            self.waiting.discard(slot)


class Credits:
    """Plans rounds by credit; see the module."""

    def __init__(self, *, patience: float = 8.0, rotation: float = 24.0) -> None:
        self.patience = patience
        self.rotation = rotation
        self._class_of: dict[int, int] = {}
        self._members: list[list[int]] = []
        self._first: Ints = np.empty(0, dtype=np.intp)
        self._second: Ints = np.empty(0, dtype=np.intp)
        self._kind: Ints = np.empty(0, dtype=np.intp)
        self._target: Floats = np.empty(0)
        self._credit: Floats = np.empty(0)
        self._index: dict[tuple[int, int, int], int] = {}
        self._lag: dict[int, float] = {}
        """By slot: rounds' worth of target throughput that a job is behind."""
        self._class_rate: Floats = np.empty(0)
        self._entry_of: dict[Run, int] = {}

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        before = dict(self._class_of)
        old_index, old_credit = self._index, self._credit
        of_job = allocation.classes.of_job.tolist()
        self._class_of = dict(zip(slots.tolist(), of_job, strict=True))
        self._members = [[] for _ in range(len(allocation.classes))]
        for slot, number in self._class_of.items():
            self._members[number].append(slot)
        self._class_rate = allocation.class_throughput
        was = [next((before[s] for s in members if s in before), -2) for members in self._members]
        entries = self._entries_of(allocation)
        for run in self._entry_of:  # whoever runs on has an entry, if only to be paid for
            if all(slot in self._class_of for slot in run.members):
                entries.setdefault(self._key(run.members, run.type_index), 0.0)
        self._index = {key: number for number, key in enumerate(entries)}
        keys = np.array(list(entries), dtype=np.intp).reshape(len(entries), 3)
        self._first, self._second, self._kind = keys[:, 0], keys[:, 1], keys[:, 2]
        self._target = np.fromiter(entries.values(), dtype=float, count=len(entries))
        self._credit = np.zeros(len(entries))
        for number, (first, second, kind) in enumerate(entries):
            old = (was[first], was[second] if second >= 0 else -1, kind)
            found = old_index.get(old, old_index.get((old[1], old[0], kind), -1))
            if found >= 0:
                self._credit[number] = old_credit[found]
        self._entry_of = {
            run: self._index[self._key(run.members, run.type_index)] if entry != GUEST else GUEST
            for run, entry in self._entry_of.items()
            if all(slot in self._class_of for slot in run.members)
        }

    @staticmethod
    def _entries_of(allocation: Allocation) -> dict[tuple[int, int, int], float]:
        """Runs at once by (class, second class or -1, type); the placements of a type are one."""
        entries: dict[tuple[int, int, int], float] = {}
        kinds = allocation.problem.column_type.tolist()
        combo, column = np.nonzero(allocation.instances > 1e-9)
        for k, c in zip(combo.tolist(), column.tolist(), strict=True):
            first, second = allocation.combos[k].tolist()
            key = (first, second, kinds[c])
            entries[key] = entries.get(key, 0.0) + float(allocation.instances[k, c])
        return entries

    def _key(self, members: Members, kind: int) -> tuple[int, int, int]:
        first = self._class_of[members[0]]
        second = self._class_of[members[1]] if len(members) == 2 else -1
        if (second, first, kind) in self._index and (first, second, kind) not in self._index:
            return second, first, kind
        return first, second, kind

    def leave(self, slot: int) -> None:
        number = self._class_of.pop(slot, None)
        if number is not None:
            self._members[number].remove(slot)
        self._lag.pop(slot, None)
        for run in [run for run in self._entry_of if slot in run.members]:
            del self._entry_of[run]

    def plan(self, question: Question) -> list[Run]:
        self._credit += self._target
        current = self._continue(question)
        for entry in self._challengers(current):
            while self._advance(entry, current):
                pass
        self._seat_guests(current)
        self._pay(current)
        self._entry_of = current.entry_of
        return list(current.entry_of)

    def _continue(self, question: Question) -> _Round:
        """Begin with everyone who ran and still can."""
        free = list(question.capacity)
        current = _Round(question, free, {}, {}, set(question.waiting.tolist()))
        for run in question.running:
            entry = self._entry_of.get(run, GUEST)
            if run.workers <= free[run.type_index]:
                free[run.type_index] -= run.workers
                current.entry_of[run] = entry
                for slot in run.members:
                    current.run_of[slot] = run
            else:
                current.waiting.update(run.members)
        return current

    def _urgency(self, entry: int, current: _Round) -> float:
        """Credit, with an advance for a class in which somebody waits who has never run."""
        credit = float(self._credit[entry])
        classes = {int(self._first[entry]), int(self._second[entry])} - {-1}
        fresh = any(
            slot in current.waiting and not current.question.started[slot]
            for number in classes
            for slot in self._members[number]
        )
        return credit + self.patience + 1.0 if fresh else credit

    def _challengers(self, current: _Round) -> Iterator[int]:
        """Entries that are owed something, most first."""
        urgency = [(self._urgency(entry, current), entry) for entry in range(len(self._credit)) if self._target[entry] > 0]
        for owed, entry in sorted(urgency, key=lambda item: (-item[0], item[1])):
            if owed > 0:
                yield entry

    def _advance(self, entry: int, current: _Round) -> bool:
        """Start one more run of an entry if it is owed one and somebody must yield to it."""
        paid = sum(1 for e in current.entry_of.values() if e == entry)
        owed = self._urgency(entry, current) - paid
        if owed <= 0:
            return False
        kind = int(self._kind[entry])
        members = self._choose_members(entry, owed, current, idle=current.free[kind] > 0)
        if members is None:
            return False
        workers = int(current.question.workers[members[0]])
        movers = {current.run_of[slot] for slot in members if slot in current.run_of}
        room = current.free[kind] + sum(run.workers for run in movers if run.type_index == kind)
        victims = self._victims(kind, workers - room, owed, current, spare=movers)
        if victims is None:
            return False
        for run in (*movers, *victims):
            current.stop(run)
        current.start(members, kind, entry)
        return True

    def _standing(self, run: Run, current: _Round) -> float:
        """What a run's entry will have after paying for all of its runs; guests stand lowest."""
        entry = current.entry_of[run]
        if entry == GUEST:
            return -self.patience
        return float(self._credit[entry]) - sum(1 for e in current.entry_of.values() if e == entry)

    def _victims(self, kind: int, needed: int, owed: float, current: _Round, spare: set[Run]) -> list[Run] | None:
        """Runs on a type that must yield to somebody who is owed this much; None if they are not enough."""
        if needed <= 0:
            return []
        candidates = sorted(
            (self._standing(run, current), run.workers, run.members, run)
            for run in current.entry_of
            if run.type_index == kind and run not in spare
        )
        chosen: list[Run] = []
        for standing, workers, _, run in candidates:
            if owed - standing <= self.patience:
                break
            chosen.append(run)
            needed -= workers
            if needed <= 0:
                return chosen
        return None

    def _choose_members(self, entry: int, owed: float, current: _Round, *, idle: bool) -> Members | None:
        """One job of each class of an entry: whoever waits and is furthest behind, else one that may move."""
        chosen: list[int] = []
        for number in (int(self._first[entry]), int(self._second[entry])):
            if number < 0:
                continue
            slot = self._candidate(number, owed, current, idle=idle, taken=chosen)
            if slot is None:
                return None
            chosen.append(slot)
        return tuple(chosen)

    def _candidate(self, number: int, owed: float, current: _Round, *, idle: bool, taken: list[int]) -> int | None:
        members = [slot for slot in self._members[number] if slot not in taken]
        waiting = [slot for slot in members if slot in current.waiting]
        if waiting:
            started = current.question.started
            return min(waiting, key=lambda slot: (bool(started[slot]), -self._lag.get(slot, 0.0), slot))
        gap = self.patience
        movable = [
            (self._standing(current.run_of[slot], current), slot)
            for slot in members
            if slot in current.run_of and len(current.run_of[slot].members) == 1
        ]
        if not movable:
            return None
        standing, slot = min(movable)
        return slot if owed - standing > gap else None

    def _seat_guests(self, current: _Round) -> None:
        """Give idle accelerators to whoever can use them; first to those who ran there a moment ago."""
        for run in list(current.stopped):
            free = current.free[run.type_index] >= run.workers
            if free and all(slot in current.waiting for slot in run.members):
                current.start(run.members, run.type_index, self._entry_of.get(run, GUEST))
        for slot, kind in offers(current.question, current.free, current.run_of):
            workers = int(current.question.workers[slot])
            if slot in current.waiting and workers <= current.free[kind]:
                entry = self._index.get((self._class_of.get(slot, -2), -1, kind), GUEST)
                current.start((slot,), kind, entry)

    def _pay(self, current: _Round) -> None:
        for entry in current.entry_of.values():
            if entry != GUEST:
                self._credit[entry] -= 1.0
