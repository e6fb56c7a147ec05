"""Policies about when jobs end: makespan, finish-time fairness, first in first out, shortest job first."""

from __future__ import annotations

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints, Problem
from gavel.policies import scores
from gavel.policies.certify import certified
from gavel.policies.claims import LevelClaim, TotalClaim
from gavel.program.demand import FinishTime, Proportional
from gavel.program.program import Program


def makespan(problem: Problem) -> Allocation:
    """Minimise the time until the last job finishes: max-min of throughput over steps, so no bisection is needed."""
    program = Program(problem, "steps")
    asked = ending_together(program)
    level, point = program.raise_and_fill(asked.demand, asked.gain)
    return certified(
        program,
        point,
        "makespan",
        scores.makespan,
        bound=asked.objective(level.bound),
        prices=level.prices * asked.per_level(level.value),
        minimised=True,
        stages=level.stages,
    )


def ending_together(program: Program) -> LevelClaim:
    """All jobs finish after the same time; the level is 1 / that time."""
    return LevelClaim(
        Proportional(program.steps), program.normalised_gain, lambda level: 1.0 / level, lambda level: 1.0 / level**2
    )


def finish_time_fairness(problem: Problem) -> Allocation:
    """Minimise the largest ratio of total time here to total time with 1/n of the cluster."""
    program = Program(problem, "steps", "age", "isolated_age")
    asked = equally_slowed(program)
    level, point = program.raise_and_fill(asked.demand, asked.gain)
    return certified(
        program,
        point,
        "finish_time_fairness",
        scores.finish_time_fairness,
        bound=asked.objective(level.bound),
        prices=level.prices,
        minimised=True,
        stages=level.stages,
    )


def equally_slowed(program: Program) -> LevelClaim:
    """All jobs are slower than with 1/n of the cluster by the same factor; the level is minus that factor."""
    jobs, rates = program.problem.jobs, program.problem.isolated_rates[program.profile]
    isolated_seconds = jobs.isolated_age[program.member] + program.steps / rates
    demand = FinishTime(program.steps, jobs.age[program.member], isolated_seconds)
    return LevelClaim(demand, program.normalised_gain, lambda level: -level, lambda _: 1.0)


def fifo(problem: Problem) -> Allocation:
    """Maximise throughput relative to the fastest type, times workers, weighted by arrival: earlier jobs count more."""
    program = Program(problem, rank=scores.places(scores.arrival_order(problem)))
    best = program.maximise(by_arrival(program).gain)
    return certified(program, best.point, "fifo", scores.fifo, bound=best.bound, prices=best.prices, stages=best.stages)


def by_arrival(program: Program) -> TotalClaim:
    """The largest total throughput, weighted by arrival: earlier jobs count more."""
    return TotalClaim(_in_order(program, scores.arrival_order(program.problem)), np.zeros(len(program)))


def shortest_job_first(problem: Problem) -> Allocation:
    """Minimise the time until the first job finishes; then like fifo, in order of duration."""
    program = Program(problem, rank=scores.places(scores.duration_order(problem)))
    asked = by_duration(program)
    best = program.maximise(asked.gain, floors=asked.floors)
    return certified(
        program,
        best.point,
        "shortest_job_first",
        scores.shortest_duration,
        bound=float(np.min(program.steps / program.reach)),
        prices=np.zeros(len(problem.types)),
        minimised=True,
        stages=best.stages,
    )


def by_duration(program: Program) -> TotalClaim:
    """The shortest job as fast as possible; then the largest total throughput, in which shorter jobs count more."""
    order = scores.duration_order(program.problem)
    durations = program.steps / program.reach
    shortest = int(np.lexsort((scores.places(order)[program.member], durations))[0])
    floors = np.zeros(len(program))
    floors[shortest] = program.reach[shortest]
    return TotalClaim(_in_order(program, order), floors, objective=float(durations[shortest]))


def _in_order(program: Program, order: Ints) -> Floats:
    """The worth of throughput by place in the order.

    It is multiplied by workers, so that an accelerator is worth most to the first job. Otherwise, eight small jobs
    would be worth up to eight times as much as one job of eight workers before them, which would starve.
    """
    return np.asarray(scores.order_weights(order)[program.member] * program.workers / program.fastest)
