"""What observers read of a scheduler: all they need, in one place, so that its insides may change. Nothing is changed.

A *slot* is the scheduler's number for a job that is there; it keeps its figures until another job gets the number.
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
    """What is known of a job that is there, at one time."""

    arrival: float
    deadline: float
    """Infinite if it has none."""
    workers: int
    restarts: int
    received: Floats
    """Seconds on each type until then."""
    isolated_seconds: float
    """How long all of it would take with 1/n of the cluster."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A job, or two that share accelerators, on its accelerators."""

    jobs: tuple[str, ...]
    type: str
    workers: int
    locality: Locality


@dataclass(frozen=True, slots=True)
class View:
    """A scheduler, to be read only."""

    _scheduler: Scheduler

    @property
    def types(self) -> tuple[str, ...]:
        return self._scheduler.types

    @property
    def table(self) -> Throughputs:
        """What is believed of how fast jobs run."""
        return self._scheduler.table

    @property
    def allocation(self) -> Allocation | None:
        """The allocation in force."""
        return self._scheduler.allocation

    def restart_seconds(self, template: str) -> float:
        """What a restart is believed to cost jobs of a template."""
        return self._scheduler.restart_seconds(template)

    def given_seconds(self, time: float) -> Floats:
        """Accelerator-seconds given to jobs until a time, by type; accelerators that are shared count once."""
        return np.array([kind.given_seconds for kind in type_views(self._scheduler, time)])

    @property
    def round_seconds(self) -> float:
        return self._scheduler.settings.round_seconds

    @property
    def busy(self) -> list[int]:
        """Accelerators in use, by type; one that two jobs share counts once."""
        return [pool.busy for pool in self._scheduler.server_pools]

    @property
    def available(self) -> list[int]:
        """Accelerators of the servers that are there, by type."""
        return [pool.capacity for pool in self._scheduler.server_pools]

    def running(self) -> Iterator[tuple[str, int, bool]]:
        """The jobs that run: name, index of the type, and whether the job shares its accelerators."""
        names = self._scheduler.roster.ids
        for run in self._scheduler.placed:
            for slot in run.members:
                yield names[slot] or "", run.type_index, len(run.members) == 2

    def placed(self) -> Iterator[Placed]:
        """What runs, and how it sits."""
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
        """Jobs that are there, running or waiting."""
        return len(self._scheduler.roster)

    @property
    def jobs(self) -> Iterable[str]:
        """The names of those jobs."""
        return self._scheduler.roster.slot_of

    @property
    def slots(self) -> Ints:
        """The slots of those jobs."""
        return _read_only(self._scheduler.roster.active)

    @property
    def slot_limit(self) -> int:
        """All slots are less than this."""
        return len(self._scheduler.roster.ids)

    def slot(self, job: str) -> int:
        return self._scheduler.roster.slot_of[job]

    @property
    def received(self) -> Floats:
        """Seconds that jobs have received, by slot and type."""
        return _read_only(self._scheduler.roster.received)

    def received_until(self, job: str, time: float) -> Floats:
        """Seconds that a job has received on each type until a time, which may be after the last event."""
        return self._scheduler.received_until(self.slot(job), time)

    def steps_left(self, jobs: Iterable[str]) -> Floats:
        """Steps that jobs have still to make."""
        slots = [self.slot(job) for job in jobs]
        return np.asarray(self._scheduler.roster.steps[slots])

    def restarts(self, job: str) -> int:
        return int(self._scheduler.roster.restarts[self.slot(job)])

    def figures(self, job: str, time: float) -> JobFigures:
        """What is known of a job, with what it received until a time."""
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
        """The same number for jobs that run alike."""
        return int(self._scheduler.roster.profile[slot])


def _read_only(array: NDArray[Kind]) -> NDArray[Kind]:
    """The same elements, which cannot be changed through this."""
    seen = array.view()
    seen.flags.writeable = False
    return seen
