"""The restart-aware mechanism: every combo earns its share as credit, and runs go on until others are owed more.

Each round an entry, a (class combo, type), earns its target number of runs as credit and pays one for each run it has.
Who runs stays until somebody else's credit exceeds its own by `patience` rounds; then the one with most credit takes
its place. Within a class, the member that is furthest behind comes first, and trades places with the one that is
furthest ahead when `rotation` rounds lie between them. So what is received differs from the target by a bounded number
of rounds, for combos and for jobs, and jobs move rarely.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.plain import from_plain, plain_record
from gavel.core.problem import Bools, Floats, Ints
from gavel.scheduler.rounds import Members, Question, Run, RunNumbers, offers

GUEST = -1
"""The entry of a run on an accelerator that would be idle: it pays nothing and yields first."""
NOBODY = -1
NEWCOMERS = 8
"""At most one in so many accelerators goes to somebody new in a round: a long queue must not sweep all others away."""

EntryKey = tuple[int, int, int]
"""Class, second class or -1, type."""


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """What an allocation asks for, and what is owed."""

    first: Ints
    second: Ints
    kind: Ints
    target: Floats
    """Runs at once, on average."""
    speed: Floats
    """(entries, 2): steps per second of each member."""
    credit: Floats
    """Runs owed; changes every round."""
    index: dict[EntryKey, int] = field(init=False)

    def __post_init__(self) -> None:
        keys = zip(self.first.tolist(), self.second.tolist(), self.kind.tolist(), strict=True)
        object.__setattr__(self, "index", {key: number for number, key in enumerate(keys)})

    @classmethod
    def none(cls) -> Entries:
        ints, floats = np.empty(0, dtype=np.intp), np.empty(0)
        return cls(ints, ints, ints, floats, np.empty((0, 2)), floats)

    @classmethod
    def of(cls, allocation: Allocation, running: Iterable[EntryKey]) -> Entries:
        """Those of an allocation, the placements of a type taken together, and those of who runs anyway."""
        targets: dict[EntryKey, float] = {}
        speeds: dict[EntryKey, Floats] = {}
        kinds = allocation.problem.column_type.tolist()
        combo, column = np.nonzero(allocation.instances > 1e-9)
        for k, c in zip(combo.tolist(), column.tolist(), strict=True):
            first, second = allocation.combos[k].tolist()
            key = (first, second, kinds[c])
            targets[key] = targets.get(key, 0.0) + float(allocation.instances[k, c])
            speeds[key] = np.maximum(speeds.get(key, 0.0), allocation.rates[k, :, c])
        for first, second, kind in running:
            if (second, first, kind) not in targets:  # a pair may be listed either way round
                targets.setdefault((first, second, kind), 0.0)
        keys = np.array(list(targets), dtype=np.intp).reshape(len(targets), 3)
        return cls(
            keys[:, 0],
            keys[:, 1],
            keys[:, 2],
            np.fromiter(targets.values(), dtype=float, count=len(targets)),
            np.array([speeds.get(key, np.zeros(2)) for key in targets]).reshape(len(targets), 2),
            np.zeros(len(targets)),
        )


@dataclass(slots=True)
class _Round:
    """A round while it is being planned."""

    question: Question
    free: list[int]
    paid: Ints
    """Runs by entry."""
    waiting: set[int]
    advances: list[int]
    """By type: how many more jobs that have never run may take somebody's place this round."""
    entry_of: dict[Run, int] = field(default_factory=dict)
    """Everything that runs."""
    run_of: dict[int, Run] = field(default_factory=dict)
    """By slot."""
    stopped: dict[tuple[Members, int], tuple[Run, int]] = field(default_factory=dict)
    guests: list[Run] = field(default_factory=list)
    """Runs that pay nothing; some may have been stopped meanwhile, which is harmless."""
    begun: set[Run] = field(default_factory=set)
    """Runs that this round has started: nobody takes their place again before the next."""
    going_on: dict[tuple[int, int], list[Run]] = field(default_factory=dict)
    """Runs of the last round by (type, entry); some may have been stopped meanwhile."""
    queues: dict[int, list[tuple[int, float, int]]] = field(default_factory=dict)
    """By class: a heap of who waits, first who has never run, then who is furthest behind; made when first needed."""

    def stop(self, run: Run) -> None:
        entry = self.entry_of.pop(run)
        self.free[run.type_index] += run.workers
        if entry != GUEST:
            self.paid[entry] -= 1
        for slot in run.members:
            del self.run_of[slot]
            self.waiting.add(slot)
        self.stopped[run.members, run.type_index] = run, entry

    def start(self, members: Members, kind: int, entry: int) -> None:
        # Whoever was stopped a moment ago and comes back to the same type has not moved at all.
        run, _ = self.stopped.pop((members, kind), (None, 0))
        run = run or Run(members, kind, int(self.question.workers[members[0]]))
        self.begun.add(run)
        self.seat(run, entry)

    def seat(self, run: Run, entry: int) -> None:
        self.free[run.type_index] -= run.workers
        if entry != GUEST:
            self.paid[entry] += 1
        else:
            self.guests.append(run)
        self.entry_of[run] = entry
        for slot in run.members:
            self.run_of[slot] = run
            self.waiting.discard(slot)


