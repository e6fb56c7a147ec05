"""Reference jobs: templates whose pairs have been measured, as the share of their rate that they keep while sharing.

Only templates with one worker share accelerators here. A pair that does not fit in memory keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gavel.core.locality import Locality
from gavel.core.throughputs import ThroughputTable
from gavel.estimator.completion import Basis, Bools, Floats, basis

DOUBTS = 2
"""Number of partners per type that are profiled first because it is least certain whether they fit."""

BLOCK = 32
"""Number of fingerprints compared at once."""


@dataclass(frozen=True, eq=False)
class References:
    """Templates with known pairs. N of them and T types.

    >>> from gavel.core.throughputs import builtin_table
    >>> references = References.of(builtin_table())
    >>> len(references.templates), references.types
    (26, ('v100', 'p100', 'k80'))
    """

    templates: tuple[str, ...]
    types: tuple[str, ...]
    alone: Floats
    """(N, T): steps per second of one worker alone."""
    kept: Floats
    """(N, N, T): the share of its rate that the first keeps beside the second; 0 if they do not fit together."""

    @classmethod
    def of(cls, table: ThroughputTable) -> References:
        """The templates of a table that share with some other, or with themselves."""
        rows = [row for row, (_, workers) in enumerate(table.profiles) if workers == 1 and table.shared[row].any()]
        alone = table.alone[rows, :, Locality.SERVER]
        shared = table.shared[np.ix_(rows, rows)]
        rate = alone[:, None, :]
        kept = np.divide(shared, rate, out=np.zeros_like(shared), where=rate > 0)
        return cls(tuple(table.profiles[row][0] for row in rows), table.types, alone, kept)

    def without(self, template: str) -> References:
        """All references except one."""
        rest = [row for row, name in enumerate(self.templates) if name != template]
        return References(
            tuple(self.templates[row] for row in rest), self.types, self.alone[rest], self.kept[np.ix_(rest, rest)]
        )

    def on(self, types: Sequence[str]) -> References:
        """The same, restricted to some types."""
        columns = [self.column[type_name] for type_name in types]
        return References(self.templates, tuple(types), self.alone[:, columns], self.kept[:, :, columns])

    @cached_property
    def row(self) -> dict[str, int]:
        """The index of a template."""
        return {template: row for row, template in enumerate(self.templates)}

    @cached_property
    def column(self) -> dict[str, int]:
        """The index of a type."""
        return {type_name: column for column, type_name in enumerate(self.types)}

    @cached_property
    def fingerprints(self) -> Floats:
        """(N, 2 N T): by template, its shares beside all references on all types, then the references' shares."""
        count = len(self.templates)
        left = self.kept.transpose(1, 0, 2)
        return np.concatenate([self.kept.reshape(count, -1), left.reshape(count, -1)], axis=1)

    def distances(self, shares: Floats) -> Floats:
        """(N,): the mean absolute difference of a fingerprint to each reference's."""
        theirs, rounded = self._rounded, shares.astype(np.float32)
        blocks = range(0, len(theirs), BLOCK)  # small enough for the processor's cache
        return np.concatenate([np.abs(theirs[at : at + BLOCK] - rounded).mean(axis=1) for at in blocks]).astype(float)

    @cached_property
    def _rounded(self) -> NDArray[np.float32]:
        """Fingerprints in single precision: there may be many references, and six digits are enough."""
        return self.fingerprints.astype(np.float32)

    @cached_property
    def fits(self) -> Bools:
        """(N, N T): with which partner, and on which type, each template fits in memory."""
        return np.asarray((self.kept > 0).reshape(len(self.templates), -1))

    @cached_property
    def basis(self) -> Basis:
        """The low-rank structure of fingerprints; pairs that do not fit carry no information about speed."""
        return basis(self.fingerprints, np.concatenate([self.fits, self.fits], axis=1))

    def most_doubtful(self) -> list[int]:
        """The pairs, as columns of `fits`, that are least certain to fit: the first of every type, then the second …"""
        doubt = np.abs(self.fits.mean(axis=0) - 0.5).reshape(len(self.templates), len(self.types))
        order = np.argsort(doubt, axis=0, kind="stable")[:DOUBTS]
        return [int(row) * len(self.types) + column for rows in order for column, row in enumerate(rows)]
