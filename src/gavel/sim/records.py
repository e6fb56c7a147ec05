"""One record per job of a simulation, and the CSV file with a row for each."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.core.cluster import AcceleratorType, Cluster
from gavel.core.errors import GavelError
from gavel.core.problem import Floats
from gavel.core.throughputs import ThroughputTable
from gavel.sim.outcome import FinishedJob, Outcome, UnfinishedJob
from gavel.workload.trace import TraceJob

COLUMNS = (
    *("id", "template", "workers", "entity", "arrival_seconds", "first_start_seconds", "end_seconds", "jct_seconds"),
    *("fastest_seconds", "restarts"),
)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The figures of one job. Times are seconds from the start of the simulation."""

    id: str
    template: str
    workers: int
    entity: str | None
    arrival_seconds: float
    first_start_seconds: float | None
    """When the job first ran; None if it never did."""
    end_seconds: float | None
    """None if the job had not finished when the simulation stopped."""
    jct_seconds: float | None
    """From arrival to completion."""
    fastest_seconds: float | None
    """The time of all steps alone and consolidated on the fastest type; None if the cluster cannot run the job."""
    restarts: int
    """The number of launches after the first."""
    seconds_by_type: Mapping[str, float]
    """Time with accelerators of each type, including restarts; times workers gives accelerator-seconds."""

    def row(self) -> dict[str, Any]:
        """The record as flat columns, with the seconds by type last."""
        flat = {name: getattr(self, name) for name in COLUMNS}
        return flat | {f"{type_name}_seconds": seconds for type_name, seconds in self.seconds_by_type.items()}


def columns(cluster: Cluster) -> list[str]:
    """The columns of a job's row for a simulation on this cluster."""
    return [*COLUMNS, *(f"{accelerator_type.name}_seconds" for accelerator_type in cluster.types())]


def job_records(
    jobs: Sequence[TraceJob], outcome: Outcome, cluster: Cluster, table: ThroughputTable
) -> list[JobRecord]:
    """A record of every job that had arrived when the simulation stopped, in order of arrival."""
    types = cluster.types()
    type_index = {accelerator_type.name: table.types.index(accelerator_type.name) for accelerator_type in types}
    rates: dict[tuple[str, int, tuple[str, ...] | None], float] = {}
    records = []
    for job in jobs:
        if job.arrival > outcome.stopped:
            break
        profile = (job.template, job.workers, job.types)
        if profile not in rates:
            rates[profile] = fastest_rate(job, types, table)
        records.append(_record(job, outcome, type_index, rates[profile]))
    return records


def fastest_rate(job: TraceJob, types: Sequence[AcceleratorType], table: ThroughputTable) -> float:
    """Steps per second of a job alone on the fastest of these types; 0 if none has room for it or can run it."""
    type_names = [
        accelerator_type.name
        for accelerator_type in types
        if job.workers <= accelerator_type.count and job.may_run_on(accelerator_type.name)
    ]
    return float(table.rates([(job.template, job.workers)], type_names).max(initial=0.0))


def _record(job: TraceJob, outcome: Outcome, type_index: Mapping[str, int], rate: float) -> JobRecord:
    finished = outcome.jobs.get(job.id)
    seen: FinishedJob | UnfinishedJob | None = finished or outcome.unfinished.get(job.id)
    return JobRecord(
        id=job.id,
        template=job.template,
        workers=job.workers,
        entity=job.entity,
        arrival_seconds=job.arrival,
        first_start_seconds=seen.first_start if seen else None,
        end_seconds=finished.arrival + finished.seconds if finished else None,
        jct_seconds=finished.seconds if finished else None,
        fastest_seconds=job.steps / rate if rate else None,
        restarts=seen.restarts if seen else 0,
        seconds_by_type=_by_type(seen.received if seen else None, type_index),
    )


def _by_type(received: Floats | None, type_index: Mapping[str, int]) -> dict[str, float]:
    return {type_name: 0.0 if received is None else float(received[index]) for type_name, index in type_index.items()}


def write_csv(path: Path, columns: Sequence[str], records: Sequence[JobRecord]) -> None:
    """Write a row for each record. None becomes an empty cell; numbers can be read back exactly."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(record.row() for record in records)
    except OSError as error:
        raise GavelError(f"cannot write jobs to {path}: {(error.strerror or 'unknown error').lower()}") from error
