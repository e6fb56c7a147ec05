"""A sparse matrix by columns with only what our programs need; for small ones, much faster than scipy's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gavel.core.problem import Floats, Ints


@dataclass(frozen=True, eq=False)
class Places:
    """The sparsity pattern: column j has entries in the rows `indices[indptr[j]:indptr[j + 1]]`."""

    shape: tuple[int, int]
    indptr: Ints
    indices: Ints
    column: Ints
    """The column of each entry."""
    order: Ints | None
    """The order into which values must be brought; None if they are given in it."""
    begin: Ints | None
    """Where the ordered values of each place begin; None if each place has one value."""

    @classmethod
    def of(cls, rows: Ints, columns: Ints, shape: tuple[int, int]) -> Places:
        """Build the pattern from entries in any order; several may be at the same place."""
        place, order, begin = columns * shape[0] + rows, None, None
        if (place[1:] <= place[:-1]).any():
            order = np.argsort(place, kind="stable")
            rows, columns, place = rows[order], columns[order], place[order]
            new = np.ones(len(place), dtype=bool)
            new[1:] = place[1:] != place[:-1]
            if not new.all():
                begin = new.nonzero()[0]
                rows, columns = rows[begin], columns[begin]
        return cls(shape, _starts(columns, shape[1]), rows, columns, order, begin)

    def holding(self, values: Floats) -> Columns:
        """The matrix with these values, in the order of the entries; values at the same place add up."""
        if self.order is not None:
            values = values[self.order]
        if self.begin is not None:
            values = np.add.reduceat(values, self.begin)
        return Columns(self, values)

    @cached_property
    def narrow(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """`indptr` and `indices` as 32-bit integers, for solvers written in C."""
        return self.indptr.astype(np.int32), self.indices.astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A sparse matrix: places and their values."""

    places: Places
    data: Floats

    @classmethod
    def of(cls, rows: Ints, columns: Ints, values: Floats, shape: tuple[int, int]) -> Columns:
        """Build a matrix from entries in any order; entries at the same place add up.

        >>> m = Columns.of(np.array([0, 1, 0]), np.array([1, 0, 1]), np.array([2.0, 5.0, 3.0]), (2, 2))
        >>> m.times(np.array([1.0, 10.0])).tolist(), m.transposed_times(np.array([1.0, 10.0])).tolist()
        ([50.0, 5.0], [50.0, 5.0])
        """
        return Places.of(rows, columns, shape).holding(values)

    @property
    def shape(self) -> tuple[int, int]:
        return self.places.shape

    def times(self, x: Floats) -> Floats:
        """The matrix times a vector."""
        at = self.places
        return np.asarray(
            np.bincount(at.indices, weights=self.data * x[at.column], minlength=at.shape[0]), dtype=np.float64
        )

    def transposed_times(self, y: Floats) -> Floats:
        """The transposed matrix times a vector."""
        at = self.places
        return np.asarray(
            np.bincount(at.column, weights=self.data * y[at.indices], minlength=at.shape[1]), dtype=np.float64
        )

    def of_row_range(self, rows: slice) -> Floats:
        """By column: the sum of its values in these rows."""
        at = self.places
        here = (at.indices >= rows.start) & (at.indices < rows.stop)
        total = np.bincount(at.column[here], weights=self.data[here], minlength=at.shape[1])
        return np.asarray(total, dtype=np.float64)

    def select(self, chosen: Ints) -> Columns:
        """Some of the columns, in the given order."""
        from_start, at = self.places.indptr, self.places
        sizes = np.diff(from_start)[chosen]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        entries = np.repeat(from_start[chosen] - starts[:-1], sizes) + np.arange(starts[-1])
        column = np.repeat(np.arange(len(chosen)), sizes)
        places = Places((at.shape[0], len(chosen)), starts, at.indices[entries], column, None, None)
        return Columns(places, self.data[entries])


def _starts(columns: Ints, width: int) -> Ints:
    starts = np.zeros(width + 1, dtype=np.intp)
    np.bincount(columns, minlength=width).cumsum(out=starts[1:])
    return starts
