"""`gavel demo`: one mixed cluster, the same jobs, aware against agnostic."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from gavel.cli.options import AsJson
from gavel.cli.render import console, number, print_json, table
from gavel.core.cluster import LIST_PRICES, AcceleratorType
from gavel.core.problem import Problem, job_arrays
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import POLICIES, allocate

SHOWN = ("max_min_fairness", "makespan", "finish_time_fairness", "max_throughput")


def demo(
    jobs: Annotated[int, typer.Option(help="How many jobs, their models drawn at random.", min=1)] = 36,
    seed: Annotated[int, typer.Option(help="Seed of the draw.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what knowing the accelerator types is worth.

    Policies on 8 V100, 8 P100 and 8 K80, aware and agnostic.
    """
    rows = comparison(demo_problem(jobs, seed))
    if as_json:
        print_json({"jobs": jobs, "seed": seed, "policies": rows})
        return
    out = console()
    out.print(f"{jobs} jobs of 26 models (batch sizes included) on 8 V100, 8 P100 and 8 K80, solved exactly:\n")
    cells = [
        [
            f"{row['policy']}: {row['objective']}",
            *(number(float(row[key])) for key in ("agnostic", "aware", "space_sharing")),
            f"{float(row['improvement']):.2f}x",
        ]
        for row in rows
    ]
    out.print(table(["policy: objective", "agnostic", "aware", "+ sharing", "aware better by"], cells))
    out.print(
        "\nagnostic: decided as if all types were equally fast. Next: gavel allocate examples/teams.json --explain",
        style="dim",
    )


def demo_problem(jobs: int, seed: int) -> Problem:
    """Jobs of random built-in templates, each of 1 to 100 hours on its fastest type."""
    rng = np.random.default_rng(seed)
    table = builtin_table()
    types = [AcceleratorType(name, 8, LIST_PRICES[name]) for name in table.types]
    profiles = [(template, 1) for template in table.templates]
    template = rng.integers(len(profiles), size=jobs)
    fastest = table.rates(profiles, table.types)[template, :, 0].max(axis=1)
    hours = 10.0 ** rng.uniform(0.0, 2.0, size=jobs)
    arrays = job_arrays(tuple(f"job{n}" for n in range(jobs)), template, steps=hours * 3600.0 * fastest)
    return Problem.from_table(types, table, profiles, arrays)


def comparison(problem: Problem) -> list[dict[str, str | float]]:
    """Objectives of a few policies: agnostic, aware, and aware with space sharing."""
    alone = problem.without_pairs()
    rows: list[dict[str, str | float]] = []
    for name in SHOWN:
        policy = POLICIES[name]
        agnostic = allocate(alone, name, heterogeneity_agnostic=True).certificate.objective
        aware = allocate(alone, name).certificate.objective
        shared = allocate(problem, name).certificate.objective
        rows.append(
            {
                "policy": name,
                "objective": policy.objective,
                "agnostic": agnostic,
                "aware": aware,
                "space_sharing": shared,
                "improvement": agnostic / aware if policy.minimised else aware / agnostic,
            }
        )
    return rows
