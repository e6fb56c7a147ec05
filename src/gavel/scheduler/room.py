"""What is free on each server when CPU cores, RAM and accelerator memory count, too: a draft on which plans are tried.

It decides nothing. Without jobs that state such needs nothing uses it: then a run fits wherever accelerators are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gavel.core.jobs import Needs
from gavel.core.locality import Locality
from gavel.core.problem import Ints
from gavel.scheduler.placement import ServerPool, Where

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


class ServersOfType:
    """The servers of one type, as one array per attribute, and what is free on each."""

    def __init__(self, pool: ServerPool, *, empty: bool = False) -> None:
        servers, closed = list(pool.servers()), pool.closed
        figures = [pool.figures(name) for name, _, _ in servers]
        self.names = [name for name, _, _ in servers]
        self.at = {name: number for number, name in enumerate(self.names)}
        self.size = np.array([size for _, size, _ in servers], dtype=np.int64)
        self.millicores = np.array([each.millicores for each in figures], dtype=np.int64)
        self.memory = np.array([each.memory for each in figures], dtype=np.int64)
        self.accelerator_memory = np.array([each.accelerator_memory for each in figures], dtype=np.int64)
        self.is_open = np.array([name not in closed for name in self.names], dtype=bool)
        idle = self.size if empty else np.array([free for _, _, free in servers], dtype=np.int64)
        self.accelerators = np.where(self.is_open, idle, 0)
        """Idle accelerators; none on servers that accept no new runs."""
        self.free_millicores, self.free_memory = self.millicores.copy(), self.memory.copy()
        """Meaningless where the server's own figure is unknown."""
        self._taken: dict[RunLoad, tuple[Ints, Ints]] = {}
        """By load: the cores and RAM that one worker takes on each server."""

    def taken(self, load: RunLoad) -> tuple[Ints, Ints]:
        """The cores (in thousandths) and RAM that a worker takes on each server."""
        if load not in self._taken:
            cores = load.millicores + (self.millicores // self.size if load.shares_cores else 0 * self.size)
            memory = load.memory + (self.memory // self.size if load.shares_memory else 0 * self.size)
            self._taken[load] = cores, memory
        return self._taken[load]

    def counts(self, load: RunLoad) -> Ints:
        """How many workers with this load fit on each server."""
        count = self.accelerators
        for each, left, total in zip(
            self.taken(load), (self.free_millicores, self.free_memory), (self.millicores, self.memory), strict=True
        ):
            count = np.where((total > 0) & (each > 0), np.minimum(count, left // np.maximum(each, 1)), count)
        if load.gpu_memory:
            count = np.where((load.gpu_memory > self.accelerator_memory) & (self.accelerator_memory > 0), 0, count)
        return np.maximum(count, 0)

    def count_at(self, load: RunLoad, at: int) -> int:
        """How many workers with this load fit on one server."""
        if load.gpu_memory > self.accelerator_memory[at] > 0:
            return 0
        cores, memory = self.taken(load)
        count = self.accelerators[at]
        if self.millicores[at] and cores[at]:
            count = min(count, self.free_millicores[at] // cores[at])
        if self.memory[at] and memory[at]:
            count = min(count, self.free_memory[at] // memory[at])
        return max(int(count), 0)

    def add(self, load: RunLoad, where: Where, sign: int, *, accelerators: bool = True) -> None:
        """Free (1) or take (-1) what workers take; a server that is gone takes nothing back."""
        cores, memory = self.taken(load)
        for name, workers in where.items():
            if (at := self.at.get(name)) is not None:
                self.free_millicores[at] += sign * workers * cores[at]
                self.free_memory[at] += sign * workers * memory[at]
                if accelerators and self.is_open[at]:
                    self.accelerators[at] += sign * workers


def can_host(pool: ServerPool, load: RunLoad, workers: int) -> bool:
    """Whether the servers of a type could meet these needs if they were empty; True for a type without servers.

    The number of accelerators does not count: too large a gang is refused elsewhere.
    """
    servers = ServersOfType(pool, empty=True)
    servers.accelerators = servers.size
    return not servers.names or int(servers.counts(load).sum()) >= min(workers, int(servers.size.sum()))


def can_share(pool: ServerPool, load: RunLoad, workers: int) -> bool:
    """Whether a pair of jobs may share accelerators of a type: both fit into the smallest accelerator."""
    return load.gpu_memory <= pool.accelerator_memories()[0] and can_host(pool, load, workers)


class Room:
    """Every server with what is free on it, and where runs are, for trying changes."""

    def __init__(
        self, pools: Sequence[ServerPool], placed: Mapping[Run, Where], needs_of: Callable[[int], Needs]
    ) -> None:
        self._pools = pools
        self._needs_of = needs_of
        self._loads: dict[Members, RunLoad] = {}
        self.where: dict[Run, Where] = dict(placed)
        self.servers = [ServersOfType(pool) for pool in pools]
        """By type."""
        self._nowhere: list[set[tuple[RunLoad, int]]] = [set() for _ in pools]
        """By type: loads and numbers of workers that found no place since a run last left."""
        for run, where in placed.items():
            self.servers[run.type_index].add(self.load(run.members), where, -1, accelerators=False)

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
        servers = self.servers[type_index]
        counts = servers.counts(load)
        enough = (counts >= workers).nonzero()[0]
        if len(enough):
            return {servers.names[enough[servers.accelerators[enough].argmin()]]: workers}
        if int(counts.sum()) < workers:
            return None
        found: dict[str, int] = {}
        for at in np.argsort(-counts, kind="stable").tolist():
            found[servers.names[at]] = min(int(counts[at]), workers)
            workers -= found[servers.names[at]]
            if not workers:
                break
        return found

    def fits_at(self, run: Run, where: Where) -> bool:
        """Whether a run fits exactly there."""
        return all(self._holds(run.members, run.type_index, count, name) for name, count in where.items())

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
        servers = self.servers[type_index]
        idle = servers.accelerators.copy()
        servers.accelerators[:] = 0

        def release() -> None:
            servers.accelerators += idle
            self._nowhere[type_index].clear()

        return release

    def _change(self, run: Run, where: Where, sign: int) -> None:
        self.servers[run.type_index].add(self.load(run.members), where, sign)

    def clearing(
        self, members: Members, type_index: int, workers: int, candidates: Iterable[Run], leaving: Iterable[Run] = ()
    ) -> list[Run] | None:
        """The candidates that must leave so that a run fits once the `leaving` have left; None if all are not enough.

        Earlier candidates leave first, and only those whose places are needed.
        """
        nowhere, self._nowhere = self._nowhere, [set() for _ in self._nowhere]
        left = {run: self.leave(run) for run in leaving}
        gone: dict[Run, Where] = {}
        known = not left and (self.load(members), workers) in nowhere[type_index]
        fits = not known and self.find(members, type_index, workers) is not None
        target: str | None = None
        for run in () if fits else candidates:
            gone[run] = self.leave(run)
            target = self._holder(members, type_index, workers, gone[run])
            if fits := target is not None or (workers > 1 and self.find(members, type_index, workers) is not None):
                break
        needed: list[Run] = []
        for run in reversed(list(gone)):
            self.enter(run, gone[run])
            if target is not None:
                still = target not in gone[run] or self._holds(members, type_index, workers, target)
            else:
                still = self.find(members, type_index, workers) is not None
            if fits and not still:
                self.leave(run)
                needed.insert(0, run)
        for run in needed:
            self.enter(run, gone[run])
        for run, where in left.items():
            self.enter(run, where)
        self._nowhere = nowhere  # all is as it was
        return needed if fits else None

    def _holder(self, members: Members, type_index: int, workers: int, names: Iterable[str]) -> str | None:
        """The first of these servers that holds a run alone."""
        return next((name for name in names if self._holds(members, type_index, workers, name)), None)

    def _holds(self, members: Members, type_index: int, workers: int, name: str) -> bool:
        servers = self.servers[type_index]
        return name in servers.at and servers.count_at(self.load(members), servers.at[name]) >= workers

    def locality(self, run: Run, where: Where) -> Locality:
        """How close together the workers of a run would sit."""
        return self._pools[run.type_index].locality(where)
