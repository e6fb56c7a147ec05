"""Accuracy of estimates: every reference is left out in turn and estimated from some of its pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.estimator.completion import Bools, Floats
from gavel.estimator.fingerprint import Fingerprint, Pair, Shares, fingerprint, profiling_plan
from gavel.estimator.references import References


@dataclass(frozen=True, slots=True)
class Score:
    """Absolute errors of estimated shares, over both members of every pair that was not measured."""

    mean: float
    p90: float


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """A reference treated as new: its true values, what was measured, and the other references."""

    template: str
    others: References
    true: Floats
    """(2 N T,): its fingerprint."""
    alone: Floats
    """(T,): its rates."""
    measured: Bools
    """(2 N T,)"""
    found: Fingerprint


def left_out(references: References, share: float) -> Iterator[LeftOut]:
    """Every reference in turn, with the given fraction of its pairs measured, the most informative first."""
    for template, alone in zip(references.templates, references.alone, strict=True):
        others = references.without(template)
        plan = profiling_plan(others, round(share * others.fits.shape[1]))
        found = fingerprint(others, observed(references, template, plan))
        measured = np.zeros((len(others.templates), len(others.types)), dtype=bool)
        for partner, type_name in plan:
            measured[others.row[partner], others.column[type_name]] = True
        rows, own = [references.row[name] for name in others.templates], references.row[template]
        true = np.concatenate([references.kept[own, rows].reshape(-1), references.kept[rows, own].reshape(-1)])
        yield LeftOut(template, others, true, alone, np.tile(measured.reshape(-1), 2), found)


def observed(references: References, template: str, pairs: Sequence[Pair]) -> dict[Pair, Shares]:
    """The result of measuring a reference beside others."""
    own, kept = references.row[template], references.kept
    places = [(references.row[partner], references.column[type_name]) for partner, type_name in pairs]
    shares = [(float(kept[own, row, column]), float(kept[row, own, column])) for row, column in places]
    return dict(zip(pairs, shares, strict=True))


Estimator = Callable[[LeftOut], Floats]


def _completed(case: LeftOut) -> Floats:
    found = case.found
    return np.concatenate([(found.kept * found.fits).reshape(-1), (found.left * found.fits).reshape(-1)])


def _nearest(case: LeftOut) -> Floats:
    return np.asarray(case.others.fingerprints[case.others.row[case.found.reference]])


def _nearest_alone(case: LeftOut) -> Floats:
    runs = (case.others.alone > 0) & (case.alone > 0)
    both = np.where(runs, case.others.alone, 1.0), np.where(runs, case.alone, 1.0)
    nearest = int(np.abs(np.log(both[0] / both[1])).sum(axis=1).argmin())
    return np.asarray(case.others.fingerprints[nearest])


def _mean(case: LeftOut) -> Floats:
    return np.asarray(case.others.fingerprints.mean(axis=0))


ESTIMATORS: dict[str, Estimator] = {
    "fingerprint completed": _completed,
    "rates of the nearest reference": _nearest,
    "baseline: nearest by rates alone": _nearest_alone,
    "baseline: mean of all references": _mean,
}


def scores(references: References, share: float) -> dict[str, Score]:
    """By estimator: its errors when a fraction of a new template's pairs is measured; with all measured, over all."""
    cases = list(left_out(references, share))
    return {name: _score(estimate, cases) for name, estimate in ESTIMATORS.items()}


def _score(estimate: Estimator, cases: Sequence[LeftOut]) -> Score:
    counted = [~case.measured if not case.measured.all() else case.measured for case in cases]
    errors = [np.abs(estimate(case) - case.true)[which] for case, which in zip(cases, counted, strict=True)]
    together = np.concatenate(errors)
    return Score(float(together.mean()), float(np.quantile(together, 0.9)))


def matches(references: References, share: float, *, seed: int | None = None) -> float:
    """How often a reference is recognised from a fraction of its pairs: the best ones or, with a seed, random ones."""
    count = round(share * references.fits.shape[1])
    known = [(name, type_name) for name in references.templates for type_name in references.types]
    right = 0
    for number, template in enumerate(references.templates):
        if seed is None:
            pairs = profiling_plan(references, count)
        else:
            chosen = np.random.default_rng((seed, number)).choice(len(known), count, replace=False)
            pairs = [known[index] for index in chosen.tolist()]
        right += fingerprint(references, observed(references, template, pairs)).reference == template
    return right / len(references.templates)
