"""The scheduler's active jobs, as one array per attribute, so that a round can handle all jobs in array operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from typing import Any, cast, get_type_hints

import numpy as np

from gavel.core.jobs import JobSpec
from gavel.core.problem import Floats, Ints
from gavel.core.serialization import from_plain, read_items, to_plain

FEW_CHANGES = 16
"""If more jobs than this started or left, recomputing the waiting jobs is faster than updating them."""


@dataclass(slots=True)
class Roster:
    """Active jobs by slot. The slot of a job that leaves is used again."""

    types: int
    ids: list[str | None] = field(default_factory=list)
    slot_of: dict[str, int] = field(default_factory=dict)
    spare: list[int] = field(default_factory=list)
    profile: Ints = field(default_factory=lambda: np.empty(0, np.intp))
    workers: Ints = field(default_factory=lambda: np.empty(0, np.intp))
    weight: Floats = field(default_factory=lambda: np.empty(0))
    steps: Floats = field(default_factory=lambda: np.empty(0))
    """Steps left."""
    arrival: Floats = field(default_factory=lambda: np.empty(0))
    deadline: Floats = field(default_factory=lambda: np.empty(0))
    """The time by which the job should be done; infinite without a deadline."""
    entity: Ints = field(default_factory=lambda: np.empty(0, np.intp))
    isolated_age: Floats = field(default_factory=lambda: np.empty(0))
    """Seconds that the job's steps so far would have taken with 1/n of the cluster."""
    counted: Floats = field(default_factory=lambda: np.empty(0))
    """Steps left when `isolated_age` was last updated."""
    started: Ints = field(default_factory=lambda: np.empty(0, np.intp))
    """1 once the job has run, else 0."""
    launched: Floats = field(default_factory=lambda: np.empty(0))
    """When the job was last launched."""
    heard: Floats = field(default_factory=lambda: np.empty(0))
    """When the job last reported its steps, or was launched."""
    running_on: Ints = field(default_factory=lambda: np.empty(0, np.intp))
    """1 + the type that the job runs on; 0 while it does not run, and for unused slots."""
    restarts: Ints = field(default_factory=lambda: np.empty(0, np.intp))
    """The number of launches after the first."""
    rates: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """By slot and type: steps per second alone."""
    received: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """By slot and type: seconds received."""
    _active: Ints | None = None
    _named: tuple[Sequence[str], Ints] | None = None
    """The ids that were last asked for and their slots, while no job came or left."""
    _waiting: Ints | None = None
    _stale: dict[int, None] = field(default_factory=dict)
    """Slots whose jobs started, stopped or left since `_waiting` was computed."""
    _rate_here: Floats | None = None
    _receiving: Floats | None = None
    """By slot and type: 1 where `received` grows, else 0."""
    _scratch: Floats | None = None
    """A buffer of the size of `received`; its contents do not matter."""

    def __len__(self) -> int:
        return len(self.slot_of)

    def __contains__(self, job: str) -> bool:
        return job in self.slot_of

    @property
    def active(self) -> Ints:
        """The slots in use; in order of submission, except where a slot is used again."""
        if self._active is None:
            self._active = np.fromiter(self.slot_of.values(), dtype=np.intp, count=len(self.slot_of))
        return self._active

    @property
    def waiting(self) -> Ints:
        """The active slots whose jobs do not run, in the same order."""
        waiting = self._still_waiting()
        if waiting is None:
            waiting = self.active[self.running_on[self.active] == 0]
        self._waiting = waiting
        self._stale.clear()
        return waiting

    def _still_waiting(self) -> Ints | None:
        """The jobs that waited before and have not started or left since; None if other jobs may wait, too."""
        waiting, slots = self._waiting, self._stale
        if waiting is None or len(slots) > FEW_CHANGES:
            return None
        if any(self.ids[slot] and not self.running_on[slot] for slot in slots):
            return None
        for slot in slots:
            waiting = waiting[waiting != slot]
        return waiting

    @property
    def rate_here(self) -> Floats:
        """By slot: steps per second alone on the type that a job runs on; 0 while it does not run."""
        if self._rate_here is None:
            running = self.running_on.nonzero()[0]
            self._rate_here = np.zeros(len(self.ids))
            self._rate_here[running] = self.rates[running, self.running_on[running] - 1]
        return self._rate_here

    def set_rates(self, slots: Ints, rates: Floats) -> None:
        """Set the rates of these jobs."""
        self.rates[slots] = rates
        self._rate_here = None

    def name(self, slot: int) -> str:
        """The id of an active job."""
        name = self.ids[slot]
        assert name is not None  # noqa: S101 - slots in use have an id
        return name

    def slots_of(self, jobs: Sequence[str]) -> Ints:
        """The slots of jobs; -1 for those that have left."""
        if self._named is not None and self._named[0] is jobs:
            return self._named[1]
        return np.fromiter(map(self.slot_of.get, jobs, repeat(-1)), dtype=np.intp, count=len(jobs))

    def names(self, slots: Ints) -> Sequence[str]:
        """The ids of jobs by slot."""
        names = tuple(map(cast("list[str]", self.ids).__getitem__, slots.tolist()))  # slots in use have an id
        self._named = names, slots
        return names

    def add(self, job: JobSpec, time: float, profile: int, entity: int, rates: Floats) -> int:
        """Add a job and return its slot."""
        if not self.spare:
            self._grow()
        slot = self.spare.pop()
        self.ids[slot] = job.id
        self.slot_of[job.id] = slot
        self._active = self._named = None
        self._queue(slot)
        self.profile[slot], self.workers[slot], self.weight[slot] = profile, job.workers, job.weight
        self.steps[slot] = self.counted[slot] = job.steps
        self.arrival[slot] = time
        self.deadline[slot] = np.inf if job.deadline_seconds is None else time + job.deadline_seconds
        self.entity[slot], self.isolated_age[slot] = entity, 0.0
        self.started[slot] = self.restarts[slot] = 0
        self.launched[slot] = self.heard[slot] = time
        self.rates[slot], self.received[slot] = rates, 0.0
        return slot

    def revise(self, slot: int, job: JobSpec, steps_left: float) -> None:
        """Take over the weight, steps and deadline of a job that was edited."""
        self.weight[slot] = job.weight
        self.deadline[slot] = np.inf if job.deadline_seconds is None else self.arrival[slot] + job.deadline_seconds
        if np.isnan(self.steps[slot]):  # its steps so far have not been converted to an isolated age
            self.counted[slot], self.isolated_age[slot] = job.steps, 0.0
        else:
            self.counted[slot] += steps_left - self.steps[slot]
        self.steps[slot] = steps_left

    def starts(self, slots: Iterable[int], type_index: int) -> None:
        """Record that these jobs run on a type from now on."""
        rate_here, receiving = self.rate_here, self._receiving
        for slot in slots:
            self._stale[slot] = None
            self.running_on[slot] = type_index + 1
            rate_here[slot] = self.rates[slot, type_index]
            if receiving is not None:
                receiving[slot, type_index] = 1.0

    def stops(self, slots: Iterable[int]) -> None:
        """Record that these jobs no longer run."""
        rate_here, receiving = self.rate_here, self._receiving
        for slot in slots:
            self._stale[slot] = None
            self.running_on[slot] = 0
            rate_here[slot] = 0.0
            if receiving is not None:
                receiving[slot] = 0.0

    def receive(self, seconds: float) -> None:
        """Add these seconds to what every running job has received."""
        if self._receiving is None or self._scratch is None:
            slots = self.running_on.nonzero()[0]
            self._scratch, self._receiving = np.empty_like(self.received), np.zeros_like(self.received)
            self._receiving[slots, self.running_on[slots] - 1] = 1.0
        np.multiply(self._receiving, seconds, out=self._scratch)
        self.received += self._scratch

    def add_type(self) -> None:
        """Extend all arrays by one type."""
        before, empty = (len(self.ids), self.types), np.zeros((len(self.ids), 1))
        self.rates = np.asfortranarray(np.hstack([self.rates.reshape(before), empty]))
        self.received = np.asfortranarray(np.hstack([self.received.reshape(before), empty]))
        self.types += 1
        self._receiving = None

    def remove(self, job: str) -> int:
        """Remove a job and return its slot."""
        slot = self.slot_of.pop(job)
        self.ids[slot] = None
        self.spare.append(slot)
        self.rates[slot] = 0.0
        self._active = self._named = None
        self._stale[slot] = None
        return slot

    def _queue(self, slot: int) -> None:
        """Append a new job to the waiting ones."""
        if self._waiting is not None:
            others = self._waiting[self._waiting != slot] if slot in self._stale else self._waiting
            self._waiting = np.append(others, slot)
            self._stale.pop(slot, None)

    def dump(self) -> dict[str, Any]:
        """The active jobs as plain data, and the slots to use next."""
        columns = {name: to_plain(getattr(self, name)[self.active]) for name in _columns()}
        return {"size": len(self.ids), "slots": dict(self.slot_of), "spare": list(self.spare), "columns": columns}

    @classmethod
    def restored(cls, document: Mapping[str, Any], types: int) -> Roster:
        """Restore a roster from a dump."""
        state = from_plain(_RosterState, document)
        roster = cls(types, [None] * state.size, dict(state.slots), list(state.spare))
        slots = roster.active
        for job, slot in state.slots.items():
            roster.ids[slot] = job
        for name, values in read_items(_columns(), state.columns, "a roster").items():
            column = np.zeros((state.size, *values.shape[1:]), dtype=values.dtype, order="F")
            column[slots] = values
            setattr(roster, name, column)
        return roster

    def _grow(self) -> None:
        size = len(self.ids)
        more = max(size // 4, 64)
        self.ids += [None] * more
        self.spare += range(size + more - 1, size - 1, -1)
        for name in _columns():
            old = getattr(self, name)
            shape = (size + more, self.types) if old.ndim == 2 else size + more
            new = np.zeros(shape, dtype=old.dtype, order="F")  # rules read all jobs of one type
            new[:size] = old.reshape(new[:size].shape)
            setattr(self, name, new)
        self._rate_here = self._receiving = None


@dataclass(frozen=True, slots=True)
class _RosterState:
    size: int
    slots: Mapping[str, int]
    spare: tuple[int, ...]
    columns: Mapping[str, Any]
    """By attribute: the values of the active jobs, in the order of `slots`."""


@cache
def _columns() -> dict[str, Any]:
    """The attributes that are arrays by slot."""
    return {name: hint for name, hint in get_type_hints(Roster).items() if hint in {Ints, Floats}}
