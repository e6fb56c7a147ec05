"""Low-rank matrix completion: a new row of a matrix from a few of its entries. It knows nothing of accelerators.

The given rows vary about their mean along a few directions (their singular vectors). A new row is the mean plus the
combination of directions that fits its known entries: a Gaussian model, solved by one small linear system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

RANK = 16
"""Number of directions to keep; more do not help with the available tables."""
NOISE = 0.003
"""Variance that no direction explains."""
OUTLIER = 3.0
"""An entry whose residual exceeds the usual one by this factor gets proportionally less weight."""
REWEIGHTED = 3
"""Iterations of this reweighting."""
MANY = 200
"""With more rows than this, only the kept directions are computed."""
IGNORANCE = 0.25
"""The mean error of an uninformed guess: all it knows is that an entry lies between 0 and 1."""
DOUBT = 4.0
"""Pseudo-count of uninformed errors that is averaged with the observed prediction errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The low-rank structure of the rows of a matrix."""

    mean: Floats
    """(columns,)"""
    directions: Floats
    """(rank, columns), scaled: a row is the mean plus standard normal multiples of these."""
    weights: Floats
    """(rows, rank): expresses each direction as a combination of rows minus their mean."""

    @property
    def spread(self) -> float:
        """The usual distance of a row's entries from the mean (root mean square)."""
        return float(np.sqrt((self.directions**2).sum(axis=0).mean()))


@dataclass(frozen=True, slots=True, eq=False)
class Completed:
    """A completed row; given entries are unchanged."""

    row: Floats
    combination: Floats
    """By row of the matrix: the completed row is the mean plus this combination of the rows' deviations from it."""
    error: float
    """Expected error of an entry that was not given, from how well the others predict given entries."""


def basis(rows: Floats, known: Bools, *, rank: int = RANK) -> Basis:
    """The directions of a matrix; unknown entries are replaced by their column's mean."""
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, rows, 0.0).sum(axis=0) / count
    mean[~known.any(axis=0)] = mean[known.any(axis=0)].mean() if known.any() else 0.0
    centred = np.where(known, rows - mean, 0.0)
    values, vectors = _largest(centred @ centred.T, rank)  # which is small: there are far more columns than rows
    kept = values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300)
    weights = vectors[:, kept] / np.sqrt(len(rows))
    return Basis(mean, weights.T @ centred, weights)


def _largest(matrix: Floats, rank: int) -> tuple[Floats, Floats]:
    """The largest eigenvalues of a symmetric matrix, and their vectors as columns."""
    if len(matrix) > MANY:
        from scipy.sparse.linalg import eigsh  # noqa: PLC0415 - needed only with many references, and slow to import

        values, vectors = eigsh(matrix, rank, v0=np.ones(len(matrix)))  # a fixed start makes the result repeatable
    else:
        values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-values, kind="stable")[:rank]
    return np.asarray(values[order]), np.asarray(vectors[:, order])


def complete(common: Basis, columns: Ints, values: Floats) -> Completed:
    """Complete a row from some entries, robustly: one entry that contradicts all others does little harm."""
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
    """The leave-one-out error of each given entry."""
    leverage = trust * (given * (inverse @ given)).sum(axis=0) / NOISE
    return np.asarray(np.abs(residual - amounts @ given) / np.maximum(1.0 - leverage, 1e-9))


def most_telling(common: Basis, groups: Ints, count: int, *, first: list[int]) -> list[int]:
    """Groups of columns to measure so that the rest is predicted best, the most informative first.

    `groups` has the columns of each group as a row. Those in `first` come first; each further one most reduces the
    variance of all entries, given the previous ones. The choice does not depend on the measured values.
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
