"""Invariants of a scheduler's state that hold between any two facts, checked by tests."""

from __future__ import annotations

from gavel.scheduler.evolving import EvolvingState


def check_invariants(scheduler: EvolvingState) -> None:
    """Raise AssertionError unless the scheduler's state is consistent."""
    seen: set[int] = set()
    used: dict[str, int] = {}
    for run, where in scheduler.placed.items():
        assert seen.isdisjoint(run.members), "a job runs twice"  # noqa: S101
        seen.update(run.members)
        assert sum(where.values()) == run.workers, "a gang is not whole"  # noqa: S101
        for name, count in where.items():
            used[name] = used.get(name, 0) + count
    _check_needs(scheduler)
    active = set(scheduler.roster.active.tolist())
    assert seen <= active, "a job runs that has left"  # noqa: S101
    held = {slot for slot in active if scheduler.on_hold(scheduler.roster.name(slot))}
    assert seen.isdisjoint(held), "a job runs that is on hold"  # noqa: S101
    assert scheduler.run_of == {slot: run for run in scheduler.placed for slot in run.members}, "slots and runs differ"  # noqa: S101
    seats = {slot: run.type_index + 1 for slot, run in scheduler.run_of.items()}
    running_on = scheduler.roster.running_on
    assert {slot: running_on[slot] for slot in running_on.nonzero()[0].tolist()} == seats, "roster and pools differ"  # noqa: S101
    for pool in scheduler.server_pools:
        for name, size, free in pool.servers():
            assert free == size - used.get(name, 0) >= 0, f"server {name} does not add up"  # noqa: S101


def _check_needs(scheduler: EvolvingState) -> None:
    """No more cores and RAM are promised on a server than it has, and no accelerator is too small for its jobs."""
    room = scheduler.room()
    for servers in room.servers:
        assert not ((servers.millicores > 0) & (servers.free_millicores < 0)).any(), "cores are promised twice"  # noqa: S101
        assert not ((servers.memory > 0) & (servers.free_memory < 0)).any(), "memory is promised twice"  # noqa: S101
    for run, where in room.where.items():
        servers = room.servers[run.type_index]
        for name in where:
            memory = servers.accelerator_memory[servers.at[name]]
            assert not 0 < memory < room.load(run.members).gpu_memory, f"an accelerator of {name} is too small"  # noqa: S101
