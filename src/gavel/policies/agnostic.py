"""The heterogeneity-agnostic version of any policy, which decides as if all types were equally fast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.locality import Locality
from gavel.core.problem import Column, Floats, Problem, no_pairs
from gavel.policies.consolidation import seated

SCALINGS = 100


def alike(problem: Problem) -> Problem:
    """The problem as an agnostic policy sees it: every rate is replaced by its mean over the accelerators that run it.

    Such a policy does not choose between placements either, so each type has one column.
    """
    seen = problem.kept.get(alike)
    if not isinstance(seen, Problem):
        rates = _averaged(problem, _in_one_column(problem))
        pairs = replace(problem.pairs, rates=_averaged(problem, problem.pairs.rates))
        seen = problem.kept[alike] = replace(problem, profiles=replace(problem.profiles, rates=rates), pairs=pairs)
    return seen.with_jobs(problem.jobs)


def as_one_type(seen: Problem) -> Problem | None:
    """The problem with all types merged into one, which is much faster to solve; None if types differ.

    Every job must be able to run alone on every type, wherever there is room. Then the decision for the merged type can
    be divided among the types in proportion to their accelerators.
    """
    if len(seen.pairs) or len(seen.types) < 2:
        return None
    if as_one_type not in seen.kept:
        seen.kept[as_one_type] = _merged(seen)
    merged = seen.kept[as_one_type]
    return merged.with_jobs(seen.jobs) if isinstance(merged, Problem) else None


def _merged(seen: Problem) -> Problem | None:
    together = [column.index for column in seen.closer_columns]
    somewhere = (seen.type_rates > 0)[:, seen.counts > 0]
    if seen.rates[:, together].any() or (somewhere.any(axis=1) != somewhere.all(axis=1)).any():
        return None
    every = AcceleratorType(
        " or ".join(accelerator_type.name for accelerator_type in seen.types), int(seen.counts.sum())
    )
    profiles = replace(seen.profiles, rates=seen.fastest_rates[:, None])
    return replace(seen, types=(every,), columns=(Column(0, Locality.CLUSTER),), profiles=profiles, pairs=no_pairs(1))


def dealt_out(decided: Allocation, seen: Problem) -> Allocation:
    """Divide the decision for the merged type among the types, in proportion to their accelerators."""
    profile = seen.jobs.profile[decided.classes.first[decided.combos[:, 0]]]
    rates = np.zeros((len(decided.combos), 2, len(seen.columns)))
    rates[:, 0] = seen.rates[profile]
    part = seen.counts[seen.column_type] / seen.counts.sum()
    instances = decided.instances * part * (rates[:, 0] > 0)
    price = next(iter(decided.certificate.prices.values()))
    certificate = replace(decided.certificate, prices={accelerator_type.name: price for accelerator_type in seen.types})
    return replace(decided, problem=seen, instances=instances, rates=rates, certificate=certificate)


def _in_one_column(problem: Problem) -> Floats:
    """Rates by profile with one column for each type: any placement there, at the rate of the best one.

    Only a job that cannot run spread out keeps its consolidated column.
    """
    rates = problem.rates.copy()
    for column in problem.closer_columns:
        close, apart = rates[:, column.index], rates[:, column.wider]
        rates[:, column.index], rates[:, column.wider] = (
            np.where(apart > 0, 0.0, close),
            np.where(apart > 0, np.maximum(close, apart), 0.0),
        )
    return rates


def _averaged(problem: Problem, rates: Floats) -> Floats:
    """Rates by column, the last axis, averaged over the columns where they are not 0, weighted by accelerators."""
    weight = problem.counts[problem.column_type] * (rates > 0)
    total = weight.sum(axis=-1, keepdims=True)
    mean = np.divide((rates * weight).sum(axis=-1, keepdims=True), total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(np.where(rates > 0, mean, 0.0))


def at_true_rates(seen: Allocation, problem: Problem, *, spread: bool) -> Allocation:
    """An agnostic decision at the true rates; with `spread`, every combo's time is spread over all types.

    To a policy that considers types equally fast, all ways to place its shares are equally good. Its solver's arbitrary
    choice would give one job only fast accelerators and another only slow ones; in a cluster that uses whatever is
    free, each gets a mix. Only a policy that considers prices has a reason to prefer one type.
    """
    profile = problem.jobs.profile[seen.classes.first]
    ends = np.where(seen.combos >= 0, profile[seen.combos], -1)
    alone = ends[:, 1] < 0
    rates = np.zeros_like(seen.rates)
    rates[alone, 0] = problem.rates[ends[alone, 0]]
    rates[~alone] = problem.pairs.between(*ends[~alone].T)
    workers = problem.profiles.workers[ends[:, 0]]
    instances = _evenly(seen, problem, workers.astype(float)) if spread else seen.instances
    return replace(seen, problem=problem, instances=seated(problem, workers, rates[:, 0], instances), rates=rates)


def _evenly(seen: Allocation, problem: Problem, workers: Floats) -> Floats:
    """Spread each combo's time evenly over the types that run it, with less on types that would overflow.

    Weights are found by scaling: a type that is asked for more than it has loses weight with all combos until it
    fits. If that is not enough, the mix is blended with the solver's own placement just enough to fit; both
    keep every combo's total, so any blend does, too.
    """
    runs = (seen.rates > 0).any(axis=1) * 1.0
    total = seen.instances.sum(axis=1, keepdims=True)
    by_type = runs @ (problem.column_type[:, None] == np.arange(len(problem.types)))
    weight = runs * _leaning(workers * total[:, 0], by_type, problem.counts)[problem.column_type]
    mixed = total * weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
    blend = 1.0
    for used, limit in _limits(problem, workers):
        asked_here, placed = float((used * mixed).sum()), float((used * seen.instances).sum())
        if asked_here > limit and asked_here > placed:
            blend = min(blend, max((limit - placed) / (asked_here - placed), 0.0))
    return np.asarray(blend * mixed + (1 - blend) * seen.instances)


def _leaning(workers: Floats, ways: Floats, counts: Floats) -> Floats:
    """By type: the weight with which the workers of all combos fit; `ways` tells which types each combo can use."""
    lean = np.ones(len(counts))
    for _ in range(SCALINGS):
        asked = (workers / np.maximum(ways @ lean, 1e-300)) @ ways * lean
        over = asked / np.maximum(counts, 1e-300)
        if (over <= 1.0).all():
            break
        lean = lean / np.maximum(over, 1.0)
    return lean


def _limits(problem: Problem, workers: Floats) -> Iterator[tuple[Floats, float]]:
    """Each limit as (use by combo and column, capacity): accelerators, and room for consolidated gangs."""
    for index, count in enumerate(problem.counts.tolist()):
        yield workers[:, None] * (problem.column_type == index), count
    for column in problem.closer_columns:
        for size in np.unique(workers).astype(int).tolist():
            limit = column.most_gangs(size)
            if limit is not None:
                here = np.arange(len(problem.columns)) == column.index
                yield (workers >= size)[:, None] * here * 1.0, float(limit)
