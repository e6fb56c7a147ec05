"""Baselines: static isolation, Gandiva's random packing, and AlloX's matching.

The first two optimise nothing. Their objective and bound are those of max-min fairness, so that the gap shows what
they lose.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from gavel.core.allocation import Allocation, Certificate, Stage
from gavel.core.problem import Bools, Classes, Floats, Ints, Problem
from gavel.policies import scores
from gavel.policies.certify import scored
from gavel.policies.consolidation import seated
from gavel.policies.fairness import equal_levels
from gavel.program import transport
from gavel.program.program import Program

JOBS_IN_A_GROUP = 512
"""Gandiva tries all pairs of this many jobs; longer queues are divided into groups at random."""

UInts = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


def isolated(problem: Problem, *, bounded: bool = True) -> Allocation:
    """Give each of n jobs 1/n of every type, and nothing more."""
    program = Program(problem.without_pairs(), "weight")
    own = program.profile
    share = problem.isolated_shares[own][:, problem.column_type] * _best_placement(problem)[own]
    instances = seated(problem, problem.profiles.workers[own], problem.rates[own], share * program.count[:, None])
    certificate = _certificate(program) if bounded else _no_bound(problem)
    return scored(program.allocation("isolated", program.point(instances), certificate), scores.fairness)


def _no_bound(problem: Problem) -> Certificate:
    """The certificate of a baseline for which no bound was requested."""
    return Certificate(
        -np.inf,
        -np.inf,
        {accelerator_type.name: 0.0 for accelerator_type in problem.types},
        notes=("no bound was requested",),
    )


def _certificate(program: Program) -> Certificate:
    """The certificate of a baseline: how fair the fairest allocation is."""
    types = [accelerator_type.name for accelerator_type in program.problem.types]
    level = program.max_level(equal_levels(program).demand)
    prices = dict(zip(types, level.prices.tolist(), strict=True))
    return Certificate(level.bound, level.bound, prices, stages=level.stages)


def _best_placement(problem: Problem) -> Floats:
    """By profile and column: 1 for the faster placement on each type, 0 for the other."""
    chosen = np.zeros(problem.rates.shape)
    for index in range(len(problem.types)):
        here = np.flatnonzero(problem.column_type == index)
        chosen[np.arange(len(chosen)), here[problem.rates[:, here].argmax(axis=1)]] = 1.0
    return chosen


def gandiva(problem: Problem, *, seed: int = 0, bounded: bool = True) -> Allocation:
    """Pack random pairs while there are too many jobs, keep pairs that help, and give every unit an equal share.

    It ignores how jobs differ. A unit (a job or pair) gets its part of each type, those fastest on average first if the
    parts exceed all of its time. Where a pair cannot run together on a type, its jobs take turns. Jobs of the same
    profile whose partners also have the same profile form one class.
    """
    partner = _random_packing(problem, seed)
    alike = problem.classes("weight")
    classes = problem.classes("weight", rank=np.where(partner >= 0, alike.of_job[partner] + 1, 0))
    mate = np.where(partner >= 0, classes.of_job[partner], -1)[classes.first]
    alone = int((scores.runnable_jobs(problem) & (partner < 0)).sum())
    shares = _unit_shares(problem, classes, mate, max(alone + int((partner >= 0).sum()) // 2, 1))
    certificate = _certificate(Program(problem, "weight")) if bounded else _no_bound(problem)
    certificate = replace(certificate, stages=tuple(_by(classes, stage, alike) for stage in certificate.stages))
    return scored(Allocation(problem, "gandiva", classes, *shares, certificate), scores.fairness)


def _by(classes: Classes, stage: Stage, coarser: Classes) -> Stage:
    """Convert a stage to finer classes than those it was made for."""
    part_of = coarser.of_job[classes.first]
    stopped = np.isin(part_of, stage.stopped).nonzero()[0]
    return replace(stage, worth=stage.worth[part_of], time=stage.time[part_of], stopped=stopped)


def _random_packing(problem: Problem, seed: int) -> Ints:
    """The partner of each job, or -1: random pairs with equal worker counts that help on average over types.

    Random, but stable: the order in which pairs are tried depends on the names of their jobs, so a job that
    arrives or finishes changes few of the other pairs.
    """
    workers = problem.profiles.workers[problem.jobs.profile]
    partner = np.full(len(workers), -1, dtype=np.intp)
    excess = float(workers[scores.runnable_jobs(problem)].sum() - problem.counts.sum())
    if excess <= 0:
        return partner
    first, second = _tried_pairs(problem, seed)
    chosen = _greedy_matching(first, second, len(partner))
    first, second = first[chosen], second[chosen]
    wanted = np.cumsum(workers[first]) - workers[first] < excess
    partner[first[wanted]], partner[second[wanted]] = second[wanted], first[wanted]
    return partner


def _tried_pairs(problem: Problem, seed: int) -> tuple[Ints, Ints]:
    """Pairs of jobs that benefit from sharing, in random order; a job is paired only within its group."""
    profile, helps = problem.jobs.profile, _helpful_pairs(problem)
    workers = problem.profiles.workers[profile]
    jobs = np.flatnonzero(problem.runnable[profile])
    drawn = np.array([_random_bits(f"{seed} {problem.jobs.ids[job]}") for job in jobs.tolist()], dtype=np.uint64)
    groups = drawn & np.uint64((1 << (len(jobs) // JOBS_IN_A_GROUP).bit_length()) - 1)
    pairs = [np.empty((0, 2), dtype=np.intp)]
    for group, size in np.unique(np.stack([groups, workers[jobs].astype(np.uint64)], axis=1), axis=0):
        members = np.flatnonzero((groups == group) & (workers[jobs] == size))
        pairs.append(members[np.stack(np.triu_indices(len(members), 1), axis=1)])
    one, other = np.concatenate(pairs).T
    good = helps[profile[jobs[one]], profile[jobs[other]]]
    one, other = one[good], other[good]
    order = np.argsort(_mixed(drawn[one] ^ drawn[other]), kind="stable")
    return jobs[one[order]], jobs[other[order]]


def _greedy_matching(first: Ints, second: Ints, jobs: int) -> Ints:
    """By job: its partner or -1, if pairs are accepted in order unless one of their jobs already has a partner."""
    left = np.arange(len(first))
    taken, free = [left[:0]], np.ones(jobs, dtype=bool)
    while len(left):
        earliest = np.full(jobs, len(first))
        np.minimum.at(earliest, first[left], left)
        np.minimum.at(earliest, second[left], left)
        taken.append(left[(earliest[first[left]] == left) & (earliest[second[left]] == left)])
        free[first[taken[-1]]] = free[second[taken[-1]]] = False
        left = left[free[first[left]] & free[second[left]]]
    return np.sort(np.concatenate(taken))


def _random_bits(name: str) -> int:
    """64 random bits determined by a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _mixed(bits: UInts) -> UInts:
    """Mix bits so that sums of a few random numbers look random, too (the last steps of splitmix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _helpful_pairs(problem: Problem) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """By two profiles: whether sharing gives more than taking turns, averaged over the accelerators."""
    n = len(problem.rates)
    helps = np.zeros((n, n), dtype=bool)
    pairs = problem.pairs
    by_column = problem.counts[problem.column_type] / max(problem.counts.sum(), 1.0)
    by_column[[column.index for column in problem.closer_columns]] = 0.0
    total = np.zeros(len(pairs))
    for side, ends in enumerate((pairs.first, pairs.second)):
        alone = problem.rates[ends]
        relative = np.divide(pairs.rates[:, side], alone, out=np.zeros_like(alone), where=alone > 0)
        total += relative @ by_column
    good = total > 1.0
    helps[pairs.first[good], pairs.second[good]] = True
    helps[pairs.second[good], pairs.first[good]] = True
    return helps


def _unit_shares(problem: Problem, classes: Classes, mate: Ints, units: int) -> tuple[Ints, Floats, Floats]:
    """Combos, instances and rates when each unit gets 1/units of every type, at most all of its time."""
    own = problem.jobs.profile[classes.first]
    raw = problem.counts[None, :] / (units * problem.profiles.workers[own][:, None])
    share = _best_first(raw * (problem.type_rates[own] > 0), problem)[:, problem.column_type]
    first = (mate >= np.arange(len(mate))).nonzero()[0]
    second = mate[first]
    rates = _paired_rates(problem, own[first], own[second])
    fits = rates.any(axis=1)
    pairs = np.where(first == second, classes.count[first] / 2, classes.count[first])
    together = np.where(fits, np.minimum(share[first], share[second]), 0.0) * pairs[:, None]
    same_type = problem.column_type[:, None] == problem.column_type
    turn = np.ones_like(share)
    turn[first] = turn[second] = np.where(fits @ same_type, 0.0, 0.5)
    runs = problem.runnable[own].nonzero()[0]
    alone = share * turn * _best_placement(problem)[own] * classes.count[:, None]
    alone = seated(problem, problem.profiles.workers[own], problem.rates[own], alone)[runs]
    alone_rates = np.stack([problem.rates[own], np.zeros_like(share)], axis=1)[runs]
    combos = np.concatenate([[runs, np.full(len(runs), -1)], [first, second]], axis=1).T
    return combos, np.concatenate([alone, together]), np.concatenate([alone_rates, rates])


def _paired_rates(problem: Problem, first: Ints, second: Ints) -> Floats:
    """By pair of profiles: (2, columns), the rate of either where sharing beats taking turns, 0 elsewhere."""
    pair, column = problem.worthwhile_pairs
    rates = np.zeros_like(problem.pairs.rates)
    rates[pair, :, column] = problem.pairs.rates[pair, :, column]
    return replace(problem.pairs, rates=rates).between(first, second)


def _best_first(parts: Floats, problem: Problem) -> Floats:
    """Limit the parts of a job to all of its time, keeping the types that are fastest on average."""
    speed = problem.type_rates / np.maximum(problem.fastest_rates[:, None], 1e-300)
    left, share = np.ones(len(parts)), np.zeros_like(parts)
    for type_index in np.argsort(-speed.mean(axis=0), kind="stable"):
        share[:, type_index] = np.minimum(parts[:, type_index], left)
        left -= share[:, type_index]
    return share


def allox(problem: Problem) -> Allocation:
    """Minimise the average completion time of single-worker jobs by matching them to places in the types' queues."""
    problem = problem.without_pairs()
    program = Program(problem, rank=scores.places(scores.arrival_order(problem)))
    matching = _match(program)
    certificate = Certificate(
        matching.average_seconds,
        min(matching.bound, matching.average_seconds),
        {t.name: float(p) for t, p in zip(problem.types, matching.prices, strict=True)},
        minimised=True,
    )
    first_in_line = _heads(matching, program)[:, problem.column_type]
    point = program.point(first_in_line * _best_placement(problem)[program.profile])
    return program.allocation("allox", point, certificate)


