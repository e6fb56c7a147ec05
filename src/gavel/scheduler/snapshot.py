"""Read-only snapshots of what the scheduler is doing, for people and pages. Taking one changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.client.views import TypeView
from gavel.core.problem import Floats
from gavel.scheduler.machine import Scheduler


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """A server that accepts runs, and what runs there."""

    name: str
    type: str
    accelerators: int
    free: int
    jobs: tuple[str, ...]
    free_cpus: float = 0.0
    free_memory: int = 0


def _unaccounted(scheduler: Scheduler, time: float) -> float:
    """Seconds that running jobs have received since time was last accounted for."""
    return max(time - scheduler._accounted_until, 0.0)  # noqa: SLF001 - one package


def meant_for(scheduler: Scheduler, job: str) -> tuple[dict[str, float] | None, str | None]:
    """The shares that the current allocation gives a job, and the job's limit; None if it arrived or changed later."""
    allocation = scheduler.allocation
    if allocation is None or job not in allocation.problem.jobs.ids or scheduler.awaits_class(job):
        return None, None
    number = int(allocation.classes.of_job[allocation.problem.jobs.ids.index(job)])
    types = [accelerator_type.name for accelerator_type in allocation.problem.types]
    shares = dict(zip(types, allocation.class_shares[number].tolist(), strict=True))
    return shares, str(allocation.class_limits[number])


def server_snapshots(scheduler: Scheduler) -> list[ServerSnapshot]:
    """Every server that accepts runs, and what runs there."""
    jobs: dict[str, list[str]] = {}
    for run, where in scheduler.placed.items():
        for name in where:
            jobs.setdefault(name, []).extend(scheduler.roster.ids[slot] or "" for slot in run.members)
    room = scheduler.room()
    return [
        ServerSnapshot(
            name,
            scheduler.types[type_index],
            int(servers.size[at]),
            scheduler.server_pools[type_index].idle(name),
            tuple(jobs.get(name, ())),
            int(servers.free_millicores[at]) / 1000 if servers.millicores[at] else 0.0,
            int(servers.free_memory[at]) if servers.memory[at] else 0,
        )
        for type_index, servers in enumerate(room.servers)
        for at, name in enumerate(servers.names)
    ]


def type_views(scheduler: Scheduler, time: float) -> list[TypeView]:
    """Every type and its use at that time."""
    busy: Floats = np.zeros(len(scheduler.types))
    for run in scheduler.placed:
        busy[run.type_index] += run.workers
    given = scheduler.accelerator_seconds + busy * _unaccounted(scheduler, time)
    prices = scheduler.allocation.certificate.prices if scheduler.allocation else {}
    return [
        TypeView(name, pool.capacity, int(used), prices.get(name, 0.0), seconds)
        for name, pool, used, seconds in zip(
            scheduler.types, scheduler.server_pools, busy.tolist(), given.tolist(), strict=True
        )
    ]
