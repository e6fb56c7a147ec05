"""`gavel simulate` as a user runs it: what it prints, and what it refuses before any time is spent."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gavel.cli.app import run
from gavel.cli.settings import OPTIONS
from gavel.sim.experiment import Experiment
from gavel.sim.sweep import VARIANTS

SMALL = ["simulate", "--cluster", "v100=2,k80=2"]
TRACE = "template,steps,arrival_seconds\nA3C,1000,0\n"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gavel: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    "command", [["simulate"], ["sweep"], ["allocate"], ["trace", "generate"], ["bench", "policies"], []]
)
def test_help_names_every_option_whole_and_shows_no_type_of_a_switch(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, *command, "--help")
    assert "<bool>" not in text
    assert "…" not in text.replace(",…", "")
    if command in (["simulate"], ["sweep"]):
        for option in ("--min-seconds-between-allocations", "--failures-per-server-day", "--ideal", "--entities"):
            assert f"{option} " in text


def test_every_setting_of_an_experiment_has_an_option() -> None:
    assert set(OPTIONS) == set(Experiment.__dataclass_fields__)


def test_a_run_without_deadlines_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--static", "4"]
    assert "no deadlines" in printed(capsys, *arguments)
    document = answer(capsys, *arguments)
    assert (document["slo_violations"], document["jobs_with_deadline"]) == (0, 0)
    assert "of 4" in printed(capsys, *arguments, "--slo", "1.2").split("deadlines missed")[1].splitlines()[0]


def test_deadlines_that_pass_before_the_end_are_missed_also_by_jobs_that_never_finish(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = answer(capsys, *SMALL, "--static", "8", "--durations", "400000", "--slo", "0.1", "--limit-days", "1")
    assert (document["jobs_completed"], document["slo_violations"]) == (0, 8)


def test_figures_of_jobs_that_did_not_finish_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--static", "4", "--durations", "1e6", "--limit-days", "0.1"]
    document = answer(capsys, *arguments)
    averaged = ("average_jct_seconds", "median_jct_seconds", "p99_jct_seconds", "makespan_seconds", "restarts_per_job")
    assert [document[name] for name in averaged] == [None] * 5
    assert document["average_finish_time_fairness"] is None
    assert document["drained"] is False
    text = printed(capsys, *arguments)
    assert text.count("none finished") == 6
    assert "0 of 4" in text
    assert "4 jobs were not done after 0.1 days; raise --limit-days or lower the load" in text


def test_generated_jobs_take_the_options_of_generated_traces(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    drawn = ["--seed", "3", "--slo", "1.2,2", "--high-priority", "0.5", "--entities", "a,b", "--durations", "600,6000"]
    drawn += ["--templates", "ResNet-50,A3C", "--multi-worker", "--reference", "p100", "--arrivals-per-hour", "4"]
    file = str(tmp_path / "trace.csv")
    assert run(["trace", "generate", "--jobs", "12", *drawn, "--out", file]) == 0
    capsys.readouterr()
    cluster = ["simulate", "--cluster", "v100=8,p100=8", "--policy", "hierarchical"]
    generated = answer(capsys, *cluster, "--jobs", "12", *drawn)
    read = answer(capsys, *cluster, "--trace", file)
    for document in (generated, read):
        for name in ("experiment", "wall_seconds", "solver_seconds"):
            del document[name]
    assert generated == read
    assert generated["jobs_with_deadline"] == 12


def test_prices_count_in_the_cost_and_a_type_without_one_is_noted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "rates.json"
    rates = {"format": "gavel-throughputs/1", "types": ["a100"], "templates": {"m": {"1": {"a100": 2.0}}}}
    file.write_text(json.dumps(rates))
    arguments = ["simulate", "--cluster", "a100=2", "--static", "2", "--durations", "3600", "--reference", "a100"]
    arguments += ["--throughputs", str(file)]
    unpriced = answer(capsys, *arguments)
    assert unpriced["cost_dollars"] == 0.0
    assert "the cost leaves out a100, whose prices are unknown; give --prices a100=..." in unpriced["notes"]
    priced = answer(capsys, *arguments, "--prices", "a100=3.5")
    assert priced["cost_dollars"] == pytest.approx(7.0)
    assert priced["notes"] == []
    assert "min_cost needs a positive price" in refusal(capsys, *arguments, "--policy", "min_cost")
    assert answer(capsys, *arguments, "--policy", "min_cost", "--prices", "a100=3.5")["jobs_completed"] == 2


def test_a_trace_may_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    typed(TRACE)
    assert answer(capsys, *SMALL, "--trace", "-")["jobs_completed"] == 1
    typed(TRACE)
    assert answer(capsys, "trace", "describe", "-")["format"] == "gavel"
    typed(TRACE + "A3C,-1,0\n")
    assert "gavel: standard input, line 3, column 'steps'" in refusal(capsys, *SMALL, "--trace", "-")
    typed("{")
    assert refusal(capsys, "allocate", "-").startswith("gavel: standard input: not valid JSON")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give one of --trace FILE"),
        (["--jobs", "3"], "--jobs needs --arrivals-per-hour"),
        (["--static", "3", "--arrivals-per-hour", "2"], "use --jobs with --arrivals-per-hour"),
        (["--static", "3", "--jobs", "3"], "give one of --trace FILE"),
        (["--trace", "trace.csv", "--multi-worker"], "--multi-worker is for generated jobs"),
        (["--trace", "trace.csv", "--high-priority", "0.5"], "--high-priority is for generated jobs"),
        (["--trace", "trace.csv", "--slo", "2"], "--slo is for generated jobs"),
        (["--trace", "trace.csv", "--arrivals-per-hour", "2"], "--arrivals-per-hour is for generated jobs"),
        (["--trace", "trace.csv", "--entities", "a,b"], "the trace names the owners of its jobs"),
        (["--static", "3", "--format", "slurm"], "--format says how to read a trace"),
        (["--static", "3", "--policy", "allox", "--multi-worker", "--seed", "4"], "allox matches single-worker jobs"),
        (["--static", "3", "--policy", "fifo", "--normalised"], "--normalised is for max_throughput, min_cost, min_c"),
        (["--static", "3", "--ideal", "--mechanism", "plain"], "without a mechanism; leave out plain"),
        (
            ["--static", "3", "--restart-seconds", "60", "--round-seconds", "60", "--mechanism", "plain"],
            "would never make a step",
        ),
        (["--static", "3", "--prices", "v100"], "'v100' is not of the form type=dollars"),
        (["--static", "3", "--prices", "v100=0"], "'v100=0' is not of the form type=dollars"),
        (["--static", "3", "--prices", "a100=1"], "the cluster has no a100; its types are: v100, k80"),
        (["--static", "3", "--plots", "trace.csv"], "cannot write to --plots trace.csv: it is a file"),
        (["--static", "3", "--plots", "trace.csv/deeper"], "cannot write to --plots trace.csv/deeper: not a dir"),
        (["--static", "3", "--plots", "plots", "--ideal"], "--ideal has no rounds to record; leave out --plots"),
        (["--static", "3", "--jobs-csv", "trace.csv/deeper"], "cannot write to --jobs-csv trace.csv/deeper: not a dir"),
        (["--static", "3", "--window", "1:²"], "--window 1:²: write A:B"),
    ],
)
def test_wrong_combinations_are_refused_before_any_time_is_spent(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text(TRACE)
    assert said in refusal(capsys, *SMALL, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


HEAD = "template,steps,arrival_seconds"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; a trace has at least one job"),
        (f"{HEAD}\n", "has no jobs"),
        (f"{HEAD}\nresnet50,10,0\n", "closest: 'ResNet-50 (batch size 16)'"),
        (f"{HEAD}\nA3C,10\n", "line 2: 2 columns, but the first line has 3"),
        (f"{HEAD}\nA3C,ten,0\n", "line 2, column 'steps': 'ten' is not a number of steps"),
        (f"{HEAD}\nA3C,10,-1\n", "'-1' is not an arrival"),
        (f'{HEAD}\n"A3C,10,0\n', "check its quotes"),
        (
            HEAD.replace(",", ";") + "\nA3C;10;0\n",
            "its columns are separated by semicolons; our own format uses commas",
        ),
        (HEAD.replace(",", "\t") + "\nA3C\t10\t0\n", "its columns are separated by tabs"),
        (f"{HEAD},wokers\nA3C,10,0,1\n", "column 'wokers' is not known; did you mean 'workers'?"),
        (f"{HEAD},entity\nA3C,10,0,a//b\n", "line 2, column 'entity': 'a//b' is not a path of names"),
        (f"{HEAD},workers\nA3C,10,0,2\n", "template 'A3C' has no throughputs with 2 workers; use one of: 1"),
        ("a,b\n1,2\n", "its format is not recognised; name it with --format"),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused_with_the_place_and_the_value(
    text: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    assert said in refusal(capsys, *SMALL, "--trace", str(file))


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("v100", "'v100' is not of the form type=count"),
        ("v100=²", "'v100=²' is not of the form type=count"),
        ("v100=1e3", "'v100=1e3' is not of the form type=count"),
        ("v100=4,,k80=4", "'' is not of the form type=count"),
        ("v100=4,v100=4", "type 'v100' is given twice"),
        ("v100=0,k80=0", "the cluster has no accelerators"),
        ("v100=0x8,k80=4", "'0x8' has no accelerators; leave it out, or give 1 or more of each"),
        ("v100=4x8+2,k80=4", "'v100=4x8+2': '2' is not of the form servers x size, for example 4x8"),
        ("v100=1000x1001", "is more than 1,000,000 accelerators"),
        ("v100=99999999999999", "is more than 1,000,000 accelerators"),
        ("V100=4", "no throughput is known for 'V100', a type of the cluster; did you mean 'v100'?"),
        ("tpu=4", "a type of the cluster; known: v100, p100, k80"),
    ],
)
def test_an_invalid_cluster_is_refused(cluster: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refusal(capsys, "simulate", "--cluster", cluster, "--static", "2")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--static", "99999999999"], "a workload has at most 10,000,000 jobs"),
        (["--static", "3", "--failures-per-server-day", "inf"], "--failures-per-server-day must be a finite number"),
        (["--static", "3", "--repair-hours", "inf"], "--repair-hours must be a finite number, not inf"),
        (["--static", "3", "--limit-days", "inf"], "--limit-days must be a finite number"),
        (["--static", "3", "--round-seconds", "nan"], "--round-seconds"),
        (["--jobs", "3", "--arrivals-per-hour", "nan"], "--arrivals-per-hour must be a finite number"),
        (["--static", "3", "--high-priority", "2"], "must be between 0 and 1, not 2"),
        (["--static", "3", "--templates", "qq"], "there is no template 'qq'; known are: "),
        (["--static", "3", "--reference", "h100"], "'h100' has no throughputs; use one of: v100"),
        (["--static", "3", "--window", "0:4"], "the window 0:4 does not lie within the 3 jobs"),
        (["--static", "3", "--throughputs", "trace.csv"], "trace.csv"),
        (["--static", "3", "--failures", "nowhere.csv"], "cannot read nowhere.csv"),
        (["--static", "3", "--entities", "a,/b"], "'/b' is not a path of names"),
    ],
)
def test_invalid_numbers_and_names_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capsys, *SMALL, *arguments)


def test_servers_may_have_different_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    figures = answer(capsys, "simulate", "--cluster", "v100=1x2+2x4,k80=6,p100=3x1", "--static", "3")
    offered = sum(figures[f"{part}_accelerator_hours"] for part in ("busy", "restart", "idle"))
    assert offered == pytest.approx((10 + 6 + 3) * figures["simulated_seconds"] / 3600.0)


def test_spaces_in_a_cluster_do_no_harm(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "simulate", "--cluster", " v100 = 2, k80 =2 ", "--static", "2")["jobs_completed"] == 2


def test_notes_say_which_jobs_were_not_done_and_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    lm = "LM (batch size 5)"
    file.write_text(f"{HEAD},workers\n{lm},10,99,8\nA3C,1e12,0,1\nA3C,1,1e9,1\nA3C,1000,500,1\n")
    document = answer(capsys, *SMALL, "--trace", str(file), "--limit-days", "2")
    assert document["jobs_completed"] == 1
    assert document["notes"] == [
        "arrivals were out of order; the jobs were sorted by arrival",
        "no type of the cluster can run job0 (8 workers); the simulation does not wait for them",
        "2 jobs were not done after 2 days, of which 1 had not arrived; raise --limit-days or lower the load",
    ]


def test_an_overloaded_cluster_is_given_up_at_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    overload = ["--jobs", "200", "--arrivals-per-hour", "100", "--limit-days", "2", "--window", "100:150"]
    document = answer(capsys, *SMALL, *overload)
    assert document["simulated_seconds"] == 2 * 86_400.0
    assert document["drained"] is False
    assert document["notes"][-1].endswith("not done after 2 days; raise --limit-days or lower the load")


def test_a_refused_run_leaves_no_directory_for_plots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refusal(capsys, *SMALL, "--static", "3", "--entities", "missing.json", "--plots", str(tmp_path / "plots"))
    assert not list(tmp_path.iterdir())


def test_variants_of_a_sweep_are_settings_of_an_experiment() -> None:
    for changed in VARIANTS.values():
        Experiment(cluster="v100=1", **changed)
