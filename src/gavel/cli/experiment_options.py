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
        help=f"Of the trace: {', '.join(FORMATS)}; recognised by content if left out.",
        metavar="NAME",
    ),
]
ArrivalsPerHour = Annotated[
    float | None,
    typer.Option(help="Mean arrivals an hour of generated jobs (Poisson).", metavar="L"),
]
MultiWorker = Annotated[bool, typer.Option("--multi-worker", help="30% of generated jobs want 2, 4 or 8 workers.")]
Slo = Annotated[
    str,
    typer.Option(
        help="Generated jobs have deadlines: a random one of these multiples of the duration.",
        metavar="1.2,2,10",
    ),
]
HighPriority = Annotated[float, typer.Option(help="The share of generated jobs with weight 5.", metavar="SHARE")]
Entities = Annotated[
    str | None,
    typer.Option(
        help="Whose jobs they are: names that generated jobs belong to in turn, or a JSON file with weights and "
        "policies.",
        metavar="A,B,…|FILE",
    ),
]
Templates = Annotated[
    str,
    typer.Option(
        help="Generated jobs run these only; a model's name means all batch sizes.",
        metavar="NAME,…",
    ),
]
Durations = Annotated[
    str,
    typer.Option(
        help="Generated jobs last one of these instead of the paper's durations.",
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
    typer.Option(help="The scheduler knows this share of templates and estimates the others.", metavar="SHARE"),
]
ProfilingShare = Annotated[
    float,
    typer.Option(help="So many accelerators of each type profile a new template.", metavar="SHARE"),
]
ProfilingMinutes = Annotated[float, typer.Option(help="What profiling one figure takes.", metavar="MINUTES")]
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
    typer.Option(help="Accelerators in each server, for types without sizes of their own.", min=1, metavar="N"),
]
Prices = Annotated[
    str,
    typer.Option(help="Dollars an hour, where list prices are unknown or wrong.", metavar="TYPE=D,…"),
]
Failures = Annotated[
    str | None,
    typer.Option(help="A CSV of servers lost and joined: seconds,event,server.", metavar="FILE"),
]
FailuresPerServerDay = Annotated[
    float,
    typer.Option(help="Servers fail at random this often a day.", min=0.0, metavar="N"),
]
RepairHours = Annotated[
    float,
    typer.Option(help="Mean time until a failed server is back.", min=0.0, metavar="HOURS"),
]

MechanismOption = Annotated[
    str,
    typer.Option(
        help="credits avoids restarts; priorities are the paper's; plain is the paper's to the letter, where jobs "
        "start with a round only. module.NAME is one of your own.",
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
        help="Recompute at most this often; default: whenever jobs or servers come or go.",
        min=0.0,
        metavar="SECONDS",
    ),
]
RecomputeEverySeconds = Annotated[
    float | None,
    typer.Option(help="Recompute this often even if nothing changed.", min=1.0, metavar="SECONDS"),
]

Window = Annotated[
    str | None, typer.Option(help="Count jobs A (included) to B (excluded) by arrival, and stop then.", metavar="A:B")
]
LimitDays = Annotated[
    float, typer.Option(help="Give up when this many days have been simulated.", min=0.01, metavar="DAYS")
]


def parse_window(text: str | None) -> tuple[int, int] | None:
    """Read A:B."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    short = len(text) <= 2 * len(str(MOST_JOBS)) + 1  # Python refuses to read integers of thousands of digits
    if not (colon and short and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise InputError(f"--window {text}: write A:B with A < B, for example 4000:5000")
    return int(first), int(last)


def parse_names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(part) for part in parse_names(text))
    except ValueError:
        raise InputError(f"{option} {text}: give numbers with commas between them, for example 1.2,2,10") from None