@dataclass(frozen=True, slots=True, eq=False)
class _Matching:
    """The matching, by class: the type, and the place counted from the end of its queue."""

    job: Ints
    type_of: Ints
    place: Ints
    average_seconds: float
    bound: float
    prices: Floats


def _match(program: Program) -> _Matching:
    """Match jobs to (type, place from the end): a job with k - 1 jobs behind it delays k jobs by its duration.

    Each accelerator of a type has a queue, so each place exists once per accelerator: a transportation problem,
    whose vertices are integers. If the last place of a queue is not full, no job would use a longer queue, so queues
    start only slightly longer than necessary.
    """
    problem, n = program.problem, len(program)
    with np.errstate(divide="ignore"):
        seconds = program.steps[:, None] / problem.type_rates[program.profile]
    open_seconds = np.where(problem.counts > 0, seconds, np.inf)
    guess = _in_turn(open_seconds, problem.counts)
    least = open_seconds.min(axis=1, initial=np.inf)
    if (guess[1] == 1).all() and (open_seconds[np.arange(n), guess[0]] <= least).all():
        average = (float(problem.jobs.age[program.member].sum()) + float(least.sum())) / n
        return _Matching(np.arange(n), *guess, average, average, np.zeros(len(problem.counts)))  # no job waits
    longest = np.where(problem.counts > 0, -(-n // np.maximum(problem.counts, 1)), 0).astype(np.intp)
    depth = np.zeros(len(longest), dtype=np.intp)
    np.maximum.at(depth, guess[0], guess[1])
    depth = np.minimum(longest, depth + 1)
    while True:
        matching, full = _match_up_to(program, seconds, depth, guess)
        if not (full & (depth < longest)).any():
            return matching
        depth = np.minimum(longest, 2 * depth)


def _in_turn(seconds: Floats, counts: Floats) -> tuple[Ints, Ints]:
    """By job: a type and a place from the end of its queue. The longest job chooses first, the cheapest place.

    This is not the best matching, but close to it.
    """
    longest_first = np.argsort(-seconds.min(axis=1, initial=np.inf), kind="stable")
    type_of, place = np.zeros((2, len(seconds)), dtype=np.intp)
    size, places = counts.astype(int).tolist(), [1] * len(counts)
    room, type_indices, chosen = list(size), [], []
    for row in seconds[longest_first].tolist():
        costs = [k * s for k, s in zip(places, row, strict=True)]
        type_index = costs.index(min(costs))
        type_indices.append(type_index)
        chosen.append(places[type_index])
        room[type_index] -= 1
        if not room[type_index]:
            room[type_index] = size[type_index]
            places[type_index] += 1
    type_of[longest_first], place[longest_first] = type_indices, chosen
    return type_of, place


def _match_up_to(program: Program, seconds: Floats, depth: Ints, guess: tuple[Ints, Ints]) -> tuple[_Matching, Bools]:
    """Match with queues of these lengths; also return, by type, whether the last place is full."""
    problem, n = program.problem, len(program)
    type_of = np.repeat(np.arange(len(depth)), depth)
    place = np.concatenate([np.arange(1, d + 1) for d in depth])
    available = problem.counts[type_of]
    job, slot = np.nonzero(np.isfinite(seconds)[:, type_of])
    cost = place[slot] * seconds[job, type_of[slot]]
    size = float(cost.max())
    begin = (type_of[slot] == guess[0][job]) & (place[slot] == guess[1][job])
    found = transport.solve(cost / size, job, slot, np.ones(n), available, begin)
    chosen = found.x > 0.5
    age = float(problem.jobs.age[program.member].sum())
    least = float(found.demand_prices.sum() - found.supply_prices @ available) * size
    worth = np.bincount(type_of, weights=found.supply_prices, minlength=len(depth)) * size / n
    taken = np.bincount(slot[chosen], minlength=len(place))
    full = np.zeros(len(depth), dtype=bool)
    full[type_of] = taken >= available  # the last assignment of a type wins: its last place
    average, bound = (age + float(cost[chosen].sum())) / n, (age + least) / n
    return _Matching(job[chosen], type_of[slot[chosen]], place[slot[chosen]], average, bound, worth), full


def _heads(matching: _Matching, program: Program) -> Floats:
    """By class and type: 1 for every class that is first in its queue.

    Of the jobs at place k from the end, as many are first as there are queues of length k.
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
