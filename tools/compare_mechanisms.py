"""Measure what avoiding restarts is worth: `python tools/compare_mechanisms.py [--write]`, about five minutes.

Credits (the default) against the paper's priorities, at low, middle and high load, by the cost of a restart.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path
from statistics import mean

from gavel.sim.experiment import Experiment, run

BASE = Experiment(cluster="v100=12,p100=12,k80=12", jobs=300, window=(80, 220))
WORKLOADS = {
    "single-worker": (replace(BASE, multi_worker=False), (1.0, 1.6, 2.2)),
    "multi-worker": (replace(BASE, multi_worker=True), (0.4, 0.6, 0.8)),
    "single-worker, space sharing": (replace(BASE, space_sharing=True), (1.0, 1.6, 2.2)),
}
RESTART_SECONDS = (0.0, 30.0, 60.0)
SEEDS = (0, 1, 2)
BEGIN, END = "<!-- mechanisms -->\n", "<!-- end mechanisms -->\n"


def figures(experiment: Experiment) -> tuple[float, float]:
    """Average completion time and restarts a job."""
    document = run(experiment).document()
    return document["average_jct_seconds"], document["restarts_per_job"]


def main(arguments: list[str]) -> None:
    """Print the table; with --write also put it into docs/simulation.md."""
    points = [
        (name, load, cost, [replace(base, arrivals_per_hour=load, restart_seconds=cost, seed=seed) for seed in SEEDS])
        for name, (base, loads) in WORKLOADS.items()
        for load in loads
        for cost in RESTART_SECONDS
    ]
    lines = [
        "| workload | jobs/h | restart | restarts a job: plain | credits | fewer by | average JCT, credits / plain |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    with Pool() as pool:
        for name, load, cost, experiments in points:
            plain = pool.map(figures, [replace(e, mechanism="plain") for e in experiments], chunksize=1)
            credit = pool.map(figures, [replace(e, mechanism="credits") for e in experiments], chunksize=1)
            before, after = (mean(r for _, r in side) for side in (plain, credit))
            ratio = mean(j for j, _ in credit) / mean(j for j, _ in plain)
            fewer = f"{before / max(after, 1e-9):.1f}x"
            lines.append(f"| {name} | {load} | {cost:g} s | {before:.1f} | {after:.1f} | {fewer} | {ratio:.3f} |")
            print(lines[-1], flush=True)
    if "--write" in arguments:
        page = Path(__file__).parents[1] / "docs" / "simulation.md"
        start, _, rest = page.read_text().partition(BEGIN)
        page.write_text(start + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(sys.argv[1:])
