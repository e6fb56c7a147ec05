"""The rows of a program and their order. All code that reads a row or its dual gets its position here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.problem import Floats, Ints


@dataclass(frozen=True, slots=True)
class Rows:
    """A time row and a floor row for each class, then the coupling rows that classes share.

    Coupling rows with a name come first: the accelerators of each type, then every further limit. The others keep
    track of which classes share accelerators.

    >>> rows = Rows(2, ("v100", "k80"), ("v100: gangs of 4",), balances=1)
    >>> rows.floors, rows.types, rows.limits, rows.balances_at, rows.count
    (slice(2, 4, None), slice(4, 6, None), slice(6, 7, None), slice(7, 8, None), 8)
    >>> rows.names
    ('v100', 'k80', 'v100: gangs of 4')
    """

    classes: int
    type_names: tuple[str, ...]
    limit_names: tuple[str, ...] = ()
    balances: int = 0
    """The number of pools of two profiles: both sides spend the same time there. These are the only equations."""
    partners: int = 0
    """The number of rows that keep a job in a pool of one profile from sharing accelerators with itself."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coupling rows that have one, in order."""
        return (*self.type_names, *self.limit_names)

    @property
    def times(self) -> slice:
        return slice(0, self.classes)

    @property
    def floors(self) -> slice:
        return slice(self.classes, 2 * self.classes)

    @property
    def coupling(self) -> slice:
        return slice(2 * self.classes, self.count)

    @property
    def named(self) -> slice:
        return slice(2 * self.classes, 2 * self.classes + len(self.type_names) + len(self.limit_names))

    @property
    def types(self) -> slice:
        return slice(2 * self.classes, 2 * self.classes + len(self.type_names))

    @property
    def limits(self) -> slice:
        return slice(self.types.stop, self.named.stop)

    @property
    def balances_at(self) -> slice:
        return slice(self.named.stop, self.named.stop + self.balances)

    @property
    def partners_at(self) -> slice:
        return slice(self.balances_at.stop, self.count)

    @staticmethod
    def joined(times: Floats, floors: Floats, coupling: Floats) -> Floats:
        """One value for each row."""
        return np.concatenate([times, floors, coupling])

    @staticmethod
    def own(begin: Ints) -> tuple[Ints, Ints, Ints]:
        """The positions of a column's values in its class's time row, its floor row, and the row of its type.

        `begin` is where columns begin that run one class each. A matrix lists their values in the order of rows.
        """
        return begin, begin + 1, begin + 2

    def by_type(self, named: Floats) -> Floats:
        """Of values by named row, those of the types."""
        return named[: len(self.type_names)]

    @property
    def count(self) -> int:
        return 2 * self.classes + len(self.type_names) + len(self.limit_names) + self.balances + self.partners
