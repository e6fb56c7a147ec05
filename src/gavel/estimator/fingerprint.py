"""A template's fingerprint from a few measured pairs with references, and its most similar reference.

Also the plan of pairs to measure. `guesses` derives the shares of any two templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gavel.estimator.completion import IGNORANCE, Bools, Floats, Ints, complete, most_telling
from gavel.estimator.references import References

Pair = tuple[str, str]
"""The reference and the type of a measurement."""
Shares = tuple[float, float]
"""The shares of their rates that a template keeps and that its partner keeps; NaN if not measured.

Two zeros mean that they do not fit in memory together.
"""

CONFIDENT = 0.3
"""Below this confidence no jobs are packed on an estimate."""
PAIRS_A_TYPE = 5
"""Number of pairs of a new template to profile on each type."""


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:
    """The shares of a template and of every reference beside it: measured ones, and completed for the rest."""

    kept: Floats
    """(N, T): share of its own rate, if both fit in memory."""
    left: Floats
    """(N, T): share of the reference's rate, if both fit in memory."""
    fits: Bools
    """(N, T): whether both fit in memory."""
    combination: Floats
    """(N,): the template is the mean of all references plus this combination of their deviations from it."""
    measured: int
    """Number of measured figures."""
    reference: str
    """The most similar reference."""
    distance: float
    """Distance to that reference: the mean absolute difference of fingerprints."""
    error: float
    """Expected absolute error of a share that was not measured."""
    confidence: float
    """1: no error; 0: no better than an uninformed guess."""

    @property
    def trusted(self) -> bool:
        """Whether it is good enough for packing jobs."""
        return self.confidence >= CONFIDENT


def fingerprint(references: References, observed: Mapping[Pair, Shares]) -> Fingerprint:
    """Complete the observations of a template."""
    count, type_count = len(references.templates), len(references.types)
    pairs = np.array(
        [references.row[name] * type_count + references.column[type_name] for name, type_name in observed],
        dtype=np.intp,
    )
    values = np.array(list(observed.values()), dtype=float).reshape(-1, 2)
    fits = _fits(references, pairs, ~(values == 0.0).all(axis=1))
    columns = np.concatenate([pairs, pairs + count * type_count])
    values = np.minimum(values.T.reshape(-1), 1.0)
    usable = values > 0.0
    completed = complete(references.basis, columns[usable], values[usable])
    shares = np.clip(completed.row, 0.0, 1.0)
    distances = references.distances(shares * np.concatenate([fits, fits]))
    nearest = int(distances.argmin())
    kept, left = shares.reshape(2, count, type_count)
    return Fingerprint(
        kept=kept,
        left=left,
        fits=fits.reshape(count, type_count),
        combination=completed.combination,
        measured=int(usable.sum()),
        reference=references.templates[nearest],
        distance=float(distances[nearest]),
        error=completed.error,
        confidence=max(0.0, 1.0 - completed.error / IGNORANCE),
    )


def _fits(references: References, pairs: Ints, room: Bools) -> Bools:
    """By pair: whether both fit in memory, by majority of the references that agree best with the observations."""
    wrong = (references.fits[:, pairs] != room).sum(axis=1)
    fits = references.fits[wrong == wrong.min()].mean(axis=0) >= 0.5
    fits[pairs] = room
    return np.asarray(fits)


def profiling_plan(references: References, pairs: int | None = None) -> list[Pair]:
    """The pairs of a new template to measure, the most informative first.

    First those that show how much memory it leaves, then those whose speeds are most informative about all others.
    """
    count, type_count = len(references.templates), len(references.types)
    wanted = PAIRS_A_TYPE * type_count if pairs is None else pairs
    groups = np.arange(count * type_count)[:, None] + np.array([0, count * type_count])
    chosen = most_telling(references.basis, groups, wanted, first=references.most_doubtful())
    return [(references.templates[pair // type_count], references.types[pair % type_count]) for pair in chosen]