@dataclass(frozen=True, slots=True, eq=False)
class _Settled:
    """A plan that is kept for as long as nothing changes: most rounds are like the one before."""

    round: _Round
    runs: list[Run]
    pace: Floats

    def still_holds(self, question: Question) -> bool:
        """Whether the same runs go on, on the same accelerators, and the same jobs wait."""
        before = self.round.question
        same = question.capacity == before.capacity and question.running == self.runs
        return same and len(question.waiting) == len(self.round.waiting)


@dataclass(frozen=True, slots=True, eq=False)
class _SettledState:
    """A settled plan as it is written down; runs by number."""

    capacity: tuple[int, ...]
    runs: tuple[int, ...]
    waited: Ints
    """Before the plan was made."""
    waiting: Ints
    free: tuple[int, ...]
    paid: Ints
    guests: tuple[int, ...]
    pace: Floats

    @classmethod
    def of(cls, settled: _Settled, numbers: RunNumbers) -> _SettledState:
        made = settled.round
        return cls(
            tuple(made.question.capacity),
            tuple(map(numbers.of, settled.runs)),
            made.question.waiting,
            np.array(sorted(made.waiting), dtype=np.intp),
            tuple(made.free),
            made.paid,
            tuple(map(numbers.of, made.guests)),
            settled.pace,
        )

    def restored(self, runs: Sequence[Run], question: Question) -> _Settled:
        asked = replace(question, capacity=list(self.capacity), running=[], waiting=self.waited)
        made = _Round(asked, list(self.free), self.paid, set(self.waiting.tolist()), advances=[])
        made.guests += [runs[number] for number in self.guests]
        return _Settled(made, [runs[number] for number in self.runs], self.pace)


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """What the mechanism writes down."""

    kind: Literal["credits"]
    entries: Entries
    lag: Floats
    members: tuple[tuple[int, ...], ...]
    class_rate: Floats
    entry_of: tuple[tuple[int, int], ...]
    """Runs by number, with the entry of each."""
    settled: _SettledState | None


