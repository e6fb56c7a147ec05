"""The restart-aware mechanism: every combo earns its share as credit, and runs go on until others are owed more.

Each round an entry, a (class combo, type), earns its target number of runs as credit and pays one for each run it has.
Who runs stays until somebody else's credit exceeds its own by `patience` rounds; then the one with most credit takes
its place. Within a class, the member that is furthest behind comes first, and trades places with the one that is
furthest ahead when `rotation` rounds lie between them. Whoever is about to finish is left to do so. So what is
received differs from the target by a bounded number of rounds, for combos and for jobs, and jobs move rarely.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.plain import from_plain, plain_record
from gavel.core.problem import Bools, Floats, Ints
from gavel.scheduler.draft import Draft, Settled, SettledState
from gavel.scheduler.entries import GUEST, NOBODY, Entries, EntryKey
from gavel.scheduler.rounds import Members, Question, Run, RunNumbers, offers, prices

NEWCOMERS = 8
"""At most one in so many accelerators goes to somebody new in a round: a long queue must not sweep all others away."""

PATIENT_SECONDS = 5040.0
"""Nobody is asked for more patience than this, or than one round: with long rounds a restart is less of a waste."""


LONG_CALM = 1000
"""Rounds after which everyone is looked at even if nothing drifts."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waits:
    """By class, the last being "no second class"."""

    anyone: Bools
    """Whether somebody waits."""
    newcomer: Bools
    """Whether somebody waits who has never run."""


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
    settled: SettledState | None
    prices: Floats | None


