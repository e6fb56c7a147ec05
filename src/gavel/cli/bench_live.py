"""`gavel bench fleet` and `gavel bench live`: a real scheduler under load, measured from outside."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gavel.bench.fleet.load import SCENARIOS, Load
from gavel.cli.options import AsJson, check_file
from gavel.cli.render import console, number, print_figures, print_json, table
from gavel.client.field_checks import nearest
from gavel.errors import GavelError, InputError

Whole = int | None
SECONDS_EACH = 20.0
PAIRS = 3
COMPARED = ("share_of_a_core", "starts_per_second", "call_p50_seconds", "call_p99_seconds", "machine_load")


def fleet_command(
    scenario: Annotated[
        str | None,
        typer.Option(help=f"A predefined load, which other options modify: {', '.join(SCENARIOS)}.", metavar="NAME"),
    ] = None,
    agents: Annotated[Whole, typer.Option(help="Modelled agents. Default: 250.", min=0, max=10_000)] = None,
    accelerators_per_agent: Annotated[
        Whole, typer.Option(help="Accelerators of each agent. Default: 4.", min=1, max=1000)
    ] = None,
    jobs: Annotated[Whole, typer.Option(help="Jobs in the queue. Default: 10000.", min=1, max=1_000_000)] = None,
    round_seconds: Annotated[
        float | None, typer.Option(help="Length of a round. Default: 5.", min=0.1, max=3600.0)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How long to measure. Default: 60.", min=1.0, max=3600.0)
    ] = None,
    templates: Annotated[Whole, typer.Option(help="Number of distinct templates. Default: 26.", min=1)] = None,
    finished: Annotated[
        Whole,
        typer.Option(help="Finished jobs to create first; `gavel jobs` is timed. Default: 0.", min=0, max=1_000_000),
    ] = None,
    watchers: Annotated[Whole, typer.Option(help="Clients that watch all jobs. Default: 0.", min=0, max=10_000)] = None,
    processes: Annotated[
        Whole, typer.Option(help="Processes that the agents are spread over. Default: 2.", min=1, max=64)
    ] = None,
    job_seconds: Annotated[
        str | None,
        typer.Option(help="Shortest and longest time of a job on the fastest type. Default: 5:60.", metavar="FROM:TO"),
    ] = None,
    limit_seconds: Annotated[
        float | None, typer.Option(help="Abort the whole benchmark after this. Default: 400.", min=1.0, max=86_400.0)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    profile: Annotated[
        Path | None,
        typer.Option(help="Write a cProfile of the scheduler to this file; profiling slows it down.", metavar="FILE"),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Measure an open and a secured scheduler in turn, and what security adds."),
    ] = False,
    repeat: Annotated[
        Whole, typer.Option(help="With --secure: pairs to measure. Default: 3.", min=1, max=1000, metavar="PAIRS")
    ] = None,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once", help="With --secure: measure both schedulers at the same time, if the machine does other work."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a scheduler under load from many modelled agents, which speak the protocol but run nothing."""
    if repeat is not None and not secure:
        raise InputError(f"--repeat {repeat} counts pairs of an open and a secured scheduler; add --secure")
    if at_once and not secure:
        raise InputError("--at-once measures an open and a secured scheduler; add --secure")
    given = {
        "agents": agents,
        "accelerators_per_agent": accelerators_per_agent,
        "jobs": jobs,
        "round_seconds": round_seconds,
        "seconds": seconds,
        "templates": templates,
        "finished": finished,
        "watchers": watchers,
        "processes": processes,
        "job_seconds": None if job_seconds is None else _range(job_seconds),
        "limit_seconds": limit_seconds,
        "seed": seed,
    }
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    load = replace(_scenario(scenario), **changed)
    if profile is not None:
        check_file("--profile", profile)

    named = {"scenario": scenario or ""}
    figures = named | (_compare(load, repeat or PAIRS, profile, at_once=at_once) if secure else _measure(load, profile))
    if as_json:
        print_json(figures)
    elif secure:
        _print_comparison(figures)
    else:
        print_figures(figures)
    if "trouble" in figures:
        raise GavelError(f"the benchmark was not completed: {figures['trouble']}")


def _measure(load: Load, profile: Path | None) -> dict[str, Any]:
    from gavel.bench.fleet.measure import run  # noqa: PLC0415 - the other benchmarks do not need the network

    return run(load, _say, profile)


def _compare(load: Load, pairs: int, profile: Path | None, *, at_once: bool) -> dict[str, Any]:
    from gavel.bench.fleet import price  # noqa: PLC0415 - the other benchmarks do not need the network

    return price.document(price.compare(load, _say, pairs, profile, at_once=at_once))


def _print_comparison(figures: dict[str, Any]) -> None:
    """Both schedulers of every pair, then what security adds."""
    headers = ["pair", "scheduler", *(name.replace("_", " ") for name in COMPARED)]
    rows = [
        [str(index), kind, *(_figure(pair.get(kind, {}), name) for name in COMPARED)]
        for index, pair in enumerate(figures["pairs"], 1)
        for kind in ("open", "secured")
    ]
    console().print(table(headers, rows, left=2))
    print_figures({name: value for name, value in figures.items() if name != "pairs"})


def live_command(
    seconds: Annotated[
        float, typer.Option(help="How long to measure each scenario.", min=1.0, max=3600.0)
    ] = SECONDS_EACH,
    as_json: AsJson = False,
) -> None:
    """Measure every scenario of `gavel bench fleet`, preemption with real processes, and an idle scheduler."""
    from gavel.bench import live  # noqa: PLC0415 - the other benchmarks do not need the network

    measured = dict(live.scenarios(seconds, _say))
    if as_json:
        print_json(measured)
        return
    rows = [
        [name, target.figure.replace("_", " "), _figure(measured[name], target.figure), *target.verdict(measured[name])]
        for name, targets in live.TARGETS.items()
        for target in targets
    ]
    console().print(table(["scenario", "figure", "measured", "target", "met"], rows, left=2))
    for name, figures in measured.items():
        if "trouble" in figures:
            print(f"{name}: {figures['trouble']}")


def _figure(figures: dict[str, Any], name: str) -> str:
    value = figures.get(name)
    return "-" if value is None else number(float(value))


def _scenario(name: str | None) -> Load:
    if name is None:
        return Load()
    if name not in SCENARIOS:
        raise InputError(f"--scenario {name}: there is no such scenario; {nearest(name, SCENARIOS)}")
    return SCENARIOS[name]


def _range(text: str) -> tuple[float, float]:
    """Two times, the shorter first.

    >>> _range("5:60")
    (5.0, 60.0)
    """
    shortest, _, longest = text.partition(":")
    try:
        times = float(shortest), float(longest)
    except ValueError:
        raise InputError(f"--job-seconds {text}: write FROM:TO, for example 5:60") from None
    if not 0.0 <= times[0] <= times[1] <= 1e6:
        raise InputError(f"--job-seconds {text}: both must be between 0 and 1,000,000, the shorter one first")
    return times


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
