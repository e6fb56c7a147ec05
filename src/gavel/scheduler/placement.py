"""Which servers a run gets: as few as possible, and the fullest that fit, so that large gaps stay for large gangs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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

    def take_elsewhere(self, avoid: Collection[str]) -> dict[str, int]:
        """One accelerator on any other server, the fullest that has one."""
        count = min(count for count, names in self._with_free.items() if count and not names.keys() <= set(avoid))
        return self._claim(next(name for name in self._with_free[count] if name not in avoid), 1)

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

    def cheapest_clearing(self, workers: int, movable: Mapping[str, int]) -> dict[str, int]:
        """The servers on which a gang could sit together if the fewest single workers moved, and how many on each.

        `movable` counts single workers by server. Empty if there are no such servers, or nobody has to move.
        """
        chosen: dict[str, int] = {}
        largest = max(self._size.values(), default=1)
        while (rest := workers - len(chosen) * largest) > 0:
            part = min(rest, largest)
            needed = {
                name: max(part - self._free[name], 0)
                for name, size in self._size.items()
                if size >= part and name not in chosen and part - self._free[name] <= movable.get(name, 0)
            }
            if not needed:
                return {}
            name = min(needed, key=needed.__getitem__)
            chosen[name] = needed[name]
        elsewhere = self.free - sum(self._free[name] for name in chosen)
        return chosen if 0 < sum(chosen.values()) <= elsewhere else {}

    def is_consolidated(self, where: Where) -> bool:
        """Whether a gang sits on as few servers as its size allows."""
        if len(where) == 1:
            return True
        workers, largest = sum(where.values()), max(self._size.values(), default=1)
        return len(where) <= -(-workers // largest)
