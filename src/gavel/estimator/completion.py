"""Low-rank matrix completion: a new row of a matrix from a few of its entries. It knows nothing of accelerators.

The rows at hand vary about their mean along few directions (their singular vectors). A new row is the mean plus such
directions, as much of each as its known entries ask for: a Gaussian model whose answer is one small linear system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

RANK = 16
"""Directions that are kept; more do not help with the tables at hand."""
NOISE = 0.003
"""Variance of what no direction explains."""
OUTLIER = 3.0
"""An entry that its neighbours miss by this many times the usual counts less, in proportion."""
REWEIGHTED = 3
"""How often that is asked anew."""
MANY = 200
"""With more rows than this, only the directions that are kept are worked out."""
IGNORANCE = 0.25
"""The mean error of whoever knows of an entry only that it lies between 0 and 1."""
DOUBT = 4.0
"""How far off the others put a given entry is believed as if so many more were off by ignorance."""


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """What rows of a matrix have in common."""

    mean: Floats
    """(columns,)"""
    directions: Floats
    """(rank, columns), scaled: a row is the mean plus normally distributed amounts, of variance 1, of these."""
    weights: Floats
    """(rows, rank): an amount of each direction is a combination of rows, less their mean."""

    @property
    def spread(self) -> float:
        """The usual distance of a row's entries from the mean (root mean square)."""
        return float(np.sqrt((self.directions**2).sum(axis=0).mean()))


@dataclass(frozen=True, slots=True, eq=False)
class Completed:
    """A row that was completed; entries that were given are kept."""

    row: Floats
    combination: Floats
    """By row of the matrix: the completed row is their mean plus this combination of what they differ from it by."""
    error: float
    """Of an entry that was not given, as far as can be told: as far off as the others would have put a given one."""


def basis(rows: Floats, known: Bools, *, rank: int = RANK) -> Basis:
    """The directions of a matrix; entries that are not known are taken to be at their column's mean."""
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, rows, 0.0).sum(axis=0) / count
    mean[~known.any(axis=0)] = mean[known.any(axis=0)].mean() if known.any() else 0.0
    centred = np.where(known, rows - mean, 0.0)
    values, vectors = _largest(centred @ centred.T, rank)  # which is small: rows are much longer than they are many
    kept = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
    weights = vectors[:, kept] / np.sqrt(len(rows))
    return Basis(mean, weights.T @ centred, weights)


def _largest(matrix: Floats, rank: int) -> tuple[Floats, Floats]:
    """The largest eigenvalues of a symmetric matrix, and their vectors as columns."""
    if len(matrix) > MANY:
        from scipy.sparse.linalg import eigsh  # noqa: PLC0415 - most have few references, and it takes long to import

        values, vectors = eigsh(matrix, rank, v0=np.ones(len(matrix)))  # the same start gives the same answer
    else:
        values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-values, kind="stable")[:rank]
    return np.asarray(values[order]), np.asarray(vectors[:, order])


def complete(common: Basis, columns: Ints, values: Floats) -> Completed:
    """The whole row of which some entries are given. One given entry that fits no other does little harm."""
    given, residual = common.directions[:, columns], values - common.mean[columns]
    trust = np.ones(len(columns))
    for _ in range(REWEIGHTED):
        amounts, inverse = _fit(given, residual, trust)
        missed = _left_out(given, residual, trust, amounts, inverse)
        usual = max(float(np.median(missed)), np.sqrt(NOISE)) if len(missed) else 1.0
        before, trust = trust, np.minimum(1.0, OUTLIER * usual / np.maximum(missed, 1e-12)) ** 2
        if np.array_equal(before, trust):
            break
    row = common.mean + amounts @ common.directions
    row[columns] = values
    unsure = float(np.sqrt((common.directions * (inverse @ common.directions)).sum() / max(len(row), 1)))
    off = (float(missed @ trust) + DOUBT * IGNORANCE) / (float(trust.sum()) + DOUBT)
    return Completed(row, common.weights @ amounts, float(np.hypot(off, unsure)))


def _fit(given: Floats, residual: Floats, trust: Floats) -> tuple[Floats, Floats]:
    """The most likely amounts, and their covariance."""
    inverse: Floats = np.linalg.inv((given * trust) @ given.T / NOISE + np.eye(len(given))).astype(np.float64)
    return inverse @ (given @ (trust * residual)) / NOISE, inverse


def _left_out(given: Floats, residual: Floats, trust: Floats, amounts: Floats, inverse: Floats) -> Floats:
    """How far off each entry would be, had it not been given."""
    leverage = trust * (given * (inverse @ given)).sum(axis=0) / NOISE
    return np.asarray(np.abs(residual - amounts @ given) / np.maximum(1.0 - leverage, 1e-9))


def most_telling(common: Basis, groups: Ints, count: int, *, first: list[int]) -> list[int]:
    """Which groups of columns to look at so that the rest is known best, the most telling first.

    `groups` has the columns of each group as a row. Those in `first` come first; each further one is that which
    lowers the variance of all entries most, given those before: what the entries will be does not matter for it.
    """
    directions = common.directions
    inverse, all_of_them = np.eye(len(directions)), directions @ directions.T
    chosen: list[int] = []
    for number in range(min(count, len(groups))):
        if number < len(first):
            best = first[number]
        else:
            reached = inverse @ directions
            lowered = (reached * (all_of_them @ reached)).sum(axis=0) / (NOISE + (directions * reached).sum(axis=0))
            gain = lowered[groups].sum(axis=1)
            gain[chosen] = -np.inf
            best = int(gain.argmax())
        chosen.append(best)
        for column in groups[best].tolist():
            direction = directions[:, column]
            reach = inverse @ direction
            inverse = inverse - np.outer(reach, reach) / (NOISE + direction @ reach)
    return chosen
