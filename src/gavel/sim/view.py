"""What observers read of a scheduler: all they need, in one place, so that its insides may change. Nothing is changed.

A *slot* is the scheduler's number for a job that is there; it keeps its figures until another job gets the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gavel.core.problem import Floats, Ints
from gavel.scheduler.machine import Scheduler


@dataclass(frozen=True, slots=True)
class View:
    """A scheduler, to be read only."""

    scheduler: Scheduler

    @property
    def types(self) -> tuple[str, ...]:
        return self.scheduler.types

    @property
    def round_seconds(self) -> float:
        return self.scheduler.settings.round_seconds

    @property
    def busy(self) -> list[int]:
        """Accelerators in use, by type; one that two jobs share counts once."""
        return [pool.busy for pool in self.scheduler.server_pools]

    @property
    def available(self) -> list[int]:
        """Accelerators of the servers that are there, by type."""
        return [pool.capacity for pool in self.scheduler.server_pools]

    def running(self) -> Iterator[tuple[str, int, bool]]:
        """The jobs that run: name, index of the type, and whether the job shares its accelerators."""
        names = self.scheduler.roster.ids
        for run in self.scheduler.placed:
            for slot in run.members:
                yield names[slot] or "", run.type_index, len(run.members) == 2

    @property
    def running_count(self) -> int:
        return sum(len(run.members) for run in self.scheduler.placed)

    @property
    def job_count(self) -> int:
        """Jobs that are there, running or waiting."""
        return len(self.scheduler.roster)

    @property
    def jobs(self) -> Iterable[str]:
        """The names of those jobs."""
        return self.scheduler.roster.slot_of

    @property
    def slots(self) -> Ints:
        """The slots of those jobs."""
        return self.scheduler.roster.active

    @property
    def slot_limit(self) -> int:
        """All slots are less than this."""
        return len(self.scheduler.roster.ids)

    def slot(self, job: str) -> int:
        return self.scheduler.roster.slot_of[job]

    @property
    def received(self) -> Floats:
        """Seconds that jobs have received, by slot and type."""
        return self.scheduler.roster.received

    def workers(self, slot: int) -> int:
        return int(self.scheduler.roster.workers[slot])

    def profile(self, slot: int) -> int:
        """The same number for jobs that run alike."""
        return int(self.scheduler.roster.profile[slot])
