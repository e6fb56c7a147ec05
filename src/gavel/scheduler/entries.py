"""What an allocation asks a mechanism for, and what is owed: class combos by type, with their credit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.core.serialization import stored_as

GUEST = -1
"""The entry of a run on an accelerator that would be idle: it pays nothing and yields first."""
NOBODY = -1

EntryKey = tuple[int, int, int]
"""Class, second class or -1, type."""


@dataclass(frozen=True, slots=True, eq=False)
class LedgerEntries:
    """What an allocation asks for, and what is owed."""

    first: Ints
    second: Ints
    type_index: Ints = field(metadata=stored_as("kind"))
    target: Floats
    """Runs at once, on average."""
    speed: Floats
    """(entries, 2): steps per second of each member."""
    credit: Floats
    """Seconds of runs owed; changes as time passes."""
    keys: list[EntryKey] = field(init=False)
    index: dict[EntryKey, int] = field(init=False)

    def __post_init__(self) -> None:
        keys = list(zip(self.first.tolist(), self.second.tolist(), self.type_index.tolist(), strict=True))
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "index", {key: number for number, key in enumerate(keys)})

    def standing(self, paid: Ints | Floats, seconds: float) -> Floats:
        """By entry: what it is owed after this long with so many runs, for each run that it has too few or too many.

        So it says for how long those runs have been missing, however many jobs a class has.
        """
        missing = self.target - paid
        return (self.credit + missing * seconds) / np.maximum(np.abs(missing), 1.0)

    def find(self, key: EntryKey | None) -> int:
        """The entry of these classes, whichever way round it lists them; GUEST if there is none."""
        if key is None:
            return GUEST
        found = self.index.get(key)
        return self.index.get((key[1], key[0], key[2]), GUEST) if found is None else found

    def usual_credit(self) -> dict[int, float]:
        """By type: what entries are owed on average, where that is more than nothing."""
        meant = np.bincount(self.type_index, weights=self.target)
        owed = np.bincount(self.type_index, weights=self.target * self.credit)
        return {type_index: owed[type_index] / meant[type_index] for type_index in (owed > 0).nonzero()[0].tolist()}

    @classmethod
    def none(cls) -> LedgerEntries:
        ints, floats = np.empty(0, dtype=np.intp), np.empty(0)
        return cls(ints, ints, ints, floats, np.empty((0, 2)), floats)

    @classmethod
    def of(cls, allocation: Allocation, running: Iterable[EntryKey]) -> LedgerEntries:
        """Those of an allocation, the placements of a type taken together, and those of who runs anyway."""
        combo, column = (allocation.instances > 1e-9).nonzero()
        type_index = allocation.problem.column_type[column]
        target, speed = allocation.instances[combo, column], allocation.rates[combo, :, column]
        if len(allocation.problem.columns) > len(allocation.problem.types):
            new = np.ones(len(combo), dtype=bool)
            new[1:] = (combo[1:] != combo[:-1]) | (
                type_index[1:] != type_index[:-1]
            )  # the placements of a type stand side by side
            begin = new.nonzero()[0]
            combo, type_index = combo[begin], type_index[begin]
            target, speed = np.add.reduceat(target, begin), np.maximum.reduceat(speed, begin)
        keys = np.empty((len(combo), 3), dtype=np.intp)
        keys[:, :2], keys[:, 2] = allocation.combos[combo], type_index
        known, others = set(map(tuple, keys.tolist())), []
        for key in running:
            if key not in known and (key[1], key[0], key[2]) not in known:  # a pair may be listed either way round
                known.add(key)
                others.append(key)
        if others:
            keys = np.concatenate([keys, others])
            target = np.concatenate([target, np.zeros(len(others))])
            speed = np.concatenate([speed, np.zeros((len(others), 2))])
        return cls(keys[:, 0], keys[:, 1], keys[:, 2], target, speed, np.zeros(len(keys)))