class Credits:
    """Plans rounds by credit; see the module."""

    def __init__(
        self,
        *,
        patience: float = 14.0,
        rotation: float = 48.0,
        moving: float = 2.0,
        finishing: float = 2.0,
        thrifty: bool = False,
    ) -> None:
        self.longest_patience = patience
        self.patience = patience
        """In rounds; less where rounds are long."""
        self.rotation = rotation
        self.moving = moving
        """Who runs anyway moves to another type only for so many times the patience: it gains little by it."""
        self.finishing = finishing
        """Runs that end within so many times the patience neither yield nor move: it would cost a restart."""
        self.thrifty = thrifty
        self.entries = Entries.none()
        self.lag: Floats = np.zeros(0)
        """By slot: rounds of its target throughput that a job is behind (or, negative, ahead)."""
        self._class_of: Ints = np.empty(0, dtype=np.intp)
        """By slot; NOBODY for slots that are not part of the allocation."""
        self._members: list[list[int]] = []
        self._class_rate: Floats = np.empty(0)
        self._entry_of: dict[Run, int] = {}
        """What ran in the last round."""
        self._settled: Settled | None = None
        self._calm = 0
        """For so many rounds like the last one nobody needs to be looked at: they cannot come to be owed enough."""
        self._prices: Floats | None = None

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        self._settled = None
        self._prices = prices(allocation.problem) if self.thrifty else None
        self._cover(int(slots.max(initial=-1)) + 1)
        here = slots >= 0
        slots, classes = slots[here], allocation.classes.of_job[here]
        before, old = self._class_of, self.entries
        self._class_of = np.full(len(before), NOBODY)
        self._class_of[slots] = classes
        self._members = _in_groups(slots, classes, len(allocation.classes))
        self._class_rate = allocation.class_throughput
        known = self._classes_of_runs()
        self.entries = Entries.of(allocation, (key for key in known.values() if key is not None))
        self._carry_over(old, _first_in_groups(before[slots], classes, len(allocation.classes)))
        self._entry_of = {run: GUEST if key is None else self.entries.number(key) for run, key in known.items()}

    def _cover(self, size: int) -> None:
        """Make room for slots that are new."""
        more = size - len(self.lag)
        if more > 0:
            self.lag = np.concatenate([self.lag, np.zeros(more)])
            self._class_of = np.concatenate([self._class_of, np.full(more, NOBODY)])

    def _classes_of_runs(self) -> dict[Run, EntryKey | None]:
        """What ran in the last round, if all of its jobs are part of the allocation; None for guests."""
        class_of = self._class_of.tolist()
        found: dict[Run, EntryKey | None] = {}
        for run, entry in self._entry_of.items():
            members = run.members
            first, last = class_of[members[0]], class_of[members[-1]]
            if NOBODY not in (first, last):
                second = last if len(members) == 2 else NOBODY
                found[run] = None if entry == GUEST else (first, second, run.type_index)
        return found

    def _carry_over(self, old: Entries, was: list[int]) -> None:
        """What a class was owed it is still owed; `was` is each class's number before.

        Gangs that do not pack are owed ever more, all of them alike. Whoever is new begins where they are.
        """
        was.append(NOBODY)  # no second class is still none
        usual = old.usual_credit()
        for number, (first, second, kind) in enumerate(self.entries.keys):
            one, other = was[first], was[second]
            found = old.index.get((one, other, kind), old.index.get((other, one, kind)))
            self.entries.credit[number] = usual.get(kind, 0.0) if found is None else old.credit[found]

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
                None if self._settled is None else SettledState.of(self._settled, numbers),
                self._prices,
            )
        )

    def restore(self, document: Any, runs: Sequence[Run]) -> None:
        state = from_plain(_State, document)
        self.entries, self.lag, self._class_rate = state.entries, state.lag, state.class_rate
        self._prices = state.prices
        self._members = list(map(list, state.members))
        self._class_of = np.full(len(self.lag), NOBODY)
        for number, members in enumerate(self._members):
            self._class_of[members] = number
        self._entry_of = {runs[number]: entry for number, entry in state.entry_of}
        self._settled = None if state.settled is None else state.settled.restored(runs)

    def plan(self, question: Question) -> list[Run]:
        self.patience = min(self.longest_patience, max(PATIENT_SECONDS / question.round_seconds, 1.0))
        self.entries.credit[:] += self.entries.target
        settled = self._settled
        if settled is None or not settled.still_holds(question):
            settled = self._settled = self._replan(question)
        elif self._calm:
            self._calm -= 1
        elif self._anyone_owed(settled, question):
            settled = self._settled = self._replan(question)
        else:
            self._calm = self._calm_rounds(settled)
        self.entries.credit[:] -= settled.paid
        self.lag += settled.pace
        return settled.runs

    def _replan(self, question: Question) -> Settled:
        current = self._continue(question)
        while self._advance_all(current) and current.waiting and any(current.free):
            pass  # whoever moved has left room, perhaps to somebody who is owed it
        self._seat_guests(current)
        self._rotate(current)
        self._entry_of = current.entry_of
        self._calm = 0
        return Settled.of(current, self._pace(current))

    def _advance_all(self, current: Draft) -> int:
        """Let everyone start who is owed something, most urgent first; returns how many did."""
        paid, waits = np.array(current.paid, dtype=np.intp), self._who_waits(current.question)
        began = len(current.begun)
        for entry in self._challengers(current.free, paid, current.guests, waits):
            first = self.entries.keys[entry][0]
            while self._has_candidate(first, self._standing(entry, current), current) and self._advance(entry, current):
                pass
        return len(current.begun) - began

    def _anyone_owed(self, settled: Settled, question: Question) -> bool:
        """Whether a new plan could differ from the last one, given that the same jobs wait and run."""
        if (settled.waiting and any(settled.free)) or self._uneven_classes():
            return True
        waits = self._who_waits(question)
        return bool(self._challengers(settled.free, settled.paid, settled.guests, waits, settled=True))

    def _calm_rounds(self, settled: Settled) -> int:
        """For how many rounds like this one nobody moves or trades, at least: standings and lags drift steadily."""
        if settled.waiting:
            return 0
        apart, parting = self._above_weakest(settled)
        uneven, spreading = self._spread_in_classes(settled.pace)
        room = np.concatenate([self.moving * self.patience - apart, self.rotation - uneven])
        speed = np.concatenate([parting, spreading])
        closing = speed > 0
        rounds = (room[closing] / speed[closing]).min(initial=LONG_CALM)
        return max(int(rounds) - 1, 0)

    def _above_weakest(self, settled: Settled) -> tuple[Floats, Floats]:
        """By entry with a target: how far it stands above the weakest of its classes, and by how much a round more."""
        entries = self.entries
        meant = entries.target > 0
        standing, drift = entries.credit - settled.paid, entries.target - settled.paid
        weakest = self._weakest_of_class(settled.paid, settled.guests)
        sinking = self._least_of_class(drift, settled.paid)
        if settled.guests:  # what they stand at stays
            np.minimum.at(sinking, self._classes_of_guests(settled.guests), 0.0)
        first, second = entries.first[meant], entries.second[meant]
        apart = standing[meant] - np.minimum(weakest[first], weakest[second])
        return apart, drift[meant] - np.minimum(sinking[first], sinking[second])

    def _spread_in_classes(self, pace: Floats) -> tuple[Floats, Floats]:
        """By class: how far its members' lags lie apart, and by how much a round more."""
        slots = np.flatnonzero(self._class_of != NOBODY)
        numbers = self._class_of[slots]
        return self._spread(self.lag[slots], numbers), self._spread(pace[slots], numbers)

    def _spread(self, values: Floats, numbers: Ints) -> Floats:
        """By class: the largest value less the smallest; -inf where it has no members."""
        most, least = np.full(len(self._members), -np.inf), np.full(len(self._members), np.inf)
        np.maximum.at(most, numbers, values)
        np.minimum.at(least, numbers, values)
        return np.asarray(most - least)

    def _continue(self, question: Question) -> Draft:
        """Begin with everyone who ran and still can."""
        self._cover(len(question.workers))
        credit = self.entries.credit.tolist()
        advances = [max(count // NEWCOMERS, 1) for count in question.capacity]
        current = Draft(
            question, credit, [0] * len(credit), list(question.capacity), self.finishing * self.patience, advances
        )
        for run in question.running:
            if run.workers <= current.free[run.type_index]:
                current.seat(run, self._entry_of.get(run, GUEST))
            else:
                current.homeless += run.members
        current.continued = list(current.entry_of.items())
        paid = np.array(current.paid, dtype=np.intp)
        current.weakest = self._weakest_of_class(paid, current.guests).tolist()
        current.jobs = len(current.run_of) + len(current.homeless) + len(question.waiting)
        return current

    def _challengers(
        self, free: Sequence[int], paid: Ints, guests: Sequence[Run], waits: _Waits, *, settled: bool = False
    ) -> list[int]:
        """Entries that are owed something and find room, or somebody who must yield; most urgent first.

        In a settled round nobody else will be stopped, so also somebody of the class must wait, or run where much less
        is owed.
        """
        entries, urgency = self.entries, self.entries.credit
        if waits.newcomer.any():
            fresh = waits.newcomer[entries.first] | waits.newcomer[entries.second]
            urgency = urgency + np.where(fresh, self.patience + 1.0, 0.0)
        owed = urgency - paid
        on_type = self._weakest_on_type(paid, guests, len(free))
        room = (np.asarray(free)[entries.kind] > 0) | (owed - on_type[entries.kind] > self.patience)
        hopeful = (owed > 0) & (entries.target > 0) & room
        if settled and hopeful.any():
            of_class = self._weakest_of_class(paid, guests)
            served = waits.anyone[entries.first] | waits.anyone[entries.second]
            weakest = np.minimum(of_class[entries.first], of_class[entries.second])
            hopeful &= served | (owed - weakest > self.moving * self.patience)
        chosen = hopeful.nonzero()[0]
        ordered: list[int] = chosen[np.argsort(-urgency[chosen], kind="stable")].tolist()
        return ordered

    def _who_waits(self, question: Question) -> _Waits:
        anyone, newcomer = np.zeros((2, len(self._members) + 1), dtype=bool)
        if len(question.waiting):
            number = self._class_of[question.waiting]
            anyone[number] = True
            newcomer[number[question.started[question.waiting] == 0]] = True
            anyone[NOBODY] = newcomer[NOBODY] = False  # also whoever is not part of the allocation
        return _Waits(anyone, newcomer)

    def _weakest_on_type(self, paid: Ints, guests: Sequence[Run], types: int) -> Floats:
        """The least that anyone who runs there stands at."""
        weakest, runs = np.full(types, np.inf), paid > 0
        np.minimum.at(weakest, self.entries.kind[runs], (self.entries.credit - paid)[runs])
        if guests:
            weakest[[guest.type_index for guest in guests]] = -self.patience
        return weakest

    def _weakest_of_class(self, paid: Ints, guests: Sequence[Run]) -> Floats:
        """The least that anyone of a class who runs stands at; the last is "no second class"."""
        weakest = self._least_of_class(self.entries.credit - paid, paid)
        if guests:
            weakest[self._classes_of_guests(guests)] = -self.patience
            weakest[NOBODY] = np.inf
        return weakest

    def _least_of_class(self, values: Floats, paid: Ints) -> Floats:
        """The least value of a class's entries that run, infinite where none does; the last is "no second class"."""
        least, runs = np.full(len(self._members) + 1, np.inf), paid > 0
        np.minimum.at(least, self.entries.first[runs], values[runs])
        np.minimum.at(least, self.entries.second[runs], values[runs])
        least[NOBODY] = np.inf
        return least

    def _classes_of_guests(self, guests: Sequence[Run]) -> Ints:
        return self._class_of[[slot for guest in guests for slot in guest.members]]

    def _standing(self, entry: int, current: Draft) -> float:
        """What an entry has left after paying for all of its runs; guests stand lowest."""
        return -self.patience if entry == GUEST else current.credit[entry] - current.paid[entry]

    def _advance(self, entry: int, current: Draft) -> bool:
        """Start one more run of an entry if it is owed one and there is room, or somebody must yield."""
        first, second, kind = self.entries.keys[entry]
        owed = self._standing(entry, current)
        members = self._choose_members((first,) if second == NOBODY else (first, second), owed, current)
        if members is None:
            return False
        fresh = 0 in [current.question.started[slot] for slot in members]
        if fresh and (current.free[kind] > 0 or current.advances[kind] > 0):
            owed += self.patience + 1.0
        if owed <= 0:
            return False
        movers = {current.run_of[slot] for slot in members if slot in current.run_of}
        room = current.free[kind] + sum([run.workers for run in movers if run.type_index == kind])
        victims = self._victims(kind, int(current.question.workers[members[0]]) - room, owed, current, spare=movers)
        if victims is None:
            return False
        current.advances[kind] -= bool(fresh and victims)
        for run in (*movers, *victims):
            self._stop(run, current)
        current.start(members, kind, entry)
        return True

    def _victims(self, kind: int, needed: int, owed: float, current: Draft, *, spare: set[Run]) -> list[Run] | None:
        """Runs on a type that must yield to somebody who is owed this much; None if they are not enough."""
        if needed <= 0:
            return []
        able: list[Run] = []
        for standing, runs in self._ranked(kind, current):
            if owed - standing <= self.patience:
                break
            while runs and not current.may_yield(runs[0]):
                runs.popleft()
            for run in runs:
                if current.may_yield(run) and run not in spare:
                    if run.workers == needed:
                        return [run]  # no fewer would do, and nobody before it fits as well
                    able.append(run)
        return fewest(able, needed) if able else None

    def _ranked(self, kind: int, current: Draft) -> list[tuple[float, deque[Run]]]:
        """Who might yield on a type, by what they stand at."""
        if kind not in current.ranked:
            standings = [(self._standing(entry, current), runs) for entry, runs in current.on_type(kind).items()]
            current.ranked[kind] = sorted(standings, key=itemgetter(0))
        return current.ranked[kind]

    def _choose_members(self, classes: Sequence[int], owed: float, current: Draft) -> Members | None:
        """One job of each class: whoever waits and is furthest behind, else one that may move."""
        chosen: list[int] = []
        for number in classes:
            slot = self._candidate(number, owed, current, chosen)
            if slot is None:
                return None
            chosen.append(slot)
        return tuple(chosen)

    def _has_candidate(self, number: int, owed: float, current: Draft) -> bool:
        """Whether a class may have somebody to start: one that waits, or one that runs where much less is owed."""
        if self._queues(current)[number]:
            return True
        # Every run that began since has lowered what an entry stands at by one at most.
        return owed - current.weakest[number] + len(current.begun) > self.moving * self.patience

    def _candidate(self, number: int, owed: float, current: Draft, taken: list[int]) -> int | None:
        queue = self._queues(current)[number]
        while queue and queue[-1] in current.run_of:
            queue.pop()
        if queue and queue[-1] not in taken:
            return queue[-1]
        if not self._has_candidate(number, owed, current):
            return None
        margin = self.moving * self.patience
        movable = [
            (self._standing(current.entry_of[run], current), slot)
            for slot in self._members[number]
            if slot not in taken and (run := current.run_of.get(slot)) is not None and current.may_move(run)
        ]
        standing, slot = min(movable, default=(np.inf, NOBODY))
        return slot if owed - standing > margin else None

    def _queues(self, current: Draft) -> list[list[int]]:
        """By class, who waits: whoever is furthest behind comes last, and after all others whoever has never run."""
        if current.queues is None:
            slots = current.question.waiting
            if current.homeless:
                slots = np.concatenate([slots, current.homeless])
            slots = slots[self._class_of[slots] != NOBODY]
            if len(slots) > 1:
                slots = slots[np.lexsort((-slots, self.lag[slots], -current.question.started[slots]))]
            current.queues = _in_groups(slots, self._class_of[slots], len(self._members))
        return current.queues

    def _stop(self, run: Run, current: Draft) -> None:
        """Stop a run, and let its jobs wait in line with the others of their class."""
        current.stop(run)
        started, lag = current.question.started, self.lag
        for slot in run.members:
            number = int(self._class_of[slot])
            if number != NOBODY:
                insort(self._queues(current)[number], slot, key=lambda other: (-started[other], lag[other], -other))

    def _seat_guests(self, current: Draft) -> None:
        """Give idle accelerators to whoever can use them; first to those who ran there a moment ago."""
        for run, entry in list(current.stopped.values()):
            if run.workers <= current.free[run.type_index] and current.run_of.keys().isdisjoint(run.members):
                current.start(run.members, run.type_index, entry)
        if not any(current.free) or not current.waiting:
            return
        for slot, kind in offers(current.question, current.free, current.run_of, self._prices):
            if slot not in current.run_of and int(current.question.workers[slot]) <= current.free[kind]:
                number = int(self._class_of[slot])
                current.start((slot,), kind, self.entries.index.get((number, NOBODY, kind), GUEST))

    def _rotate(self, current: Draft) -> None:
        """Let the members of a class trade places when one is too far ahead of another."""
        for number in self._uneven_classes():
            members = self._members[number]
            lag = self.lag[members]
            last_behind = len(members) - 1 - int(lag[::-1].argmax())
            self._trade(members[int(lag.argmin())], members[last_behind], current)

    def _uneven_classes(self) -> list[int]:
        if not len(self.lag) or float(self.lag.max() - self.lag.min()) <= self.rotation:
            return []
        slots = np.flatnonzero(self._class_of != NOBODY)
        return np.flatnonzero(self._spread(self.lag[slots], self._class_of[slots]) > self.rotation).tolist()

    def _trade(self, ahead: int, behind: int, current: Draft) -> None:
        """Swap two jobs' runs, if the one that is ahead has the faster one and both run alone or not at all."""
        better, worse = current.run_of.get(ahead), current.run_of.get(behind)
        if better is None or len(better.members) > 1 or (worse is not None and len(worse.members) > 1):
            return
        if current.is_ending(better):
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

    def _pace(self, current: Draft) -> Floats:
        """By slot: how much further behind a job falls in a round like this."""
        rates = np.append(self._class_rate, 0.0)  # nothing is meant for whoever is not part of the allocation
        pace = (rates > 0)[self._class_of].astype(float)
        meant, speed, class_of = rates.tolist(), self.entries.speed.tolist(), self._class_of.tolist()
        slots, made = [], []
        for run, entry in current.entry_of.items():
            for position, slot in enumerate(run.members):
                rate = meant[class_of[slot]]
                if rate > 0:
                    steps = speed[entry][position] if entry != GUEST else 0.0
                    slots.append(slot)
                    made.append((steps or float(current.question.rates[slot, run.type_index])) / rate)
        pace[slots] -= made
        return pace


def fewest(runs: list[Run], needed: int) -> list[Run] | None:
    """As few runs as possible with so many workers, of equals those that come first; None if all are not enough."""
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
        needed += chosen.pop().workers  # the last one makes room for both
    return [*chosen, last]


def _in_groups(slots: Ints, group: Ints, groups: int) -> list[list[int]]:
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
