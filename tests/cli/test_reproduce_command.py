"""`gavel reproduce` as a user runs it."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.cli.app import run
from gavel.core.throughputs import builtin_table, write_table
from gavel.reproduce.study import all_studies
from gavel.sim.results import digest

GAVEL = str(Path(sys.executable).parent / "gavel")


def test_without_a_name_it_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in all_studies())
    assert run(["reproduce", "--json"]) == 0
    assert [study["name"] for study in json.loads(capsys.readouterr().out)["studies"]] == list(all_studies())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["las-singel"], "there is no study 'las-singel'; did you mean las-single?"),
        (["all", "nothing"], "there is no study 'nothing'; there are: worked-examples"),
        (["las-single", "--quick", "--full"], "exclude each other"),
        (["worked-examples", "--throughputs", "nowhere.json"], "nowhere.json"),
        (["las-single", "--workers", "0"], "--workers"),
        (["worked-examples", "--out", "/dev/null"], "give another --out"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_begins(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", *arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("gavel: ")
    assert said in captured.err
    assert not list(tmp_path.iterdir())


def test_a_study_prints_its_claims_and_leaves_a_page_and_is_not_run_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ["reproduce", "worked-examples", "heterogeneity-bars", "--out", str(tmp_path)]
    assert run(command) == 0
    first = capsys.readouterr()
    assert "9 of 9 claims hold, 0 fail" in first.out
    assert "2/2 " in first.err
    assert {"claims.csv", "report.html", "heterogeneity-bars.png", "heterogeneity-bars.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert "gavel reproduce worked-examples heterogeneity-bars --quick" in (tmp_path / "report.html").read_text()
    assert run([*command, "--json"]) == 0
    again = capsys.readouterr()
    assert again.err == "gavel: 2 of 2 steps are already done\n"
    assert {claim["verdict"] for claim in json.loads(again.out)["claims"]} == {"holds"}


def test_results_of_another_table_with_the_same_name_are_measured_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.json"
    command = ["reproduce", "heterogeneity-bars", "--out", str(tmp_path / "out"), "--throughputs", str(file)]
    write_table(builtin_table(), file)
    assert run(command) == 0
    file.write_text(file.read_text() + "\n")
    digest.cache_clear()  # as in a new process
    assert run(command) == 0
    assert "done before" not in capsys.readouterr().err


def test_an_interrupted_study_resumes_where_it_stopped(tmp_path: Path) -> None:
    command = [GAVEL, "reproduce", "estimator", "--out", str(tmp_path), "--workers", "1"]
    for done in (0, 1):
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            assert process.stderr is not None
            if done:
                assert process.stderr.readline() == "gavel: 1 of 6 steps are already done\n"
            assert process.stderr.readline().startswith(f"{done + 1}/6 estimator: none at ")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 130
            said = process.stderr.read().splitlines()[-1]
        assert said == f"gavel: interrupted; run the same command again to resume from {tmp_path}"
        with (tmp_path / "results.csv").open() as file:
            assert len(list(csv.DictReader(file))) == done + 1
