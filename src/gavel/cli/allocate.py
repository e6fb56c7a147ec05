"""`gavel allocate`: solve one problem from a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gavel.cli.options import Agnostic, AsJson, LimitSeconds, Normalised, PolicyName, SpaceSharing
from gavel.cli.render import console, number, print_json, share, table
from gavel.core.allocation import Allocation
from gavel.core.answer_file import Asked, document
from gavel.core.errors import InputError
from gavel.core.problem import Problem
from gavel.core.problem_file import parse_problem
from gavel.core.throughputs import find_table
from gavel.policies.registry import allocate, find_policy
from gavel.workload.rows import Source


def allocate_command(
    problem: Annotated[
        Path, typer.Argument(help="The problem as JSON; - reads standard input.", metavar="PROBLEM.json")
    ],
    policy: PolicyName = "max_min_fairness",
    space_sharing: SpaceSharing = False,
    agnostic: Agnostic = False,
    normalised: Normalised = False,
    throughputs: Annotated[
        str, typer.Option(help="Throughput table for jobs that name a template.", metavar="FILE")
    ] = "builtin",
    seed: Annotated[int, typer.Option(help="Seed of random choices (gandiva).", min=0, metavar="N")] = 0,
    explain: Annotated[bool, typer.Option("--explain", help="Explain what limits each job and type.")] = False,
    limit_seconds: LimitSeconds = 600.0,
    as_json: AsJson = False,
) -> None:
    """Solve one problem: allocation and certificate."""
    find_policy(policy)
    question = read_problem(problem, throughputs)
    if not space_sharing:
        question = question.without_pairs()
    started = time.perf_counter()
    answer = allocate(
        question,
        policy,
        heterogeneity_agnostic=agnostic,
        normalised=normalised,
        seed=seed,
        limit_seconds=limit_seconds,
    )
    seconds = time.perf_counter() - started
    if as_json:
        asked = Asked(space_sharing, agnostic, normalised, seed)
        print_json(document(answer, asked, seconds))
        return
    out = console()
    _print_summary(out, answer, seconds)
    _print_shares(out, answer)
    if explain:
        _print_explanation(out, answer)


def read_problem(path: Path, throughputs: str) -> Problem:
    """Read a problem file; jobs that name a template take their rates from a table."""
    table = find_table(throughputs)
    source = Source.of(path)
    try:
        return parse_problem(source.text, table=table)
    except InputError as error:
        raise InputError(f"{source.name}: {error}") from None


def _print_summary(out: Console, answer: Allocation, seconds: float) -> None:
    certificate, policy = answer.certificate, find_policy(answer.policy)
    out.print(f"[bold]{answer.policy}[/bold]: {policy.objective}")
    out.print(
        f"objective {number(certificate.objective)}, bound {number(certificate.bound)}, "
        f"gap {certificate.gap:.1e}, solved in {seconds * 1000:.1f} ms"
    )
    for note in certificate.notes:
        out.print(f"note: {note}")
    if certificate.unmet:
        out.print(f"deadlines that cannot be met: {', '.join(certificate.unmet)}", style="yellow")
    out.print()


def _print_shares(out: Console, answer: Allocation) -> None:
    throughput = answer.throughput
    names = [t.name for t in answer.problem.types]
    rows = []
    for row in answer.rows():
        alone = len(row.jobs) == 1
        steps = number(throughput[row.jobs[0]]) if alone else ""
        cells = [share(row.shares[name]) + ("c" if name in row.consolidated else "") for name in names]
        rows.append([" + ".join(row.jobs), *cells, share(sum(row.shares.values())), steps])
    out.print(table(["share of time", *names, "any", "steps/s"], rows))
    if any(row.consolidated for row in answer.rows()):
        out.print("c: with all workers on as few servers as possible", style="dim")


def _print_explanation(out: Console, answer: Allocation) -> None:
    certificate = answer.certificate
    verb = "lowers" if certificate.minimised else "raises"
    rows = []
    for accelerator_type, busy in zip(answer.problem.types, answer.busy, strict=True):
        rows.append(
            [
                accelerator_type.name,
                str(accelerator_type.count),
                f"{busy:.2f}",
                number(certificate.prices[accelerator_type.name]),
            ]
        )
    # When the objective is minimised, stages use another unit than the objective.
    first = certificate.stages[0].prices if certificate.stages and not certificate.minimised else {}
    rows += [
        [name, "", "", number(price)] for name, price in first.items() if name not in certificate.prices and price > 0
    ]
    out.print()
    out.print(table(["type", "count", "busy", f"one more {verb} the objective by"], rows))
    out.print()
    limits = answer.limits()
    stages = certificate.stages
    if len(stages) > 1:
        _print_stages(out, answer)
        stopped = dict(zip(answer.problem.jobs.ids, answer.stage_of[answer.classes.of_job].tolist(), strict=True))
        shown = (
            [name, str(limit), str(stopped[name] + 1) if stopped[name] >= 0 else ""] for name, limit in limits.items()
        )
        out.print(table(["job", "why not more", "stage"], shown, left=2))
    else:
        out.print(table(["job", "why not more"], ([name, str(limit)] for name, limit in limits.items()), left=2))
    out.print()
    best = "no allocation is better" if certificate.gap < 1e-6 else "a better allocation may exist"
    out.print(
        f"The bound comes from prices for the types: no allocation can take the objective past "
        f"{number(certificate.bound)}; with a gap of {certificate.gap:.1e} {best}.",
        style="dim",
    )


STAGES = {
    "level": "level of jobs that still rise",
    "total": "total gain of the rest",
    "ratio": "gain per charge",
    "charge": "least charge",
}


def _print_stages(out: Console, answer: Allocation) -> None:
    """Each optimum in turn, with what one more of each resource would add to it."""
    stages = answer.certificate.stages
    names = [name for name in stages[0].prices if any(stage.prices.get(name, 0.0) > 0 for stage in stages)]
    jobs = [int(answer.classes.count[stage.stopped].sum()) for stage in stages]
    rows = [
        [str(index + 1), STAGES[stage.kind], number(stage.value), f"{stage.gap:.0e}", str(stopped)]
        + [number(stage.prices.get(name, 0.0)) for name in names]
        for index, (stage, stopped) in enumerate(zip(stages, jobs, strict=True))
    ]
    out.print(table(["stage", "optimum", "value", "gap", "jobs stop", *(f"+1 {name}" for name in names)], rows, left=2))
    out.print()
