"""Rates for numbers of workers that a throughput table does not list, derived from those that it lists.

Between two listed numbers a rate follows the power law through both. Beyond the largest it follows the power law from
the smallest listed number above one to the largest, at most in proportion to the workers: docs/throughputs.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gavel.limits import FASTEST

Floats = NDArray[np.float64]


def can_scale(counts: Sequence[int], workers: int) -> bool:
    """Whether a rate can be derived from the listed counts (ascending): there are two, and one is below `workers`.

    >>> can_scale((1, 2, 4, 8), 16), can_scale((1,), 2), can_scale((4, 8), 2)
    (True, False, False)
    """
    return len(counts) > 1 and counts[0] < workers


def scaled(counts: Sequence[int], rates: Floats, workers: int) -> Floats:
    """The rates for `workers`, given those of the listed counts along the first axis of `rates`.

    A rate is 0 where the listed ones next to it are 0, and where a single listed one is not.

    >>> scaled((1, 2), np.array([10.0, 16.0]), 4).round(6).tolist()
    25.6
    >>> scaled((1, 4), np.array([10.0, 40.0]), 2).round(6).tolist()
    20.0
    """
    known = np.array(counts, dtype=np.float64)
    upper = int(np.searchsorted(known, workers))
    found = _beyond(known, rates, workers) if upper == len(known) else _between(known, rates, workers, upper)
    return np.minimum(found, FASTEST)


def _between(known: Floats, rates: Floats, workers: int, upper: int) -> Floats:
    low, high = rates[upper - 1], rates[upper]
    share = np.log(workers / known[upper - 1]) / np.log(known[upper] / known[upper - 1])
    return np.where((low > 0) & (high > 0), low ** (1.0 - share) * high**share, 0.0)


def _beyond(known: Floats, rates: Floats, workers: int) -> Floats:
    several = known > 1  # one worker does not communicate, so it says little about how gangs scale
    if several.sum() > 1:
        known, rates = known[several], rates[several]
    first = np.argmax(rates > 0, axis=0)
    low, high = np.take_along_axis(rates, first[None], axis=0)[0], rates[-1]
    runs = (first < len(known) - 1) & (low > 0) & (high > 0)
    growth = np.log(np.divide(high, low, out=np.ones_like(high), where=runs))
    workers_growth = np.log(np.where(runs, known[-1] / known[first], np.e))
    return np.where(runs, high * (workers / known[-1]) ** np.clip(growth / workers_growth, 0.0, 1.0), 0.0)
