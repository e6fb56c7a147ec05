"""Measure the benefit of knowing server sizes: `python tools/compare_servers.py [--write]`, two minutes.

The same workloads on servers of 8, 4 and 2 accelerators, once with allocations that know these sizes and once with
allocations that assume every gang fits on one server.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from pathlib import Path
from statistics import mean

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.events import AllocationReady, Event, JobFinished, JobSubmitted
from gavel.core.jobs import JobSpec
from gavel.core.locality import Locality
from gavel.core.problem import Problem
from gavel.policies.mechanisms import suited
from gavel.policies.registry import allocate, find_policy
from gavel.scheduler.machine import PLACEMENT_MATTERS, Settings
from gavel.sim.experiment import Experiment, mechanism_of, prepare
from gavel.sim.simulate import simulate
from gavel.sim.view import View

SERVERS = "1x8+2x4+4x2"
BASE = Experiment(cluster=f"v100={SERVERS},p100={SERVERS},k80={SERVERS}", jobs=200, multi_worker=True)
LOADS = (1.4, 2.0)
SEEDS = (0, 1, 2, 3, 4)
LARGEST = 8
HEADER = (
    "| mechanism | jobs/h | servers known | gangs of 8: allocated / made | all jobs: apart by "
    "| gangs of 8 together: allocated | received | restarts a job | average JCT |"
)
BEGIN, END = "<!-- servers -->\n", "<!-- end servers -->\n"


@dataclass
class Promises:
    """Observes a simulation: the steps that allocations promised each job, and how long gangs were consolidated."""

    meant: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Steps by job."""
    done: dict[str, JobSpec] = field(default_factory=dict)
    """The jobs that have finished."""
    allocated: dict[tuple[int, Locality], float] = field(default_factory=lambda: defaultdict(float))
    """Allocated seconds of placement-sensitive gangs, by workers and locality."""
    received: dict[tuple[int, Locality], float] = field(default_factory=lambda: defaultdict(float))
    """The same, as received."""
    _specs: dict[str, JobSpec] = field(default_factory=dict)
    _pace: dict[str, float] = field(default_factory=dict)
    _gangs: list[tuple[int, Locality, float]] = field(default_factory=list)
    """Workers, locality, and how many, as allocated."""
    _placed: list[tuple[int, Locality]] = field(default_factory=list)
    _since: float = 0.0

    def after(self, event: Event, view: View) -> None:
        """Count the time since the last event, then apply what this one changed."""
        self._count(event.time)
        match event:
            case JobSubmitted():
                self._specs[event.job.id] = event.job
            case AllocationReady():
                self._pace = dict(event.allocation.throughput)
                self._gangs = list(_gangs(event.allocation))
            case JobFinished():
                self._pace.pop(event.job, None)
                self.done[event.job] = self._specs.pop(event.job)
        self._placed = list(self._gangs_of(view))

    def ratios(self, workers: int | None = None) -> list[float]:
        """Steps allocated / steps made of each finished job, optionally only with a given number of workers."""
        return [
            self.meant[name] / spec.steps
            for name, spec in self.done.items()
            if workers is None or spec.workers == workers
        ]

    def _count(self, time: float) -> None:
        elapsed, self._since = time - self._since, time
        if elapsed > 0:
            for name, pace in self._pace.items():
                self.meant[name] += pace * elapsed
            for workers, locality, number in self._gangs:
                self.allocated[workers, locality] += number * elapsed
            for workers, locality in self._placed:
                self.received[workers, locality] += elapsed

    def _gangs_of(self, view: View) -> Iterator[tuple[int, Locality]]:
        for run in view.placed():
            if run.workers > 1 and len(run.jobs) == 1:
                spec = self._specs[run.jobs[0]]
                rates = view.table.rates([(spec.template, spec.workers)], [run.type])[0, 0]
                if rates[Locality.SERVER] > rates[Locality.CLUSTER] * PLACEMENT_MATTERS:
                    yield run.workers, run.locality


