"""A read-only view of a scheduler: everything that observers need, so that the scheduler's internals can change.

A *slot* is the scheduler's number for an active job; it keeps its figures until another job gets the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gavel.core.allocation import Allocation
from gavel.core.locality import Locality
from gavel.core.problem import Floats, Ints
from gavel.core.throughputs import Throughputs
from gavel.scheduler.machine import Scheduler
from gavel.scheduler.snapshot import type_views

Kind = TypeVar("Kind", np.float64, np.intp)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """What is known about an active job at one time."""

    arrival: float
    deadline: float
    """Infinite if the job has none."""
    workers: int
    restarts: int
    received: Floats
    """By type: seconds received until then."""
    isolated_seconds: float
    """How long the whole job would take with 1/n of the cluster."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A running job, or two jobs that share accelerators."""

    jobs: tuple[str, ...]
    type: str
    workers: int
    locality: Locality


@dataclass(frozen=True, slots=True)
class View:
    """A read-only view of a scheduler."""

    _scheduler: Scheduler

    @property
    def types(self) -> tuple[str, ...]:
        return self._scheduler.types

    @property
    def table(self) -> Throughputs:
        """The rates that the scheduler believes in."""
        return self._scheduler.table

    @property
    def allocation(self) -> Allocation | None:
        """The current allocation."""
        return self._scheduler.allocation

    def restart_seconds(self, template: str) -> float:
        """The cost that the scheduler assumes for restarts of a template, in seconds."""
        return self._scheduler.restart_seconds(template)

    def given_seconds(self, time: float) -> Floats:
        """By type: accelerator-seconds given to jobs until a time; shared accelerators count once."""
        return np.array([kind.given_seconds for kind in type_views(self._scheduler, time)])

    @property
    def round_seconds(self) -> float:
        return self._scheduler.settings.round_seconds

    @property
    def busy(self) -> list[int]:
        """By type: accelerators in use; a shared one counts once."""
        return [pool.busy for pool in self._scheduler.server_pools]

    @property
    def available(self) -> list[int]:
        """By type: accelerators of the servers that are up."""
        return [pool.capacity for pool in self._scheduler.server_pools]

    def running(self) -> Iterator[tuple[str, int, bool]]:
        """The jobs that run: name, index of the type, and whether the job shares its accelerators."""
        names = self._scheduler.roster.ids
        for run in self._scheduler.placed:
            for slot in run.members:
                yield names[slot] or "", run.type_index, len(run.members) == 2

    def placed(self) -> Iterator[Placed]:
        """Iterate over what runs, with its placement."""
        names = self._scheduler.roster.ids
        for run, where in self._scheduler.placed.items():
            jobs = tuple(names[slot] or "" for slot in run.members)
            locality = self._scheduler.server_pools[run.type_index].locality(where)
            yield Placed(jobs, self.types[run.type_index], run.workers, locality)

    @property
    def running_count(self) -> int:
        return sum(len(run.members) for run in self._scheduler.placed)

    @property
    def job_count(self) -> int:
        """The number of active jobs, running or waiting."""
        return len(self._scheduler.roster)

    @property
    def jobs(self) -> Iterable[str]:
        """The names of the active jobs."""
        return self._scheduler.roster.slot_of

    @property
    def slots(self) -> Ints:
        """The slots of the active jobs."""
        return _read_only(self._scheduler.roster.active)

    @property
    def slot_limit(self) -> int:
        """An upper limit: all slots are less than this."""
        return len(self._scheduler.roster.ids)

    def slot(self, job: str) -> int:
        return self._scheduler.roster.slot_of[job]

    @property
    def received(self) -> Floats:
        """By slot and type: seconds that jobs have received."""
        return _read_only(self._scheduler.roster.received)

    def received_until(self, job: str, time: float) -> Floats:
        """By type: seconds that a job has received until a time, which may be after the last event."""
        return self._scheduler.received_until(self.slot(job), time)

    def steps_left(self, jobs: Iterable[str]) -> Floats:
        """The steps that jobs have left."""
        slots = [self.slot(job) for job in jobs]
        return np.asarray(self._scheduler.roster.steps[slots])

    def restarts(self, job: str) -> int:
        return int(self._scheduler.roster.restarts[self.slot(job)])

    def figures(self, job: str, time: float) -> JobFigures:
        """The figures of a job at a time."""
        roster, slot = self._scheduler.roster, self.slot(job)
        still = self._scheduler.isolated_seconds(slot, float(roster.counted[slot]))
        return JobFigures(
            arrival=float(roster.arrival[slot]),
            deadline=float(roster.deadline[slot]),
            workers=int(roster.workers[slot]),
            restarts=int(roster.restarts[slot]),
            received=self._scheduler.received_until(slot, time),
            isolated_seconds=float(roster.isolated_age[slot]) + still,
        )

    def workers(self, slot: int) -> int:
        return int(self._scheduler.roster.workers[slot])

    def profile(self, slot: int) -> int:
        """The number of the job's profile; jobs with the same profile have the same rates."""
        return int(self._scheduler.roster.profile[slot])


def _read_only(array: NDArray[Kind]) -> NDArray[Kind]:
    """A read-only view of an array."""
    seen = array.view()
    seen.flags.writeable = False
    return seen
