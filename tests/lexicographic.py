"""A judge of water filling: slow, obvious, job by job, with its own formulas.

It shares the plain descriptions of types, jobs, pairs and entities with the policies, and nothing else: no classes of
identical jobs, no demands, no duals. Each stage raises all active jobs as far as they can rise together; then one
program for each of them asks whether it could rise by itself while every other job keeps what it has.

`python tests/lexicographic.py --problems 2000 --seed 1` compares both policies with it on realistic problems.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import Random

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csc_array

import gavel
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Entity, Job, PlacedRate
from realistic import realistic
from strategies import Case

Floats = NDArray[np.float64]
Speeds = Callable[[Sequence[Job]], Mapping[str, float]]
"""From the active jobs to how fast each of them rises; 0 if it waits for its turn."""

KEPT = (2e-10, 1e-9, 1e-8)
"""How much a job may lose so that the next program stays feasible after rounding; the first that works is used."""
GAIN = 1e-6
"""A job that can rise by less than this part of what it has with the cluster to itself is stuck."""
TOLERANCE = 1e-10
"""The solver's tolerance: the tightest it accepts."""


def flat(case: Case) -> dict[str, float]:
    """Normalised throughput by job: the smallest per weight is as large as can be, then the second smallest, ..."""
    return fill(case, lambda active: {job.id: job.weight for job in active})


def hierarchical(case: Case) -> dict[str, float]:
    """Normalised throughput by job, where weight flows from the root of the entities to the active jobs."""
    return fill(case, lambda active: deal(active, case.entities or {}))


JUDGES = {"max_min_fairness_water_filling": flat, "hierarchical": hierarchical}
"""By the policy that each of them judges."""


# How weight flows.


def deal(active: Sequence[Job], entities: Mapping[str, Entity]) -> dict[str, float]:
    """The weight of every active job: what hangs on the root has its own, an entity's is passed on to its children."""
    weights = dict.fromkeys((job.id for job in active), 0.0)

    def pour(child: str | Job, purse: float, below: Sequence[Job]) -> None:
        if isinstance(child, Job):
            weights[child.id] = purse
            return
        branches = _branches(below, child)
        if entities.get(child, Entity()).policy == "fifo":
            branches = [min(branches, key=lambda branch: min((job.arrival, job.id) for job in branch[1]))]
        total = sum(_weight(branch, entities) for branch, _ in branches)
        for branch, members in branches:
            pour(branch, purse * _weight(branch, entities) / total, members)

    for branch, members in _branches(active, ""):
        pour(branch, _weight(branch, entities), members)
    return weights


def _weight(child: str | Job, entities: Mapping[str, Entity]) -> float:
    return child.weight if isinstance(child, Job) else entities.get(child, Entity()).weight


def _branches(jobs: Sequence[Job], path: str) -> list[tuple[str | Job, list[Job]]]:
    """The children of an entity, jobs or paths, each with the jobs below it; the root's path is empty."""
    found: list[tuple[str | Job, list[Job]]] = [(job, [job]) for job in jobs if (job.entity or "") == path]
    depth = path.count("/") + 1 if path else 0
    deeper = [("/".join(job.entity.split("/")[: depth + 1]), job) for job in jobs if job.entity and job.entity != path]
    children = sorted({child for child, _ in deeper})
    found += [(child, [job for other, job in deeper if other == child]) for child in children]
    return found


# What can run where.


@dataclass(frozen=True)
class Way:
    """One variable: a job, or two that share, at one placement on one type."""

    rates: Mapping[str, float]
    """Steps per second of each job."""
    workers: int
    type: str
    consolidated: bool = False


def ways(case: Case) -> list[Way]:
    """Every way to run a job that can run alone somewhere; pairs share anywhere on a type."""
    counts = {kind.name: kind.count for kind in case.types}
    alone = [way for job in case.jobs for way in _alone(job) if job.workers <= counts[way.type]]
    runnable = {name for way in alone for name in way.rates}
    workers = {job.id: job.workers for job in case.jobs}
    shared = [
        Way(dict(zip(pair.jobs, rates, strict=True)), workers[pair.jobs[0]], kind)
        for pair in case.pairs
        for kind, rates in pair.rates.items()
        if runnable.issuperset(pair.jobs) and min(rates) > 0 and workers[pair.jobs[0]] <= counts[kind]
    ]
    return alone + shared


