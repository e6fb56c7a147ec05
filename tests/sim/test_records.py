"""Jobs and rounds as records: what they say is what happened, counted here from events and commands alone."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import gavel
from gavel.cli.app import run as command
from gavel.core.events import Command, Event, JobFailed, JobFinished, JobSubmitted, Launch, Stop
from gavel.core.throughputs import builtin_table
from gavel.sim.experiment import Experiment, run
from gavel.sim.records import JobRecord
from gavel.sim.report import Report
from gavel.sim.rounds import RoundLog
from gavel.sim.view import View
from gavel.workload.trace import TraceJob

CLUSTER = "v100=8,p100=4,k80=4"
SIZES = {"v100": 8, "p100": 4, "k80": 4}
TYPES = ("v100", "p100", "k80")
LOADS: dict[str, dict[str, Any]] = {
    "gangs": {"jobs": 24, "arrivals_per_hour": 8.0, "multi_worker": True},
    "failures": {"jobs": 24, "arrivals_per_hour": 8.0, "failures_per_server_day": 4.0, "repair_hours": 1.0},
    "plain": {"jobs": 24, "arrivals_per_hour": 12.0, "mechanism": "plain", "entities": "a,b"},
    "pairs": {"jobs": 40, "arrivals_per_hour": 20.0, "space_sharing": True},
    "window": {"jobs": 60, "arrivals_per_hour": 6.0, "window": (2, 6)},
    "limit": {"jobs": 30, "arrivals_per_hour": 6.0, "limit_days": 0.3},
}


class Counts:
    """Follows every job by its launches, stops and ends."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.launches: Counter[str] = Counter()
        self.stops = 0
        self.first: dict[str, float] = {}
        self.end: dict[str, float] = {}
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._on: dict[str, tuple[str, float]] = {}

    def see(self, command: Command, time: float) -> None:
        if isinstance(command, Launch):
            self.launches[command.job] += 1
            self.first.setdefault(command.job, time)
            self._leave(command.job, time)
            self._on[command.job] = (command.type, time)
        elif isinstance(command, Stop):
            self.stops += 1
            self._leave(command.job, time)

    def after(self, event: Event, _: View) -> None:
        if isinstance(event, JobSubmitted):
            self.arrived.append(event.job.id)
        elif isinstance(event, JobFinished | JobFailed):
            self._leave(event.job, event.time)
        if isinstance(event, JobFinished):
            self.end[event.job] = event.time

    def close(self, time: float) -> None:
        for job in list(self._on):
            self._leave(job, time)

    def _leave(self, job: str, time: float) -> None:
        if job in self._on:
            kind, since = self._on.pop(job)
            self.seconds[job, kind] += time - since


def counted(load: str) -> tuple[Report, Counts]:
    counts = Counts()
    report = run(Experiment(cluster=CLUSTER, **LOADS[load]), observers=[counts], rounds=RoundLog(TYPES))
    counts.close(report.outcome.stopped)
    return report, counts


@pytest.mark.parametrize("load", LOADS)
def test_records_of_jobs_are_what_an_independent_count_finds(load: str) -> None:
    report, counts = counted(load)
    records = report.jobs()
    assert [record.id for record in records] == counts.arrived
    assert {r.id: r.first_start_seconds for r in records if r.first_start_seconds is not None} == counts.first
    assert {r.id: r.end_seconds for r in records if r.end_seconds is not None} == pytest.approx(counts.end)
    assert {r.id: r.restarts for r in records} == {job: max(counts.launches[job] - 1, 0) for job in counts.arrived}
    for record in records:
        seconds = {kind: counts.seconds[record.id, kind] for kind in TYPES}
        assert record.seconds_by_type == pytest.approx(seconds, abs=1e-6)
    unfinished = [record for record in records if record.end_seconds is None]
    assert bool(unfinished) == (load in {"window", "limit"})
    assert all(record.jct_seconds is None for record in unfinished)


@pytest.mark.parametrize("load", [load for load in LOADS if load != "pairs"])
def test_seconds_by_type_times_workers_are_the_accelerator_time_given(load: str) -> None:
    report, _ = counted(load)
    for kind in TYPES:
        given = sum(record.workers * record.seconds_by_type[kind] for record in report.jobs())
        assert given == pytest.approx(report.outcome.given_by_type[kind])


