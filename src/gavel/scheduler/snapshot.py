"""What the scheduler is doing at one moment, for people and pages: read-only, and taking it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats
from gavel.core.serialization import to_plain
from gavel.scheduler.machine import Scheduler

JobState = Literal["running", "waiting"]


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job runs."""

    type: str
    servers: Mapping[str, int]
    """Accelerators by server."""
    consolidated: bool
    """Whether its workers sit on as few servers as possible."""
    beside: str | None
    """The job that it shares these accelerators with, if any."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job that is not over."""

    id: str
    template: str
    workers: int
    weight: float
    entity: str | None
    arrival: float
    steps_left: float | None
    """None if nobody knows."""
    deadline: float | None
    """The time by which it should be done."""
    state: JobState
    has_run: bool
    """Whether it runs or has ever run."""
    restarts: int
    place: JobPlace | None
    """None while it waits."""
    paused_until: float | None
    """It failed and does not run before this time."""
    received: Mapping[str, float]
    """Seconds on each type so far."""
    shares: Mapping[str, float] | None
    """The share of its time that the allocation gives it on each type; None if it came later."""
    limit: str | None
    """What keeps it from getting more, as a clause; None where nobody knows yet."""


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """A server."""

    name: str
    type: str
    accelerators: int
    free: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeSnapshot:
    """All accelerators of a type."""

    name: str
    accelerators: int
    busy: int
    given_seconds: float
    """Accelerator-seconds given to jobs so far."""
    price: float | None
    """What one more accelerator would add to the objective; None while there is no allocation."""


@dataclass(frozen=True, slots=True)
class AllocationSnapshot:
    """The allocation in force."""

    policy: str
    objective: float
    bound: float
    gap: float
    minimised: bool
    unmet: tuple[str, ...]
    """Jobs whose deadline cannot be met."""
    notes: tuple[str, ...]
    solved_at: float
    jobs: int
    """How many jobs it speaks of."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The jobs in order of submission, the servers by type, and the sums."""

    time: float
    round_seconds: float
    round_ends: float | None
    jobs: tuple[JobSnapshot, ...]
    servers: tuple[ServerSnapshot, ...]
    types: tuple[TypeSnapshot, ...]
    """Those of the throughput table, also where the cluster has none."""
    allocation: AllocationSnapshot | None
    running: int
    waiting: int
    accelerators: int
    busy: int
    learned: Mapping[str, Any]
    """What the throughput table has learned: rates with their uncertainty, and what it does not believe."""

    def document(self) -> dict[str, Any]:
        """All of it as JSON; what is infinite or undefined is a text, "inf" or "nan"."""
        return {name: _document(getattr(self, name)) for name in self.__slots__}


def _document(value: Any) -> Any:
    """Every field, also those that have their default: whoever reads pages should not have to know defaults."""
    if isinstance(value, tuple):
        return [_document(item) for item in value]
    if isinstance(value, _PARTS):
        return {name: _document(getattr(value, name)) for name in value.__slots__}
    return to_plain(value)


_PARTS = (JobSnapshot, JobPlace, ServerSnapshot, TypeSnapshot, AllocationSnapshot)


def take(scheduler: Scheduler, time: float) -> Snapshot:
    """Look at a scheduler; what runs is counted as having run until `time`."""
    places = _places(scheduler)
    servers = tuple(server_snapshots(scheduler))
    types = tuple(type_snapshots(scheduler, time))
    return Snapshot(
        time=time,
        round_seconds=scheduler.settings.round_seconds,
        round_ends=scheduler.round_ends,
        jobs=tuple(_jobs(scheduler, time, places)),
        servers=servers,
        types=types,
        allocation=allocation_snapshot(scheduler),
        running=len(places),
        waiting=len(scheduler.roster) - len(places),
        accelerators=sum(each.accelerators for each in types),
        busy=sum(each.busy for each in types),
        learned=scheduler.table.document(),
    )


def _places(scheduler: Scheduler) -> dict[int, JobPlace]:
    """Where everyone who runs does so, by slot."""
    places: dict[int, JobPlace] = {}
    for run, where in scheduler.placed.items():
        together = scheduler.server_pools[run.type_index].is_consolidated(where)
        names = [scheduler.roster.ids[slot] for slot in run.members]
        others = names[::-1] if len(names) == 2 else [None]
        for slot, other in zip(run.members, others, strict=True):
            places[slot] = JobPlace(scheduler.types[run.type_index], dict(where), together, other)
    return places


