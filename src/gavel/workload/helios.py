"""SenseTime's Helios traces: `cluster_log.csv`."""

from __future__ import annotations

from gavel.workload.recorded import Record, RecordedLog
from gavel.workload.rows import Row, Source, named_rows

REQUIRED = ("job_id", "gpu_num", "submit_time")


def read_helios(source: Source) -> RecordedLog:
    """Read the log; jobs of every final state count, because they all held their GPUs."""
    log = RecordedLog(source.name)
    for row in named_rows(source, required=(*REQUIRED, "duration"), what="a Helios log"):
        log.add(
            Record(
                id=row["job_id"].filled(),
                submitted=row["submit_time"].time(),
                run_seconds=_run_seconds(row),
                gpus=row["gpu_num"].count("a number of GPUs"),
                entity=row["vc"].text or row["user"].text or None,
            )
        )
    return log


def _run_seconds(row: Row) -> float:
    return 0.0 if row["duration"].missing else row["duration"].seconds("a run time in seconds")