def _alone(job: Job) -> Iterable[Way]:
    for kind, rate in job.rates.items():
        placed = (
            {True: rate.consolidated, False: rate.unconsolidated} if isinstance(rate, PlacedRate) else {False: rate}
        )
        for consolidated, speed in placed.items():
            if speed > 0:
                yield Way({job.id: speed}, job.workers, kind, consolidated)


def gains(case: Case) -> dict[str, float]:
    """By job that can run: workers / throughput of an equal share of every accelerator at the best placement."""
    counts = {kind.name: kind.count for kind in case.types}
    best: dict[str, dict[str, float]] = {}
    for way in ways(case):
        if len(way.rates) == 1:
            ((name, rate),) = way.rates.items()
            by_type = best.setdefault(name, {})
            by_type[way.type] = max(by_type.get(way.type, 0.0), rate)
    equal = {name: sum(counts[kind] * rate for kind, rate in by_type.items()) for name, by_type in best.items()}
    workers = {job.id: job.workers for job in case.jobs}
    return {name: workers[name] * sum(counts.values()) / equal[name] for name in equal}


@dataclass(frozen=True)
class Polytope:
    """All valid allocations: rows @ x <= limits, x >= 0; `value` @ x is normalised throughput by job."""

    jobs: tuple[Job, ...]
    """Those that can run."""
    rows: Floats
    limits: Floats
    value: Floats
    reach: Floats
    """By job: the most that it can have with the cluster to itself."""

    @classmethod
    def of(cls, case: Case) -> Polytope:
        variables, gain = ways(case), gains(case)
        jobs = tuple(job for job in case.jobs if job.id in gain)
        rows = [([float(job.id in way.rates) for way in variables], 1.0) for job in jobs]
        for kind in case.types:
            here = [way.workers * float(way.type == kind.name) for way in variables]
            rows += [(here, float(kind.count)), *_gangs(kind, variables)]
        value = np.array([[gain[job.id] * way.rates.get(job.id, 0.0) for way in variables] for job in jobs])
        value = value.reshape(len(jobs), len(variables))
        matrix = np.array([row for row, _ in rows]).reshape(len(rows), len(variables))
        return cls(jobs, matrix, np.array([limit for _, limit in rows]), value, value.max(axis=1, initial=0.0))

    def rise(self, position: Floats, speed: Floats) -> float:
        """How long all jobs can rise from a position, each at its speed."""
        time = np.append(np.zeros(len(self.limits)), speed)
        gain = np.append(np.zeros(self.rows.shape[1]), 1.0)
        return float(self._best(gain, np.column_stack([self._matrix, time]), position)[-1])

    def alone(self, position: Floats, job: int) -> float:
        """The most that one job can have while every job keeps its position."""
        return float(self.value[job] @ self._best(self.value[job], self._matrix, position))

    def stuck(self, position: Floats, active: Sequence[int]) -> list[int]:
        """The active jobs that cannot rise: one program each, but for those that rose in the program of another."""
        found, risen = [], set[int]()
        ask = self._asking(position)
        for job in active:
            if job not in risen:
                most = self.value @ ask(self.value[job])
                if most[job] <= position[job] + GAIN * self.reach[job]:
                    found.append(job)
                risen |= {other for other in active if most[other] > position[other] + 100 * GAIN * self.reach[other]}
        return found

    def _asking(self, position: Floats) -> Callable[[Floats], Floats]:
        """Programs that differ in their gains only, every job keeping its position, each begun where the last ended."""
        matrix, kept = csc_array(self._matrix), KEPT[0]
        solver = highspy.Highs()
        solver.silent()
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            solver.setOptionValue(name, TOLERANCE)
        solver.setOptionValue("simplex_strategy", 4)
        rows, columns = matrix.shape
        every, free = np.arange(columns, dtype=np.int32), np.full(columns, np.inf)
        limits = np.append(self.limits, kept * np.maximum(position, 1.0) - position)
        solver.passModel(
            columns,
            rows,
            matrix.nnz,
            int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMinimize),
            0.0,
            np.zeros(columns),
            np.zeros(columns),
            free,
            np.full(rows, -np.inf),
            limits,
            matrix.indptr.astype(np.int32),
            matrix.indices.astype(np.int32),
            matrix.data,
            np.zeros(columns, dtype=np.int32),
        )

        def ask(gain: Floats) -> Floats:
            solver.changeColsCost(columns, every, -gain)
            solver.run()
            if solver.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                return np.array(solver.getSolution().col_value)
            return self._best(gain, self._matrix, position)

        return ask

    @property
    def _matrix(self) -> Floats:
        return np.concatenate([self.rows, -self.value])

    def _best(self, gain: Floats, matrix: Floats, position: Floats) -> Floats:
        """The allocation that gains most while every job keeps its position."""
        for kept in KEPT:
            limits = np.append(self.limits, kept * np.maximum(position, 1.0) - position)
            answer = linprog(
                -gain,
                A_ub=matrix,
                b_ub=limits,
                bounds=(0.0, None),
                method="highs-ds",
                options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
            )
            if answer.status == 0:
                return np.asarray(answer.x)
        raise ArithmeticError(f"the judge's solver ended with: {answer.message}")


