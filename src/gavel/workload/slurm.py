"""Slurm accounting: what `sacct -P` prints, with a header."""

from __future__ import annotations

import re
import reprlib

from gavel.core.errors import InputError
from gavel.limits import LONGEST_SECONDS, MOST_ACCELERATORS, at_most
from gavel.workload.recorded import Record, RecordedLog
from gavel.workload.rows import Cell, Row, Source, named_rows

REQUIRED = ("JobID", "Submit")
_GPU_COLUMNS = ("AllocTRES", "ReqTRES", "AllocGRES")
"""Columns for the number of GPUs, best first: requested GPUs count if none are listed as allocated."""
_TRES = re.compile(r"(?:^|,)gres/gpu(:[^=,]*)?=(\d+)")
_INDICES = re.compile(r"\([^)]*\)")
_ELAPSED = re.compile(r"(?:(?:(?P<days>\d+)-)?(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)(?:\.\d+)?")


def read_slurm(source: Source) -> RecordedLog:
    """Read a dump; job steps such as 123.batch are skipped."""
    log, running = RecordedLog(source.name), 0
    for row in named_rows(source, delimiter="|", quoted=False, required=REQUIRED, what="a sacct dump"):
        if not log.records and not log.left_out:
            _check_columns(row)
        name = row["JobID"].filled()
        if "." in name:
            continue
        running += row["State"].text == "RUNNING"
        log.add(
            Record(
                id=name,
                submitted=row["Submit"].time(),
                run_seconds=_run_seconds(row),
                gpus=_gpus(row),
                entity=row["Account"].text or row["User"].text or None,
                command=row["JobName"].text,
            )
        )
    if running:
        log.notes.append(f"{running} job{' was' if running == 1 else 's were'} still running; the time so far counts")
    return log


def _check_columns(row: Row) -> None:
    if not any(name in row.values for name in _GPU_COLUMNS):
        raise InputError(f"{row.source}: no column lists the GPUs; add one of {', '.join(_GPU_COLUMNS)} to sacct's -o")
    if not any(name in row.values for name in ("ElapsedRaw", "Elapsed")) and not {"Start", "End"} <= set(row.values):
        raise InputError(f"{row.source}: no column lists the run time; add Elapsed to sacct's -o")


def _gpus(row: Row) -> int:
    for name in _GPU_COLUMNS:
        cell = row[name]
        found = _of_gres(cell.text) if name == "AllocGRES" else _of_tres(cell.text)
        if found:
            if found > MOST_ACCELERATORS:
                longest = reprlib.repr(max(re.findall(r"\d+", cell.text), key=len))
                raise InputError(
                    f"{row.where}, column {name!r}: GPUs must be {at_most(MOST_ACCELERATORS)}, not {longest}"
                )
            return int(found)
    return 0


def _of_tres(text: str) -> float:
    """Prefer the untyped count (gres/gpu=4), which typed counts (gres/gpu:a100=4) only repeat."""
    found = [(type_name, float(count)) for type_name, count in _TRES.findall(text)]
    untyped = [count for type_name, count in found if not type_name]
    return untyped[0] if untyped else sum(count for _, count in found)


def _of_gres(text: str) -> float:
    """From "gpu:4", "gpu:a100:4" or "gpu:a100:2(IDX:0-1)"; "gpu" alone is one."""
    parts = (part.split(":") for part in _INDICES.sub("", text).split(","))
    return sum(float(names[-1]) if names[-1].isdecimal() else 1 for names in parts if names[0] == "gpu")


def _run_seconds(row: Row) -> float:
    raw, elapsed, start, end = (row[name] for name in ("ElapsedRaw", "Elapsed", "Start", "End"))
    if not raw.missing:
        return raw.seconds("a run time in seconds")
    if not elapsed.missing:
        return _elapsed(elapsed)
    return 0.0 if start.missing or end.missing else end.time() - start.time()


def _elapsed(cell: Cell) -> float:
    match = _ELAPSED.fullmatch(cell.text)
    if match is None:
        raise cell.refuse("a run time such as 1-02:03:04 (days-hours:minutes:seconds)")
    days, hours, minutes, seconds = (float(part or 0) for part in match.group("days", "hours", "minutes", "seconds"))
    return cell.limited(((days * 24 + hours) * 60 + minutes) * 60 + seconds, LONGEST_SECONDS)
