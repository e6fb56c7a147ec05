"""Policies about when jobs end: makespan, finish-time fairness, first in first out, shortest job first."""

from __future__ import annotations

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints, Problem
from gavel.policies import scores
from gavel.policies.finish import certified
from gavel.program.demand import FinishTime, Proportional
from gavel.program.program import Program


def makespan(problem: Problem) -> Allocation:
    """Minimise the time until the last job is done: max-min of throughput over steps, so no bisection."""
    program = Program(problem, "steps")
    level, point = program.raise_and_fill(Proportional(program.steps), program.normalised_gain)
    return certified(
        program,
        point,
        "makespan",
        scores.makespan,
        bound=1.0 / level.bound,
        prices=level.prices / level.value**2,
        minimised=True,
        stages=level.stages,
    )


def finish_time_fairness(problem: Problem) -> Allocation:
    """Minimise the largest ratio of total time here to total time with 1/n of the cluster."""
    program = Program(problem, "steps", "age", "isolated_age")
    isolated_seconds = (
        problem.jobs.isolated_age[program.member] + program.steps / problem.isolated_rates[program.profile]
    )
    demand = FinishTime(program.steps, problem.jobs.age[program.member], isolated_seconds)
    level, point = program.raise_and_fill(demand, program.normalised_gain)
    return certified(
        program,
        point,
        "finish_time_fairness",
        scores.finish_time_fairness,
        bound=-level.bound,
        prices=level.prices,
        minimised=True,
        stages=level.stages,
    )


def fifo(problem: Problem) -> Allocation:
    """Maximise throughput relative to the fastest type times workers, the earlier a job arrived the more it counts."""
    order = scores.arrival_order(problem)
    program = Program(problem, rank=scores.places(order))
    best = program.maximise(_in_order(program, order))
    return certified(program, best.point, "fifo", scores.fifo, bound=best.bound, prices=best.prices, stages=best.stages)


def shortest_job_first(problem: Problem) -> Allocation:
    """Minimise the time until the first job is done; then as fifo does, in order of duration."""
    order = scores.duration_order(problem)
    program = Program(problem, rank=scores.places(order))
    durations = program.steps / program.reach
    shortest = int(np.lexsort((scores.places(order)[program.member], durations))[0])
    floors = np.zeros(len(program))
    floors[shortest] = program.reach[shortest]
    best = program.maximise(_in_order(program, order), floors=floors)
    return certified(
        program,
        best.point,
        "shortest_job_first",
        scores.shortest_duration,
        bound=float(durations[shortest]),
        prices=np.zeros(len(problem.types)),
        minimised=True,
        stages=best.stages,
    )


def _in_order(program: Program, order: Ints) -> Floats:
    """What throughput is worth by place in the order.

    Times workers, so that an accelerator is worth most to whoever comes first; otherwise, for eight accelerators, eight
    small jobs would be worth up to eight times as much as one large job before them, which would starve.
    """
    return np.asarray(scores.order_weights(order)[program.member] * program.workers / program.fastest)
