"""A round while credits plan it, and a plan that is kept for as long as nothing changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gavel.core.problem import Floats, Ints
from gavel.scheduler.entries import GUEST
from gavel.scheduler.rounds import Members, Question, Run, RunNumbers


@dataclass(slots=True)
class Draft:
    """A round while it is being planned."""

    question: Question
    credit: list[float]
    """By entry; does not change while the round is planned."""
    paid: list[int]
    """Runs by entry."""
    free: list[int]
    finishing: float
    """Runs that end within so many rounds neither yield nor move."""
    advances: list[int]
    """By type: how many more jobs that have never run may take somebody's place this round."""
    entry_of: dict[Run, int] = field(default_factory=dict)
    """Everything that runs."""
    run_of: dict[int, Run] = field(default_factory=dict)
    """By slot; whoever is not here waits."""
    homeless: list[int] = field(default_factory=list)
    """Slots of jobs that ran in the last round and lost their accelerators."""
    jobs: int = 0
    """Those that run and those that wait."""
    continued: list[tuple[Run, int]] = field(default_factory=list)
    """What runs since the last round, with its entry, as it was when this round began."""
    stopped: dict[tuple[Members, int], tuple[Run, int]] = field(default_factory=dict)
    guests: list[Run] = field(default_factory=list)
    """Runs that pay nothing; some may have been stopped meanwhile, which is harmless."""
    begun: set[Run] = field(default_factory=set)
    """Runs that this round has started: nobody takes their place again before the next."""
    yielding: dict[int, dict[int, deque[Run]]] = field(default_factory=dict)
    """By type and entry: runs that may have to yield; some have already. Made when first needed."""
    ranked: dict[int, list[tuple[float, deque[Run]]]] = field(default_factory=dict)
    """The same in order: those who are owed least come first. Made anew when somebody has started or stopped."""
    ending: dict[int, set[int]] = field(default_factory=dict)
    """By type: the slots of those who would finish there soon. Made when first needed."""
    weakest: list[float] = field(default_factory=list)
    """By class: the least that anyone of it stood at who ran when the round began."""
    queues: list[list[int]] | None = None
    """By class: who waits, whoever comes first at the end. Made when first needed."""

    def stop(self, run: Run) -> None:
        self.ranked.clear()
        entry = self.entry_of.pop(run)
        self.free[run.type_index] += run.workers
        if entry != GUEST:
            self.paid[entry] -= 1
        for slot in run.members:
            del self.run_of[slot]
        self.stopped[run.members, run.type_index] = run, entry

    def start(self, members: Members, kind: int, entry: int) -> None:
        # Whoever was stopped a moment ago and comes back to the same type has not moved at all.
        run, _ = self.stopped.pop((members, kind), (None, 0))
        run = run or Run(members, kind, int(self.question.workers[members[0]]))
        self.begun.add(run)
        self.ranked.clear()
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

    @property
    def waiting(self) -> int:
        """How many jobs do not run."""
        return self.jobs - len(self.run_of)

    def may_yield(self, run: Run) -> bool:
        return run in self.entry_of and run not in self.begun

    def may_move(self, run: Run) -> bool:
        return run not in self.begun and not self.is_ending(run)

    def is_ending(self, run: Run) -> bool:
        """Whether one of its jobs is about to finish."""
        return not self._ending_on(run.type_index).isdisjoint(run.members)

    def _ending_on(self, kind: int) -> set[int]:
        ending = self.ending.get(kind)
        if ending is None:
            left = self.question.rounds_left(kind)
            ending = self.ending[kind] = set((left <= self.finishing).nonzero()[0].tolist())
        return ending

    def on_type(self, kind: int) -> dict[int, deque[Run]]:
        """Runs of the last round on a type, by entry, except those that are about to end."""
        if kind not in self.yielding:
            found = self.yielding[kind] = {}
            goes_on = self._ending_on(kind).isdisjoint
            for run, entry in self.continued:
                if run.type_index == kind and goes_on(run.members):
                    found.setdefault(entry, deque()).append(run)
        return self.yielding[kind]


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """A plan that is kept for as long as nothing changes: most rounds are like the one before."""

    capacity: tuple[int, ...]
    runs: list[Run]
    waiting: int
    """How many do not run now."""
    free: tuple[int, ...]
    paid: Ints
    guests: tuple[Run, ...]
    pace: Floats

    @classmethod
    def of(cls, planned: Draft, pace: Floats) -> Settled:
        return cls(
            tuple(planned.question.capacity),
            list(planned.entry_of),
            planned.waiting,
            tuple(planned.free),
            np.array(planned.paid, dtype=np.intp),
            tuple(planned.guests),
            pace,
        )

    def still_holds(self, question: Question) -> bool:
        """Whether the same runs go on, on the same accelerators, and the same jobs wait."""
        same = question.running == self.runs and tuple(question.capacity) == self.capacity
        return same and len(question.waiting) == self.waiting


@dataclass(frozen=True, slots=True, eq=False)
class SettledState:
    """A settled plan as it is written down; runs by number."""

    capacity: tuple[int, ...]
    runs: tuple[int, ...]
    waiting: int
    free: tuple[int, ...]
    paid: Ints
    guests: tuple[int, ...]
    pace: Floats

    @classmethod
    def of(cls, settled: Settled, numbers: RunNumbers) -> SettledState:
        return cls(
            settled.capacity,
            tuple(map(numbers.of, settled.runs)),
            settled.waiting,
            settled.free,
            settled.paid,
            tuple(map(numbers.of, settled.guests)),
            settled.pace,
        )

    def restored(self, runs: Sequence[Run]) -> Settled:
        plan, guests = [runs[number] for number in self.runs], tuple(runs[number] for number in self.guests)
        return Settled(self.capacity, plan, self.waiting, self.free, self.paid, guests, self.pace)
