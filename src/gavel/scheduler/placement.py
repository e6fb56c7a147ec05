"""Which servers a run gets: as few as possible, and the fullest that fit, so that large gaps stay for large gangs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gavel.core.cluster import Server

Where = Mapping[str, int]
"""Accelerators by server."""


@dataclass(frozen=True, slots=True)
class FloorState:
    """A floor as it is written down. Orders are part of it: of servers that would do, the first is taken."""

    sizes: Mapping[str, int]
    with_free: tuple[tuple[int, tuple[str, ...]], ...]
    """Servers by free accelerators."""


class Floor:
    """The servers of one type and what is free on each."""

    def __init__(self) -> None:
        self._size: dict[str, int] = {}
        self._free: dict[str, int] = {}
        self._with_free: dict[int, dict[str, None]] = {}
        """Servers by free accelerators, in order of arrival there; together they hold every server."""
        self.capacity = 0
        self.free = 0
        """Accelerators of all servers, and those of them that are free."""

    @property
    def busy(self) -> int:
        return self.capacity - self.free

    def servers(self) -> Iterator[tuple[str, int, int]]:
        """Name, accelerators and how many of them are free, of every server."""
        for name, size in self._size.items():
            yield name, size, self._free[name]

    def dump(self) -> FloorState:
        """All there is to know."""
        groups = tuple((count, tuple(names)) for count, names in sorted(self._with_free.items()) if names)
        return FloorState(dict(self._size), groups)

    @classmethod
    def restored(cls, state: FloorState) -> Floor:
        """The floor that was written down."""
        floor = cls()
        floor._size = dict(state.sizes)
        floor.capacity = sum(state.sizes.values())
        for count, names in state.with_free:
            floor._free |= dict.fromkeys(names, count)
            floor._with_free[count] = dict.fromkeys(names)
            floor.free += count * len(names)
        return floor

    def join(self, server: Server) -> None:
        self._size[server.name] = server.accelerators
        self.capacity += server.accelerators
        self._set(server.name, server.accelerators)

    def lose(self, name: str) -> None:
        free = self._free.pop(name)
        self._with_free[free].pop(name)
        self.free -= free
        self.capacity -= self._size.pop(name)

    def __contains__(self, name: str) -> bool:
        return name in self._size

    def take(self, workers: int) -> dict[str, int]:
        """Accelerators for a gang: on the fullest server that holds it whole, else on as few as possible."""
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
        """These very accelerators, which must be free."""
        for name, workers in where.items():
            self._claim(name, workers)
        return dict(where)

    def take_elsewhere(self, avoid: str) -> dict[str, int]:
        """One accelerator on any other server, the fullest that has one."""
        counts = sorted(count for count, names in self._with_free.items() if count and set(names) - {avoid})
        return self._claim(next(name for name in self._with_free[counts[0]] if name != avoid), 1)

    def _claim(self, name: str, workers: int) -> dict[str, int]:
        self._set(name, self._free[name] - workers)
        return {name: workers}

    def give_back(self, where: Where) -> None:
        for name, workers in where.items():
            if name in self._free:  # a server that is gone takes nothing back
                self._set(name, self._free[name] + workers)

    def _set(self, name: str, free: int) -> None:
        if name in self._free:
            self._with_free[self._free[name]].pop(name)
            self.free -= self._free[name]
        self.free += free
        self._free[name] = free
        self._with_free.setdefault(free, {})[name] = None

    def cheapest_clearing(self, workers: int, movable: Mapping[str, int]) -> tuple[str, int] | None:
        """The server on which a gang could sit whole if the fewest single workers moved, and how many of them.

        `movable` counts single workers by server. None if there is no such server, or none has to move.
        """
        total, best = self.free, None
        for name, size in self._size.items():
            moves = workers - self._free[name]
            possible = size >= workers and 0 < moves <= movable.get(name, 0) and total - self._free[name] >= moves
            if moves <= 0 <= size - workers:
                return None
            if possible and (best is None or moves < best[1]):
                best = name, moves
        return best

    def is_consolidated(self, where: Where) -> bool:
        """Whether a gang sits on as few servers as its size allows."""
        if len(where) == 1:
            return True
        workers, largest = sum(where.values()), max(self._size.values(), default=1)
        return len(where) <= -(-workers // largest)
