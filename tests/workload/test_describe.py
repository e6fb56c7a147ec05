"""What a trace asks of a cluster, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gavel.core.throughputs import builtin_table
from gavel.workload.describe import describe
from gavel.workload.reference import Reference
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()


def lasting(name: str, hours: float, arrival: float, workers: int = 1, entity: str | None = None) -> TraceJob:
    rate = Reference.of(TABLE, "v100").rate("LM (batch size 5)", workers)
    return TraceJob(name, "LM (batch size 5)", workers, hours * 3600.0 * rate, arrival, entity=entity)


def test_hours_rates_and_durations() -> None:
    trace = Trace((lasting("a", 1, 0.0), lasting("b", 2, 1800.0, 4, "x"), lasting("c", 3, 7200.0)))
    summary = describe(trace, TABLE)
    assert summary.jobs == 3
    assert summary.span_seconds == 7200.0
    assert summary.arrivals_per_hour == pytest.approx(1.0)
    assert summary.workers == {1: 2, 4: 1}
    assert summary.templates == {"LM (batch size 5)": 3}
    assert summary.entities == {"x": 1}
    assert summary.reference_gpu_hours == pytest.approx(1 + 8 + 3)
    assert summary.reference_gpus_needed == pytest.approx(4.0)
    assert summary.duration_seconds["mean"] == pytest.approx(7200.0)
    assert summary.duration_seconds["p50"] == pytest.approx(7200.0)
    assert summary.duration_seconds["max"] == pytest.approx(10800.0)
    assert summary.without_duration == 0


def test_jobs_that_are_bound_to_types_are_counted_by_types() -> None:
    jobs = [replace(lasting(name, 1, 0.0), types=types) for name, types in {"a": ("v100", "p100"), "b": None}.items()]
    assert describe(Trace(tuple(jobs)), TABLE).types == {"v100|p100": 1}


def test_a_static_trace_has_no_rate() -> None:
    summary = describe(Trace((lasting("a", 1, 0.0), lasting("b", 2, 0.0))), TABLE)
    assert summary.arrivals_per_hour is None
    assert summary.reference_gpus_needed is None


def test_jobs_that_cannot_run_on_the_reference_type_are_set_apart() -> None:
    stuck = TraceJob("s", "ResNet-50 (batch size 128)", 2, 100.0, 0.0)
    summary = describe(Trace((stuck,)), TABLE, reference_type="k80")
    assert (summary.without_duration, summary.reference_gpu_hours, summary.duration_seconds) == (1, 0.0, {})
