"""Policies about throughput and money: most throughput, most throughput per dollar, and the same with deadlines.

These policies add up throughputs of different models. As in the paper, they add steps per second, so a model
with many small steps counts for more. With `normalised`, each job's throughput is first divided by what an equal share
of the cluster gives it, which makes models comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Bools, Floats, Ints, Problem
from gavel.policies import scores
from gavel.policies.certify import certified
from gavel.policies.claims import RatioClaim, TotalClaim
from gavel.policies.scores import Score
from gavel.program.demand import Proportional
from gavel.program.program import Program, Ratio

MET = 1.0 - 1e-6
"""The fraction of a deadline's throughput that counts as meeting it, to allow for rounding in solvers."""


def max_throughput(problem: Problem, *, normalised: bool = False) -> Allocation:
    """Maximise the sum of throughputs."""
    program = Program(problem)
    best = program.maximise(_gain(program, normalised))
    score = total(normalised)
    return certified(
        program, best.point, "max_throughput", score, bound=best.bound, prices=best.prices, stages=best.stages
    )


def min_cost(problem: Problem, *, normalised: bool = False) -> Allocation:
    """Maximise the sum of throughputs per dollar an hour."""
    program = Program(problem)
    best = program.max_ratio(_gain(program, normalised), _charge(problem))
    return _per_dollar(program, best, "min_cost", normalised)


def min_cost_slo(problem: Problem, *, normalised: bool = False) -> Allocation:
    """`min_cost` among the allocations that meet every deadline, as far as that is possible."""
    dated = np.isfinite(problem.jobs.deadline)
    # Jobs with a deadline are never merged: if only some can meet it, equal jobs must be told apart.
    program = Program(problem, rank=np.where(dated, scores.places(scores.arrival_order(problem)) + 1, 0))
    needed, missed = _deadline_floors(program)
    best = program.max_ratio(_gain(program, normalised), _charge(problem), floors=needed)
    unmet = tuple(problem.jobs.ids[job] for job in program.member[missed].tolist())
    late = np.flatnonzero(dated & ~problem.runnable[problem.jobs.profile])
    unmet = tuple(sorted((*unmet, *(problem.jobs.ids[job] for job in late.tolist()))))
    return _per_dollar(program, best, "min_cost_slo", normalised, unmet)


def largest_total(program: Program, normalised: bool) -> TotalClaim:
    """The largest total throughput."""
    return TotalClaim(_gain(program, normalised), np.zeros(len(program)))


def cheapest_total(program: Program, normalised: bool) -> RatioClaim:
    """The largest total throughput per dollar."""
    return RatioClaim(_gain(program, normalised), _charge(program.problem), np.zeros(len(program)))


def cheapest_in_time(program: Program, normalised: bool, unmet: Collection[str]) -> RatioClaim:
    """The same, with every deadline met except those that are given up."""
    ids = program.problem.jobs.ids
    kept = np.array([ids[job] not in unmet for job in program.member.tolist()], dtype=bool)
    return replace(cheapest_total(program, normalised), floors=np.where(kept, _needed(program), 0.0))


def missed_deadlines(allocation: Allocation) -> tuple[str, ...]:
    """The names of the jobs that will miss their deadline."""
    jobs = allocation.problem.jobs
    dated = np.flatnonzero(np.isfinite(jobs.deadline))
    late = dated[allocation.job_throughput[dated] * jobs.deadline[dated] < jobs.steps[dated] * MET]
    return tuple(sorted(jobs.ids[job] for job in late.tolist()))


def _per_dollar(
    program: Program, best: Ratio, policy: str, normalised: bool, unmet: tuple[str, ...] = ()
) -> Allocation:
    score = total_per_dollar(normalised)
    return certified(
        program, best.point, policy, score, bound=best.bound, prices=best.prices, unmet=unmet, stages=best.stages
    )


def total(normalised: bool) -> Score:
    """The objective of max_throughput."""
    return scores.total_normalised_throughput if normalised else scores.total_throughput


def total_per_dollar(normalised: bool) -> Score:
    """The objective of the cost policies."""
    return scores.per_dollar(total(normalised))


def _gain(program: Program, normalised: bool) -> Floats:
    return program.normalised_gain if normalised else np.ones(len(program))


def _charge(problem: Problem) -> Floats:
    """By column: dollars per hour of one accelerator."""
    prices = np.array([t.price or 0.0 for t in problem.types])
    return prices[problem.column_type]


def _deadline_floors(program: Program) -> tuple[Floats, Ints]:
    """The throughput each class needs for its deadline (0 if none, or given up), and the classes given up.

    Jobs are accepted in order of the accelerator time they need, as many as fit (by bisection). The first that does
    not fit is given up, with all jobs of its profile that need more; then the rest is tried. So no deadline that is
    given up could be added to those that are met.
    """
    needed = _needed(program)
    impossible = needed > program.reach * (1 + 1e-9)
    effort = needed / program.fastest * program.workers
    queue = [int(c) for c in np.argsort(effort, kind="stable") if needed[c] > 0 and not impossible[c]]
    accepted = np.zeros(len(program), dtype=bool)

    def part_served(chosen: Bools) -> float:
        """The fraction of their needs that all chosen classes can get; 1 or more means that they fit."""
        if not chosen.any():
            return 1.0
        return program.max_level(Proportional(np.where(chosen, needed, 0.0))).value

    def fits(candidates: list[int]) -> bool:
        chosen = accepted.copy()
        chosen[candidates] = True
        return part_served(chosen) >= MET

    while queue:
        fitting = len(queue) if fits(queue) else _longest_prefix(queue, fits)
        accepted[queue[:fitting]] = True
        if fitting == len(queue):
            break
        alike = program.profile[queue[fitting]]
        queue = [c for c in queue[fitting + 1 :] if program.profile[c] != alike]
    missed = np.flatnonzero((needed > 0) & ~accepted)
    return np.where(accepted, needed * min(part_served(accepted), 1.0), 0.0), missed


def _needed(program: Program) -> Floats:
    """By class: the throughput that it needs for its deadline; 0 if it has none."""
    deadline = program.problem.jobs.deadline[program.member]
    needed = np.where(np.isfinite(deadline), program.steps / np.maximum(deadline, 1e-9), 0.0)
    return np.nan_to_num(needed, nan=0.0)


def _longest_prefix(queue: list[int], fits: Callable[[list[int]], bool]) -> int:
    """The length of the longest prefix that fits, knowing that the whole does not."""
    low, high = 0, len(queue)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(queue[:middle]):
            low = middle
        else:
            high = middle
    return low