def _jobs(scheduler: Scheduler, time: float, places: Mapping[int, JobPlace]) -> Iterator[JobSnapshot]:
    roster = scheduler.roster
    received = roster.received.copy()
    for run in scheduler.placed:
        received[list(run.members), run.type_index] += _unaccounted(scheduler, time)
    shares, limits = _meant(scheduler.allocation)
    templates, entities = scheduler.templates, [*scheduler.entities, None]
    for name, slot in roster.slot_of.items():
        place = places.get(slot)
        deadline = float(roster.deadline[slot])
        yield JobSnapshot(
            id=name,
            template=templates[roster.profile[slot]],
            workers=int(roster.workers[slot]),
            weight=float(roster.weight[slot]),
            entity=entities[roster.entity[slot]],
            arrival=float(roster.arrival[slot]),
            steps_left=None if np.isnan(roster.steps[slot]) else max(float(roster.steps[slot]), 0.0),
            deadline=deadline if np.isfinite(deadline) else None,
            state="waiting" if place is None else "running",
            has_run=bool(roster.started[slot]),
            restarts=int(roster.restarts[slot]),
            place=place,
            paused_until=scheduler.paused_until(slot),
            received=dict(zip(scheduler.types, received[slot].tolist(), strict=True)),
            shares=shares.get(name),
            limit=limits.get(name),
        )


def _unaccounted(scheduler: Scheduler, time: float) -> float:
    """Seconds that everyone who runs has received and that are not written down yet."""
    return max(time - scheduler._accounted_until, 0.0)  # noqa: SLF001 - one package


def _meant(allocation: Allocation | None) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """By job: the shares that an allocation gives it, and what keeps it from more."""
    if allocation is None:
        return {}, {}
    ids, numbers = allocation.problem.jobs.ids, allocation.classes.of_job.tolist()
    types = [accelerator_type.name for accelerator_type in allocation.problem.types]  # others may have joined since
    shares = [dict(zip(types, row, strict=True)) for row in allocation.class_shares.tolist()]
    limits = [str(limit) for limit in allocation.class_limits]
    return (
        {name: shares[number] for name, number in zip(ids, numbers, strict=True)},
        {name: limits[number] for name, number in zip(ids, numbers, strict=True)},
    )


def meant_for(scheduler: Scheduler, job: str) -> tuple[dict[str, float] | None, str | None]:
    """The shares that the allocation in force gives a job, and what keeps it from more; None if it came later."""
    allocation = scheduler.allocation
    if allocation is None or job not in allocation.problem.jobs.ids:
        return None, None
    number = int(allocation.classes.of_job[allocation.problem.jobs.ids.index(job)])
    types = [accelerator_type.name for accelerator_type in allocation.problem.types]
    shares = dict(zip(types, allocation.class_shares[number].tolist(), strict=True))
    return shares, str(allocation.class_limits[number])


def server_snapshots(scheduler: Scheduler) -> list[ServerSnapshot]:
    """Every server that takes work, and what runs there."""
    jobs: dict[str, list[str]] = {}
    for run, where in scheduler.placed.items():
        for name in where:
            jobs.setdefault(name, []).extend(scheduler.roster.ids[slot] or "" for slot in run.members)
    return [
        ServerSnapshot(name, type_name, size, free, tuple(jobs.get(name, ())))
        for type_name, pool in zip(scheduler.types, scheduler.server_pools, strict=True)
        for name, size, free in pool.servers()
    ]


def type_snapshots(scheduler: Scheduler, time: float) -> list[TypeSnapshot]:
    """Every type, as in use at that time."""
    busy: Floats = np.zeros(len(scheduler.types))
    for run in scheduler.placed:
        busy[run.type_index] += run.workers
    given = scheduler.accelerator_seconds + busy * _unaccounted(scheduler, time)
    prices = scheduler.allocation.certificate.prices if scheduler.allocation else {}
    return [
        TypeSnapshot(name, pool.capacity, int(used), seconds, prices.get(name))
        for name, pool, used, seconds in zip(
            scheduler.types, scheduler.server_pools, busy.tolist(), given.tolist(), strict=True
        )
    ]


def allocation_snapshot(scheduler: Scheduler) -> AllocationSnapshot | None:
    """The allocation in force."""
    allocation, at = scheduler.allocation, scheduler.allocated_at
    if allocation is None or at is None:
        return None
    c = allocation.certificate
    return AllocationSnapshot(
        allocation.policy,
        c.objective,
        c.bound,
        c.gap,
        c.minimised,
        c.unmet,
        c.notes,
        solved_at=at,
        jobs=len(allocation.problem.jobs),
    )
