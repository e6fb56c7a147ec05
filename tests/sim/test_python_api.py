"""`gavel.simulate`, `gavel.sweep` and `gavel.plot`, as a notebook uses them."""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gavel
from gavel.core.throughputs import builtin_table, table_of, write_table
from gavel.sim.experiment import run
from gavel.sim.results import RESULTS
from gavel.workload.formats import read_trace, write_trace
from gavel.workload.generate import generate

SMALL: dict[str, Any] = {"cluster": "v100=2,k80=2", "jobs": 10, "arrivals_per_hour": 1.0}
TIMINGS = ("wall_seconds", "solver_seconds")
TABLE = {
    "types": ["fast", "slow"],
    "templates": {"cnn": {1: {"fast": 4.0, "slow": 1.0}}, "rnn": {1: {"fast": 2.0, "slow": 1.0}}},
}


def figures(report: gavel.Report) -> dict[str, Any]:
    return {name: value for name, value in report.figures.document().items() if name not in TIMINGS}


@pytest.fixture(scope="module")
def report() -> gavel.Report:
    return gavel.simulate(**SMALL, rounds=True, plots=True)


def test_keywords_an_experiment_and_both_mean_the_same_run(report: gavel.Report) -> None:
    experiment = gavel.Experiment(**SMALL)
    assert figures(gavel.simulate(experiment)) == figures(run(experiment)) == figures(report)
    other = gavel.simulate(experiment, policy="fifo", window=[2, 8])
    assert other.experiment == replace(experiment, policy="fifo", window=(2, 8))
    assert other.figures.jobs_completed == 6


def test_figures_are_attributes_and_the_document_has_the_same(report: gavel.Report) -> None:
    document = report.document()
    assert document["average_jct_seconds"] == report.figures.average_jct_seconds
    assert list(document) == ["policy", *report.figures.document(), "experiment"]


def test_results_say_what_they_are_in_a_line(report: gavel.Report, outcome: gavel.SweepOutcome) -> None:
    assert re.fullmatch(
        r"<Report of max_min_fairness on v100=2,k80=2: 10 of 10 jobs done, average JCT [\d.]+ h>", repr(report)
    )
    assert repr(outcome) == "<SweepOutcome on v100=2,k80=2: 8 of 8 points>"


def test_jobs_in_memory_run_as_those_of_a_file(tmp_path: Path) -> None:
    table, file = builtin_table(), tmp_path / "trace.csv"
    trace = generate(jobs=8, arrivals_per_hour=2.0, multi_worker=False, table=table, seed=3)
    write_trace(trace, file)
    read = gavel.simulate(cluster="v100=2,k80=2", trace=file)
    assert read.experiment.trace == str(file)
    for given in (trace, list(trace.jobs), iter(trace.jobs), read_trace(file, table=table)):
        report = gavel.simulate(cluster="v100=2,k80=2", trace=given)
        assert figures(report) == figures(read)
        assert report.jobs() == read.jobs()


def test_a_table_in_memory_counts_as_one_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    write_table(table_of(TABLE), file)
    load: dict[str, Any] = {"cluster": "fast=1,slow=1", "jobs": 6, "reference": "fast", "prices": "fast=2,slow=1"}
    reports = [gavel.simulate(**load, throughputs=given) for given in (file, str(file), table_of(TABLE), TABLE)]
    assert figures(reports[0])["jobs_completed"] == 6
    assert all(figures(report) == figures(reports[0]) for report in reports)
    assert reports[0].jobs()[0].template in {"cnn", "rnn"}


