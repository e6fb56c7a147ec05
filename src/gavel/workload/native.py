"""Our own trace files: CSV with named columns (docs/traces.md). Reading a written trace gives the same trace."""

from __future__ import annotations

import csv
import difflib
import reprlib
from collections.abc import Sequence
from pathlib import Path

from gavel.core.errors import InputError
from gavel.core.jobs import is_path
from gavel.core.throughputs import ThroughputTable
from gavel.workload.models import SEPARATOR, names
from gavel.workload.rows import Row, Source, named_rows
from gavel.workload.scaled import scaled_note
from gavel.workload.templates import UnknownTemplates
from gavel.workload.trace import Trace, TraceJob

REQUIRED = ("template", "steps", "arrival_seconds")
COLUMNS = (
    *("id", "template", "workers", "steps", "arrival_seconds", "weight", "entity", "deadline_seconds", "types"),
    "command",
)


def read_native(source: Source, table: ThroughputTable) -> Trace:
    """Read our own format; a worker count is refused if the table neither lists it nor can scale to it."""
    unknown = UnknownTemplates(source.name, table)
    profiles = frozenset(table.profiles)
    jobs: list[TraceJob] = []
    lines: dict[str, int] = {}
    for number, row in enumerate(named_rows(source, required=REQUIRED, what="a gavel trace")):
        if not number:
            _check_columns(row)
        job = _job(row, number, table.types)
        if job.id in lines:
            raise InputError(f"{row.where}, column 'id': {job.id!r} is also on line {lines[job.id]}; ids must differ")
        lines[job.id] = row.line
        profile = (job.template, job.workers)
        if unknown.knows(job.template, row) and profile not in profiles and not table.can_scale(*profile):
            raise _unknown_workers(job, row, table)
        jobs.append(job)
    unknown.check()
    if not jobs:
        raise InputError(f"{source.name} has no jobs; it needs a line for each job below the header")
    return Trace.of(jobs, scaled_note(jobs, table))


def write_native(trace: Trace, path: Path) -> None:
    """Write a trace with all columns; notes are not part of the file."""
    rows = [
        [
            *(j.id, j.template, j.workers, j.steps, j.arrival, j.weight, j.entity, j.deadline_seconds),
            *(SEPARATOR.join(j.types or ()), j.command),
        ]
        for j in trace.jobs
    ]
    # A bare carriage return ends a line for a CSV reader, and the csv module does not quote it by itself.
    odd = any("\r" in cell for row in rows for cell in row if isinstance(cell, str))
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(rows)
    except OSError as error:
        raise InputError(f"cannot write {path}: {(error.strerror or 'unknown error').lower()}") from None


def _check_columns(row: Row) -> None:
    for name in row.values:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name.lower(), COLUMNS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(COLUMNS)}"
            raise InputError(f"{row.source}: column {name!r} is not known; {hint}")


def _job(row: Row, number: int, types: Sequence[str]) -> TraceJob:
    workers, weight, deadline = row["workers"], row["weight"], row["deadline_seconds"]
    entity = row.values.get("entity") or None
    if entity is not None and not is_path(entity):
        raise row["entity"].refuse('a path of names such as "company/research"')
    return TraceJob(
        id=row.values.get("id") or f"job{number}",
        template=row["template"].filled(),
        workers=workers.count("a number of workers; give 1 or more", least=1) if workers.text else 1,
        steps=row["steps"].number("a number of steps; give one greater than 0", positive=True),
        arrival=row["arrival_seconds"].seconds("an arrival; give seconds from the start of the trace, 0 or more"),
        weight=weight.number("a weight; give a number greater than 0", positive=True) if weight.text else 1.0,
        entity=entity,
        deadline_seconds=(
            deadline.seconds("a deadline; give seconds after the arrival, or nothing", positive=True)
            if deadline.text
            else None
        ),
        command=row.values.get("command", ""),
        types=_types(row, types),
    )


def _types(row: Row, known: Sequence[str]) -> tuple[str, ...] | None:
    """The job's types in the table's order; an empty cell means all."""
    wanted = names(row["types"].text)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"
            where = f"{row.where}, column 'types': {reprlib.repr(name)}"
            raise InputError(f"{where} is not a type of the throughput table; {hint}")
    return tuple(name for name in known if name in wanted) or None


def _unknown_workers(job: TraceJob, row: Row, table: ThroughputTable) -> InputError:
    known = ", ".join(map(str, table.workers(job.template)))
    return InputError(
        f"{row.where}, column 'workers': template {job.template!r} has no throughputs with {job.workers} "
        f"worker{'' if job.workers == 1 else 's'}; use one of: {known}"
    )
