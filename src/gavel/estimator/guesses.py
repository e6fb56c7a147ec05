"""Estimated shares of any two templates beside each other, from fingerprints, for pairs that are worth trying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gavel.estimator.completion import Floats
from gavel.estimator.fingerprint import Fingerprint
from gavel.estimator.references import References

CAUTION = 0.5
"""A pair is tried only if its estimated gain exceeds its expected error times this factor."""


def guessed_shares(references: References, templates: Sequence[str], unknown: Mapping[str, Fingerprint]) -> Floats:
    """(templates, templates, types): the share that the first keeps beside the second; 0 for pairs not to try.

    Only for pairs with a template in `unknown`: those of references are known.
    """
    shares = np.zeros((len(templates), len(templates), len(references.types)))
    new = [number for number, name in enumerate(templates) if name in unknown and unknown[name].trusted]
    old = [number for number, name in enumerate(templates) if name in references.row]
    if not new:
        return shares
    found = [unknown[templates[number]] for number in new]
    rows = [references.row[templates[number]] for number in old]
    shares[np.ix_(new, old)] = np.stack([(one.kept * one.fits)[rows] for one in found])
    shares[np.ix_(old, new)] = np.stack([(one.left * one.fits)[rows] for one in found], axis=1)
    shares[np.ix_(new, new)] = between(found)
    error = np.zeros(len(templates))
    error[new] = [one.error for one in found]
    return worthwhile(shares, np.maximum(error[:, None], error[None, :]))


def between(fingerprints: Sequence[Fingerprint]) -> Floats:
    """(n, n, types): the share that each keeps beside each, for templates that are not references.

    There are two estimates, one from the shares of references beside the second and one from the shares of the first
    beside references; they are averaged. 0 where most similar references would not fit together.
    """
    kept, left = (np.stack([getattr(one, name) for one in fingerprints]) for name in ("kept", "left"))
    fits = np.stack([one.fits for one in fingerprints]).astype(float)
    combination = np.stack([one.combination for one in fingerprints])

    def both_ways(of_first: Floats, of_second: Floats) -> Floats:
        first, second = _combined(combination, of_second), _combined(combination, of_first).transpose(1, 0, 2)
        return np.asarray((first + second) / 2.0)

    return np.where(both_ways(fits, fits) >= 0.5, np.clip(both_ways(kept, left), 0.0, 1.0), 0.0)


def _combined(combination: Floats, shares: Floats) -> Floats:
    """(n, n, types): apply the first's combination of references to the second's figures."""
    mean = shares.mean(axis=1)
    return np.asarray(mean[None] + np.einsum("ar,brt->abt", combination, shares - mean[:, None]))


def worthwhile(shares: Floats, error: Floats) -> Floats:
    """Keep only pairs for which sharing beats taking turns by more than the possible error.

    Jobs that take turns on an accelerator keep shares that add up to 1.
    """
    others = shares.transpose(1, 0, 2)
    gains = (shares > 0) & (others > 0) & (shares + others > 1.0 + CAUTION * error[:, :, None])
    return np.where(gains, shares, 0.0)