def job(**changes: Any) -> gavel.TraceJob:
    return replace(gavel.TraceJob("a", "A3C", 1, 10.0, 0.0), **changes)


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([], "the trace has no jobs"),
        ([job(), job()], "2 jobs are called 'a'; ids must differ"),
        ([job(steps=0.0)], "job 'a': the number of steps must be greater than 0"),
        ([job(weight=-1.0)], "job 'a': the weight must be greater than 0"),
        ([job(deadline_seconds=1e12)], "job 'a': the deadline must be at most"),
        ([job(arrival=float("nan"))], "job 'a': arrival must be 0 or more seconds"),
        ([job(template="A3B")], "A3B"),
        ([job(workers=3)], "3 workers"),
    ],
)
def test_jobs_in_memory_that_make_no_sense_are_refused(jobs: list[gavel.TraceJob], said: str) -> None:
    with pytest.raises(gavel.InputError, match=said):
        gavel.simulate(cluster="v100=2", trace=jobs)


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"polcy": "fifo", **SMALL}, TypeError, "there is no setting 'polcy'; did you mean 'policy'?"),
        ({**SMALL, "round_seconds": 0}, gavel.InputError, "--round-seconds must be at least 1, not 0"),
        ({**SMALL, "jobs": 0}, gavel.InputError, "--jobs must be at least 1, not 0"),
        ({**SMALL, "seed": -1}, gavel.InputError, "--seed must be at least 0, not -1"),
        ({**SMALL, "per_server": 0}, gavel.InputError, "--per-server must be at least 1, not 0"),
        (
            {**SMALL, "mechanism": "plan"},
            gavel.InputError,
            "there is no mechanism 'plan'; the mechanisms are",
        ),
        ({"jobs": 3}, TypeError, "there is no cluster; give for example"),
        ({"cluster": "v100=2"}, gavel.InputError, "give either trace=..., or jobs=..."),
        ({"trace": [job()], **SMALL}, gavel.InputError, "give either trace=..., or jobs=..."),
        (
            {"rounds": True, "ideal": True, **SMALL},
            gavel.InputError,
            "an ideal run has no rounds to record; leave out rounds",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as refused:
        gavel.simulate(**settings)
    assert said in str(refused.value)


def test_rounds_that_were_not_kept_are_refused_with_how_to_ask() -> None:
    with pytest.raises(gavel.GavelError, match=r"ask for them with gavel\.simulate\(\.\.\., rounds=True\)"):
        gavel.simulate(cluster="v100=1", jobs=1).rounds()


def test_data_frames_hold_what_the_records_hold(report: gavel.Report) -> None:
    jobs, rounds = report.to_frame(), report.to_frame("rounds")
    assert jobs.to_dict("records") == [record.row() for record in report.jobs()]
    assert rounds.to_dict("records") == [record.row() for record in report.rounds()]
    assert jobs["jct_seconds"].mean() == pytest.approx(report.figures.average_jct_seconds)
    assert [str(jobs[name].dtype) for name in ("workers", "jct_seconds", "restarts")] == ["int64", "float64", "int64"]
    with pytest.raises(gavel.InputError, match="there are no records of 'servers'; give 'jobs' or 'rounds'"):
        report.to_frame("servers")  # type: ignore[arg-type]


def test_jobs_that_did_not_finish_have_nan_in_data_frames() -> None:
    jobs = gavel.simulate(cluster="v100=1", jobs=3, durations=[1e6], limit_days=0.1).to_frame()
    assert len(jobs) == 3
    assert jobs["end_seconds"].dtype == np.float64
    assert jobs["end_seconds"].isna().all()
    assert jobs["first_start_seconds"].notna().sum() >= 1


def test_without_pandas_records_work_and_data_frames_say_what_to_install(
    report: gavel.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert len(report.jobs()) == 10
    with pytest.raises(gavel.GavelError, match=r"run: pip install 'gavel-scheduler\[notebook\]'"):
        report.to_frame()


def is_picture(figure: Any) -> bool:
    return bool(figure._repr_png_().startswith(b"\x89PNG"))


@pytest.mark.parametrize("name", ["utilisation", "cdf", "received", "convergence", "gantt"])
def test_plots_of_a_run_are_figures_that_a_notebook_shows(report: gavel.Report, name: str) -> None:
    figure = gavel.plot(report, name)
    assert figure.axes
    assert is_picture(figure)


def test_plots_that_cannot_be_drawn_say_why(report: gavel.Report) -> None:
    bare = gavel.simulate(cluster="v100=1", jobs=1)
    assert is_picture(gavel.plot(bare, "cdf"))
    with pytest.raises(gavel.GavelError, match=r"ask for it with gavel\.simulate\(\.\.\., plots=True\)"):
        gavel.plot(bare, "gantt")
    with pytest.raises(gavel.InputError, match="there is no plot 'jct' of this; the plots are: utilisation, cdf"):
        gavel.plot(report, "jct")
    with pytest.raises(gavel.GavelError, match="there is nothing to draw in 'cdf'"):
        gavel.plot(gavel.simulate(cluster="v100=1", jobs=1, durations=[1e6], limit_days=0.1), "cdf")


SWEPT: dict[str, Any] = {"cluster": "v100=2,k80=2", "jobs": 6, "workers": 1}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> gavel.SweepOutcome:
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("temporary")
        patch.setattr(tempfile, "tempdir", str(directory))
        found = gavel.sweep(**SWEPT, policies=["fifo", "fifo:agnostic"], loads=np.array([0.5, 2.0]), seeds=range(2))
        assert not list(directory.iterdir()), "nothing is left where no directory was given"
    return found


def test_points_of_a_sweep_measure_what_single_simulations_do(outcome: gavel.SweepOutcome) -> None:
    points = outcome.points()
    assert [(point.policy, point.load, point.seed) for point in points] == [
        (policy, load, seed) for policy in ("fifo", "fifo:agnostic") for load in (0.5, 2.0) for seed in (0, 1)
    ]
    for point in points:
        agnostic = point.policy.endswith("agnostic")
        alone = gavel.simulate(
            cluster="v100=2,k80=2",
            jobs=6,
            policy="fifo",
            agnostic=agnostic,
            arrivals_per_hour=point.load,
            seed=point.seed,
        )
        measured = point.figures.document()
        assert {name: value for name, value in measured.items() if name not in TIMINGS} == figures(alone)


def test_a_sweep_is_a_data_frame_with_a_row_for_each_point(outcome: gavel.SweepOutcome) -> None:
    frame = outcome.to_frame()
    assert len(frame) == 8
    assert frame["high_priority_jct_seconds"].dtype == np.float64
    means = frame.groupby(["policy", "load"])["average_jct_seconds"].mean()
    for cell in outcome.cells:
        assert means[cell.contender.label, cell.load] == pytest.approx(cell.mean("average_jct_seconds"))
    assert isinstance(frame, pd.DataFrame)


@pytest.mark.parametrize("name", ["jct", "cdf", "figures"])
def test_plots_of_a_sweep_are_figures_too(outcome: gavel.SweepOutcome, name: str) -> None:
    assert is_picture(gavel.plot(outcome, name))


def test_a_sweep_with_a_directory_runs_only_what_is_missing(tmp_path: Path) -> None:
    said: list[str] = []
    gavel.sweep(**SWEPT, policies="fifo", static=[3], out=tmp_path, progress=said.append)
    both = gavel.sweep(**SWEPT, policies="fifo, makespan", static=[3], out=str(tmp_path), progress=said.append)
    assert (tmp_path / RESULTS).exists()
    assert both.already_known == 1
    assert [line.partition(": average JCT")[0] for line in said] == ["fifo, 3 jobs, seed 0", "makespan, 3 jobs, seed 0"]


def test_points_that_fail_raise_an_error_that_has_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moody.py").write_text(
        "from gavel import POLICIES, Policy\n"
        "def solve(problem, options):\n"
        "    if len(problem.jobs) > 3: raise ValueError('too many')\n"
        "    return POLICIES['fifo'].solve(problem, options)\n"
        "moody = Policy(name='moody', summary='', objective='', solve=solve)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(gavel.__file__).parents[1]}")
    with pytest.raises(
        gavel.SweepError, match=r"1 of 2 points failed, the first \(moody.moody, 5 jobs, seed 0\): "
    ) as error:
        gavel.sweep(cluster="v100=2,k80=2", policies=["moody.moody"], static=[2, 5], workers=1)
    assert [(point.load, point.figures.jobs_completed) for point in error.value.outcome.points()] == [(2, 2)]


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({}, gavel.InputError, "give either loads="),
        ({"loads": [1.0], "static": [1]}, gavel.InputError, "give either loads="),
        ({"loads": [1.0], "policy": "fifo"}, TypeError, "a sweep takes no policy: it has policies"),
        ({"loads": [1.0], "ideal_": True}, TypeError, "did you mean 'ideal'?"),
        ({"loads": [1.0], "throughputs": TABLE}, TypeError, "throughputs must be the name of a file here"),
        ({"loads": [1.0], "seeds": [-1]}, gavel.InputError, "--seed must be at least 0, not -1"),
        ({"loads": [-1.0]}, gavel.InputError, "a load of -1 makes no sense"),
    ],
)
def test_sweeps_that_make_no_sense_are_refused(settings: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as refused:
        gavel.sweep(**SWEPT, policies=["fifo"], **settings)
    assert said in str(refused.value)
