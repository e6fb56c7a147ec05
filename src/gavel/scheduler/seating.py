"""Seating: the placement of a plan's runs, drafted on copies of the server pools so that deciding changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from gavel.core.locality import Locality
from gavel.scheduler.placement import ServerPool, Where
from gavel.scheduler.rounds import Run


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
