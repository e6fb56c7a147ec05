"""Time each solver against plain primal simplex on programs from simulations.

`python tools/compare_solvers.py` prints the table of docs/performance.md, in about two minutes. A program counts for
the solver that Gavel selects for it. It is solved again by that solver and by simplex on all columns, without a warm
start; the table has the median time of both and the ratio of the totals.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from unittest.mock import patch

from gavel.program import highs, interior, one_type, shortlist, solve
from gavel.program import program as questions
from gavel.program.lp import Lp, LpSolution, SolverFailed
from gavel.sim.experiment import Experiment, run

CLUSTER = "v100=36,p100=36,k80=36"
WORKLOADS = {
    "max-min fairness, 4 jobs/h": Experiment(cluster=CLUSTER, jobs=200, arrivals_per_hour=4.0),
    "the same, agnostic": Experiment(cluster=CLUSTER, jobs=200, arrivals_per_hour=4.0, agnostic=True),
    "the same, space sharing": Experiment(cluster=CLUSTER, jobs=200, arrivals_per_hour=8.0, space_sharing=True),
    "makespan, 1,500 jobs": Experiment(cluster=CLUSTER, jobs=1500, policy="makespan", window=(0, 20)),
    "finish-time fairness, overloaded": Experiment(
        cluster=CLUSTER, jobs=500, arrivals_per_hour=60.0, policy="finish_time_fairness", window=(0, 60)
    ),
    "fifo, overloaded": Experiment(cluster=CLUSTER, jobs=600, arrivals_per_hour=100.0, policy="fifo", window=(0, 60)),
    "fifo with gangs, overloaded": Experiment(
        cluster=CLUSTER, jobs=600, arrivals_per_hour=100.0, policy="fifo", multi_worker=True, window=(0, 40)
    ),
    "makespan, 400 jobs, space sharing": Experiment(
        cluster=CLUSTER, jobs=400, policy="makespan", space_sharing=True, window=(0, 40)
    ),
}
MOST = 60
"""Programs kept of each workload, evenly spread."""


def posed(experiment: Experiment) -> list[Lp]:
    """The programs of a simulation."""
    found: list[Lp] = []

    def kept(lp: Lp, **options: object) -> solve.CheckedSolution:
        found.append(lp)
        return solve.solve(lp, **options)  # type: ignore[arg-type]

    with patch.object(questions, "solve", kept):
        run(experiment)
    return found[:: max(len(found) // MOST, 1)]


def chosen(lp: Lp) -> tuple[str, Callable[[Lp], LpSolution]]:
    """The solver that is tried first."""
    if one_type.fits(lp):
        return "sorting", one_type.solve
    if shortlist.fits(lp):
        return "shortlist", shortlist.solve
    if lp.sharing is not None and lp.matrix.shape[1] >= solve.MANY_COLUMNS:
        return "sifting", highs.sift
    if lp.sharing is None and solve.is_large(lp.classes, lp.matrix.shape[1] - 1):
        return "interior point", interior.solve
    return "simplex", lambda program: highs.solve(program, "primal simplex")


def seconds(solver: Callable[[Lp], LpSolution], lp: Lp) -> float:
    """The faster of two solves."""
    times = []
    for _ in range(2):
        started = time.perf_counter()
        try:
            solver(lp)
        except SolverFailed:
            return float("nan")
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    """Print the table."""
    print("| programs of | solver | programs | classes | time | simplex alone | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, experiment in WORKLOADS.items():
        rows: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
        for lp in posed(experiment):
            solver, ask = chosen(lp)
            alone = seconds(lambda program: highs.solve(program, "primal simplex"), lp)
            rows[solver].append((seconds(ask, lp), alone, lp.classes))
        for solver, found in rows.items():
            ours, theirs = (statistics.median(row[index] for row in found) * 1000 for index in (0, 1))
            ratio = sum(row[1] for row in found) / sum(row[0] for row in found)
            classes = f"{min(row[2] for row in found)}-{max(row[2] for row in found)}"
            print(
                f"| {name} | {solver} | {len(found)} | {classes} | {ours:.2f} ms | {theirs:.2f} ms | {ratio:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
