"""Placement: a run gets as few servers as possible, and the fullest that fit, so that large gaps remain for gangs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from gavel.core.cluster import Server
from gavel.core.locality import Locality
from gavel.core.problem import Ints

Where = Mapping[str, int]
"""Accelerators by server."""

MOST_TRIED = 16
"""The number of servers to try when making room: if the cheapest cannot be cleared, others seldom can."""


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What a server has beside the number of its accelerators; 0: unknown, and not limited."""

    millicores: int = 0
    memory: int = 0
    accelerator_memory: int = 0
    """Bytes of one accelerator."""

    @classmethod
    def of(cls, server: Server) -> ServerFigures:
        """The figures of a server."""
        return cls(round(server.cpus * 1000), server.memory_bytes, server.accelerator_memory)


UNLIMITED = ServerFigures()


@dataclass(frozen=True, slots=True, eq=False)
class ServerColumns:
    """What the servers of a type have, as one array per attribute, in the order in which they joined."""

    names: tuple[str, ...]
    at: Mapping[str, int]
    """The position of each name."""
    size: Ints
    millicores: Ints
    memory: Ints
    accelerator_memory: Ints
    share_of_cores: Ints
    """One accelerator's part of the CPU cores, in thousandths."""
    share_of_memory: Ints

    @classmethod
    def of(cls, servers: Mapping[str, int], figures: Mapping[str, ServerFigures]) -> ServerColumns:
        """The columns of servers, given their numbers of accelerators and what is known about them."""
        names = tuple(servers)
        known = [figures.get(name, UNLIMITED) for name in names]
        size = np.array([*servers.values()], dtype=np.int64)
        millicores = np.array([each.millicores for each in known], dtype=np.int64)
        memory = np.array([each.memory for each in known], dtype=np.int64)
        of_one = np.array([each.accelerator_memory for each in known], dtype=np.int64)
        at = {name: number for number, name in enumerate(names)}
        return cls(names, at, size, millicores, memory, of_one, millicores // size, memory // size)


@dataclass(frozen=True, slots=True)
class ServerPoolState:
    """A server pool in a dump. The order of servers matters: of several that fit, the first is taken."""

    sizes: Mapping[str, int]
    with_free: tuple[tuple[int, tuple[str, ...]], ...]
    """Servers by free accelerators."""
    closed: tuple[tuple[str, int], ...] = ()
    """Servers that accept no new runs, and their idle accelerators."""
    figures: Mapping[str, ServerFigures] = field(default_factory=dict)


class ServerPool:
    """The servers of one type and what is free on each."""

    def __init__(self) -> None:
        self._size: dict[str, int] = {}
        self._figures: dict[str, ServerFigures] = {}
        """By server, where anything is known."""
        self._free: dict[str, int] = {}
        self._with_free: dict[int, dict[str, None]] = {}
        """Every open server, by its number of free accelerators, in the order in which they reached that number."""
        self._shared: set[int] = set()
        """In a copy: the keys of `_with_free` whose values are still shared with the original."""
        self._closed: set[str] = set()
        """Servers that accept no new runs; only their accelerators in use count as capacity."""
        self._columns: ServerColumns | None = None
        """What `columns` answers; None if servers have come or gone since."""
        self.capacity = 0
        self.free = 0
        """Accelerators of all servers, and those of them that are free."""

    @property
    def busy(self) -> int:
        return self.capacity - self.free

    def servers(self) -> Iterator[tuple[str, int, int]]:
        """Iterate over (name, accelerators, free accelerators) of every server."""
        for name, size in self._size.items():
            yield name, size, self._free[name]

    def idle(self, name: str) -> int:
        """The free accelerators of a server."""
        return self._free[name]

    def figures(self, name: str) -> ServerFigures:
        """What a server has beside the number of its accelerators."""
        return self._figures.get(name, UNLIMITED)

    def columns(self) -> ServerColumns:
        """What every server has."""
        if self._columns is None:
            self._columns = ServerColumns.of(self._size, self._figures)
        return self._columns

    def accelerator_memories(self) -> tuple[float, float]:
        """The least and the most memory of an accelerator; infinite where it is unknown."""
        known = self.columns().accelerator_memory
        if not len(known):
            return math.inf, math.inf
        memory = np.where(known > 0, known, math.inf)
        return float(memory.min()), float(memory.max())

    def sizes(self) -> tuple[int, ...]:
        """The sizes of all servers, largest first, independent of the order in which they joined."""
        return tuple(sorted((size for name, size in self._size.items() if name not in self._closed), reverse=True))

    def dump(self) -> ServerPoolState:
        """The complete state, for a dump."""
        groups = tuple((count, tuple(names)) for count, names in sorted(self._with_free.items()) if names)
        closed = tuple((name, self._free[name]) for name in sorted(self._closed))
        return ServerPoolState(dict(self._size), groups, closed, dict(self._figures))

    def copy(self) -> ServerPool:
        """A copy on which changes can be tried."""
        pool = ServerPool()
        pool._size, pool._figures = self._size, self._figures  # only `join` and `lose` change them
        pool._columns = self._columns
        pool._free = dict(self._free)
        pool._with_free, pool._shared = dict(self._with_free), set(self._with_free)
        pool._closed = set(self._closed)
        pool.capacity, pool.free = self.capacity, self.free
        return pool

    @classmethod
    def restored(cls, state: ServerPoolState) -> ServerPool:
        """Restore a pool from a dump."""
        pool = cls()
        pool._size, pool._figures = dict(state.sizes), dict(state.figures)
        pool.capacity = sum(state.sizes.values())
        for count, names in state.with_free:
            pool._free |= dict.fromkeys(names, count)
            pool._with_free[count] = dict.fromkeys(names)
            pool.free += count * len(names)
        for name, free in state.closed:
            pool._free[name] = free
            pool._closed.add(name)
            pool.capacity -= free
        return pool

    def join(self, server: Server) -> None:
        self._columns = None
        self._size[server.name] = server.accelerators
        if (figures := ServerFigures.of(server)) != UNLIMITED:
            self._figures[server.name] = figures
        self.capacity += server.accelerators
        self._set(server.name, server.accelerators)

    def lose(self, name: str) -> None:
        self._columns = None
        self.reopen(name)
        free = self._free.pop(name)
        self._servers_with(free).pop(name)
        self.free -= free
        self.capacity -= self._size.pop(name)
        self._figures.pop(name, None)

    def close(self, name: str) -> None:
        """Accept no new runs on a server."""
        if name not in self._closed:
            free = self._free[name]
            self._servers_with(free).pop(name)
            self._closed.add(name)
            self.free -= free
            self.capacity -= free

    def reopen(self, name: str) -> None:
        """Accept runs on a closed server again."""
        if name in self._closed:
            free = self._free[name]
            self._closed.remove(name)
            self._servers_with(free)[name] = None
            self.free += free
            self.capacity += free

    @property
    def closed(self) -> frozenset[str]:
        """The servers that accept no new runs."""
        return frozenset(self._closed)

    def __contains__(self, name: str) -> bool:
        return name in self._size

    def take(self, workers: int) -> dict[str, int]:
        """Take accelerators on the fullest server that holds all workers, else on as few servers as possible."""
        for count in range(workers, max(self._with_free, default=0) + 1):
            if names := self._with_free.get(count):
                return self._claim(next(iter(names)), workers)
        taken: dict[str, int] = {}
        while workers:
            most = max(count for count, names in self._with_free.items() if names)
            taken |= self._claim(next(iter(self._with_free[most])), min(most, workers))
            workers -= min(most, workers)
        return taken

    def take_exactly(self, where: Where) -> dict[str, int]:
        """Take exactly these accelerators, which must be free."""
        for name, workers in where.items():
            self._claim(name, workers)
        return dict(where)

    def take_elsewhere(self, workers: int, avoid: Collection[str]) -> dict[str, int]:
        """Take accelerators on the fullest other server that holds all workers."""
        enough = [count for count in self._with_free if count >= workers]
        count = min(count for count in enough if not self._with_free[count].keys() <= set(avoid))
        return self._claim(next(name for name in self._with_free[count] if name not in avoid), workers)

    def _claim(self, name: str, workers: int) -> dict[str, int]:
        self._set(name, self._free[name] - workers)
        return {name: workers}

    def give_back(self, where: Where) -> None:
        for name, workers in where.items():
            if name in self._closed:
                self._free[name] += workers
                self.capacity -= workers
            elif name in self._free:  # a server that is gone takes nothing back
                self._set(name, self._free[name] + workers)

    def _set(self, name: str, free: int) -> None:
        if name in self._free:
            self._servers_with(self._free[name]).pop(name)
            self.free -= self._free[name]
        self.free += free
        self._free[name] = free
        self._servers_with(free)[name] = None

    def _servers_with(self, free: int) -> dict[str, None]:
        """The servers with this many free accelerators, as a dict that may be modified."""
        if free in self._shared:
            self._with_free[free] = dict(self._with_free[free])
            self._shared.remove(free)
        return self._with_free.setdefault(free, {})

    def holds(self, workers: int) -> bool:
        """Whether a gang fits on one server now."""
        return any(names for count, names in self._with_free.items() if count >= workers)

    def cheapest_clearing(self, workers: int, movable: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Find the servers on which a gang could be consolidated by moving the fewest workers, and the runs to move.

        `movable` lists, by server, the number of workers of each run that may move; the result lists positions in it.
        Every run that moves must fit on one other server. Empty if there is no such choice, or nothing has to move.
        """
        chosen: dict[str, list[int]] = {}
        largest = max(self._size.values(), default=1)
        while (rest := workers - len(chosen) * largest) > 0:
            for name, leaving in self._options(min(rest, largest), movable, chosen)[:MOST_TRIED]:
                if self._fit_elsewhere(moved := {**chosen, name: leaving}, movable):
                    chosen = moved
                    break
            else:
                return {}
        return chosen if any(chosen.values()) else {}

    def _options(
        self, part: int, movable: Mapping[str, Sequence[int]], avoid: Collection[str]
    ) -> list[tuple[str, list[int]]]:
        """Servers that could hold a part of a gang, with the runs that would have to leave; fewest workers first."""
        options: list[tuple[int, str, list[int]]] = []
        for name, size in self._size.items():
            if size >= part and name not in avoid and name not in self._closed:
                runs = movable.get(name, ())
                leaving = _who_leaves(runs, part - self._free[name])
                if leaving is not None:
                    options.append((sum(runs[at] for at in leaving), name, leaving))
        options.sort(key=itemgetter(0))
        return [(name, leaving) for _, name, leaving in options]

    def _fit_elsewhere(self, clearing: Mapping[str, Sequence[int]], movable: Mapping[str, Sequence[int]]) -> bool:
        """Whether each run that leaves fits on one other server, placing the largest first."""
        room = Counter({count: len(names) for count, names in self._with_free.items()})
        room.subtract(self._free[name] for name in clearing)
        moving = [movable[name][at] for name, leaving in clearing.items() for at in leaving]
        for workers in sorted(moving, reverse=True):
            count = min((count for count, names in room.items() if count >= workers and names), default=None)
            if count is None:
                return False
            room[count] -= 1
            room[count - workers] += 1
        return True

    def locality(self, where: Where) -> Locality:
        """How close together a gang sits."""
        if len(where) == 1:
            return Locality.SERVER
        workers, largest = sum(where.values()), max(self._size.values(), default=1)
        return Locality.SERVER if len(where) <= -(-workers // largest) else Locality.CLUSTER


def _who_leaves(runs: Sequence[int], needed: int) -> list[int] | None:
    """Positions of runs that together have at least `needed` workers, smallest first; None if all have fewer."""
    if needed <= 0:
        return []
    chosen: list[int] = []
    for at in sorted(range(len(runs)), key=runs.__getitem__):
        if needed > 0:
            chosen.append(at)
            needed -= runs[at]
    for at in tuple(chosen):
        if runs[at] <= -needed:  # the runs added later are enough without it
            chosen.remove(at)
            needed += runs[at]
    return None if needed > 0 else chosen
