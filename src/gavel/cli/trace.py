"""`gavel trace`: generate workloads, convert logs to our own format, describe traces, and read node lists."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gavel.cli.experiment_options import (
    ArrivalsPerHour,
    Durations,
    Entities,
    FormatName,
    HighPriority,
    MultiWorker,
    ReferenceType,
    Seed,
    Slo,
    Templates,
    parse_names,
    parse_numbers,
)
from gavel.cli.options import AsJson, Throughputs
from gavel.cli.render import console, number, print_json, table
from gavel.core.errors import InputError
from gavel.core.throughputs import find_table
from gavel.sim.entities import read_entities
from gavel.workload.describe import Summary, describe
from gavel.workload.formats import read_trace, recognise, write_trace
from gavel.workload.generate import generate
from gavel.workload.nodes import NodeList, read_nodes
from gavel.workload.rows import Source
from gavel.workload.trace import Trace

app = typer.Typer(help="Generate, convert and describe traces of jobs.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.", metavar="FILE")]
In = Annotated[Path, typer.Argument(help="A trace in any known format; - reads standard input.", metavar="FILE")]


@app.command("generate")
def generate_command(
    out: Out,
    jobs: Annotated[int, typer.Option(help="Number of jobs.", min=1, metavar="N")],
    arrivals_per_hour: ArrivalsPerHour = None,
    static: Annotated[bool, typer.Option("--static", help="All jobs arrive at the start.")] = False,
    multi_worker: MultiWorker = False,
    seed: Seed = 0,
    slo: Slo = "",
    high_priority: HighPriority = 0.0,
    entities: Entities = None,
    templates: Templates = "",
    durations: Durations = "",
    throughputs: Throughputs = "builtin",
    reference_type: ReferenceType = "v100",
    as_json: AsJson = False,
) -> None:
    """Generate a workload as in the paper and write it."""
    if static == (arrivals_per_hour is not None):
        raise InputError("jobs need arrival times: give either --arrivals-per-hour or --static")
    rates = find_table(throughputs)
    trace = generate(
        jobs=jobs,
        arrivals_per_hour=arrivals_per_hour,
        multi_worker=multi_worker,
        table=rates,
        seed=seed,
        high_priority_share=high_priority,
        slo_factors=parse_numbers("--slo", slo),
        entities=read_entities(entities).names,
        templates=parse_names(templates) or None,
        durations=parse_numbers("--durations", durations) or None,
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
    rates, source = find_table(throughputs), Source.of(file)
    found = format_name or recognise(source)
    trace = read_trace(source, table=rates, format=found, seed=seed, reference_type=reference_type)
    write_trace(trace, out)
    _report(out, found, trace, describe(trace, rates, reference_type=reference_type), as_json=as_json, verb="wrote")


@app.command("describe")
def describe_command(
    file: In,
    format_name: FormatName = None,
    seed: Seed = 0,
    throughputs: Throughputs = "builtin",
    reference_type: ReferenceType = "v100",
    as_json: AsJson = False,
) -> None:
    """Describe a trace and the load it puts on a cluster."""
    rates, source = find_table(throughputs), Source.of(file)
    found = format_name or recognise(source)
    trace = read_trace(source, table=rates, format=found, seed=seed, reference_type=reference_type)
    summary = describe(trace, rates, reference_type=reference_type)
    _report(file, found, trace, summary, as_json=as_json, verb="")


@app.command("cluster")
def cluster_command(
    file: Annotated[
        Path, typer.Argument(help="A CSV of nodes: sn, gpu, model; - reads standard input.", metavar="FILE")
    ],
    throughputs: Throughputs = "builtin",
    as_json: AsJson = False,
) -> None:
    """Convert a list of nodes to the value for --cluster; notes on what is left out go to standard error."""
    found = read_nodes(Source.of(file), find_table(throughputs).types)
    if as_json:
        print_json(_cluster_document(file, found))
        return
    print(found.cluster.text())
    for note in found.notes():
        print(f"note: {note}", file=sys.stderr)


def _cluster_document(file: Path, found: NodeList) -> dict[str, Any]:
    return {
        "file": str(file),
        "cluster": found.cluster.text(),
        "nodes": found.nodes,
        "types": {
            accelerator_type.name: {"accelerators": accelerator_type.count, "servers": len(accelerator_type.servers)}
            for accelerator_type in found.cluster.types()
        },
        "left_out": {
            model: {"accelerators": gpus, "servers": nodes} for model, (nodes, gpus) in found.left_out.items()
        },
        "without_gpu": found.without_gpu,
        "notes": list(found.notes()),
    }


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
        rows.append(["arrivals per hour", number(summary.arrivals_per_hour)])
    type_name = summary.reference_type
    rows.append([f"{type_name} hours", number(summary.reference_gpu_hours)])
    if summary.reference_gpus_needed is not None:
        rows.append([f"{type_name}s needed to keep up", number(summary.reference_gpus_needed)])
    rows += [[f"duration on {type_name}, {name}", _duration(value)] for name, value in summary.duration_seconds.items()]
    if summary.without_duration:
        rows.append([f"jobs that cannot run on {type_name}", f"{summary.without_duration:,}"])
    if summary.with_deadline:
        rows.append(["jobs with a deadline", f"{summary.with_deadline:,}"])
    return rows


def _histograms(summary: Summary) -> list[tuple[str, Mapping[Any, int]]]:
    shown: list[tuple[str, Mapping[Any, int]]] = [("workers", summary.workers), ("template", summary.templates)]
    if summary.entities:
        shown.append(("entity", summary.entities))
    if summary.types:
        shown.append(("only on", summary.types))
    if len(summary.weights) > 1:
        shown.append(("weight", summary.weights))
    return shown


def _shares(counts: Mapping[Any, int], jobs: int) -> list[list[str]]:
    return [
        [number(key) if isinstance(key, float) else str(key), f"{count:,}", f"{count / jobs:.1%}"]
        for key, count in counts.items()
    ]


def _duration(seconds: float) -> str:
    """Seconds in the most readable unit.

    >>> [_duration(value) for value in (0.0, 42.0, 600.0, 7200.0, 345600.0)]
    ['0 s', '42 s', '10 min', '2 h', '4 days']
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds)} s"
