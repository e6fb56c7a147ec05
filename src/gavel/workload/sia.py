"""Job lists of the Sia artefact: CSV with one line for each job of a log, without ids."""

from __future__ import annotations

from gavel.workload.recorded import Record, RecordedLog
from gavel.workload.rows import Source, named_rows

REQUIRED = ("timestamp", "duration", "num_gpus")


def read_sia(source: Source) -> RecordedLog:
    """Read the list; jobs are numbered in the order of the file. `gpu_time` follows from the others and is not read."""
    log = RecordedLog(source.name)
    for number, row in enumerate(named_rows(source, required=REQUIRED, what="a job list of Sia")):
        log.add(
            Record(
                id=f"job{number}",
                submitted=row["timestamp"].time(),
                run_seconds=row["duration"].seconds("a run time in seconds"),
                gpus=row["num_gpus"].count("a number of GPUs"),
                entity=row["cluster"].text or None,
            )
        )
    return log
