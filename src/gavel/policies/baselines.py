"""What to compare with: static isolation, Gandiva's random packing, and AlloX's matching.

The first two optimise nothing; their objective is that of max-min fairness, with its bound, so that the gap shows
what they leave on the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, sparse

from gavel.core.allocation import Allocation, Certificate
from gavel.core.errors import SolverError
from gavel.core.problem import Floats, Ints, Problem
from gavel.policies import scores
from gavel.policies.finish import certified
from gavel.program.demand import Proportional
from gavel.program.program import Level, Program

PACKING_ROUNDS = 10
"""How often Gandiva tries to pack the jobs that are still alone."""


def isolated(problem: Problem) -> Allocation:
    """Give each of n jobs 1/n of every type, and nothing more."""
    program = Program(problem.without_pairs(), "weight")
    c = program.combos
    share = problem.isolated_shares[program.profile[c.first], problem.column_type[c.column]]
    amounts = program.feasible(
        share * _best_placement(problem)[program.profile[c.first], c.column] / program.unit * program.count[c.first]
    )
    level = _fairness_level(program)
    return certified(program, amounts, "isolated", scores.fairness, bound=level.bound, prices=level.prices)


def _best_placement(problem: Problem) -> Floats:
    """1 for the faster of a profile's columns on each type, 0 for the other."""
    chosen = np.zeros(problem.rates.shape)
    for index in range(len(problem.types)):
        here = np.flatnonzero(problem.column_type == index)
        chosen[np.arange(len(chosen)), here[problem.rates[:, here].argmax(axis=1)]] = 1.0
    return chosen


def _fairness_level(program: Program) -> Level:
    return program.max_level(Proportional(program.weight / program.normalised_gain))


