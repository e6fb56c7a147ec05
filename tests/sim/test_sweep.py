"""Sweeps: the same figures however they are run, and a results file that survives interruption."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gavel.core.errors import InputError
from gavel.sim.experiment import Experiment, run
from gavel.sim.pool import WorkerPool, answers
from gavel.sim.results import COMPLETIONS, RESULTS, Result, ResultsFiles, settings_of
from gavel.sim.sweep import Contender, Sweep, SweepOutcome, SweepPoint, run_sweep
from gavel.sim.worker import answer

BASE = Experiment(cluster="v100=2,k80=2", jobs=6, limit_days=60.0)
SWEEP = Sweep(BASE, (Contender("max_min_fairness"), Contender("fifo", ("agnostic",))), (0.5, 2.0), (0, 1))
TIMINGS = {"solver_seconds", "wall_seconds"}


def sweep_into(directory: Path, sweep: Sweep = SWEEP, *, workers: int = 1, stop_after: int | None = None) -> list[str]:
    """Run a sweep and return the points that were run, in order of their end."""
    ran: list[str] = []

    def on_end(point: SweepPoint, result: Result | str) -> None:
        assert isinstance(result, Result), result
        ran.append(point.id)
        if len(ran) == stop_after:
            raise KeyboardInterrupt

    with ResultsFiles(directory) as files:
        run_sweep(sweep, files, workers=workers, on_end=on_end)
    return ran


def lines(directory: Path, name: str = RESULTS) -> list[dict[str, str]]:
    """The lines of a results file, sorted and without wall-clock times."""
    with (directory / name).open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in TIMINGS} for row in csv.DictReader(file)]
    return sorted(rows, key=lambda row: row["point"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of an uninterrupted sweep."""
    directory = tmp_path_factory.mktemp("whole")
    assert sorted(sweep_into(directory, workers=2)) == sorted(point.id for point in SWEEP.points)
    return directory


def test_a_point_measures_the_same_alone_and_beside_others_in_a_sweep(whole: Path) -> None:
    with ResultsFiles(whole) as files:
        for point in SWEEP.points:
            report = run(point.experiment)
            known = files.known[point.id]
            figures = {k: v for k, v in report.figures.document().items() if k not in TIMINGS}
            assert {k: v for k, v in known.figures.items() if k not in TIMINGS} == figures
            assert known.completion_seconds == pytest.approx(report.completion_seconds(), abs=1e-3)


