"""Dump the whole state of a scheduler as plain data, and restore a scheduler that gives exactly the same commands.

Settings, throughput table, entities and prices are not part of the state. The caller of `restore` provides them as they
were; a table that has learned must come with what it has learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.errors import InputError
from gavel.core.events import Solve
from gavel.core.jobs import NO_NEEDS, Entity, Needs
from gavel.core.problem import Floats, Ints, Problem
from gavel.core.serialization import from_plain, plain_record, read_items, stored_as
from gavel.core.throughputs import Throughputs
from gavel.scheduler.beliefs import Beliefs
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.migration import in_seconds, with_times_heard, with_wake
from gavel.scheduler.occupancy import Occupancy
from gavel.scheduler.placement import ServerPool, ServerPoolState
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import Elapsed, Mechanism, Run, RunNumbers

FORMAT = 4
"""Incremented whenever the meaning of a dump changes."""

COUNTERS: dict[str, Any] = {
    "allocated_at": float | None,
    "_changed": bool,
    "_solved_at": float,
    "_solve_number": int,
    "_solve_seconds": float,
    "_awaiting": int | None,
    "_accounted_until": float,
    "_scattered": bool,
    "_round_ends": float | None,
    "_plans": int,
    "_waking": float | None,
    "wake": float | None,
}
"""Attributes of a scheduler that are dumped as they are, with their types."""


@dataclass(frozen=True, slots=True, eq=False)
class _SchedulerState:
    format: int
    types: tuple[str, ...]
    entities: tuple[str, ...]
    profiles: tuple[tuple[str, int, tuple[str, ...] | None], ...]
    rates: Floats
    """The rates as looked up for these profiles: the table may have learned since."""
    base: Problem | None
    """The problem without jobs, stored for the same reason."""
    held: tuple[tuple[int, float], ...]
    counters: Mapping[str, Any]
    roster: Mapping[str, Any]
    server_pools: tuple[ServerPoolState, ...] = field(metadata=stored_as("floors"))
    runs: tuple[Run, ...]
    """Every run that runs or that the mechanism remembers; elsewhere in the state, a run is its position here."""
    placed: tuple[tuple[int, Mapping[str, int]], ...]
    mechanism: Mapping[str, Any]
    allocation: Allocation | None
    unanswered: Solve | None
    accelerator_seconds: Floats
    restarts: Mapping[str, float] = field(default_factory=dict)
    restarts_in_use: Mapping[str, float] = field(default_factory=dict)
    on_hold: tuple[int, ...] = ()
    reclassed: tuple[tuple[int, int], ...] = ()
    needs: tuple[tuple[int, Needs], ...] = ()
    """By number of a profile: what its jobs need beside accelerators, where that is stated."""


def dump(scheduler: Scheduler) -> dict[str, Any]:
    """Everything that later commands depend on, as plain data that strict JSON can hold."""
    numbers = RunNumbers()
    placed = tuple((numbers.of(run), where) for run, where in scheduler.placed.items())
    mechanism = scheduler.mechanism.dump(numbers)
    return plain_record(
        _SchedulerState(
            FORMAT,
            scheduler.types,
            tuple(scheduler.entities),
            tuple((template, workers, types) for template, workers, types, _ in scheduler.beliefs.profiles),
            np.array(scheduler.beliefs.rates),
            scheduler._problem_base,
            tuple(scheduler._held.items()),
            {name: getattr(scheduler, name) for name in COUNTERS},
            scheduler.roster.dump(),
            tuple(pool.dump() for pool in scheduler.server_pools),
            tuple(numbers.all()),
            placed,
            mechanism,
            scheduler.allocation,
            scheduler.unanswered,
            scheduler.accelerator_seconds,
            scheduler.beliefs.restarts,
            scheduler.beliefs.restarts_in_use,
            tuple(sorted(scheduler._on_hold)),
            tuple(scheduler._reclassed.items()),
            tuple(scheduler.beliefs.stated.items()),
        )
    )


def restore(
    document: Any,
    table: Throughputs,
    mechanism: Mechanism,
    settings: Settings,
    *,
    entities: Mapping[str, Entity] | None = None,
    prices: Mapping[str, float] | None = None,
) -> Scheduler:
    """Restore a scheduler from a dump. The mechanism must be a new one of the same kind and settings."""
    state = _read(document, table, settings)
    opened = dict.fromkeys(state.entities, Entity()) if settings.open_entities else {}
    scheduler = Scheduler(table, mechanism, settings, entities=opened | dict(entities or {}), prices=prices)
    scheduler.beliefs.types = state.types
    scheduler.roster = Roster.restored(state.roster, len(state.types))
    placed = {state.runs[number]: where for number, where in state.placed}
    scheduler.occupancy = Occupancy(scheduler.roster, map(ServerPool.restored, state.server_pools), placed)
    _restore_beliefs(scheduler.beliefs, state)
    scheduler._problem_base = _with_servers(state.base, scheduler.server_pools)
    scheduler._held, scheduler._on_hold = dict(state.held), set(state.on_hold)
    scheduler._reclassed = dict(state.reclassed)
    here = scheduler.roster.active
    if tuple(scheduler.entities) != state.entities:
        scheduler._problem_base = None
        scheduler.roster.entity[here] = _renumbered(scheduler.roster.entity[here], state.entities, scheduler.entities)
    scheduler.allocation, scheduler.unanswered = state.allocation, state.unanswered
    scheduler.accelerator_seconds = state.accelerator_seconds
    for name, value in read_items(COUNTERS, state.counters, "a scheduler").items():
        setattr(scheduler, name, value)
    _take_up(scheduler, state)
    return scheduler


def _restore_beliefs(beliefs: Beliefs, state: _SchedulerState) -> None:
    needs = dict(state.needs)
    beliefs.restore((*profile, needs.get(number, NO_NEEDS)) for number, profile in enumerate(state.profiles))
    beliefs.rates = list(state.rates)
    beliefs.restarts, beliefs.restarts_in_use = dict(state.restarts), dict(state.restarts_in_use)


def _take_up(scheduler: Scheduler, state: _SchedulerState) -> None:
    """Restore the mechanism's state; a mechanism of another kind starts from the current allocation."""
    mechanism = scheduler.mechanism
    if state.mechanism.get("kind") == mechanism.dump(RunNumbers()).get("kind"):
        mechanism.restore(state.mechanism, state.runs)
        gone = [run for run in state.runs if run not in scheduler.placed]
    else:
        gone = []
        scheduler._changed = True
        if scheduler.allocation is not None:
            mechanism.adopt(scheduler.allocation, scheduler.slots_in(scheduler.allocation))
    # Earlier versions dumped the state before the mechanism was told of the latest plan.
    mechanism.account(Elapsed(0.0, scheduler.placed.keys(), list(scheduler.placed), gone))


