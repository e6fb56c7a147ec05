"""A summary of a trace and the load it puts on a cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gavel.core.throughputs import ThroughputTable
from gavel.limits import SMALLEST
from gavel.workload.models import SEPARATOR
from gavel.workload.reference import Reference
from gavel.workload.trace import Trace

PERCENTILES = (10, 50, 90, 99)


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts, load and durations. A job's duration is the time its steps take alone on the reference type."""

    jobs: int
    span_seconds: float
    """From the first arrival to the last."""
    arrivals_per_hour: float | None
    """None if all jobs arrive at once."""
    workers: dict[int, int]
    """Number of jobs by number of workers."""
    templates: dict[str, int]
    entities: dict[str, int]
    """Number of jobs by entity; jobs without one are not counted."""
    types: dict[str, int]
    """Number of jobs by the types they are restricted to, such as "v100|p100"; unrestricted jobs are not counted."""
    weights: dict[float, int]
    with_deadline: int
    reference_type: str
    reference_gpu_hours: float
    """Workers times duration, summed over all jobs."""
    reference_gpus_needed: float | None
    """GPU hours per hour of arrivals: the number of reference accelerators that would keep up with the trace."""
    duration_seconds: dict[str, float]
    """The mean, the extremes and some percentiles."""
    without_duration: int
    """Jobs that cannot run on the reference type; their hours and durations are not counted."""


def describe(trace: Trace, table: ThroughputTable, *, reference_type: str = "v100") -> Summary:
    """Summarise a trace."""
    reference = Reference.of(table, reference_type)
    jobs = trace.jobs
    rates = [reference.rate(job.template, job.workers) for job in jobs]
    durations = np.array([job.steps / rate for job, rate in zip(jobs, rates, strict=True) if rate])
    workers = np.array([job.workers for job, rate in zip(jobs, rates, strict=True) if rate])
    span = jobs[-1].arrival - jobs[0].arrival if jobs else 0.0
    per_hour = 3600.0 * (len(jobs) - 1) / span if span > SMALLEST else None
    hours = float(durations @ workers) / 3600.0 if len(durations) else 0.0
    return Summary(
        jobs=len(jobs),
        span_seconds=span,
        arrivals_per_hour=per_hour,
        workers=dict(sorted(Counter(job.workers for job in jobs).items())),
        templates=dict(Counter(job.template for job in jobs).most_common()),
        entities=dict(Counter(job.entity for job in jobs if job.entity is not None).most_common()),
        types=dict(Counter(SEPARATOR.join(job.types) for job in jobs if job.types).most_common()),
        weights=dict(sorted(Counter(job.weight for job in jobs).items())),
        with_deadline=sum(job.deadline_seconds is not None for job in jobs),
        reference_type=reference_type,
        reference_gpu_hours=hours,
        reference_gpus_needed=hours / len(jobs) * per_hour if per_hour else None,
        duration_seconds=_spread(durations),
        without_duration=len(jobs) - len(durations),
    )


def _spread(values: NDArray[np.float64]) -> dict[str, float]:
    if not len(values):
        return {}
    return {
        "mean": float(values.mean()),
        "min": float(values.min()),
        **{f"p{q}": float(np.percentile(values, q)) for q in PERCENTILES},
        "max": float(values.max()),
    }
