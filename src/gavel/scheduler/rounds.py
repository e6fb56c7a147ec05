"""The vocabulary of one round: jobs by slot, runs, the input of a mechanism, and the plan that it answers with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Bools, Floats, Ints, Problem
from gavel.scheduler.once import once
from gavel.scheduler.placement import Where
from gavel.scheduler.room import Room

Members = tuple[int, ...]
"""The slots of the one or two jobs of a combo."""

Place = tuple[Members, int]
"""Slots in ascending order, and a type."""

NO_TEAM = -1

MEANT = 1e-9
"""Smaller shares are a solver's rounding errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A combo on a type: what occupies accelerators. A run that continues is the same object from round to round."""

    members: Members
    type_index: int
    workers: int

    @property
    def place(self) -> Place:
        """Its jobs, independent of their order, and its type: a key for comparing runs."""
        return tuple(sorted(self.members)), self.type_index


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundInput:
    """Everything a mechanism may look at when it decides what runs. Nothing in it changes while it decides."""

    number: int
    """The number of this plan; a seed for mechanisms that need randomness."""
    time: float
    capacity: Sequence[int]
    """By type: the number of accelerators."""
    free: Sequence[int]
    """By type: the number of idle accelerators."""
    running: Collection[Run]
    """What runs now. A run continues unless the plan stops it."""
    waiting: Ints
    """Slots of the active jobs that do not run."""
    workers: Ints
    """By slot: the number of workers that a job needs."""
    rates: Floats
    """By slot and type: steps per second alone, 0 where a job cannot run."""
    rate_here: Floats
    """By slot: the rate on the type that a job runs on; 0 while it does not run."""
    started: Ints
    """By slot: 1 once a job has ever run."""
    steps_heard: Floats
    """By slot: steps left when a job last reported its progress; NaN if unknown."""
    heard: Floats
    """By slot: when a job last reported its progress or was launched, whichever is later."""
    received: Floats
    """By slot and type: seconds received so far."""
    launched: Floats
    """By slot: when a job that runs was last launched."""
    arrival: Floats
    """By slot: when a job was submitted."""
    restart: Floats
    """By slot: seconds that a restart costs each worker."""
    team: Ints
    """By slot: jobs with the same number start in order of arrival; NO_TEAM where no order is promised."""
    round_seconds: float
    edits: int = 0
    """How often a job was edited so far: an edit may change what a plan depends on, such as the steps of a job."""
    mid_round: bool = False
    """Accelerators became free during a round: jobs may start on them, but no run may be stopped for another job."""
    room: Callable[[], Room] | None = None
    """What is free on each server, for trying a plan; None: a run fits wherever there are accelerators for it."""

    @once
    def steps(self) -> Floats:
        """By slot: steps left now, assuming that running jobs are as fast as believed; NaN if unknown."""
        steps = self.steps_of(slice(None))
        steps.flags.writeable = False
        return steps

    def steps_of(self, slots: Ints | slice) -> Floats:
        """The same for some jobs."""
        steps = self.time - self.heard[slots]
        np.maximum(steps, 0.0, out=steps)
        steps *= self.rate_here[slots]
        np.subtract(self.steps_heard[slots], steps, out=steps)
        return np.maximum(steps, 0.0, out=steps)

    def seconds_left(self, type_index: int) -> Floats:
        """By slot: seconds alone on this type until a job is done; NaN if unknown, infinite where it cannot run."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.steps / self.rates[:, type_index]

    def ready(self) -> set[int]:
        """Slots of the jobs that run or wait: the jobs that a plan may contain."""
        return {*self.waiting.tolist(), *(slot for run in self.running for slot in run.members)}

    def served(self) -> Floats:
        """By slot: seconds received on all types together."""
        return np.asarray(self.received.sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a mechanism decides: runs to stop and runs to start. All other runs continue."""

    stopped: Sequence[Run] = ()
    started: Sequence[Run] = ()
    places: Mapping[Run, Where] = field(default_factory=dict)
    """Where runs start, if the mechanism has tried it."""

    @classmethod
    def of(cls, given: RoundInput, runs: Iterable[Run]) -> Plan:
        """The plan after which exactly these runs run; jobs that already run so continue without a restart."""
        running = {run.place: run for run in given.running}
        started: list[Run] = []
        for run in runs:
            if not isinstance(run, Run):
                raise TypeError(f"a plan contains a {type(run).__name__} instead of a gavel.Run")
            if running.pop(run.place, None) is None:
                started.append(run)
        return cls(list(running.values()), started)

    def runs(self, given: RoundInput) -> list[Run]:
        """Everything that runs from now on."""
        stopped = set(self.stopped)
        return [*(run for run in given.running if run not in stopped), *self.started]