def gandiva(problem: Problem, *, seed: int = 0) -> Allocation:
    """Pack random pairs while there are too many jobs, keep those that help, and give every packed unit an equal share.

    Knows nothing of how jobs differ: a unit gets its part of each type, the generally fastest first where its parts add
    up to more than all of its time. Where a pair cannot run together on a type, its jobs take turns there.
    """
    partner = _random_packing(problem, np.random.default_rng(seed))
    program = Program(problem, rank=scores.places(scores.arrival_order(problem)))
    class_of = np.full(len(problem.jobs), -1)
    class_of[program.member] = np.arange(len(program))
    mate = np.where(partner[program.member] >= 0, class_of[partner[program.member]], -1)
    units = int((mate < 0).sum() + (mate >= 0).sum() // 2)
    amounts = program.feasible(_unit_shares(program, mate, max(units, 1)) / program.unit)
    level = _fairness_level(Program(problem, "weight"))
    return certified(program, amounts, "gandiva", scores.fairness, bound=level.bound, prices=level.prices)


def _random_packing(problem: Problem, rng: np.random.Generator) -> Ints:
    """The partner of each job, or -1: random pairs of equally many workers, kept if they help on average over types."""
    helps = _helpful_pairs(problem)
    profile, workers = problem.jobs.profile, problem.profiles.workers[problem.jobs.profile]
    partner = np.full(len(profile), -1, dtype=np.intp)
    by_name = np.argsort(np.asarray(problem.jobs.ids, dtype=str))
    excess = float(workers[scores.runnable_jobs(problem)].sum() - problem.counts.sum())
    for _ in range(PACKING_ROUNDS):
        alone = by_name[(partner[by_name] < 0) & problem.runnable[profile[by_name]]]
        shuffled = alone[rng.permutation(len(alone))]
        shuffled = shuffled[np.argsort(workers[shuffled], kind="stable")]
        one, other = shuffled[0 : len(shuffled) // 2 * 2 : 2], shuffled[1::2]
        good = helps[profile[one], profile[other]] & (workers[one] == workers[other])
        one, other = one[good], other[good]
        wanted = np.cumsum(workers[one]) - workers[one] < excess
        partner[one[wanted]], partner[other[wanted]] = other[wanted], one[wanted]
        excess -= float(workers[one[wanted]].sum())
        if excess <= 0:
            break
    return partner


def _helpful_pairs(problem: Problem) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """By two profiles: whether sharing gives more than taking turns, averaged over the accelerators."""
    n = len(problem.rates)
    helps = np.zeros((n, n), dtype=bool)
    pairs = problem.pairs
    by_column = problem.counts[problem.column_type] / max(problem.counts.sum(), 1.0)
    by_column = np.where([c.consolidated for c in problem.columns], 0.0, by_column)
    total = np.zeros(len(pairs))
    for side, ends in enumerate((pairs.first, pairs.second)):
        alone = problem.rates[ends]
        relative = np.divide(pairs.rates[:, side], alone, out=np.zeros_like(alone), where=alone > 0)
        total += relative @ by_column
    good = total > 1.0
    helps[pairs.first[good], pairs.second[good]] = True
    helps[pairs.second[good], pairs.first[good]] = True
    return helps


def _unit_shares(program: Program, mate: Ints, units: int) -> Floats:
    """Instances of every combo when each unit gets 1/units of every type, at most all of its time."""
    problem, c = program.problem, program.combos
    raw = problem.counts[None, :] / (units * program.workers[:, None])
    share = _best_first(raw * (problem.type_rates[program.profile] > 0), problem)
    type_of = problem.column_type[c.column]
    together = (c.second >= 0) & (mate[c.first] == c.second)
    shares = np.where(together, np.minimum(share[c.first, type_of], share[c.second, type_of]), 0.0)
    packed_here = np.zeros((len(program), len(problem.types)), dtype=bool)
    packed_here[c.first[together], type_of[together]] = True
    packed_here[c.second[together], type_of[together]] = True
    alone = (c.second < 0) & ~packed_here[c.first, type_of]
    turn = np.where(mate[c.first] >= 0, 0.5, 1.0) * _best_placement(problem)[program.profile[c.first], c.column]
    return np.where(alone, share[c.first, type_of] * turn, shares)


def _best_first(parts: Floats, problem: Problem) -> Floats:
    """Cut parts of the types down to all of a job's time, keeping those of the types that are fastest on average."""
    speed = problem.type_rates / np.maximum(problem.fastest_rates[:, None], 1e-300)
    left, share = np.ones(len(parts)), np.zeros_like(parts)
    for kind in np.argsort(-speed.mean(axis=0), kind="stable"):
        share[:, kind] = np.minimum(parts[:, kind], left)
        left -= share[:, kind]
    return share


def allox(problem: Problem) -> Allocation:
    """Minimise the average completion time of single-worker jobs by matching jobs to places in the queue of a type."""
    problem = problem.without_pairs()
    program = Program(problem, rank=scores.places(scores.arrival_order(problem)))
    matching = _match(program)
    certificate = Certificate(
        matching.average_seconds,
        min(matching.bound, matching.average_seconds),
        {t.name: float(p) for t, p in zip(problem.types, matching.prices, strict=True)},
        minimised=True,
    )
    c = program.combos
    first_in_line = _heads(matching, program)[c.first, problem.column_type[c.column]]
    best = _best_placement(problem)[program.profile[c.first], c.column]
    return program.allocation("allox", first_in_line * best / program.unit, certificate)


@dataclass(frozen=True, slots=True, eq=False)
class _Matching:
    """Who stands where: class, type and place from the end of a line, one entry for each class."""

    job: Ints
    type_of: Ints
    place: Ints
    average_seconds: float
    bound: float
    prices: Floats


def _match(program: Program) -> _Matching:
    """Match jobs to (type, place from the end): a job with k - 1 jobs behind it delays k jobs by its duration.

    The accelerators of a type are alike, so each place exists as often as the type does: a transportation problem,
    whose vertices are whole.
    """
    problem, n = program.problem, len(program)
    depth = [-(-n // int(count)) if count else 0 for count in problem.counts]
    type_of = np.repeat(np.arange(len(depth)), depth)
    place = np.concatenate([np.arange(1, d + 1) for d in depth])
    available = problem.counts[type_of]
    rates = problem.type_rates[program.profile][:, type_of]
    job, slot = np.nonzero(rates > 0)
    cost = place[slot] * program.steps[job] / rates[job, slot]
    size = float(cost.max())
    ones, at = np.ones(len(job)), np.arange(len(job))
    takes: Any = sparse.csr_array((ones, (slot, at)), shape=(len(place), len(job)))
    serves: Any = sparse.csr_array((ones, (job, at)), shape=(n, len(job)))
    result = optimize.linprog(cost / size, A_ub=takes, b_ub=available, A_eq=serves, b_eq=np.ones(n), method="highs-ds")
    if result.status != 0:
        raise SolverError(f"allox: the matching ended with {result.message!r}")
    age = float(problem.jobs.age[program.member].sum())
    chosen = np.asarray(result.x) > 0.5
    paid = np.asarray(result.ineqlin.marginals)
    least = float(np.sum(result.eqlin.marginals) + paid @ available) * size
    return _Matching(
        job[chosen],
        type_of[slot[chosen]],
        place[slot[chosen]],
        (age + float(cost[chosen].sum())) / n,
        (age + least) / n,
        np.maximum(-np.bincount(type_of, weights=paid, minlength=len(depth)) * size / n, 0.0),
    )


def _heads(matching: _Matching, program: Program) -> Floats:
    """By class and type: 1 for everyone who is first in line.

    Of the jobs at place k from the end, as many lead their line as there are lines of length k.
    """
    running = np.zeros((len(program), len(program.problem.types)))
    for index in range(len(program.problem.types)):
        here = matching.type_of == index
        jobs, places = matching.job[here], matching.place[here]
        longer = 0
        for place in np.unique(places)[::-1]:
            at = np.sort(jobs[places == place])
            running[at[: len(at) - longer], index] = 1.0
            longer = max(longer, len(at))
    return running