class Credits:
    """Plans rounds by credit; see the module."""

    def __init__(self, *, patience: float = 8.0, rotation: float = 48.0) -> None:
        self.patience = patience
        self.rotation = rotation
        self.entries = Entries.none()
        self.lag: Floats = np.zeros(0)
        """By slot: rounds of its target throughput that a job is behind (or, negative, ahead)."""
        self._class_of: Ints = np.empty(0, dtype=np.intp)
        """By slot; NOBODY for slots that are not part of the allocation."""
        self._members: list[list[int]] = []
        self._class_rate: Floats = np.empty(0)
        self._entry_of: dict[Run, int] = {}
        """What ran in the last round."""
        self._settled: _Settled | None = None

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        self._settled = None
        before, old = self._class_of, self.entries
        here = slots >= 0
        size = max(int(slots.max(initial=-1)) + 1, len(self.lag))
        self.lag = np.concatenate([self.lag, np.zeros(size - len(self.lag))])
        self._class_of = np.full(size, NOBODY)
        self._class_of[slots[here]] = allocation.classes.of_job[here]
        self._members = [[] for _ in range(len(allocation.classes))]
        for slot, number in zip(slots[here].tolist(), allocation.classes.of_job[here].tolist(), strict=True):
            self._members[number].append(slot)
        self._class_rate = allocation.class_throughput
        known = {run: entry for run, entry in self._entry_of.items() if self._known(run)}
        running = [self._classes(run) for run, entry in known.items() if entry != GUEST]
        self.entries = Entries.of(allocation, running)
        self._carry_over(old, before)
        self._entry_of = {
            run: GUEST if entry == GUEST else self.entries.index[self._key(run)] for run, entry in known.items()
        }

    def _carry_over(self, old: Entries, before: Ints) -> None:
        """What a class was owed it is still owed: classes are recognised by their members."""
        was = [
            next((int(before[slot]) for slot in members if slot < len(before) and before[slot] != NOBODY), -2)
            for members in self._members
        ]
        for (first, second, kind), number in self.entries.index.items():
            one, other = was[first], was[second] if second >= 0 else -1
            found = old.index.get((one, other, kind), old.index.get((other, one, kind)))
            if found is not None:
                self.entries.credit[number] = old.credit[found]

    def _known(self, run: Run) -> bool:
        return all(slot < len(self._class_of) and self._class_of[slot] != NOBODY for slot in run.members)

    def _key(self, run: Run) -> EntryKey:
        """The entry of a run, whichever way round it lists the two classes."""
        first, second, kind = self._classes(run)
        return (second, first, kind) if (second, first, kind) in self.entries.index else (first, second, kind)

    def _classes(self, run: Run) -> EntryKey:
        second = int(self._class_of[run.members[1]]) if len(run.members) == 2 else -1
        return int(self._class_of[run.members[0]]), second, run.type_index

    def leave(self, slot: int) -> None:
        self._settled = None
        if slot < len(self._class_of) and self._class_of[slot] != NOBODY:
            self._members[self._class_of[slot]].remove(slot)
            self._class_of[slot] = NOBODY
            self.lag[slot] = 0.0
        for run in [run for run in self._entry_of if slot in run.members]:
            del self._entry_of[run]

    def dump(self, numbers: RunNumbers) -> dict[str, Any]:
        return plain_record(
            _State(
                "credits",
                self.entries,
                self.lag,
                tuple(map(tuple, self._members)),
                self._class_rate,
                tuple((numbers.of(run), entry) for run, entry in self._entry_of.items()),
                None if self._settled is None else _SettledState.of(self._settled, numbers),
            )
        )

    def restore(self, document: Any, runs: Sequence[Run], question: Question) -> None:
        state = from_plain(_State, document)
        self.entries, self.lag, self._class_rate = state.entries, state.lag, state.class_rate
        self._members = list(map(list, state.members))
        self._class_of = np.full(len(self.lag), NOBODY)
        for number, members in enumerate(self._members):
            self._class_of[members] = number
        self._entry_of = {runs[number]: entry for number, entry in state.entry_of}
        self._settled = None if state.settled is None else state.settled.restored(runs, question)

    def plan(self, question: Question) -> list[Run]:
        self.entries.credit[:] += self.entries.target
        settled = self._settled
        if settled is not None and settled.still_holds(question) and not self._anyone_owed(settled.round):
            self.entries.credit[:] -= settled.round.paid
            self.lag += settled.pace
            return settled.runs
        current = self._continue(question)
        for entry in self._challengers(current):
            while self._advance(entry, current):
                pass
        self._seat_guests(current)
        self._rotate(current)
        self.entries.credit[:] -= current.paid
        pace = self._pace(current)
        self.lag += pace
        self._entry_of = current.entry_of
        self._settled = _Settled(current, list(current.entry_of), pace)
        return self._settled.runs

    def _anyone_owed(self, current: _Round) -> bool:
        """Whether a new plan could differ from the last one, given that the same jobs wait and run."""
        if current.waiting and any(current.free):
            return True
        return bool(self._challengers(current, settled=True)) or self._spread_too_wide()

    def _continue(self, question: Question) -> _Round:
        """Begin with everyone who ran and still can."""
        paid = np.zeros(len(self.entries.credit), dtype=np.intp)
        advances = [max(count // NEWCOMERS, 1) for count in question.capacity]
        current = _Round(question, list(question.capacity), paid, set(question.waiting.tolist()), advances)
        for run in question.running:
            if run.workers <= current.free[run.type_index]:
                entry = self._entry_of.get(run, GUEST)
                current.seat(run, entry)
                current.going_on.setdefault((run.type_index, entry), []).append(run)
            else:
                current.waiting.update(run.members)
        return current

    def _challengers(self, current: _Round, *, settled: bool = False) -> list[int]:
        """Entries that are owed something and find room, or somebody who must yield; most urgent first.

        In a settled round nobody else will be stopped, so also somebody of the class must wait, or run where much less
        is owed.
        """
        entries, (waits, fresh) = self.entries, self._who_waits(current)
        urgency = entries.credit + np.where(fresh[entries.first] | fresh[entries.second], self.patience + 1.0, 0.0)
        owed = urgency - current.paid
        on_type, of_class = self._weakest(current)
        room = (np.asarray(current.free)[entries.kind] > 0) | (owed - on_type[entries.kind] > self.patience)
        hopeful = (owed > 0) & (entries.target > 0) & room
        if settled:
            served = waits[entries.first] | waits[entries.second]
            hopeful &= served | (owed - np.minimum(of_class[entries.first], of_class[entries.second]) > self.patience)
        chosen = np.flatnonzero(hopeful)
        return [int(entry) for entry in chosen[np.argsort(-urgency[chosen], kind="stable")]]

    def _who_waits(self, current: _Round) -> tuple[Bools, Bools]:
        """By class: whether somebody waits, and somebody who has never run; the last is "no second class"."""
        waits, fresh = np.zeros((2, len(self._members) + 1), dtype=bool)
        waiting = current.question.waiting
        waiting = waiting[waiting < len(self._class_of)]
        waiting = waiting[self._class_of[waiting] != NOBODY]
        waits[self._class_of[waiting]] = True
        fresh[self._class_of[waiting[current.question.started[waiting] == 0]]] = True
        return waits, fresh

    def _weakest(self, current: _Round) -> tuple[Floats, Floats]:
        """By type and by class: the least that anyone who runs stands at; the last class is "no second class"."""
        on_type, of_class = np.full(len(current.free), np.inf), np.full(len(self._members) + 1, np.inf)
        runs = current.paid > 0
        standing = (self.entries.credit - current.paid)[runs]
        np.minimum.at(on_type, self.entries.kind[runs], standing)
        np.minimum.at(of_class, self.entries.first[runs], standing)
        np.minimum.at(of_class, self.entries.second[runs], standing)
        of_class[-1] = np.inf
        for guest in current.guests:
            on_type[guest.type_index] = -self.patience
            for slot in guest.members:
                if slot < len(self._class_of) and self._class_of[slot] != NOBODY:
                    of_class[self._class_of[slot]] = -self.patience
        return on_type, of_class

    def _standing(self, run: Run, current: _Round) -> float:
        """What a run's entry has left after paying for all of its runs; guests stand lowest."""
        return self._entry_standing(current.entry_of[run], current)

    def _entry_standing(self, entry: int, current: _Round) -> float:
        return -self.patience if entry == GUEST else float(self.entries.credit[entry]) - int(current.paid[entry])

    def _advance(self, entry: int, current: _Round) -> bool:
        """Start one more run of an entry if it is owed one and there is room, or somebody must yield."""
        classes = [int(c) for c in (self.entries.first[entry], self.entries.second[entry]) if c >= 0]
        owed = float(self.entries.credit[entry]) - int(current.paid[entry])
        members = self._choose_members(classes, owed, current)
        if members is None:
            return False
        kind = int(self.entries.kind[entry])
        fresh = any(current.question.started[slot] == 0 for slot in members)
        if fresh and (current.free[kind] > 0 or current.advances[kind] > 0):
            owed += self.patience + 1.0
        if owed <= 0:
            return False
        movers = {current.run_of[slot] for slot in members if slot in current.run_of}
        room = current.free[kind] + sum(run.workers for run in movers if run.type_index == kind)
        victims = self._victims(kind, int(current.question.workers[members[0]]) - room, owed, current, spare=movers)
        if victims is None:
            return False
        current.advances[kind] -= bool(fresh and victims)
        for run in (*movers, *victims):
            self._stop(run, current)
        current.start(members, kind, entry)
        return True

    def _victims(self, kind: int, needed: int, owed: float, current: _Round, *, spare: set[Run]) -> list[Run] | None:
        """Runs on a type that must yield to somebody who is owed this much; None if they are not enough."""
        chosen: list[Run] = []
        if needed <= 0:
            return chosen
        for standing, runs in sorted(self._standings(kind, current), key=lambda item: item[0]):
            if owed - standing <= self.patience:
                break
            for run in runs:
                if run in current.entry_of and run not in current.begun and run not in spare:
                    chosen.append(run)
                    needed -= run.workers
                    if needed <= 0:
                        return chosen
        return None

    def _standings(self, kind: int, current: _Round) -> list[tuple[float, list[Run]]]:
        """The entries with runs on a type that go on from the last round: where they stand, and those runs."""
        return [
            (self._entry_standing(entry, current), runs) for (at, entry), runs in current.going_on.items() if at == kind
        ]

    def _choose_members(self, classes: list[int], owed: float, current: _Round) -> Members | None:
        """One job of each class: whoever waits and is furthest behind, else one that may move."""
        chosen: list[int] = []
        for number in classes:
            slot = self._candidate(number, owed, current, chosen)
            if slot is None:
                return None
            chosen.append(slot)
        return tuple(chosen)

    def _candidate(self, number: int, owed: float, current: _Round, taken: list[int]) -> int | None:
        queue = self._queue(number, current)
        skipped = []
        while queue and (queue[0][2] not in current.waiting or queue[0][2] in taken):
            top = heapq.heappop(queue)
            if top[2] in taken:
                skipped.append(top)
        for top in skipped:
            heapq.heappush(queue, top)
        if queue and queue[0][2] not in taken:
            return queue[0][2]
        movable = [
            (self._standing(run, current), slot)
            for slot in self._members[number]
            if slot not in taken
            and (run := current.run_of.get(slot)) is not None
            and len(run.members) == 1
            and run not in current.begun
        ]
        standing, slot = min(movable, default=(np.inf, NOBODY))
        return slot if owed - standing > self.patience else None

    def _queue(self, number: int, current: _Round) -> list[tuple[int, float, int]]:
        if number not in current.queues:
            started = current.question.started
            queue = [
                (int(started[slot]), -float(self.lag[slot]), slot)
                for slot in self._members[number]
                if slot in current.waiting
            ]
            heapq.heapify(queue)
            current.queues[number] = queue
        return current.queues[number]

    def _stop(self, run: Run, current: _Round) -> None:
        current.stop(run)
        for slot in run.members:
            number = int(self._class_of[slot]) if slot < len(self._class_of) else NOBODY
            if number in current.queues:
                entry = (int(current.question.started[slot]), -float(self.lag[slot]), slot)
                heapq.heappush(current.queues[number], entry)

    def _seat_guests(self, current: _Round) -> None:
        """Give idle accelerators to whoever can use them; first to those who ran there a moment ago."""
        for run, entry in list(current.stopped.values()):
            fits = run.workers <= current.free[run.type_index]
            if fits and all(slot in current.waiting for slot in run.members):
                current.start(run.members, run.type_index, entry)
        if not current.waiting or not any(current.free):
            return
        for slot, kind in offers(current.question, current.free, current.run_of):
            if slot in current.waiting and int(current.question.workers[slot]) <= current.free[kind]:
                number = int(self._class_of[slot]) if slot < len(self._class_of) else NOBODY
                current.start((slot,), kind, self.entries.index.get((number, -1, kind), GUEST))

    def _rotate(self, current: _Round) -> None:
        """Let the members of a class trade places when one is too far ahead of another."""
        for number in self._uneven_classes():
            members = sorted(self._members[number], key=lambda slot: float(self.lag[slot]))
            self._trade(members[0], members[-1], current)

    def _uneven_classes(self) -> list[int]:
        slots = np.flatnonzero(self._class_of != NOBODY)
        numbers = self._class_of[slots]
        behind, ahead = np.full(len(self._members), -np.inf), np.full(len(self._members), np.inf)
        np.maximum.at(behind, numbers, self.lag[slots])
        np.minimum.at(ahead, numbers, self.lag[slots])
        return np.flatnonzero(behind - ahead > self.rotation).tolist()

    def _spread_too_wide(self) -> bool:
        return float(np.ptp(self.lag)) > self.rotation and bool(self._uneven_classes()) if len(self.lag) else False

    def _trade(self, ahead: int, behind: int, current: _Round) -> None:
        """Swap two jobs' runs, if the one that is ahead has the faster one and both run alone or not at all."""
        better, worse = current.run_of.get(ahead), current.run_of.get(behind)
        if better is None or len(better.members) > 1 or (worse is not None and len(worse.members) > 1):
            return
        rates = current.question.rates[ahead]
        if worse is not None and rates[better.type_index] <= rates[worse.type_index]:
            return
        entry = current.entry_of[better]
        other = current.entry_of[worse] if worse is not None else GUEST
        current.stop(better)
        if worse is not None:
            current.stop(worse)
            current.start((ahead,), worse.type_index, other)
        current.start((behind,), better.type_index, entry)

    def _pace(self, current: _Round) -> Floats:
        """By slot: how much further behind a job falls in a round like this."""
        known = self._class_of != NOBODY
        pace = np.zeros(len(self.lag))
        pace[known] = self._class_rate[self._class_of[known]] > 0
        for run, entry in current.entry_of.items():
            for position, slot in enumerate(run.members):
                if slot < len(self._class_of) and self._class_of[slot] != NOBODY:
                    rate = float(self._class_rate[self._class_of[slot]])
                    alone = float(current.question.rates[slot, run.type_index])
                    speed = float(self.entries.speed[entry, position]) if entry != GUEST else alone
                    if rate > 0:
                        pace[slot] -= (speed or alone) / rate
        return pace