@pytest.mark.parametrize("load", LOADS)
def test_records_of_rounds_add_up_to_all_launches_and_stops(load: str) -> None:
    report, counts = counted(load)
    rounds = report.rounds()
    assert sum(each.launches for each in rounds) == counts.launches.total()
    assert sum(each.stops for each in rounds) == counts.stops
    assert all(0 <= each.preemptions <= each.stops for each in rounds)
    times = [each.time_seconds for each in rounds]
    assert times == sorted(times)
    assert len(rounds) >= report.figures.rounds  # plans during a round have records, too
    for each in rounds:
        assert all(0 <= each.busy[kind] <= each.available[kind] <= SIZES[kind] for kind in TYPES)
        assert (each.running == 0) == (sum(each.busy.values()) == 0)
    assert (min(sum(each.available.values()) for each in rounds) < 16) == (load == "failures")
    assert any(each.waiting for each in rounds)


def test_a_job_alone_takes_what_it_takes_on_its_fastest_type() -> None:
    for template, workers in (("A3C", 1), ("LM (batch size 5)", 4)):
        report = gavel.simulate(cluster="k80=4,v100=4", trace=[TraceJob("j", template, workers, 1e4, 60.0)])
        [record] = report.jobs()
        rate = builtin_table().rates([(template, workers)], ["v100"])[0, 0, 0]
        assert record.fastest_seconds == pytest.approx(1e4 / rate)
        assert record.jct_seconds == pytest.approx(record.fastest_seconds)
        assert (record.first_start_seconds, record.restarts) == (60.0, 0)


def test_a_job_that_no_type_has_room_for_has_no_fastest_time_and_never_starts() -> None:
    jobs = [TraceJob("gang", "LM (batch size 5)", 8, 10.0, 0.0), TraceJob("single", "A3C", 1, 10.0, 0.0)]
    gang, single = gavel.simulate(cluster="v100=4", trace=jobs).jobs()
    assert (gang.fastest_seconds, gang.first_start_seconds, gang.end_seconds, gang.restarts) == (None, None, None, 0)
    assert gang.seconds_by_type == {"v100": 0.0}
    assert single.end_seconds is not None


def test_jobs_of_the_ideal_start_when_they_first_receive_time() -> None:
    report = gavel.simulate(cluster="v100=1", policy="fifo", jobs=3, arrivals_per_hour=100.0, ideal=True)
    first, second, third = report.jobs()
    assert first.first_start_seconds == first.arrival_seconds == 0.0
    assert second.first_start_seconds == pytest.approx(first.end_seconds)
    assert third.first_start_seconds == pytest.approx(second.end_seconds)
    assert third.seconds_by_type["v100"] == pytest.approx(third.fastest_seconds)


def test_rows_have_the_fields_in_order_and_then_the_seconds_by_type() -> None:
    record = gavel.simulate(cluster="k80=1,v100=1", jobs=1).jobs()[0]
    *names, by_type = (field.name for field in fields(JobRecord))
    assert by_type == "seconds_by_type"
    assert list(record.row()) == [*names, "k80_seconds", "v100_seconds"]


HEADER = (
    "id,template,workers,entity,arrival_seconds,first_start_seconds,end_seconds,jct_seconds,fastest_seconds,restarts"
)


def test_the_csv_holds_a_row_for_every_job_that_arrived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.csv"
    load = ["--jobs=30", "--arrivals-per-hour=6", "--limit-days=0.15", "--entities=a,b", "--multi-worker"]
    assert command(["simulate", f"--cluster={CLUSTER}", *load, f"--jobs-csv={file}", "--json"]) == 0
    capsys.readouterr()
    settings: dict[str, Any] = {"limit_days": 0.15, "entities": "a,b", "multi_worker": True}
    report = gavel.simulate(cluster=CLUSTER, jobs=30, arrivals_per_hour=6.0, **settings)
    with file.open(newline="") as opened:
        header = opened.readline().strip()
        rows = list(csv.reader(opened))
    assert header == HEADER + ",v100_seconds,p100_seconds,k80_seconds"
    assert 0 < report.figures.jobs_completed < len(rows) < 30
    for cells, record in zip(rows, report.jobs(), strict=True):
        assert cells == ["" if value is None else str(value) for value in record.row().values()]
    workers, given = header.split(",").index("workers"), header.split(",").index("v100_seconds")
    for at, kind in enumerate(TYPES, given):
        seconds = sum(int(cells[workers]) * float(cells[at]) for cells in rows)
        assert seconds == pytest.approx(report.outcome.given_by_type[kind])


def test_a_csv_that_cannot_be_written_is_refused_before_any_time_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, said in ((tmp_path / "none" / "jobs.csv", "no such file or directory"), (tmp_path, "is a directory")):
        assert command(["simulate", "--cluster=v100=1", "--static=1", f"--jobs-csv={file}"]) == 2
        assert f"cannot write to --jobs-csv {file}: {said}; give another file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
