"""Entities with weights 1, 2 and 3 on nine accelerators, while jobs arrive one after another."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Entity, EntityPolicy, Job
from gavel.core.problem import Floats, Problem
from gavel.core.throughputs import ThroughputTable, find_table
from gavel.plots.figures import Plot, colour, legend_below, new_figure, styled
from gavel.policies.registry import allocate
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Scope, Study

WEIGHTS = (1.0, 2.0, 3.0)
JOBS_OF_EACH = 6
EVERY = 4
"""Steps of time between jobs."""
COUNT = 3
"""Accelerators of each type."""
SEEDS = range(5)
"""The paper does not say which models it used, so several random draws are averaged."""


def measure(study: Study, scope: Scope) -> Measured:
    """Fairness inside the entities."""
    table = find_table(scope.throughputs)
    draws = [_jobs(table, seed) for seed in SEEDS]
    ends = [_normalised(table, jobs, len(jobs), "fairness") for jobs in draws]
    of_entity = np.mean([end.reshape(len(WEIGHTS), -1).sum(axis=1) for end in ends], axis=0)
    spread = [end.reshape(len(WEIGHTS), -1) for end in ends]
    lost = [1.0 - _static(table, jobs) / end.sum() for jobs, end in zip(draws, ends, strict=True)]
    values = {
        "one_to_zero": float(of_entity[1] / of_entity[0]),
        "two_to_zero": float(of_entity[2] / of_entity[0]),
        "within": float(max((part.max(axis=1) / part.min(axis=1)).max() for part in spread)),
        "static_loss": float(np.mean(lost)),
    }
    return Measured(study, values=values, plots=[_plot(study, table, draws[0], "fairness")])


def measure_fifo(study: Study, scope: Scope) -> Measured:
    """A queue inside the entities."""
    table = find_table(scope.throughputs)
    draws = [_jobs(table, seed) for seed in SEEDS]
    ends = [_normalised(table, jobs, len(jobs), "fifo") for jobs in draws]
    of_entity = np.mean([end.reshape(len(WEIGHTS), -1).sum(axis=1) for end in ends], axis=0)
    in_order = [
        bool(part[one] >= part[other] - 1e-6)
        for end, jobs in zip(ends, draws, strict=True)
        for part in (end / _most(jobs)).reshape(len(WEIGHTS), -1)
        for one, other in combinations(range(JOBS_OF_EACH), 2)
    ]
    values = {
        "one_to_zero": float(of_entity[1] / of_entity[0]),
        "two_to_zero": float(of_entity[2] / of_entity[0]),
        "ordered": float(np.mean(in_order)),
    }
    return Measured(study, values=values, plots=[_plot(study, table, draws[0], "fifo")])


def _jobs(table: ThroughputTable, seed: int) -> list[Job]:
    rng = np.random.default_rng(seed)
    names = [name for name in table.templates if (table.single_rates([name], table.types) > 0).all()]
    drawn = rng.choice(len(names), size=len(WEIGHTS) * JOBS_OF_EACH)
    return [
        Job(
            f"job {n}",
            dict(zip(table.types, table.single_rates([names[template]], table.types)[0].tolist(), strict=True)),
            entity=f"entity {n // JOBS_OF_EACH}",
            arrival=float(n),
        )
        for n, template in enumerate(drawn.tolist())
    ]


def _types(table: ThroughputTable, count: int = COUNT) -> list[AcceleratorType]:
    return [AcceleratorType(type_name, count) for type_name in table.types]


def _normalised(table: ThroughputTable, jobs: list[Job], present: int, inside: EntityPolicy) -> Floats:
    """Each job's throughput divided by that of an equal share of every type; 0 for jobs that have not arrived."""
    entities = {f"entity {n}": Entity(weight, inside) for n, weight in enumerate(WEIGHTS)}
    here = jobs[:present]
    used = {job.entity for job in here}
    problem = Problem.of(_types(table), here, (), {name: e for name, e in entities.items() if name in used})
    throughput = allocate(problem, "hierarchical").throughput
    found = [throughput[job.id] / _mean_rate(job) for job in here]
    return np.array(found + [0.0] * (len(jobs) - present))


def _mean_rate(job: Job) -> float:
    return float(np.mean([rate for rate in job.rates.values() if isinstance(rate, float)]))


def _most(jobs: list[Job]) -> Floats:
    """Each job's normalised throughput if it had its fastest type to itself."""
    return np.array([max(r for r in job.rates.values() if isinstance(r, float)) / _mean_rate(job) for job in jobs])


def _static(table: ThroughputTable, jobs: list[Job]) -> float:
    """The same total if each entity had its part of every type to itself, and its jobs took turns on all of it.

    Parts are not whole accelerators, so a cluster twice as large is divided among twice the jobs, which doubles the
    total.
    """
    total = 0.0
    for number, weight in enumerate(WEIGHTS):
        mine = [job for job in jobs if job.entity == f"entity {number}"]
        twice = [Job(f"{job.id} {copy}", job.rates) for job in mine for copy in range(2)]
        count = round(2 * COUNT * weight / sum(WEIGHTS))
        throughput = allocate(Problem.of(_types(table, count), twice), "isolated").throughput
        total += sum(throughput[job.id] / _mean_rate(job) for job in twice) / 2
    return total


def _plot(study: Study, table: ThroughputTable, jobs: list[Job], inside: EntityPolicy) -> Plot:
    steps = np.arange(len(jobs) * EVERY + EVERY)
    bands = np.array([_normalised(table, jobs, min(int(t) // EVERY + 1, len(jobs)), inside) for t in steps[::EVERY]])
    bands = np.repeat(bands, EVERY, axis=0)[: len(steps)]
    with styled():
        figure, (upper, lower) = new_figure(7.0, rows=2)
        shades = [colour(n // JOBS_OF_EACH) for n in range(len(jobs))]
        share = bands / bands.sum(axis=1, keepdims=True)
        names = [f"entity with weight {weight:g}, one band a job" for weight in WEIGHTS]
        labels = [names[n // JOBS_OF_EACH] if n % JOBS_OF_EACH == 0 else "_no label" for n in range(len(jobs))]
        upper.stackplot(steps, share.T, labels=labels, colors=shades, edgecolor="white", linewidth=0.4)
        upper.set_ylabel("share of total\nnormalised throughput")
        lower.plot(steps, bands.sum(axis=1), color="#222222")
        lower.set_ylabel("total normalised\nthroughput")
        lower.set_xlabel("time (a job arrives every 4 steps)")
        legend_below(figure, [upper], columns=len(WEIGHTS))
        return Plot(study.name, study.title, study.about, figure)
