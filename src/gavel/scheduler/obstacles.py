"""Why servers cannot meet what a job needs beside accelerators, in a sentence; read-only."""

from __future__ import annotations

from collections.abc import Sequence

from gavel.client.quantities import size
from gavel.core.jobs import NO_NEEDS, Needs
from gavel.scheduler.machine import Scheduler
from gavel.scheduler.placement import ServerPool
from gavel.scheduler.room import can_host, load_of


def never_fits(scheduler: Scheduler, job: str, allowed: Sequence[str]) -> str | None:
    """Why no type that a job may use can ever meet its needs with the servers that there are; None if one can."""
    slot = scheduler.roster.slot_of[job]
    needs, workers = scheduler.beliefs.needs(scheduler.roster, slot), int(scheduler.roster.workers[slot])
    pools = _pools(scheduler, allowed)
    if needs == NO_NEEDS or not pools or any(can_host(pool, load_of((needs,)), workers) for _, pool in pools):
        return None
    return _too_little_memory(needs, pools) or _too_small(needs, workers, pools)


def waits_for(scheduler: Scheduler, job: str) -> str | None:
    """What a job waits for beside accelerators, which are idle where it may run; None if it does not."""
    roster, beliefs = scheduler.roster, scheduler.beliefs
    slot = roster.slot_of[job]
    workers = int(roster.workers[slot])
    idle = [
        number
        for number, pool in enumerate(scheduler.server_pools)
        if pool.free >= workers and roster.rates[slot, number] > 0
    ]
    room = scheduler.tight_room() if idle else None
    if room is None or any(room.find((slot,), number, workers) is not None for number in idle):
        return None
    needs = beliefs.needs(roster, slot)
    if needs == NO_NEEDS:
        return "waits for a server where its accelerators' part of the CPU cores and RAM is free"
    if workers > 1:
        return f"waits for servers with {_amounts(needs, 'free ')} for each of its {workers} workers"
    return f"waits for a server with {_amounts(needs, 'free ')}"


def _pools(scheduler: Scheduler, allowed: Sequence[str]) -> list[tuple[str, ServerPool]]:
    named = zip(scheduler.types, scheduler.server_pools, strict=True)
    return [(name, pool) for name, pool in named if pool.capacity and (not allowed or name in allowed)]


def _too_little_memory(needs: Needs, pools: Sequence[tuple[str, ServerPool]]) -> str | None:
    """Said if no accelerator is large enough, whatever else there is."""
    most = [(pool.accelerator_memories()[1], name) for name, pool in pools]
    largest, name = max(most)
    if largest >= needs.gpu_memory:
        return None
    return (
        f"it needs {size(needs.gpu_memory)} of accelerator memory, and the largest type it may use, {name}, has "
        f"{size(int(largest))}"
    )


def _too_small(needs: Needs, workers: int, pools: Sequence[tuple[str, ServerPool]]) -> str:
    """Name the largest server, or what is needed of all together."""
    if workers > 1:
        return f"it needs {_amounts(needs)} for each of its {workers} workers, and its types' servers have too little"
    figures = [(pool.figures(name), name) for _, pool in pools for name, _, _ in pool.servers()]
    cores, server = max((each.millicores, name) for each, name in figures)
    if all(0 < each.millicores < needs.millicores for each, _ in figures):
        return f"it needs {_cores(needs)}, and the largest server it may use, {server}, has {cores / 1000:g}"
    memory, server = max((each.memory, name) for each, name in figures)
    if all(0 < each.memory < needs.memory for each, _ in figures):
        return f"it needs {size(needs.memory)} of RAM, and the largest server it may use, {server}, has {size(memory)}"
    return f"it needs {_amounts(needs)}, and no server that it may use has all of that"


def _amounts(needs: Needs, free: str = "") -> str:
    parts = [
        f"{needs.millicores / 1000:g} {free}CPU core{'' if needs.millicores == 1000 else 's'}"
        if needs.millicores
        else "",
        f"{size(needs.memory)} of {free}RAM" if needs.memory else "",
        f"accelerators of {size(needs.gpu_memory)}" if needs.gpu_memory else "",
    ]
    *first, last = [part for part in parts if part]
    return f"{', '.join(first)} and {last}" if first else last


def _cores(needs: Needs) -> str:
    return _amounts(Needs(millicores=needs.millicores))
