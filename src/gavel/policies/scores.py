"""The formula that the paper prints for each policy, evaluated for an allocation; jobs that cannot run do not count.

A score does not depend on solvers: it can judge any allocation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Bools, Floats, Ints, Problem

Score = Callable[[Allocation], float]


def runnable_jobs(problem: Problem) -> Bools:
    """Which jobs can run somewhere."""
    return problem.runnable[problem.jobs.profile]


def normalised(problem: Problem, throughput: Floats) -> Floats:
    """Throughput divided by that of an equal share of the cluster, times workers; 0 for jobs that cannot run."""
    return throughput * problem.normalised_gains[problem.jobs.profile]


def fairness(allocation: Allocation) -> float:
    """The smallest weighted normalised throughput."""
    problem = allocation.problem
    weighted = normalised(problem, allocation.job_throughput) / problem.jobs.weight
    return float(weighted[runnable_jobs(problem)].min(initial=np.inf))


def makespan(allocation: Allocation) -> float:
    """Seconds until the last job finishes."""
    problem = allocation.problem
    return float(np.max(_durations(problem, allocation.job_throughput)[runnable_jobs(problem)], initial=0.0))


def shortest_duration(allocation: Allocation) -> float:
    """Seconds until the first job finishes."""
    problem = allocation.problem
    return float(np.min(_durations(problem, allocation.job_throughput)[runnable_jobs(problem)], initial=np.inf))


def finish_time_fairness(allocation: Allocation) -> float:
    """The largest ratio of a job's total time to its total time with 1/n of the cluster."""
    problem, jobs, runs = allocation.problem, allocation.problem.jobs, runnable_jobs(allocation.problem)
    isolated = (jobs.isolated_age + _durations(problem, problem.isolated_rates[jobs.profile]))[runs]
    here = (jobs.age + _durations(problem, allocation.job_throughput))[runs]
    return float(np.max(here / isolated, initial=0.0))


def order_weights(order: Ints) -> Floats:
    """M for the first job, down to 1 for the last."""
    weights = np.empty(len(order))
    weights[order] = np.arange(len(order), 0, -1)
    return weights


def fifo(allocation: Allocation) -> float:
    """The sum of throughput relative to the fastest type, times workers, weighted M, M - 1, ... 1 by arrival."""
    problem, throughput = allocation.problem, allocation.job_throughput
    fastest = problem.fastest_rates[problem.jobs.profile]
    relative = np.divide(throughput, fastest, out=np.zeros(len(throughput)), where=fastest > 0)
    workers = problem.profiles.workers[problem.jobs.profile]
    return float((order_weights(arrival_order(problem)) * workers) @ relative)


def places(order: Ints) -> Ints:
    """By job: its place in an order; 0 for the first."""
    places = np.empty(len(order), dtype=np.intp)
    places[order] = np.arange(len(order))
    return places


def arrival_order(problem: Problem) -> Ints:
    """Jobs by arrival; ties by id."""
    return np.lexsort((np.asarray(problem.jobs.ids, dtype=str), problem.jobs.arrival))


def duration_order(problem: Problem) -> Ints:
    """Jobs by their duration on the fastest type; ties by id."""
    seconds = _durations(problem, problem.fastest_rates[problem.jobs.profile])
    return np.lexsort((np.asarray(problem.jobs.ids, dtype=str), seconds))


def total_throughput(allocation: Allocation) -> float:
    """Steps per second of all jobs together."""
    return float(allocation.job_throughput.sum())


def total_normalised_throughput(allocation: Allocation) -> float:
    """Normalised throughput of all jobs together."""
    return float(normalised(allocation.problem, allocation.job_throughput).sum())


def per_dollar(total: Score) -> Score:
    """A total divided by the hourly cost of the busy accelerators; 0 if none is busy."""

    def score(allocation: Allocation) -> float:
        prices = np.array([t.price or 0.0 for t in allocation.problem.types])
        dollars = float(prices @ allocation.busy)
        return total(allocation) / dollars if dollars > 0 else 0.0

    return score


def _durations(problem: Problem, throughput: Floats) -> Floats:
    """Seconds until jobs finish at these rates; infinite at rate 0."""
    endless = np.full(len(throughput), np.inf)
    return np.asarray(np.divide(problem.jobs.steps, throughput, out=endless, where=throughput > 0))
