"""`gavel bench`: how fast Gavel is on this machine, compared with the textbook formulation in the same run."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from gavel.bench import estimator
from gavel.bench.generate import generated_problem
from gavel.bench.rounds import PER_SERVER, plan_rounds
from gavel.bench.textbook import textbook
from gavel.cli.bench_live import fleet_command, live_command
from gavel.cli.options import Agnostic, AsJson, LimitSeconds, SpaceSharing
from gavel.cli.render import print_figures, print_json
from gavel.core.errors import InputError
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate, find_policy
from gavel.sim.experiment import Experiment, run

Result = TypeVar("Result")

app = typer.Typer(help="Measure how fast Gavel is on this machine.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    pass


@app.command("policies")
def bench_policies(
    policy: Annotated[str, typer.Option("--policy", "-p", help="The policy.")] = "max_min_fairness",
    jobs: Annotated[int, typer.Option(help="Jobs in the problem.", min=1)] = 2048,
    space_sharing: SpaceSharing = False,
    agnostic: Agnostic = False,
    distinct: Annotated[
        bool,
        typer.Option(
            "--distinct",
            help="Give every job its own steps, arrival, age and deadline, and its own rates unless jobs share.",
        ),
    ] = False,
    own_rates: Annotated[
        bool, typer.Option("--own-rates", help="Give every job its own rates, also in pairs; implies --distinct.")
    ] = False,
    accelerators: Annotated[
        int | None, typer.Option(help="Accelerators of each type; default: a quarter of the number of jobs.", min=1)
    ] = None,
    limit_seconds: LimitSeconds = 600.0,
    against: Annotated[
        str | None, typer.Option(help="Also time the 'textbook' cvxpy formulation of the same problem.")
    ] = None,
    repeat: Annotated[int, typer.Option(help="Solve this many times and report the fastest.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the generated problem.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Time one allocation on a generated problem of the 26 built-in templates."""
    find_policy(policy)
    if against not in (None, "textbook"):
        raise InputError(f"--against {against}: the only choice is 'textbook'")
    builtin_table()  # read once, because a scheduler keeps it in memory
    build_seconds, problem = _timed(
        lambda: generated_problem(
            jobs,
            distinct=distinct or own_rates,
            space_sharing=space_sharing,
            own_rates=own_rates or None,
            accelerators=accelerators,
            seed=seed,
        )
    )
    solves = [
        _timed(lambda: allocate(problem, policy, heterogeneity_agnostic=agnostic, limit_seconds=limit_seconds))
        for _ in range(repeat)
    ]
    seconds, answer = min(solves, key=lambda solve: solve[0])
    measured: dict[str, Any] = {
        "policy": policy,
        "jobs": jobs,
        "space_sharing": space_sharing,
        "agnostic": agnostic,
        "distinct": distinct or own_rates,
        "accelerators": int(problem.counts.sum()),
        "build_seconds": build_seconds,
        "solve_seconds": seconds,
        "objective": answer.certificate.objective,
        "bound": answer.certificate.bound,
        "gap": answer.certificate.gap,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if against:
        reference = textbook(problem, policy)
        measured |= {
            "textbook_seconds": reference.seconds,
            "textbook_objective": reference.objective,
            "speedup": reference.seconds / seconds,
        }
    if as_json:
        print_json(measured)
    else:
        print_figures(measured)


@app.command("simulator")
def bench_simulator(
    jobs: Annotated[int, typer.Option(help="Jobs to simulate.", min=1)] = 500,
    arrivals_per_hour: Annotated[float, typer.Option(help="Arrivals per hour.", min=0.01)] = 4.0,
    cluster: Annotated[str, typer.Option(help="Accelerators by type.")] = "v100=36,p100=36,k80=36",
    policy: Annotated[str, typer.Option("--policy", "-p", help="The policy.")] = "max_min_fairness",
    space_sharing: SpaceSharing = False,
    as_json: AsJson = False,
) -> None:
    """Count simulated rounds per second."""
    report = run(
        Experiment(
            cluster=cluster, jobs=jobs, arrivals_per_hour=arrivals_per_hour, policy=policy, space_sharing=space_sharing
        )
    )
    outcome = report.outcome
    measured: dict[str, Any] = {
        "policy": policy,
        "jobs": jobs,
        "rounds": outcome.rounds,
        "allocations": outcome.solves,
        "wall_seconds": outcome.wall_seconds,
        "solver_seconds": outcome.solver_seconds,
        "rounds_per_second": outcome.rounds / outcome.wall_seconds,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if as_json:
        print_json(measured)
    else:
        print_figures(measured)


@app.command("rounds")
def bench_rounds(
    jobs: Annotated[int, typer.Option(help="Jobs in the queue.", min=1)] = 100_000,
    accelerators: Annotated[int, typer.Option(help="Accelerators, a third of each type.", min=3)] = 10_000,
    rounds: Annotated[int, typer.Option(help="Rounds to plan.", min=2)] = 10,
    needs: Annotated[
        float,
        typer.Option(help="Share of the jobs that state CPU cores and RAM, often more than is free.", min=0, max=1),
    ] = 0.0,
    per_server: Annotated[int, typer.Option(help="Accelerators of each server.", min=1)] = PER_SERVER,
    as_json: AsJson = False,
) -> None:
    """Time the planning of rounds on a large cluster with a long queue."""
    figures = plan_rounds(jobs, accelerators, rounds, needs=needs, per_server=per_server)
    measured: dict[str, Any] = {"jobs": jobs, "accelerators": accelerators, "needs": needs, **figures}
    if as_json:
        print_json(measured)
    else:
        print_figures(measured)


@app.command("estimator")
def bench_estimator(
    references: Annotated[int, typer.Option(help="Number of synthetic reference jobs.", min=2)] = 1000,
    jobs: Annotated[int, typer.Option(help="Jobs to simulate.", min=1)] = 1000,
    arrivals_per_hour: Annotated[float, typer.Option(help="Arrivals per hour.", min=0.01)] = 5.0,
    cluster: Annotated[str, typer.Option(help="Accelerators by type.")] = "v100=36,p100=36,k80=36",
    known: Annotated[float, typer.Option(help="Fraction of templates that are known.")] = 0.2,
    repeat: Annotated[int, typer.Option(help="Measure this many times and report the fastest.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Time the estimate of a new template, and how much longer estimates make a simulated round."""
    experiment = Experiment(cluster=cluster, jobs=jobs, arrivals_per_hour=arrivals_per_hour, space_sharing=True)
    measured: dict[str, Any] = {
        "references": references,
        **estimator.estimate(references, repeat),
        "jobs": jobs,
        "cluster": cluster,
        **estimator.rounds(experiment, known, repeat),
    }
    if as_json:
        print_json(measured)
    else:
        print_figures(measured)


app.command("fleet")(fleet_command)
app.command("live")(live_command)


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result
