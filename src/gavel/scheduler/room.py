"""What is free on each server when CPU cores, RAM and accelerator memory count, too: a draft on which plans are tried.

It decides nothing. Without jobs that state such needs nothing uses it: then a run fits wherever accelerators are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gavel.core.jobs import Needs
from gavel.core.locality import Locality
from gavel.core.problem import Ints
from gavel.scheduler.placement import ServerColumns, ServerPool, Where

if TYPE_CHECKING:
    from gavel.scheduler.rounds import Members, Run

Freed = tuple[int, int, int]
"""Accelerators, cores (in thousandths) and RAM that are freed on a server."""
NOTHING: Freed = (0, 0, 0)
FEW = 24
"""That many servers are faster looked at one by one than all at once."""


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
    """The servers of one type, and what is free on each."""

    def __init__(self, pool: ServerPool) -> None:
        columns, closed = pool.columns(), pool.closed
        self._columns = columns
        self.names, self.at = columns.names, columns.at
        self.size, self.millicores, self.memory = columns.size, columns.millicores, columns.memory
        self.accelerator_memory = columns.accelerator_memory
        self.is_open = np.ones(len(self.names), dtype=bool)
        self.is_open[[columns.at[name] for name in closed]] = False
        idle = np.array([free for _, _, free in pool.servers()], dtype=np.int64)
        self.accelerators = np.where(self.is_open, idle, 0)
        """Idle accelerators; none on servers that accept no new runs."""
        self.free_millicores, self.free_memory = self.millicores.copy(), self.memory.copy()
        """Meaningless where the server's own figure is unknown."""

    def copy(self) -> ServersOfType:
        """A copy on which changes can be tried."""
        made = copy(self)
        made.accelerators = self.accelerators.copy()
        made.free_millicores, made.free_memory = self.free_millicores.copy(), self.free_memory.copy()
        return made

    def taken_at(self, load: RunLoad, at: int) -> tuple[int, int]:
        """The cores (in thousandths) and RAM that a worker takes on a server."""
        columns = self._columns
        return (
            load.millicores + (columns.share_of_cores.item(at) if load.shares_cores else 0),
            load.memory + (columns.share_of_memory.item(at) if load.shares_memory else 0),
        )

    def counts(self, load: RunLoad) -> tuple[Ints, Ints]:
        """The servers with idle accelerators, and how many workers with this load fit on each."""
        at = self.accelerators.nonzero()[0]
        return at, _counts(
            self._columns, load, at, self.accelerators[at], self.free_millicores[at], self.free_memory[at]
        )

    def count_at(self, load: RunLoad, at: int, freed: Freed = NOTHING) -> int:
        """How many workers with this load fit on one server, once this has been freed there as well."""
        if load.gpu_memory and load.gpu_memory > self.accelerator_memory.item(at) > 0:
            return 0
        cores, memory = self.taken_at(load, at)
        count: int = self.accelerators.item(at) + freed[0]
        if cores and self.millicores.item(at):
            count = min(count, (self.free_millicores.item(at) + freed[1]) // cores)
        if memory and self.memory.item(at):
            count = min(count, (self.free_memory.item(at) + freed[2]) // memory)
        return max(count, 0)

    def part(self, load: RunLoad, at: int, workers: int) -> Freed:
        """What workers take on a server; a server that accepts no new runs gets no idle accelerators back."""
        cores, memory = self.taken_at(load, at)
        return workers if self.is_open[at] else 0, workers * cores, workers * memory

    def add(self, load: RunLoad, where: Where, sign: int, *, accelerators: bool = True) -> None:
        """Free (1) or take (-1) what workers take; a server that is gone takes nothing back."""
        for name, workers in where.items():
            if (at := self.at.get(name)) is not None:
                count, cores, memory = self.part(load, at, sign * workers)
                self.free_millicores[at] += cores
                self.free_memory[at] += memory
                if accelerators:
                    self.accelerators[at] += count


def _counts(
    columns: ServerColumns, load: RunLoad, at: Ints | slice, accelerators: Ints, millicores: Ints, memory: Ints
) -> Ints:
    """How many workers with a load fit on servers with these idle accelerators, cores and RAM."""
    count = accelerators
    for stated, shares, share, left, total in (
        (load.millicores, load.shares_cores, columns.share_of_cores, millicores, columns.millicores),
        (load.memory, load.shares_memory, columns.share_of_memory, memory, columns.memory),
    ):
        each = stated + share[at] if shares else stated
        if shares or stated:
            binds = (total[at] > 0) & (each > 0)
            count = np.where(binds, np.minimum(count, left // np.maximum(each, 1)), count)
    if load.gpu_memory:
        has = columns.accelerator_memory[at]
        count = np.where((load.gpu_memory > has) & (has > 0), 0, count)
    return np.maximum(count, 0)


def can_host(pool: ServerPool, load: RunLoad, workers: int) -> bool:
    """Whether the servers of a type could meet these needs if they were empty; True for a type without servers.

    The number of accelerators does not count: too large a gang is refused elsewhere.
    """
    servers = pool.columns()
    if not servers.names:
        return True
    counts = _counts(servers, load, slice(None), servers.size, servers.millicores, servers.memory)
    return int(counts.sum()) >= min(workers, int(servers.size.sum()))


def can_share(pool: ServerPool, load: RunLoad, workers: int) -> bool:
    """Whether a pair of jobs may share accelerators of a type: both fit into the smallest accelerator."""
    return load.gpu_memory <= pool.accelerator_memories()[0] and can_host(pool, load, workers)


class _Trial:
    """How many workers with a load would fit on the servers of a type if runs left; nothing changes."""

    def __init__(self, room: Room, servers: ServersOfType, load: RunLoad, total: int = 0) -> None:
        self._room = room
        self._servers = servers
        self._load = load
        self._freed: dict[int, Freed] = {}
        self.total = total
        """Workers that would fit, on all servers together, if this many do now."""

    def leave(self, run: Run, where: Where, sign: int = 1) -> None:
        """Let a run of the type leave or, with sign -1, come back."""
        servers, load = self._servers, self._room.load(run.members)
        for name, workers in where.items():
            if (at := servers.at.get(name)) is not None:
                count, cores, memory = servers.part(load, at, sign * workers)
                freed = self._freed.get(at, NOTHING)
                before = servers.count_at(self._load, at, freed)
                self._freed[at] = freed = (freed[0] + count, freed[1] + cores, freed[2] + memory)
                self.total += servers.count_at(self._load, at, freed) - before

    def count(self, name: str) -> int:
        """Workers that would fit on one server."""
        at = self._servers.at.get(name)
        return 0 if at is None else self._servers.count_at(self._load, at, self._freed.get(at, NOTHING))


class Room:
    """Every server with what is free on it, and where runs are, for trying changes."""

    def __init__(
        self, pools: Sequence[ServerPool], placed: Mapping[Run, Where], needs_of: Callable[[int], Needs]
    ) -> None:
        self._pools = pools
        self._needs_of = needs_of
        self._loads: dict[Members, RunLoad] = {}
        self._load_of: dict[tuple[Needs, ...], RunLoad] = {}
        self.where: dict[Run, Where] = dict(placed)
        self.servers = [ServersOfType(pool) for pool in pools]
        """By type."""
        self._freed: list[list[int]] = [[] for _ in pools]
        """By type: the servers that runs have left, in order."""
        self._nowhere: list[dict[tuple[RunLoad, int], int]] = [{} for _ in pools]
        """By type: loads and numbers of workers that found no place, and the length of `_freed` at that time."""
        for run, where in placed.items():
            self.servers[run.type_index].add(self.load(run.members), where, -1, accelerators=False)

    def copy(self) -> Room:
        """A copy on which other changes can be tried."""
        made = copy(self)
        made.where = dict(self.where)
        made.servers = [servers.copy() for servers in self.servers]
        made._freed = [list(freed) for freed in self._freed]  # noqa: SLF001 - its own
        made._nowhere = [dict(nowhere) for nowhere in self._nowhere]  # noqa: SLF001
        return made

    def load(self, members: Members) -> RunLoad:
        """What each worker of these jobs takes."""
        load = self._loads.get(members)
        if load is None:
            needs = tuple([self._needs_of(slot) for slot in members])
            load = self._load_of.get(needs)
            if load is None:
                load = self._load_of[needs] = load_of(needs)
            self._loads[members] = load
        return load

    def find(self, members: Members, type_index: int, workers: int) -> Where | None:
        """Where a run fits: on the fullest server that holds all workers, else on few servers; None if nowhere."""
        load = self.load(members)
        kind, nowhere, freed = (load, workers), self._nowhere[type_index], self._freed[type_index]
        known = nowhere.get(kind)
        if known == len(freed):
            return None
        if known is not None and workers == 1 and len(freed) - known <= FEW:
            found = self._among(freed[known:], load, type_index)
        else:
            found = self._search(load, type_index, workers)
        if found is None:
            nowhere[kind] = len(freed)
        return found

    def _among(self, candidates: Iterable[int], load: RunLoad, type_index: int) -> Where | None:
        """The fullest of some servers that holds a worker; of equals the first."""
        servers = self.servers[type_index]
        fitting = [(servers.accelerators.item(at), at) for at in candidates if servers.count_at(load, at)]
        return {servers.names[min(fitting)[1]]: 1} if fitting else None

    def _search(self, load: RunLoad, type_index: int, workers: int) -> Where | None:
        servers = self.servers[type_index]
        places, counts = servers.counts(load)
        enough = places[counts >= workers]
        if len(enough):
            return {servers.names[enough[servers.accelerators[enough].argmin()]]: workers}
        if int(counts.sum()) < workers:
            return None
        found: dict[str, int] = {}
        for at in np.argsort(-counts, kind="stable").tolist():
            name = servers.names[places[at]]
            found[name] = min(int(counts[at]), workers)
            workers -= found[name]
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
        at = self.servers[run.type_index].at
        self._freed[run.type_index] += [at[name] for name in where if name in at]
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
        load, servers = self.load(members), self.servers[type_index]
        full = workers == 1 and self._nowhere[type_index].get((load, 1)) == len(self._freed[type_index])
        trial = _Trial(self, servers, load, 0 if full else int(servers.counts(load)[1].sum()))
        for run in leaving:
            if run.type_index == type_index:
                trial.leave(run, self.where[run])
        if trial.total >= workers:
            return []
        gone: list[Run] = []
        for run in candidates:
            gone.append(run)
            trial.leave(run, self.where[run])
            if trial.total >= workers:
                break
        else:
            return None
        target = next((name for name in self.where[gone[-1]] if trial.count(name) >= workers), None)
        needed: list[Run] = []
        for run in reversed(gone):
            where = self.where[run]
            trial.leave(run, where, -1)
            if target is not None:
                still = target not in where or trial.count(target) >= workers
            else:
                still = trial.total >= workers
            if not still:
                trial.leave(run, where)
                needed.insert(0, run)
        return needed

    def holds_without(self, run: Run, name: str, leaving: Iterable[Run]) -> bool:
        """Whether a server could hold all workers of a run if others left it."""
        trial = _Trial(self, self.servers[run.type_index], self.load(run.members))
        for other in leaving:
            trial.leave(other, self.where[other])
        return trial.count(name) >= run.workers

    def _holds(self, members: Members, type_index: int, workers: int, name: str) -> bool:
        servers = self.servers[type_index]
        return name in servers.at and servers.count_at(self.load(members), servers.at[name]) >= workers

    def locality(self, run: Run, where: Where) -> Locality:
        """How close together the workers of a run would sit."""
        return self._pools[run.type_index].locality(where)