def _read(document: Any, table: Throughputs, settings: Settings) -> _SchedulerState:
    found = document.get("format") if isinstance(document, dict) else None
    if found == 1:
        document, found = in_seconds(document, settings.round_seconds), 2
    if found == 2:
        document, found = with_times_heard(document), 3
    if found == 3:
        document, found = with_wake(document), FORMAT
    if found != FORMAT:
        raise InputError(f"the scheduler's state has format {found!r}; this version of Gavel reads format {FORMAT}")
    state = from_plain(_SchedulerState, document)
    if state.types != table.types[: len(state.types)]:  # later types are added with their servers
        raise InputError(
            f"the scheduler's state has the types {', '.join(state.types)}, but the throughput table has "
            f"{', '.join(table.types)}; use the table that it was made with"
        )
    return state


def _with_servers(base: Problem | None, server_pools: list[ServerPool]) -> Problem | None:
    """Add the sizes of the servers to the problem: states of earlier versions lack them."""
    if base is None or all(accelerator_type.servers or not accelerator_type.count for accelerator_type in base.types):
        return base
    accelerator_types = zip(base.types, server_pools, strict=True)
    return replace(
        base,
        types=tuple(replace(accelerator_type, servers=pool.sizes()) for accelerator_type, pool in accelerator_types),
    )


def _renumbered(numbers: Ints, before: tuple[str, ...], now: list[str]) -> Ints:
    """Translate the numbers of entities: other entities may have been described since the dump."""
    used = {before[number] for number in np.unique(numbers[numbers >= 0]).tolist()}
    if missing := sorted(used - set(now)):
        raise InputError(f"jobs belong to {', '.join(missing)}, but no such entity is described any more")
    return np.array([now.index(path) if path in used else -1 for path in before] + [-1], dtype=np.intp)[numbers]
