"""The options of workloads, clusters and simulations, each with one meaning and one help text."""

from __future__ import annotations

from typing import Annotated

import typer

from gavel.errors import InputError
from gavel.limits import MOST_JOBS
from gavel.workload.formats import FORMATS

JobCount = Annotated[int | None, typer.Option(help="Generate this many jobs.", min=1, metavar="N")]
Trace = Annotated[str | None, typer.Option(help="A trace to run; see `gavel trace`.", metavar="FILE")]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help=f"Format of the trace: {', '.join(FORMATS)}; default: recognised by content.",
        metavar="NAME",
    ),
]
ArrivalsPerHour = Annotated[
    float | None,
    typer.Option(help="Mean arrivals per hour of generated jobs (Poisson).", metavar="L"),
]
MultiWorker = Annotated[bool, typer.Option("--multi-worker", help="30% of generated jobs have 2, 4 or 8 workers.")]
Slo = Annotated[
    str,
    typer.Option(
        help="Give generated jobs deadlines: a random one of these multiples of their duration.",
        metavar="1.2,2,10",
    ),
]
HighPriority = Annotated[float, typer.Option(help="Fraction of generated jobs with weight 5.", metavar="SHARE")]
Entities = Annotated[
    str | None,
    typer.Option(
        help="Owners of jobs: names that generated jobs are assigned to in turn, or a JSON file with weights and "
        "policies.",
        metavar="A,B,…|FILE",
    ),
]
Templates = Annotated[
    str,
    typer.Option(
        help="Templates of generated jobs; a model's name means all batch sizes.",
        metavar="NAME,…",
    ),
]
Durations = Annotated[
    str,
    typer.Option(
        help="Durations of generated jobs, drawn at random, instead of the paper's.",
        metavar="SECONDS,…",
    ),
]
ReferenceType = Annotated[
    str,
    typer.Option(
        "--reference",
        help="The accelerator type that durations refer to.",
        metavar="TYPE",
    ),
]
ThroughputsKnown = Annotated[
    float,
    typer.Option(help="Fraction of templates that the scheduler knows; it estimates the others.", metavar="SHARE"),
]
ProfilingShare = Annotated[
    float,
    typer.Option(help="Fraction of each type's accelerators that profile new templates.", metavar="SHARE"),
]
ProfilingMinutes = Annotated[float, typer.Option(help="Time to profile one figure.", metavar="MINUTES")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0, metavar="N")]

ClusterText = Annotated[
    str,
    typer.Option(
        help="Accelerators, for example v100=36,p100=36,k80=36, or servers of given sizes, for example v100=4x8+2x4, "
        "or a CSV of nodes (sn, gpu, model).",
        metavar="TYPE=N,…|FILE.csv",
    ),
]
PerServer = Annotated[
    int,
    typer.Option(help="Accelerators in each server, for types without server sizes.", min=1, metavar="N"),
]
Prices = Annotated[
    str,
    typer.Option(help="Dollars per hour, where list prices are unknown or wrong.", metavar="TYPE=D,…"),
]
Failures = Annotated[
    str | None,
    typer.Option(help="A CSV of lost and joined servers: seconds,event,server.", metavar="FILE"),
]
FailuresPerServerDay = Annotated[
    float,
    typer.Option(help="Mean number of random failures per server and day.", min=0.0, metavar="N"),
]
RepairHours = Annotated[
    float,
    typer.Option(help="Mean time until a failed server returns.", min=0.0, metavar="HOURS"),
]

MechanismOption = Annotated[
    str,
    typer.Option(
        help="credits avoids restarts; priorities is the paper's; plain follows the paper to the letter, so that jobs "
        "start only when a round begins. module.NAME selects your own.",
        metavar="NAME",
    ),
]
Ideal = Annotated[
    bool,
    typer.Option("--ideal", help="Grant every job its allocation exactly; no rounds, no restarts."),
]
RoundSeconds = Annotated[float, typer.Option(help="Length of a round.", min=1.0, metavar="SECONDS")]
RestartSeconds = Annotated[
    float,
    typer.Option(help="Cost of moving or resuming a job.", min=0.0, metavar="SECONDS"),
]
MinSecondsBetweenAllocations = Annotated[
    float,
    typer.Option(
        help="Minimum time between allocations; default: recompute whenever jobs or servers come or go.",
        min=0.0,
        metavar="SECONDS",
    ),
]
RecomputeEverySeconds = Annotated[
    float | None,
    typer.Option(help="Recompute the allocation at this interval even if nothing changed.", min=1.0, metavar="SECONDS"),
]

Window = Annotated[
    str | None,
    typer.Option(
        help="Measure jobs A (inclusive) to B (exclusive) in order of arrival, and stop when they are done.",
        metavar="A:B",
    ),
]
LimitDays = Annotated[float, typer.Option(help="Stop after this many simulated days.", min=0.01, metavar="DAYS")]


def parse_window(text: str | None) -> tuple[int, int] | None:
    """Read A:B."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    short = len(text) <= 2 * len(str(MOST_JOBS)) + 1  # Python refuses to parse integers with thousands of digits
    if not (colon and short and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise InputError(f"--window {text}: write A:B with A < B, for example 4000:5000")
    return int(first), int(last)


def parse_names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in parse_names(text))
    except ValueError:
        raise InputError(f"{option} {text}: give numbers separated by commas, for example 1.2,2,10") from None