def _gangs(allocation: Allocation) -> Iterator[tuple[int, Locality, float]]:
    """For placement-sensitive gangs: workers, locality, and how many at once."""
    problem = allocation.problem
    workers = problem.profiles.workers[problem.jobs.profile[allocation.classes.first[allocation.combos[:, 0]]]]
    for column in problem.closer_columns:
        apart, close = allocation.rates[:, 0, column.wider], allocation.rates[:, 0, column.index]
        for combo in np.flatnonzero(close > apart * PLACEMENT_MATTERS).tolist():
            for index in (column.wider, column.index):
                yield int(workers[combo]), problem.columns[index].locality, float(allocation.instances[combo, index])


def measured(experiment: Experiment, *, hidden: bool) -> tuple[Promises, float, float]:
    """Time promised and received, average completion time, and restarts per job."""

    def solver(problem: Problem) -> Allocation:
        return allocate(without_servers(problem) if hidden else problem, experiment.policy, compare=False)

    scene, promises = prepare(experiment), Promises()
    policy = find_policy(experiment.policy)
    settings = suited(Settings(round_seconds=experiment.round_seconds), policy, experiment.mechanism)
    outcome = simulate(
        scene.trace,
        scene.cluster,
        scene.table,
        solver,
        mechanism_of(experiment),
        settings,
        restart_seconds=experiment.restart_seconds,
        observers=[promises],
    )
    jobs = outcome.jobs.values()
    return promises, mean(job.seconds for job in jobs), mean(job.restarts for job in jobs)


def without_servers(problem: Problem) -> Problem:
    """The problem without information about servers."""
    return replace(problem, types=tuple(replace(kind, servers=()) for kind in problem.types))


Figures = tuple[float, float, float, float, float, float]


def figures(experiment: Experiment, hidden: bool) -> Figures:
    """What a row of the table averages."""
    promises, seconds, restarts = measured(experiment, hidden=hidden)
    apart = mean(abs(ratio - 1.0) for ratio in promises.ratios())
    meant, got = (_part_together(side) for side in (promises.allocated, promises.received))
    return mean(promises.ratios(LARGEST)), apart, meant, got, restarts, seconds


def _part_together(seconds: dict[tuple[int, Locality], float]) -> float:
    """The fraction of time that the largest gangs are consolidated."""
    together, apart = seconds[LARGEST, Locality.SERVER], seconds[LARGEST, Locality.CLUSTER]
    return together / max(together + apart, 1e-9)


def rows(runs: Sequence[tuple[Experiment, bool]], results: Sequence[Figures]) -> list[str]:
    """The lines of the table, each over all seeds."""
    cells: defaultdict[tuple[str, float | None, str], list[Figures]] = defaultdict(list)
    for (experiment, hidden), result in zip(runs, results, strict=True):
        cells[experiment.mechanism, experiment.arrivals_per_hour, "no" if hidden else "yes"].append(result)
    lines = []
    for (mechanism, load, known), found in cells.items():
        promised, apart, meant, got, restarts, seconds = (mean(column) for column in zip(*found, strict=True))
        shares = f"{meant:.0%} | {got:.0%}"
        lines.append(
            f"| {mechanism} | {load} | {known} | {promised:.2f} | {apart:.1%} | {shares} | {restarts:.1f} "
            f"| {seconds / 3600:.1f} h |"
        )
    return lines


def main(arguments: list[str]) -> None:
    """Print the table; with --write, also update docs/simulation.md."""
    runs = [
        (replace(BASE, mechanism=mechanism, arrivals_per_hour=load, seed=seed), hidden)
        for mechanism in ("credits", "plain")
        for load in LOADS
        for hidden in (True, False)
        for seed in SEEDS
    ]
    with Pool() as pool:
        lines = [HEADER, "|---" * HEADER.count(" | ") + "|---|", *rows(runs, pool.starmap(figures, runs, chunksize=1))]
    print("\n".join(lines))
    if "--write" in arguments:
        page = Path(__file__).parents[1] / "docs" / "simulation.md"
        start, _, rest = page.read_text().partition(BEGIN)
        page.write_text(start + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(sys.argv[1:])
