"""What a simulation measures, and how it is dumped and restored with the rest of its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, get_type_hints

import numpy as np

from gavel.core.cluster import LIST_PRICES
from gavel.core.events import JobFinished
from gavel.core.problem import Floats, Ints
from gavel.core.serialization import from_plain, plain_record, read_items, to_plain
from gavel.sim.usage import UsageMeter
from gavel.sim.view import View


@dataclass(frozen=True, slots=True, eq=False)
class FinishedJob:
    """The figures of a job that finished."""

    id: str
    arrival: float
    seconds: float
    """From arrival to completion."""
    fairness: float
    """`seconds` divided by the time that the job would have taken with 1/n of the cluster."""
    late: bool
    """Whether the job missed its deadline."""
    restarts: int
    workers: int
    received: Floats
    """Seconds on each type of the table."""
    first_start: float
    """When the job first ran."""


@dataclass(frozen=True, slots=True, eq=False)
class UnfinishedJob:
    """A job that had arrived but not finished when the simulation stopped."""

    first_start: float | None
    """When the job first ran; None if it never did."""
    restarts: int
    received: Floats
    """Seconds on each type of the table."""


@dataclass(slots=True)
class Outcome:
    """What a simulation measured."""

    jobs: dict[str, FinishedJob] = field(default_factory=dict)
    """The jobs that finished."""
    unfinished: dict[str, UnfinishedJob] = field(default_factory=dict)
    """Jobs that had arrived and not finished; empty until the simulation stops."""
    rounds: int = 0
    solves: int = 0
    end: float = 0.0
    """When the last job finished."""
    stopped: float = 0.0
    """When the simulation stopped: at `end`, or at the time limit."""
    offered_seconds: float = 0.0
    """Accelerator-seconds of all servers while they were up, until `stopped`."""
    given_seconds: float = 0.0
    """Accelerator-seconds given to jobs, including restarts; shared accelerators count once."""
    given_by_type: Mapping[str, float] = field(default_factory=dict)
    restart_seconds: float = 0.0
    """The part of `given_seconds` spent on saving and loading checkpoints."""
    solver_seconds: float = 0.0
    wall_seconds: float = 0.0
    drained: bool = True
    """Whether all jobs finished: False if the time limit came first, or jobs were left that cannot run."""

    def dump(self) -> dict[str, Any]:
        """All of it as plain data; finished jobs as one list per figure, because there may be very many."""
        columns = {name: [getattr(job, name) for job in self.jobs.values()] for name in _columns()}
        numbers = {name: np.array(columns[name]) for name, hint in _columns().items() if hint in {Floats, Ints}}
        return plain_record(self, without={"jobs"}) | {"jobs": to_plain(columns | numbers)}

    @classmethod
    def restored(cls, document: Mapping[str, Any]) -> Self:
        """Restore an outcome from a dump."""
        columns = read_items(_columns(), document.get("jobs"), "finished jobs")
        flat = [c.tolist() if isinstance(c, np.ndarray) and c.ndim == 1 else c for c in columns.values()]
        jobs = [FinishedJob(**dict(zip(columns, row, strict=True))) for row in zip(*flat, strict=True)]
        rest = {name: part for name, part in document.items() if name != "jobs"}
        return from_plain(cls, rest, jobs={job.id: job for job in jobs})


@cache
def _columns() -> dict[str, Any]:
    """The type of each column of finished jobs in a dump."""
    together = {float: Floats, Floats: Floats, int: Ints, bool: tuple[bool, ...], str: tuple[str, ...]}
    return {name: together[hint] for name, hint in get_type_hints(FinishedJob).items()}


def measure(event: JobFinished, view: View, meter: UsageMeter, received: Floats | None = None) -> FinishedJob:
    """The figures of a job that is about to leave; the view and the meter have not heard of its end yet.

    `received` is given if the scheduler does not know it.
    """
    job = view.figures(event.job, event.time)
    seconds = event.time - job.arrival
    return FinishedJob(
        event.job,
        job.arrival,
        seconds,
        seconds / job.isolated_seconds if job.isolated_seconds > 0 else np.inf,
        event.time > job.deadline + 1e-6,
        job.restarts,
        job.workers,
        job.received if received is None else received,
        event.time if (first := meter.first_start(event.job)) is None else first,
    )


def measure_unfinished(
    view: View, meter: UsageMeter, time: float, received: Mapping[str, Floats] | None = None
) -> dict[str, UnfinishedJob]:
    """The figures of the jobs that are active when the simulation stops."""
    return {
        job: UnfinishedJob(
            meter.first_start(job),
            view.restarts(job),
            view.received_until(job, time) if received is None else received[job],
        )
        for job in view.jobs
    }


def dollars(outcome: Outcome, prices: Mapping[str, float] = LIST_PRICES) -> float:
    """The cost of all accelerator time that was given out; a shared accelerator counts once."""
    return sum(prices.get(type_name, 0.0) * seconds for type_name, seconds in outcome.given_by_type.items()) / 3600.0
