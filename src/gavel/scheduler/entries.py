"""Entries: what the credit mechanism counts. An entry is one class combo on one accelerator type.

Its *target* is the number of runs it should have at once, on average, according to the allocation. Its *credit* is the
seconds of running that it is still owed. Its *standing* turns credit into urgency, comparable between large and small
classes: for how long each of its missing runs has been missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.core.serialization import stored_as

GUEST = -1
"""In place of an entry's number: the run is a guest on an accelerator that would be idle. It pays for no entry."""
NO_CLASS = -1
"""In place of a class's number: no class, either because a combo has no second job or because a slot has no job."""

EntryKey = tuple[int, int, int]
"""The class, the second class (NO_CLASS if the job runs alone) and the type."""


@dataclass(frozen=True, slots=True, eq=False)
class LedgerEntries:
    """All entries as columns, one element per entry."""

    first: Ints
    second: Ints
    type_index: Ints = field(metadata=stored_as("kind"))
    target: Floats
    """The number of runs to have at once, on average."""
    speed: Floats
    """(entries, 2): steps per second of each member."""
    credit: Floats
    """Seconds of running owed; negative if the entry has received too much. The one column that changes over time."""
    keys: list[EntryKey] = field(init=False)
    index: dict[EntryKey, int] = field(init=False)

    def __post_init__(self) -> None:
        keys = list(zip(self.first.tolist(), self.second.tolist(), self.type_index.tolist(), strict=True))
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "index", {key: number for number, key in enumerate(keys)})

    def standing(self, paid: Ints | Floats, seconds: float) -> Floats:
        """By entry: the standing after `seconds` more with `paid` runs.

        This is the credit at that time per missing run, or per surplus run. It says for how long each of those runs has
        been missing, so it does not depend on the number of jobs in a class.
        """
        missing = self.target - paid
        return (self.credit + missing * seconds) / np.maximum(np.abs(missing), 1.0)

    def find(self, key: EntryKey | None) -> int:
        """Return the number of the entry with these classes, listed in either order; GUEST if there is none."""
        if key is None:
            return GUEST
        found = self.index.get(key)
        return self.index.get((key[1], key[0], key[2]), GUEST) if found is None else found

    def usual_credit(self) -> dict[int, float]:
        """By type: the average credit of entries, weighted by target; only types where it is positive."""
        meant = np.bincount(self.type_index, weights=self.target)
        owed = np.bincount(self.type_index, weights=self.target * self.credit)
        return {type_index: owed[type_index] / meant[type_index] for type_index in (owed > 0).nonzero()[0].tolist()}

    @classmethod
    def none(cls) -> LedgerEntries:
        ints, floats = np.empty(0, dtype=np.intp), np.empty(0)
        return cls(ints, ints, ints, floats, np.empty((0, 2)), floats)

    @classmethod
    def of(cls, allocation: Allocation, running: Iterable[EntryKey]) -> LedgerEntries:
        """Build the entries of an allocation, with all placements on a type as one entry.

        Combos that run although the allocation gives them no time get entries with target 0.
        """
        combo, column = (allocation.instances > 1e-9).nonzero()
        type_index = allocation.problem.column_type[column]
        target, speed = allocation.instances[combo, column], allocation.rates[combo, :, column]
        if len(allocation.problem.columns) > len(allocation.problem.types):
            new = np.ones(len(combo), dtype=bool)
            new[1:] = (combo[1:] != combo[:-1]) | (
                type_index[1:] != type_index[:-1]
            )  # columns of one type are adjacent
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
