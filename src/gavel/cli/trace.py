"""`gavel trace`: generate workloads, convert logs to our own format, and say what is in a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gavel.cli.options import AsJson
from gavel.cli.render import console, number, print_json, table
from gavel.core.errors import InputError
from gavel.core.throughputs import ThroughputTable, builtin_table, read_table
from gavel.workload.describe import Summary, describe
from gavel.workload.formats import FORMATS, read_trace, recognise, write_trace
from gavel.workload.generate import generate
from gavel.workload.trace import Trace

app = typer.Typer(help="Generate, convert and describe traces of jobs.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.", metavar="FILE")]
In = Annotated[Path, typer.Argument(help="A trace in any known format.", metavar="FILE")]
Throughputs = Annotated[str, typer.Option(help="The throughput table.", metavar="FILE")]
Seed = Annotated[int, typer.Option(help="Seed of random choices.", min=0)]
FormatName = Annotated[
    str | None,
    typer.Option("--format", help=f"{', '.join(FORMATS)}; recognised by content if left out.", metavar="NAME"),
]
ReferenceType = Annotated[
    str, typer.Option("--reference", help="The accelerator type that durations refer to.", metavar="TYPE")
]


@app.command("generate")
def generate_command(
    out: Out,
    jobs: Annotated[int, typer.Option(help="How many jobs.", min=1)],
    arrivals_per_hour: Annotated[float | None, typer.Option(help="Mean arrivals an hour (Poisson).")] = None,
    static: Annotated[bool, typer.Option("--static", help="All jobs are there at the start.")] = False,
    multi_worker: Annotated[bool, typer.Option("--multi-worker", help="30% of jobs want 2, 4 or 8 workers.")] = False,
    seed: Seed = 0,
    slo: Annotated[
        str, typer.Option(help="Deadlines of a random one of these multiples of the duration.", metavar="1.2,2,10")
    ] = "",
    high_priority: Annotated[float, typer.Option(help="The share of jobs with weight 5.")] = 0.0,
    entities: Annotated[str, typer.Option(help="Names that jobs belong to in turn.", metavar="A,B,…")] = "",
    templates: Annotated[
        str, typer.Option(help="Draw from these only; a model's name means all batch sizes.", metavar="NAME,…")
    ] = "",
    durations: Annotated[
        str, typer.Option(help="Choose durations from these instead of the paper's.", metavar="SECONDS,…")
    ] = "",
    throughputs: Throughputs = "builtin",
    reference_type: ReferenceType = "v100",
    as_json: AsJson = False,
) -> None:
    """Draw a workload as in the paper and write it."""
    if static == (arrivals_per_hour is not None):
        raise InputError("say when jobs arrive: give either --arrivals-per-hour or --static")
    rates = _table(throughputs)
    trace = generate(
        jobs=jobs,
        arrivals_per_hour=arrivals_per_hour,
        multi_worker=multi_worker,
        table=rates,
        seed=seed,
        high_priority_share=high_priority,
        slo_factors=_numbers("--slo", slo),
        entities=_names(entities),
        templates=_names(templates) or None,
        durations=_numbers("--durations", durations) or None,
        reference_type=reference_type,
    )
    write_trace(trace, out)
    _report(out, "gavel", trace, describe(trace, rates, reference_type=reference_type), as_json=as_json, verb="wrote")


@app.command("convert")
def convert_command(
    file: In,
    out: Out,
    format_name: FormatName = None,
    seed: Seed = 0,
    throughputs: Throughputs = "builtin",
    reference_type: ReferenceType = "v100",
    as_json: AsJson = False,
) -> None:
    """Read a trace or a cluster's log and write it in our own format."""
    rates = _table(throughputs)
    trace = read_trace(file, table=rates, format=format_name, seed=seed, reference_type=reference_type)
    write_trace(trace, out)
    _report(out, "gavel", trace, describe(trace, rates, reference_type=reference_type), as_json=as_json, verb="wrote")


@app.command("describe")
def describe_command(
    file: In,
    format_name: FormatName = None,
    seed: Seed = 0,
    throughputs: Throughputs = "builtin",
    reference_type: ReferenceType = "v100",
    as_json: AsJson = False,
) -> None:
    """Say what a trace asks of a cluster."""
    rates = _table(throughputs)
    trace = read_trace(file, table=rates, format=format_name, seed=seed, reference_type=reference_type)
    summary = describe(trace, rates, reference_type=reference_type)
    _report(file, format_name or recognise(file), trace, summary, as_json=as_json, verb="")


def _table(throughputs: str) -> ThroughputTable:
    return builtin_table() if throughputs == "builtin" else read_table(Path(throughputs))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in _names(text)]
    except ValueError:
        raise InputError(f"{option} {text}: give numbers with commas between them, for example 1.2,2,10") from None


def _report(file: Path, format_name: str, trace: Trace, summary: Summary, *, as_json: bool, verb: str) -> None:
    if as_json:
        print_json({"file": str(file), "format": format_name, **asdict(summary), "notes": list(trace.notes)})
        return
    out = console()
    if verb:
        out.print(f"{verb} {file}", soft_wrap=True, markup=False)
    out.print(table(["trace", "value"], _rows(format_name, summary)))
    for title, counts in _histograms(summary):
        out.print()
        out.print(table([title, "jobs", "share"], _shares(counts, summary.jobs)))
    for note in trace.notes:
        out.print(f"note: {note}", markup=False, style="dim")


def _rows(format_name: str, summary: Summary) -> list[list[str]]:
    rows = [["format", format_name], ["jobs", f"{summary.jobs:,}"], ["span", _duration(summary.span_seconds)]]
    if summary.arrivals_per_hour is None:
        rows.append(["arrivals", "all at once"])
    else:
        rows.append(["arrivals an hour", number(summary.arrivals_per_hour)])
    kind = summary.reference_type
    rows.append([f"{kind} hours", number(summary.reference_gpu_hours)])
    if summary.reference_gpus_needed is not None:
        rows.append([f"{kind}s to keep up", number(summary.reference_gpus_needed)])
    rows += [[f"duration on {kind}, {name}", _duration(value)] for name, value in summary.duration_seconds.items()]
    if summary.without_duration:
        rows.append([f"jobs that cannot run on {kind}", f"{summary.without_duration:,}"])
    if summary.with_deadline:
        rows.append(["jobs with a deadline", f"{summary.with_deadline:,}"])
    return rows


def _histograms(summary: Summary) -> list[tuple[str, Mapping[Any, int]]]:
    shown: list[tuple[str, Mapping[Any, int]]] = [("workers", summary.workers), ("template", summary.templates)]
    if summary.entities:
        shown.append(("entity", summary.entities))
    if len(summary.weights) > 1:
        shown.append(("weight", summary.weights))
    return shown


def _shares(counts: Mapping[Any, int], jobs: int) -> list[list[str]]:
    return [
        [number(key) if isinstance(key, float) else str(key), f"{count:,}", f"{count / jobs:.1%}"]
        for key, count in counts.items()
    ]


def _duration(seconds: float) -> str:
    """Seconds in the unit that reads best.

    >>> [_duration(value) for value in (0.0, 42.0, 600.0, 7200.0, 345600.0)]
    ['0 s', '42 s', '10 min', '2 h', '4 days']
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds)} s"
