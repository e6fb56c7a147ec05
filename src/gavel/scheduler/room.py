"""What is free on each server when CPU cores, RAM and accelerator memory count, too: a draft on which plans are tried.

It decides nothing. Without jobs that state such needs nothing uses it: then a run fits wherever accelerators are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gavel.core.jobs import Needs
from gavel.core.locality import Locality
from gavel.scheduler.placement import ServerFigures, ServerPool, Where

if TYPE_CHECKING:
    from gavel.scheduler.rounds import Members, Run


@dataclass(frozen=True, slots=True)
class RunLoad:
    """What one worker of a run takes of its server: what its jobs state, and the accelerator's part for the others.

    A pair is never lighter than one of its jobs alone, so a job that its partner leaves always fits where it is.
    """

    gpu_memory: int
    millicores: int
    memory: int
    shares_cores: bool
    """Whether one of its jobs does not say how many cores it needs, and takes its accelerator's part."""
    shares_memory: bool

    def on(self, figures: ServerFigures, size: int) -> tuple[int, int]:
        """The cores (in thousandths) and RAM that a worker takes on a server of this size."""
        cores = self.millicores + (figures.millicores // size if self.shares_cores else 0)
        return cores, self.memory + (figures.memory // size if self.shares_memory else 0)


def load_of(needs: Sequence[Needs]) -> RunLoad:
    """The load of a run whose jobs have these needs.

    >>> load_of((Needs(millicores=2000), Needs()))
    RunLoad(gpu_memory=0, millicores=2000, memory=0, shares_cores=True, shares_memory=True)
    """
    return RunLoad(
        sum(each.gpu_memory for each in needs),
        sum(each.millicores for each in needs),
        sum(each.memory for each in needs),
        not all(each.millicores for each in needs),
        not all(each.memory for each in needs),
    )


@dataclass(slots=True)
class Free:
    """What is free on one server."""

    size: int
    figures: ServerFigures
    accelerators: int
    millicores: int
    memory: int

    def workers(self, load: RunLoad) -> int:
        """How many workers with this load fit."""
        if load.gpu_memory > self.figures.accelerator_memory > 0:
            return 0
        count = self.accelerators
        for each, left, total in zip(
            load.on(self.figures, self.size),
            (self.millicores, self.memory),
            (self.figures.millicores, self.figures.memory),
            strict=True,
        ):
            if total and each:
                count = min(count, left // each)
        return max(count, 0)

    def add(self, load: RunLoad, workers: int) -> None:
        """Free what these workers take; take it if the number is negative."""
        cores, memory = load.on(self.figures, self.size)
        self.millicores += cores * workers
        self.memory += memory * workers


def can_host(pool: ServerPool, load: RunLoad, workers: int) -> bool:
    """Whether the servers of a type could meet these needs if they were empty; True for a type without servers.

    The number of accelerators does not count: too large a gang is refused elsewhere.
    """
    servers = list(pool.servers())
    return not servers or _most(pool, load) >= min(workers, sum(size for _, size, _ in servers))


def can_share(pool: ServerPool, load: RunLoad, workers: int) -> bool:
    """Whether a pair of jobs may share accelerators of a type: both fit into the smallest accelerator."""
    return load.gpu_memory <= pool.accelerator_memories()[0] and can_host(pool, load, workers)


def _most(pool: ServerPool, load: RunLoad) -> int:
    """How many workers with this load fit on the empty servers of a type."""
    return sum(_empty(pool.figures(name), size).workers(load) for name, size, _ in pool.servers())


def _empty(figures: ServerFigures, size: int) -> Free:
    return Free(size, figures, size, figures.millicores, figures.memory)


class Room:
    """Every server with what is free on it, and where runs are, for trying changes."""

    def __init__(
        self, pools: Sequence[ServerPool], placed: Mapping[Run, Where], needs_of: Callable[[int], Needs]
    ) -> None:
        self._pools = pools
        self._needs_of = needs_of
        self._loads: dict[Members, RunLoad] = {}
        self.where: dict[Run, Where] = dict(placed)
        self.free: list[dict[str, Free]] = [_free(pool) for pool in pools]
        """By type and server."""
        self._nowhere: list[set[tuple[RunLoad, int]]] = [set() for _ in pools]
        """By type: loads and numbers of workers that found no place since a run last left."""
        for run, where in placed.items():
            for name, workers in where.items():
                self.free[run.type_index][name].add(self.load(run.members), -workers)

    def load(self, members: Members) -> RunLoad:
        """What each worker of these jobs takes."""
        if members not in self._loads:
            self._loads[members] = load_of([self._needs_of(slot) for slot in members])
        return self._loads[members]

    def find(self, members: Members, type_index: int, workers: int) -> Where | None:
        """Where a run fits: on the fullest server that holds all workers, else on few servers; None if nowhere."""
        load = self.load(members)
        if (load, workers) in self._nowhere[type_index]:
            return None
        found = self._search(load, type_index, workers)
        if found is None:
            self._nowhere[type_index].add((load, workers))
        return found

    def _search(self, load: RunLoad, type_index: int, workers: int) -> Where | None:
        able = {name: count for name, free in self.free[type_index].items() if (count := free.workers(load))}
        enough = [name for name, count in able.items() if count >= workers]
        if enough:
            return {min(enough, key=lambda name: self.free[type_index][name].accelerators): workers}
        if sum(able.values()) < workers:
            return None
        found: dict[str, int] = {}
        for name, count in sorted(able.items(), key=lambda each: -each[1]):
            found[name] = min(count, workers)
            workers -= found[name]
            if not workers:
                break
        return found

    def fits_at(self, run: Run, where: Where) -> bool:
        """Whether a run fits exactly there."""
        load, free = self.load(run.members), self.free[run.type_index]
        return all(name in free and free[name].workers(load) >= count for name, count in where.items())

    def enter(self, run: Run, where: Where) -> None:
        """Put a run there, where it must fit."""
        self.where[run] = where
        self._change(run, where, -1)

    def leave(self, run: Run) -> Where:
        """Take a run away; returns where it was."""
        where = self.where.pop(run)
        self._change(run, where, 1)
        self._nowhere[run.type_index].clear()
        return where

    def hold(self, type_index: int) -> Callable[[], None]:
        """Keep what is idle on a type from everyone; returns how to let it go again."""
        idle = {name: free.accelerators for name, free in self.free[type_index].items()}
        for free in self.free[type_index].values():
            free.accelerators = 0

        def release() -> None:
            for name, count in idle.items():
                self.free[type_index][name].accelerators += count
            self._nowhere[type_index].clear()

        return release

    def _change(self, run: Run, where: Where, sign: int) -> None:
        load, pool = self.load(run.members), self._pools[run.type_index]
        for name, workers in where.items():
            free = self.free[run.type_index].get(name)
            if free is not None:  # a server that is gone takes nothing back
                free.add(load, sign * workers)
                free.accelerators += sign * workers if name not in pool.closed else 0

    def clearing(
        self, members: Members, type_index: int, workers: int, candidates: Iterable[Run], leaving: Iterable[Run] = ()
    ) -> list[Run] | None:
        """The candidates that must leave so that a run fits once the `leaving` have left; None if all are not enough.

        Earlier candidates leave first, and only those whose places are needed.
        """
        left = {run: self.leave(run) for run in leaving}
        gone: dict[Run, Where] = {}
        fits = self.find(members, type_index, workers) is not None
        for run in () if fits else candidates:
            gone[run] = self.leave(run)
            if fits := self.find(members, type_index, workers) is not None:
                break
        needed: list[Run] = []
        for run in reversed(list(gone)):
            self.enter(run, gone[run])
            if fits and self.find(members, type_index, workers) is None:
                self.leave(run)
                needed.insert(0, run)
        for run in needed:
            self.enter(run, gone[run])
        for run, where in left.items():
            self.enter(run, where)
        return needed if fits else None

    def locality(self, run: Run, where: Where) -> Locality:
        """How close together the workers of a run would sit."""
        return self._pools[run.type_index].locality(where)


def _free(pool: ServerPool) -> dict[str, Free]:
    """What is free on each server if only accelerators were taken; nothing may start on a closed one."""
    closed = pool.closed
    found = {}
    for name, size, idle in pool.servers():
        found[name] = _empty(pool.figures(name), size)
        found[name].accelerators = 0 if name in closed else idle
    return found
