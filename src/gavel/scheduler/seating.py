"""Seating: the placement of a plan's runs, drafted on copies of the server pools so that deciding changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest

from gavel.core.locality import Locality
from gavel.scheduler.placement import MOST_TRIED, ServerPool, Where
from gavel.scheduler.room import Room
from gavel.scheduler.rounds import Plan, RoundInput, Run


class Seating:
    """A draft of placements: new runs are placed, spread-out gangs may be consolidated, and other runs may move."""

    def __init__(
        self, server_pools: Sequence[ServerPool], placed: Mapping[Run, Where], cares: Callable[[Run], bool]
    ) -> None:
        self._originals = server_pools
        self._pools: dict[int, ServerPool] = {}
        self._placed = placed
        self._cares = cares
        self._elsewhere: dict[Run, Where] = {}
        """The new placements of runs that move."""
        self._stopped: set[Run] = set()

    def stop(self, run: Run) -> None:
        """Free the accelerators of a run."""
        self._stopped.add(run)
        self._pool(run).give_back(self._placed[run])

    def seat(self, run: Run, *, make_room: bool) -> Where:
        """Place a new run; with `make_room`, other runs may move within the type so that a gang is consolidated."""
        if make_room:
            self._make_room(run)
        return self._pool(run).take(run.workers)

    def gather(self, scattered: Iterable[Run]) -> None:
        """Consolidate gangs that are spread out, where possible, largest first."""
        for run in sorted(scattered, key=lambda run: -run.workers):
            self._gather(run)

    def moves(self) -> dict[Run, Where]:
        """The runs whose placement changes, with the new placement."""
        return {run: where for run, where in self._elsewhere.items() if where != self._placed[run]}

    def _pool(self, run: Run) -> ServerPool:
        type_index = run.type_index
        if type_index not in self._pools:
            self._pools[type_index] = self._originals[type_index].copy()
        return self._pools[type_index]

    def _where(self, run: Run) -> Where:
        return self._elsewhere.get(run) or self._placed[run]

    def _gather(self, run: Run) -> None:
        pool, where = self._pool(run), self._where(run)
        if pool.locality(where) is Locality.SERVER:
            return
        pool.give_back(where)
        self._make_room(run)
        gathered = pool.take(run.workers)
        if pool.locality(gathered) < pool.locality(where):
            self._elsewhere[run] = gathered
        else:
            pool.give_back(gathered)
            pool.take_exactly(where)

    def _make_room(self, run: Run) -> None:
        """Move smaller runs within a type, each to one server, so that a gang that is slower apart is consolidated."""
        pool = self._pool(run)
        if run.workers == 1 or pool.holds(run.workers) or not self._cares(run):
            return
        movable = self._movable(run)
        sizes = {name: [other.workers for other in runs] for name, runs in movable.items()}
        clearing = pool.cheapest_clearing(run.workers, sizes)
        leaving = [movable[name][at] for name, positions in clearing.items() for at in positions]
        for other in sorted(leaving, key=lambda other: -other.workers):
            where = pool.take_elsewhere(other.workers, clearing)
            pool.give_back(self._where(other))
            self._elsewhere[other] = where

    def _movable(self, run: Run) -> dict[str, list[Run]]:
        """By server: the runs that are smaller than this one and use only that server."""
        movable: defaultdict[str, list[Run]] = defaultdict(list)
        for other in self._placed:
            if other.type_index == run.type_index and other.workers < run.workers and other not in self._stopped:
                where = self._where(other)
                if len(where) == 1:
                    movable[next(iter(where))].append(other)
        return movable


class TightSeating:
    """The same where CPU cores, RAM or accelerator memory may bind: the plan says where its runs start."""

    def __init__(self, room: Room, plan: Plan, placed: Mapping[Run, Where], cares: Callable[[Run], bool]) -> None:
        self._room = room
        self._plan = plan
        self._placed = placed
        self._cares = cares
        self._crowds: dict[tuple[int, int], list[tuple[str, list[Run]]]] = {}
        """By type and number of workers: the servers that are tried for such a gang, and the runs that would move."""
        for run in plan.stopped:
            room.leave(run)
        for run in plan.started:
            room.enter(run, plan.places[run])

    def stop(self, run: Run) -> None:
        """Nothing is left to do: the places of new runs are those that are free once the stopped ones have left."""

    def seat(self, run: Run, *, make_room: bool) -> Where:
        """Say where a new run starts; with `make_room`, other runs may move within the type to consolidate it."""
        if make_room:
            self._gather(run)
        return self._room.where[run]

    def gather(self, scattered: Iterable[Run]) -> None:
        """Consolidate gangs that are spread out, where possible, largest first."""
        for run in sorted(scattered, key=lambda run: -run.workers):
            self._gather(run)

    def moves(self) -> dict[Run, Where]:
        """The runs whose placement changes, with the new placement."""
        where = self._room.where
        return {run: where[run] for run, before in self._placed.items() if run in where and where[run] != before}

    def _gather(self, run: Run) -> None:
        """Bring a gang that is slower apart together, perhaps by moving smaller runs away from one server."""
        room = self._room
        if run.workers == 1 or room.locality(run, room.where[run]) is Locality.SERVER or not self._cares(run):
            return
        before = room.leave(run)
        found = room.find(run.members, run.type_index, run.workers)
        if found is not None and room.locality(run, found) < room.locality(run, before):
            self._enter(run, found)
            return
        for name, others in self._movable(run):
            if room.holds_without(run, name, others) and self._clears(run, name, others):
                return
        room.enter(run, before)

    def _clears(self, run: Run, name: str, others: Sequence[Run]) -> bool:
        """Move runs away from their server so that a gang fits there; False, and nothing changes, if that fails."""
        room = self._room
        before = {other: room.leave(other) for other in others}
        room.enter(run, {name: run.workers})
        moved: list[Run] = []
        for other in sorted(others, key=lambda other: -other.workers):
            where = before[other] if room.fits_at(other, before[other]) else None
            where = where or room.find(other.members, other.type_index, other.workers)
            if where is None or len(where) > 1:
                break
            room.enter(other, where)
            moved.append(other)
        if len(moved) == len(before):
            self._crowds.clear()
            return True
        for other in (run, *moved):
            room.leave(other)
        for other, where in before.items():
            room.enter(other, where)
        return False

    def _enter(self, run: Run, where: Where) -> None:
        self._room.enter(run, where)
        self._crowds.clear()

    def _movable(self, run: Run) -> list[tuple[str, list[Run]]]:
        """Servers with runs that are smaller than this one and use only that server, those with the fewest workers."""
        kind = run.type_index, run.workers
        if kind not in self._crowds:
            movable: defaultdict[str, list[Run]] = defaultdict(list)
            for other, where in self._room.where.items():
                if other.type_index == run.type_index and other.workers < run.workers and len(where) == 1:
                    movable[next(iter(where))].append(other)
            workers = {name: sum(other.workers for other in others) for name, others in movable.items()}
            self._crowds[kind] = [
                (name, movable[name]) for name in nsmallest(MOST_TRIED, movable, key=workers.__getitem__)
            ]
        return self._crowds[kind]


def fitted(plan: Plan, given: RoundInput) -> Plan:
    """The plan with a place for every run that starts: those that fit nowhere wait, and what would stop for them runs.

    The built-in mechanisms try their plans themselves, so this changes only plans of other mechanisms.
    """
    assert given.room is not None  # noqa: S101 - otherwise everything fits
    room = given.room()
    before = {run: room.leave(run) for run in plan.stopped}
    places: dict[Run, Where] = {}
    for run in sorted(plan.started, key=lambda run: -run.workers):
        where = plan.places.get(run)
        if where is None or not room.fits_at(run, where):
            where = room.find(run.members, run.type_index, run.workers)
        if where is not None:
            room.enter(run, where)
            places[run] = where
    if len(places) == len(plan.started):
        return Plan(plan.stopped, plan.started, places)
    starting = {slot for run in places for slot in run.members}
    stopped = []
    for run in plan.stopped:
        if starting.isdisjoint(run.members) and room.fits_at(run, before[run]):
            room.enter(run, before[run])
        else:
            stopped.append(run)
    return Plan(stopped, [run for run in plan.started if run in places], places)
