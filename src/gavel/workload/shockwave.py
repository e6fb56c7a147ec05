"""Shockwave's traces: the public Gavel artefact's columns, plus the mode and the duration of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gavel.core.throughputs import ThroughputTable
from gavel.workload.artefact import jobs_of
from gavel.workload.reference import Reference, gpu_hours_on
from gavel.workload.rows import Row, Source, positional_rows
from gavel.workload.scaled import counted, gpu_hours
from gavel.workload.trace import Trace, TraceJob

COLUMNS = (
    *("template", "command", "working directory", "steps argument", "needs data dir", "total steps", "scale factor"),
    *("mode", "weight", "SLO", "duration", "arrival"),
)
STATIC = "static"
MODES = (STATIC, "accordion", "gns")
"""How a job's batch size changes while it trains: not at all, or by one of two methods."""


def read_shockwave(source: Source, table: ThroughputTable, reference_type: str) -> Trace:
    """Read a trace as one of the artefact's; every job keeps the batch size that it starts with."""
    rows = list(
        positional_rows(source, {len(COLUMNS): COLUMNS}, delimiter="\t", quoted=False, what="a trace of Shockwave")
    )
    jobs, notes = jobs_of(rows, source, table, reference_type)
    modes = Counter(_mode(row) for row in rows)
    hours = sum(row["scale factor"].count("a number of workers") * _seconds(row) for row in rows) / 3600.0
    notes += [*_mode_notes(modes), *_hours_notes(hours, jobs, table, reference_type)]
    return Trace.of(jobs, notes)


def _mode(row: Row) -> str:
    mode = row["mode"].filled()
    if mode not in MODES:
        raise row["mode"].refuse(f"a mode of Shockwave; it has {', '.join(MODES)}")
    return mode


def _seconds(row: Row) -> float:
    return row["duration"].seconds("a duration; give seconds, more than 0", positive=True)


def _mode_notes(modes: Counter[str]) -> Iterator[str]:
    changing = {mode: count for mode, count in sorted(modes.items()) if mode != STATIC}
    if changing:
        named = ", ".join(f"{mode} {count:,}" for mode, count in changing.items())
        yield (
            f"{counted(sum(changing.values()), 'job')} would change the batch size while training ({named}); here "
            "each keeps its initial one"
        )


def _hours_notes(hours: float, jobs: Sequence[TraceJob], table: ThroughputTable, reference_type: str) -> Iterator[str]:
    """Compare the trace's durations with those of its steps according to this table."""
    if reference_type not in table.types:
        return
    ours = gpu_hours_on(Reference.of(table, reference_type), jobs)
    yield (
        f"steps are kept and durations are not used: by this throughput table the steps take {ours:,.1f} GPU-hours on "
        f"{reference_type}, the durations in the file {hours:,.1f} ({gpu_hours(ours - hours, hours)})"
    )