def test_an_interrupted_sweep_resumes_and_ends_like_an_uninterrupted_one_with_more_processes(
    whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        sweep_into(tmp_path, stop_after=3)
    before = {row["point"] for row in lines(tmp_path)}
    assert len(before) == 3
    for name in (RESULTS, COMPLETIONS):  # as left by a process that was killed in the middle of a line
        with (tmp_path / name).open("a") as file:
            file.write(next(point.id for point in SWEEP.points if point.id not in before) + ",0.1")
    ran = sweep_into(tmp_path)
    assert not before & set(ran)
    assert len(ran) == len(SWEEP.points) - 3
    assert lines(tmp_path) == lines(whole)
    assert lines(tmp_path, COMPLETIONS) == lines(whole, COMPLETIONS)
    assert sweep_into(tmp_path) == []


def test_points_are_identified_by_all_of_their_settings(whole: Path) -> None:
    def unknown(sweep: Sweep) -> int:
        return sum(point.id not in known for point in sweep.points)

    with ResultsFiles(whole) as files:
        known = dict(files.known)
    assert unknown(SWEEP) == 0
    assert unknown(Sweep(BASE, SWEEP.contenders[:1], (0.5, 2.0, 3.0), (0, 1, 2))) == 5
    for change in ({"round_seconds": 300.0}, {"restart_seconds": 0.0}, {"window": (0, 6)}, {"per_server": 2}):
        assert unknown(replace(SWEEP, base=replace(BASE, **change))) == len(SWEEP.points)


@pytest.mark.parametrize("setting", ["throughputs", "entities", "failures", "trace"])
def test_a_changed_file_makes_other_points(setting: str, tmp_path: Path) -> None:
    def identity(text: str, name: str) -> dict[str, str]:
        file = tmp_path / name
        file.write_text(text)
        return settings_of(Experiment.of({"cluster": "v100=1", setting: str(file)})) | {setting: ""}

    assert identity("{}", "a.json") == identity("{}", "b.json")
    assert identity("{}", "a.json") != identity("{ }", "c.json")


def test_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    experiment = Experiment(cluster="v100=1,k80=2", window=(1, 3), recompute_every_seconds=1e-3, throughputs="builtin")
    names = run(BASE).figures.document()
    figures: dict[str, Any] = dict.fromkeys(names, 1 / 3) | {"notes": ['a "note", with\na break'], "drained": False}
    settings = settings_of(experiment)
    with ResultsFiles(tmp_path) as files:
        files.append(settings, Result(figures, [1.5, 2.25]))
        written = dict(files.known)
    with ResultsFiles(tmp_path) as files:
        assert files.known == written
    [row] = lines(tmp_path)
    assert {name: row[name] for name in settings} == settings
    assert (row["window"], row["arrivals_per_hour"], row["agnostic"]) == ("1:3", "", "false")


def test_a_process_that_dies_is_a_failure_and_the_others_continue() -> None:
    crew = WorkerPool([point.experiment for point in SWEEP.points[:2]])
    crew.hire()
    next(iter(crew._at))._process.kill()
    heard = dict(crew.heard())
    crew.close()
    assert heard[0] == "its process ended before it had an answer (SIGKILL)"
    assert isinstance(heard[1], Result)


def test_closing_ends_the_processes() -> None:
    running = answers([point.experiment for point in SWEEP.points], 1)
    next(running)
    crew: WorkerPool = running.gi_frame.f_locals["crew"]  # type: ignore[attr-defined]
    workers = list(crew._at)
    assert workers
    running.close()
    assert not any(worker.alive for worker in workers)


def test_any_error_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Experiment) -> None:
        raise ZeroDivisionError("of all things")

    settings = {"cluster": "v100=2", "jobs": None, "window": None}
    assert "nothing to run" in answer(settings)["failure"]
    monkeypatch.setattr("gavel.sim.worker.run", broken)
    assert answer(settings)["failure"].startswith("ZeroDivisionError: of all things (test_sweep.py, line ")


def test_a_cell_averages_its_seeds(whole: Path) -> None:
    with ResultsFiles(whole) as files:
        outcome: SweepOutcome = run_sweep(SWEEP, files, workers=1)
    assert outcome.already_known == len(SWEEP.points)
    cell = outcome.cells[0]
    first, second = (result.figures["average_jct_seconds"] for result in cell.results)
    assert cell.mean("average_jct_seconds") == pytest.approx((first + second) / 2)
    assert cell.deviation("average_jct_seconds") == pytest.approx(abs(first - second) / 2**0.5)
    assert len(cell.completion_seconds) == 12


def test_two_sweeps_cannot_write_to_one_directory(tmp_path: Path) -> None:
    with ResultsFiles(tmp_path), pytest.raises(InputError, match="another sweep is writing"):
        ResultsFiles(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("point,policy\nx,fifo\n", "lacks the columns gavel_version, cluster"),
        (None, "line 2: this line was not written by a sweep"),
    ],
)
def test_a_results_file_of_another_kind_is_refused(content: str | None, said: str, whole: Path, tmp_path: Path) -> None:
    header = (whole / RESULTS).read_text().splitlines()[0]
    (tmp_path / RESULTS).write_text(content or f"{header}\nabc,0.1.0\n")
    with pytest.raises(InputError, match=said):
        ResultsFiles(tmp_path)


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        (Sweep(BASE, (), (1.0,)), "there are no policies"),
        (Sweep(BASE, SWEEP.contenders, ()), "there are no loads"),
        (Sweep(BASE, SWEEP.contenders, (1.0,), ()), "there are no seeds"),
        (Sweep(BASE, SWEEP.contenders, (float("inf"),)), "a load of inf"),
        (Sweep(BASE, SWEEP.contenders, (2.5,), static=True), "a whole number of jobs"),
        (Sweep(Experiment(cluster="v100=0", jobs=5), SWEEP.contenders, (1.0,)), "no accelerators"),
        (Sweep(Experiment(cluster="tpu=4", jobs=5), SWEEP.contenders, (1.0,)), "no throughput is known for 'tpu'"),
        (Sweep(Experiment(cluster="v100=4", jobs=5, window=(3, 9)), SWEEP.contenders, (1.0,)), "the window 3:9"),
    ],
)
def test_settings_that_no_point_could_run_are_refused_before_any_runs(sweep: Sweep, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sweep.check()
