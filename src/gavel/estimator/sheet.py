"""A growing array of rates measured in pairs, with fast writes and lookups."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from gavel.core.throughputs import Condition, Profile
from gavel.estimator.completion import Floats

Key = TypeVar("Key", bound=Hashable)


class Sheet:
    """Rates of a profile beside another on a type; NaN where there is none.

    >>> sheet = Sheet()
    >>> sheet.put(Condition("a", 1, "v100", beside="b"), 2.5)
    >>> sheet.look_up([("a", 1), ("b", 1)], ["v100"])[0, 1].tolist()
    [2.5]
    """

    def __init__(self) -> None:
        self._rows: dict[Profile, int] = {}
        self._columns: dict[str, int] = {}
        self._values: Floats = np.full((8, 8, 4), np.nan)

    def put(self, condition: Condition, rate: float) -> None:
        """Store a rate."""
        mine = _place(self._rows, (condition.template, condition.workers))
        its = _place(self._rows, (condition.beside or "", condition.workers))
        column = _place(self._columns, condition.type)
        while mine >= len(self._values) or its >= len(self._values) or column >= self._values.shape[2]:
            self._values = np.pad(self._values, [(0, size) for size in self._values.shape], constant_values=np.nan)
        self._values[mine, its, column] = rate

    def look_up(self, profiles: Sequence[Profile], types: Sequence[str]) -> Floats:
        """(profiles, profiles, types)"""
        found = np.full((len(profiles), len(profiles), len(types)), np.nan)
        known = [number for number, profile in enumerate(profiles) if profile in self._rows]
        type_indices = [index for index, name in enumerate(types) if name in self._columns]
        rows = [self._rows[profiles[number]] for number in known]
        columns = [self._columns[types[index]] for index in type_indices]
        found[np.ix_(known, known, type_indices)] = self._values[np.ix_(rows, rows, columns)]
        return found


def _place(places: dict[Key, int], key: Key) -> int:
    return places.setdefault(key, len(places))
