"""Measure the throughput estimator: `python tools/estimator_table.py TABLE.json [--write]`, about ten minutes.

Errors when each template is left out in turn; then simulations with estimated throughputs, with all of them known,
and without space sharing. With --write both tables go into docs/estimator.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path
from statistics import mean

import numpy as np

from gavel.core.throughputs import read_table
from gavel.estimator.evaluation import ESTIMATORS, matches, scores
from gavel.estimator.references import References
from gavel.sim.experiment import Experiment, run

SHARES = (0.2, 0.5, 1.0)
SEEDS = range(20)
BASE = Experiment(cluster="v100=4,p100=4,k80=4", jobs=250, window=(60, 180))
LOADS = (0.3, 0.45, 0.55, 0.65)
KNOWN = 0.2
RANDOM_LOADS = (0.2, 0.7)


def errors(references: References) -> Iterator[str]:
    """The lines of the first table."""
    yield "| pairs measured | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"
    yield "|---" * (1 + len(SHARES)) + "|"
    by_share = [scores(references, share) for share in SHARES]
    for name in ESTIMATORS:
        cells = [f"{found[name].mean:.3f} / {found[name].p90:.3f}" for found in by_share]
        yield f"| {name} | " + " | ".join(cells) + " |"
    planned = [f"{matches(references, share):.0%}" for share in SHARES]
    yield "| a known template is recognised, most informative pairs | " + " | ".join(planned) + " |"
    drawn = [mean(matches(references, share, seed=seed) for seed in SEEDS) for share in SHARES]
    yield "| the same, random pairs | " + " | ".join(f"{share:.1%}" for share in drawn) + " |"


def variants(base: Experiment) -> list[Experiment]:
    """Without space sharing, with it, and with estimated throughputs."""
    shared = replace(base, space_sharing=True)
    return [base, shared, replace(shared, throughputs_known=KNOWN)]


def hours(experiment: Experiment) -> float:
    """Average completion time."""
    return float(run(experiment).document()["average_jct_seconds"]) / 3600.0


def completion_times(experiments: Iterable[Experiment]) -> Iterator[Sequence[float]]:
    """For each experiment, the average completion times of its three variants, as they finish."""
    with Pool() as pool:
        yield from pool.imap(_three, experiments)


def _three(experiment: Experiment) -> list[float]:
    return [hours(variant) for variant in variants(experiment)]


def by_load(table: str) -> Iterator[str]:
    """The lines of the second table."""
    yield "| jobs/h | seed | no space sharing | all known | estimated | estimated / known | estimated / no sharing |"
    yield "|---" * 7 + "|"
    points = [(load, seed) for load in LOADS for seed in range(3)]
    found = completion_times(
        replace(BASE, throughputs=table, arrivals_per_hour=load, seed=seed) for load, seed in points
    )
    for (load, seed), (alone, known, estimated) in zip(points, found, strict=True):
        ratios = f"{estimated / known:.3f} | {estimated / alone:.3f}"
        yield f"| {load} | {seed} | {alone:.2f} h | {known:.2f} h | {estimated:.2f} h | {ratios} |"


def at_random(table: str) -> Iterator[str]:
    """A sentence about random seeds and loads."""
    random = np.random.default_rng(5)
    points = [(seed, float(random.uniform(*RANDOM_LOADS))) for seed in range(100, 120)]
    found = completion_times(
        replace(BASE, throughputs=table, arrivals_per_hour=load, seed=seed) for seed, load in points
    )
    ratios = sorted((estimated / alone, estimated / known) for alone, known, estimated in found)
    worst, typical = ratios[-1][0], mean(ratio for ratio, _ in ratios)
    yield (
        f"With {len(ratios)} random seeds and loads from {RANDOM_LOADS[0]} to {RANDOM_LOADS[1]} jobs/h, estimated "
        f"throughputs give {worst:.3f} times the average JCT of no space sharing at worst, {typical:.3f} times on "
        f"average; {max(ratio for _, ratio in ratios):.3f} times that of all known at worst, "
        f"{mean(ratio for _, ratio in ratios):.3f} times on average."
    )


def main(arguments: list[str]) -> None:
    """Print everything; with --write, also update the page."""
    [table] = [argument for argument in arguments if argument != "--write"]
    parts = {
        "errors": errors(References.of(read_table(Path(table)))),
        "simulations": by_load(table),
        "random": at_random(table),
    }
    for name, lines in parts.items():
        text = ""
        for line in lines:
            print(line, flush=True)
            text += line + "\n"
        if "--write" in arguments:
            page = Path(__file__).parents[1] / "docs" / "estimator.md"
            begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->\n"
            start, _, rest = page.read_text().partition(begin)
            page.write_text(start + begin + text + end + rest.partition(end)[2])


if __name__ == "__main__":
    main(sys.argv[1:])
