"""Alibaba's GPU traces: the tasks of 2020 (PAI, `pai_task_table`) and the pods of 2023 (`openb_pod_list`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gavel.core.errors import InputError
from gavel.limits import MOST_ACCELERATORS, at_most
from gavel.workload.models import names
from gavel.workload.recorded import NEVER_RAN, NO_END, NO_GPU, Record, RecordedLog
from gavel.workload.rows import Row, Source, named_rows, positional_rows

TASKS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
"""The task table's columns. The published CSV has no header; its columns are in a file beside it."""
STATUSES = frozenset({"Terminated", "Failed", "Running", "Waiting"})
_JOB_TABLE = 6
_NEEDED = ("job_name", "inst_num", "start_time", "end_time", "plan_gpu")
POD_TIMES = ("creation_time", "deletion_time", "scheduled_time")
PODS = ("name", "num_gpu", *POD_TIMES)
UNTIMED_PODS = ("name", "num_gpu", "gpu_milli")
"""The columns of the original lists, from which others were derived: they have no times."""


@dataclass(slots=True)
class _Tasks:
    """The GPU tasks of one job, combined."""

    gpus: float = 0.0
    start: float = math.inf
    end: float = -math.inf
    unfinished: bool = False


def read_tasks(source: Source) -> RecordedLog:
    """Read the task table; a job has the GPUs of all its tasks, from the first start to the last end."""
    log, jobs = RecordedLog(source.name), dict[str, _Tasks]()
    for row in _task_rows(source):
        tasks = jobs.setdefault(row["job_name"].filled(), _Tasks())
        gpus = _number(row, "plan_gpu", 100.0 * MOST_ACCELERATORS) / 100.0 * _number(row, "inst_num", MOST_ACCELERATORS)
        if not gpus:
            continue
        tasks.gpus += gpus
        if tasks.gpus > MOST_ACCELERATORS:
            named = f"{row.where}: 'inst_num' times 'plan_gpu' gives job {row['job_name'].text!r}"
            raise InputError(f"{named} {tasks.gpus:g} GPUs; it must be {at_most(MOST_ACCELERATORS)}")
        if row["start_time"].missing or row["end_time"].missing:
            tasks.unfinished = True
        else:
            tasks.start = min(tasks.start, row["start_time"].seconds("a time in seconds"))
            tasks.end = max(tasks.end, row["end_time"].seconds("a time in seconds"))
    for name, tasks in jobs.items():
        if not tasks.gpus:
            log.leave_out(NO_GPU)
        elif tasks.unfinished:
            log.leave_out(NO_END)
        else:
            gpus = math.ceil(tasks.gpus - 1e-9)
            share = 0.0 if tasks.gpus.is_integer() else tasks.gpus
            log.add(Record(name, tasks.start, tasks.end - tasks.start, gpus, share=share))
    return log


def _task_rows(source: Source) -> Iterator[Row]:
    first = source.first_line().split(",")
    if len(first) == _JOB_TABLE and (first[3] in STATUSES or "inst_id" in first):
        raise InputError(f"{source.name}: the job table does not list GPUs; give the task table (pai_task_table)")
    if "job_name" in first:
        return named_rows(source, required=_NEEDED, what="a PAI task table")
    return positional_rows(source, {len(TASKS): TASKS}, delimiter=",", quoted=True, what="a PAI task table")


def _number(row: Row, column: str, most: float) -> float:
    cell = row[column]
    return 0.0 if cell.missing else cell.number("a number from 0", most=most)


def read_pods(source: Source) -> RecordedLog:
    """Read the pods; each is a job. In a list without times all arrive at once."""
    log, header = RecordedLog(source.name), source.columns()
    timed = not header.isdisjoint(POD_TIMES)
    for row in named_rows(source, required=PODS if timed else UNTIMED_PODS, what="an openb pod list"):
        gpus = row["num_gpu"].count("a number of GPUs")
        if timed and gpus and (row["scheduled_time"].missing or row["deletion_time"].missing):
            log.leave_out(NEVER_RAN if row["scheduled_time"].missing else NO_END)
            continue
        log.add(
            Record(
                id=row["name"].filled(),
                submitted=_pod_time(row, "creation_time") if timed else 0.0,
                run_seconds=_pod_seconds(row, gpus) if timed else math.nan,
                gpus=gpus,
                share=_share(row, gpus),
                models=names(row["gpu_spec"].text),
            )
        )
    return log


def _pod_seconds(row: Row, gpus: int) -> float:
    return _pod_time(row, "deletion_time") - _pod_time(row, "scheduled_time") if gpus else 0.0


def _pod_time(row: Row, column: str) -> float:
    return row[column].seconds("a time in seconds")


def _share(row: Row, gpus: int) -> float:
    """The fraction of one GPU that a pod requests; 0 if it requests whole GPUs."""
    if gpus != 1 or row["gpu_milli"].missing:
        return 0.0
    share = row["gpu_milli"].number("thousandths of a GPU") / 1000.0
    return share if share < 1.0 else 0.0