def _gangs(kind: AcceleratorType, variables: Sequence[Way]) -> list[tuple[list[float], float]]:
    """For every size of gang: no more gangs of at least this size are consolidated at once than servers have room."""
    together = [way.type == kind.name and way.consolidated for way in variables]
    sizes = {way.workers for way, here in zip(variables, together, strict=True) if here}
    return [
        (
            [float(here and way.workers >= size) for way, here in zip(variables, together, strict=True)],
            float(sum(server // size for server in kind.servers)),
        )
        for size in sorted(sizes)
        if 1 < size <= max(kind.servers, default=0)
    ]


# The stages.


def fill(case: Case, speeds: Speeds) -> dict[str, float]:
    """Raise all active jobs together, stop those that are stuck, and repeat until no job is active."""
    polytope = Polytope.of(case)
    position = np.zeros(len(polytope.jobs))
    active = list(range(len(polytope.jobs)))
    while active:
        dealt = speeds([polytope.jobs[job] for job in active])
        speed = np.array([dealt.get(job.id, 0.0) for job in polytope.jobs])
        speed /= speed.max()
        position += speed * polytope.rise(position, speed)
        stuck = polytope.stuck(position, active)
        if not any(speed[job] > 0 for job in stuck):
            raise ArithmeticError("the judge's level stopped, but no job that was rising is stuck: tolerances are off")
        active = [job for job in active if job not in stuck]
    found = dict.fromkeys((job.id for job in case.jobs), 0.0)
    return found | {job.id: float(value) for job, value in zip(polytope.jobs, position, strict=True)}


# Comparing.


def difference(case: Case, policy: str) -> float:
    """The largest difference of a job's normalised throughput, relative to the judge's where that is above 1."""
    judged, gain = JUDGES[policy](case), gains(case)
    throughput = gavel.allocate(case.problem(), policy).throughput
    return max(
        (abs(throughput[name] * gain.get(name, 0.0) - value) / max(value, 1.0) for name, value in judged.items()),
        default=0.0,
    )


def numbered(seed: int, number: int) -> Case:
    """A problem of a seeded series."""
    return realistic(Random(f"{seed}-{number}"))


def _differences(problem: tuple[int, int]) -> dict[str, float]:
    """By policy, for a problem given by seed and number; infinite where the policy has no answer."""
    found = {}
    for policy in JUDGES:
        try:
            found[policy] = difference(numbered(*problem), policy)
        except gavel.SolverError:
            found[policy] = math.inf
    return found


def main() -> None:
    """Compare the policies with the judge on a seeded series of problems."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()
    problems = [(options.seed, number) for number in range(options.problems)]
    found: dict[str, list[float]] = {policy: [] for policy in JUDGES}
    with contextlib.ExitStack() as stack:
        each = map if options.processes == 1 else stack.enter_context(ProcessPoolExecutor(options.processes)).map
        for problem, differences in zip(problems, each(_differences, problems), strict=True):
            for policy, value in differences.items():
                found[policy].append(value)
                if value > options.tolerance:
                    print(f"numbered{problem}: {policy} differs by {value:.3g}", flush=True)
    for policy, values in found.items():
        wrong = sum(value > options.tolerance for value in values)
        print(
            f"{policy}: {len(values)} problems compared (seed {options.seed}), {wrong} differ by more than"
            f" {options.tolerance:g}, the worst by {max(values, default=0.0):.3g}"
        )


if __name__ == "__main__":
    main()
