"""How a template gets on with the references: its fingerprint from a few measured pairs, and whom it resembles.

Also which pairs to measure for it. What follows for pairs of any two templates is `guesses`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gavel.estimator.completion import IGNORANCE, Bools, Floats, Ints, complete, most_telling
from gavel.estimator.references import References

Pair = tuple[str, str]
"""A reference beside which, and a type on which, a template was measured."""
Shares = tuple[float, float]
"""What a template keeps of its rate, and what it leaves to its partner of theirs; NaN where it was not measured.

Two zeros: they do not fit together.
"""

CONFIDENT = 0.3
"""Below this confidence nobody is packed on a guess."""
PAIRS_A_TYPE = 5
"""How many pairs of a new template are profiled on each type."""


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:
    """What a template keeps beside every reference and leaves to it: measured where it was, completed elsewhere."""

    kept: Floats
    """(N, T): of its rate, if there is room for both."""
    left: Floats
    """(N, T): of the reference's rate, if there is room for both."""
    fits: Bools
    """(N, T): whether there is."""
    combination: Floats
    """(N,): it behaves like the mean of all references plus this combination of how they differ from it."""
    measured: int
    """How many figures it rests on."""
    reference: str
    """The most similar reference."""
    distance: float
    """From that reference: the mean absolute difference of fingerprints."""
    error: float
    """Expected absolute error of a share that was not measured."""
    confidence: float
    """1: no error; 0: no better than whoever knows nothing."""

    @property
    def trusted(self) -> bool:
        """Whether it is good enough to pack jobs by."""
        return self.confidence >= CONFIDENT


def fingerprint(references: References, observed: Mapping[Pair, Shares]) -> Fingerprint:
    """Complete what was observed of a template."""
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
    """By pair: whether there is room, as most of those references have it that agree best with what was seen."""
    wrong = (references.fits[:, pairs] != room).sum(axis=1)
    fits = references.fits[wrong == wrong.min()].mean(axis=0) >= 0.5
    fits[pairs] = room
    return np.asarray(fits)


def profiling_plan(references: References, pairs: int | None = None) -> list[Pair]:
    """The pairs to measure of a new template, the most telling first.

    First those that show how much room it leaves, then those whose speed says most about all others'.
    """
    count, type_count = len(references.templates), len(references.types)
    wanted = PAIRS_A_TYPE * type_count if pairs is None else pairs
    groups = np.arange(count * type_count)[:, None] + np.array([0, count * type_count])
    chosen = most_telling(references.basis, groups, wanted, first=references.most_doubtful())
    return [(references.templates[pair // type_count], references.types[pair % type_count]) for pair in chosen]