@dataclass(frozen=True, slots=True, eq=False)
class Elapsed:
    """Time that has passed, and the runs that had accelerators in that time."""

    seconds: float
    runs: Collection[Run]
    """The runs of that time."""
    begun: Collection[Run]
    """Those of `runs` that are new since the last report."""
    ended: Collection[Run]
    """Runs of the last report that had ended."""


class Mechanism(Protocol):
    """Realises allocations round by round.

    `decide` only reads; `adopt`, `account` and `leave` are the only methods that change a mechanism. Accounting for
    recorded plans therefore gives the same state as having decided them.
    """

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        """Adopt a new allocation; `slots` are those of the problem's jobs, in order, -1 for jobs that have left."""

    def decide(self, given: RoundInput) -> Plan:
        """Decide which runs stop and which start now."""
        raise NotImplementedError

    def account(self, elapsed: Elapsed) -> None:
        """Account for time that has passed; 0 seconds if it only reports runs that began or ended."""

    def leave(self, slot: int) -> None:
        """Forget a job that has left, or whose types changed: its slot is used again, by another job or the same."""

    def dump(self, numbers: RunNumbers) -> dict[str, Any]:
        """Everything that later plans depend on, as plain data, with runs by number. For --resume and `gavel serve`."""
        raise NotImplementedError

    def restore(self, document: Any, runs: Sequence[Run]) -> None:
        """Restore what a mechanism of the same kind and settings dumped."""
        raise NotImplementedError


class RunNumbers:
    """Numbers the runs of a dump, in the order in which they are first mentioned."""

    def __init__(self) -> None:
        self._numbers: dict[Run, int] = {}

    def of(self, run: Run) -> int:
        return self._numbers.setdefault(run, len(self._numbers))

    def all(self) -> list[Run]:
        """Every run that has a number, by number."""
        return list(self._numbers)


def shares_by_type(allocation: Allocation, slots: Ints) -> tuple[list[Members], Floats]:
    """The combos that are allocated time, and their shares by type; without combos that have lost a job."""
    slot_of = slots.tolist()
    jobs, shares = allocation.job_combos()
    by_type = np.zeros((len(jobs), len(allocation.problem.types)))
    for column, type_index in enumerate(allocation.problem.column_type.tolist()):
        by_type[:, type_index] += shares[:, column]
    combos = [tuple([slot_of[job] for job in members]) for members in jobs]
    keep = [at for at in np.flatnonzero(by_type.any(axis=1)).tolist() if min(combos[at]) >= 0]
    return [combos[at] for at in keep], by_type[keep]


def granted(allocation: Allocation, slots: Ints) -> dict[tuple[Members, int], float]:
    """The share of time that each combo is allocated on each type, as {(members, type): share}."""
    combos, shares = shares_by_type(allocation, slots)
    return {
        (members, type_index): share
        for members, row in zip(combos, shares.tolist(), strict=True)
        for type_index, share in enumerate(row)
        if share > MEANT
    }


def prices(problem: Problem) -> Floats:
    """By type: its price; 0 if it has none."""
    return np.array([accelerator_type.price or 0.0 for accelerator_type in problem.types])


def cheapest_types(rates: Floats, prices: Floats) -> Bools:
    """By job and type: whether a step costs no more there than on any other type."""
    cost = np.where(rates > 0, prices[: rates.shape[1]] / np.maximum(rates, 1e-300), np.inf)
    return np.asarray(cost <= cost.min(axis=1, keepdims=True) * (1 + 1e-9))


def offers(
    given: RoundInput,
    free: Sequence[int],
    jobs: Iterable[int] | Ints,
    prices: Floats | None = None,
    *,
    by_speed: bool = True,
) -> list[tuple[int, int]]:
    """Offers of idle accelerators to jobs, as (slot, type): the types where a job runs best come first.

    Where speeds do not matter, the type with the most idle accelerators comes first. If prices are given, a job is
    offered only the types on which a step costs least.
    """
    idle = np.array([type_index for type_index, count in enumerate(free) if count > 0], dtype=np.intp)
    if not len(idle):
        return []
    slots = jobs if isinstance(jobs, np.ndarray) else np.fromiter(jobs, dtype=np.intp)
    if not len(slots):
        return []
    rates, count = given.rates[slots], np.asarray(free)[idle]
    relative = rates[:, idle] / np.maximum(rates.max(axis=1, keepdims=True), 1e-300)
    fitting = (relative > 0) & (given.workers[slots][:, None] <= count)
    if prices is not None:
        fitting &= cheapest_types(rates, prices)[:, idle]
    job, at = np.nonzero(fitting)
    order = np.lexsort((slots[job], -(relative[job, at] if by_speed else count[at])))
    return list(zip(slots[job[order]].tolist(), idle[at[order]].tolist(), strict=True))
