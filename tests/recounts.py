"""Logs and traces in files, read as a user reads them; totals are counted a second time without our readers."""

from __future__ import annotations

import csv
import math
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from gavel.core.throughputs import builtin_table, read_table
from gavel.workload.formats import read_trace, recognise, write_trace
from gavel.workload.nodes import find_cluster, read_nodes
from gavel.workload.reference import Reference, gpu_hours_on
from gavel.workload.rows import Source
from gavel.workload.trace import Trace

TABLE = builtin_table()
V100 = Reference.of(TABLE, "v100")
TYPE_OF_MODEL = {"V100M16": "v100", "V100M32": "v100", "P100": "p100"}


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read(path: Path, format_name: str) -> Trace:
    assert recognise(path) == format_name
    return read_trace(path, table=TABLE)


def hours(trace: Trace) -> float:
    return gpu_hours_on(V100, trace.jobs)


def noted(trace: Trace, start: str) -> str:
    [found] = [note for note in trace.notes if note.startswith(start)]
    return found


def check_pods(path: Path) -> tuple[int, int]:
    """Alibaba's pods; return how many jobs there are, and how many are bound to models of GPUs."""
    trace = read(path, "alibaba-2023")
    ran = [row for row in lines(path) if row["num_gpu"] != "0" and row["scheduled_time"]]
    seconds = [int(row["deletion_time"]) - int(row["scheduled_time"]) for row in ran]
    kept = [(row, length) for row, length in zip(ran, seconds, strict=True) if length > 0]
    whole = math.fsum(int(row["num_gpu"]) * length for row, length in kept) / 3600
    asked = math.fsum(int(row["num_gpu"]) * int(row["gpu_milli"]) / 1000 * length for row, length in kept) / 3600
    assert len(trace.jobs) == len(kept)
    assert hours(trace) == pytest.approx(whole)
    shares = sum(row["num_gpu"] == "1" and int(row["gpu_milli"]) < 1000 for row, _ in kept)
    said = noted(trace, "fractions of a GPU")
    assert said == (
        f"fractions of a GPU were rounded up to whole GPUs for {shares:,} jobs: GPU-hours {whole / asked - 1:+.1%}"
    )
    bound = {row["name"]: set(row["gpu_spec"].split("|")) for row, _ in kept if row["gpu_spec"]}
    _check_models(trace, bound)
    return len(trace.jobs), len(bound)


def _check_models(trace: Trace, bound: dict[str, set[str]]) -> None:
    wanted = {name: {TYPE_OF_MODEL[model] for model in each & set(TYPE_OF_MODEL)} for name, each in bound.items()}
    wanted = {name: types for name, types in wanted.items() if types}
    assert {job.id: set(job.types) for job in trace.jobs if job.types} == wanted
    if bound:
        partly = sum(not each <= set(TYPE_OF_MODEL) for name, each in bound.items() if name in wanted)
        assert noted(trace, "kept the GPU models") == (
            f"kept the GPU models that {len(wanted):,} jobs may run on, as types: p100, v100; the table does not have "
            f"all models of {partly:,} jobs of these"
        )
        assert f"{len(bound) - len(wanted):,} jobs may run on" in noted(trace, "the throughput table has none")


def check_pods_without_times(path: Path) -> None:
    trace = read(path, "alibaba-2023")
    wanted = Counter(int(row["num_gpu"]) for row in lines(path) if row["num_gpu"] != "0")
    assert Counter(job.workers for job in trace.jobs) == wanted
    assert {job.arrival for job in trace.jobs} == {0.0}
    assert noted(trace, "the file has no times")


def check_nodes(path: Path) -> None:
    """Alibaba's nodes."""
    every = Counter[str]()
    for row in lines(path):
        every[TYPE_OF_MODEL.get(row["model"], "left out")] += int(row["gpu"])
    found = read_nodes(Source.of(path), TABLE.types)
    assert {kind.name: kind.count for kind in found.cluster.types()} == {"v100": every["v100"], "p100": every["p100"]}
    assert sum(gpus for _, gpus in found.left_out.values()) == every["left out"]
    sizes = {row["sn"]: int(row["gpu"]) for row in lines(path) if row["model"] in TYPE_OF_MODEL}
    cluster, notes = find_cluster(str(path), per_server=4, types=TABLE.types)
    assert {server.name: server.accelerators for server in cluster.servers} == sizes
    assert notes == found.notes()


def check_sia(path: Path) -> None:
    """Sia's list of jobs."""
    trace = read(path, "sia")
    rows = lines(path)
    starts = [datetime.fromisoformat(row["timestamp"]) for row in rows]
    assert len(trace.jobs) == len(rows)
    assert hours(trace) == pytest.approx(math.fsum(float(row["gpu_time"]) for row in rows) / 3600)
    assert trace.jobs[-1].arrival == (max(starts) - min(starts)).total_seconds()
    assert Counter(job.workers for job in trace.jobs) == Counter(int(row["num_gpus"]) for row in rows)


def check_helios(path: Path) -> None:
    trace = read(path, "helios")
    ran = [row for row in lines(path) if float(row["duration"]) > 0 and int(row["gpu_num"])]
    assert len(trace.jobs) == len(ran)
    assert hours(trace) == pytest.approx(math.fsum(int(row["gpu_num"]) * float(row["duration"]) for row in ran) / 3600)


def check_shockwave(path: Path) -> int:
    """Shockwave's trace; return how many jobs it has."""
    trace = read(path, "shockwave")
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert len(trace.jobs) == len(rows)
    assert sum(job.steps for job in trace.jobs) == sum(int(row[5]) for row in rows)
    assert Counter((job.template, job.workers) for job in trace.jobs) == Counter((row[0], int(row[6])) for row in rows)
    assert [job.arrival for job in trace.jobs] == sorted(float(row[11]) for row in rows)
    theirs = sum(int(row[6]) * int(row[10]) for row in rows) / 3600
    said = noted(trace, "steps are kept")
    assert f"the durations in the file {theirs:,.1f} (GPU-hours {hours(trace) / theirs - 1:+.1%})" in said
    changing = Counter(row[7] for row in rows if row[7] != "static")
    assert f"({', '.join(f'{mode} {count}' for mode, count in sorted(changing.items()))})" in trace.notes[0]
    return len(rows)


def check_own_format(path: Path, throughputs: Path) -> None:
    """A trace in our format, with its own table."""
    trace = read_trace(path, table=read_table(throughputs))
    rows = lines(path)
    assert len(trace.jobs) == len(rows)
    assert Counter(job.workers for job in trace.jobs) == Counter(int(row["workers"]) for row in rows)
    assert sum(job.steps for job in trace.jobs) == pytest.approx(math.fsum(float(row["steps"]) for row in rows))


def check_round_trip(path: Path, written: Path) -> None:
    """What is converted is read back the same."""
    trace = read_trace(path, table=TABLE)
    write_trace(trace, written)
    assert read_trace(written, table=TABLE).jobs == trace.jobs
