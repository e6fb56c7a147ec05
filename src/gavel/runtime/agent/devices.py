"""Assigns devices to tasks: one job each, or two jobs that share on the scheduler's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Devices:
    """The accelerators of one server and their holders.

    A device has no holder, one, or two of different jobs, the second of which joined the first.

    >>> devices = Devices({"v100": (0, 1)})
    >>> devices.take(("a", 1), "v100", 2), devices.take(("b", 1), "v100", 1)
    ((0, 1), None)
    >>> devices.give_back(("a", 1), 1)
    >>> devices.take(("b", 1), "v100", 1)
    (1,)
    """

    indices: Mapping[str, Sequence[int]]
    holders: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """Jobs and attempts by device number."""
    leaving: set[tuple[str, int]] = field(default_factory=set)
    """Holders that were asked to leave: no job may join them."""

    def total(self, type_name: str) -> int:
        """How many devices of a type there are."""
        return len(self.indices.get(type_name, ()))

    def take(self, holder: tuple[str, int], type_name: str, count: int, beside: str = "") -> tuple[int, ...] | None:
        """Take this many devices, if possible those of the neighbour `beside`; None: not available yet."""
        devices = self.indices.get(type_name, ())
        theirs = [device for device in devices if beside and self._stays(beside, device)]
        room = 1 if theirs else 0
        chosen = [device for device in theirs or devices if len(self.holders.get(device, ())) == room][:count]
        if len(chosen) < count:
            return None
        for device in chosen:
            self.holders.setdefault(device, []).append(holder)
        return tuple(chosen)

    def _stays(self, job: str, device: int) -> bool:
        return any(holder[0] == job and holder not in self.leaving for holder in self.holders.get(device, ()))

    def give_back(self, holder: tuple[str, int], device: int) -> None:
        """Record that a task on this device has ended."""
        self.holders[device].remove(holder)
        if not any(holder in holders for holders in self.holders.values()):
            self.leaving.discard(holder)

    def neighbour(self, holder: tuple[str, int], device: int) -> tuple[str, int] | None:
        """The other holder of this device."""
        return next((other for other in self.holders.get(device, ()) if other != holder), None)
