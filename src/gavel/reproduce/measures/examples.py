"""The allocations printed in the paper."""

from __future__ import annotations

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job
from gavel.core.problem import Floats, Problem
from gavel.plots.page import NumberTable
from gavel.policies.registry import allocate
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Scope, Study

PRINTED = np.array([[0.45, 0.0], [0.45, 0.09], [0.09, 0.91]])
"""Section 4.1: three jobs on a V100 and a K80."""
EXAMPLE = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.2, 0.0, 0.8]])
"""Section 3.1: three jobs on a V100, a P100 and a K80."""
ROUNDS = 100


def measure(study: Study, scope: Scope) -> Measured:  # noqa: ARG001 - examples are small
    """Solve every example again."""
    types = [AcceleratorType("v100", 1), AcceleratorType("k80", 1)]
    jobs = [Job(f"job {n}", {"v100": fast, "k80": 1.0}) for n, fast in enumerate((4.0, 3.0, 2.0))]
    problem = Problem.of(types, jobs)
    fair, isolated = allocate(problem), allocate(problem, "isolated")
    matrix = _shares(fair)
    better = [fair.throughput[job.id] / isolated.throughput[job.id] for job in jobs]
    first, last = _water_filling()
    values = {
        "matrix_error": float(np.abs(matrix - PRINTED).max()),
        "over_isolated": float(np.mean(better)),
        "first_level": first,
        "last_level": last,
        "example_load": float(max(EXAMPLE.sum(axis=0).max(), EXAMPLE.sum(axis=1).max())),
        "example_rounds": _realised(),
    }
    rows = [
        [job.id, *(f"{x:.2f}" for x in printed), *(f"{x:.4f}" for x in ours)]
        for job, printed, ours in zip(jobs, PRINTED.tolist(), matrix.tolist(), strict=True)
    ]
    table = NumberTable(["job", "V100 (paper)", "K80 (paper)", "V100 (ours)", "K80 (ours)"], rows)
    return Measured(study, values=values, tables=[("Section 4.1: shares of time", table)])


def _shares(allocation: Allocation) -> Floats:
    return np.array([list(row.shares.values()) for row in allocation.rows()])


def _water_filling() -> tuple[float, float]:
    """Section 4.3: the throughput of the job with weight 3 at the first level, and the smallest in the end."""
    jobs = [Job(f"job {n}", {"gpu": 1.0}, weight=weight) for n, weight in enumerate((3.0, 1.0, 1.0, 1.0))]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 4)], jobs), "max_min_fairness_water_filling")
    return 3.0 * allocation.certificate.objective, min(allocation.throughput.values())


def _realised() -> float:
    """How far the paper's priority mechanism is from the example of section 3.1 after many rounds."""
    received = np.full(EXAMPLE.shape, 0.5)
    for _ in range(ROUNDS):
        priority = EXAMPLE / (received / received.sum(axis=0))
        taken: set[int] = set()
        for type_index in range(EXAMPLE.shape[1]):
            free = [job for job in range(len(EXAMPLE)) if job not in taken and EXAMPLE[job, type_index] > 0]
            if free:
                chosen = max(free, key=lambda job: float(priority[job, type_index]))
                taken.add(chosen)
                received[chosen, type_index] += 1
    return float(np.abs((received - 0.5) / ROUNDS - EXAMPLE).max())
