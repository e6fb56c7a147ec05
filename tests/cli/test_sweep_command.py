"""`gavel sweep` and `gavel simulate --plots` as a user runs them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gavel.cli.app import run

GAVEL = str(Path(sys.executable).parent / "gavel")
SMALL = ["sweep", "--cluster", "v100=2,k80=2", "--limit-days", "60", "--workers", "1"]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gavel: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_sweep_prints_a_table_and_leaves_results_and_plots(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    compared = "max_min_fairness,fifo:space-sharing"
    arguments = [*SMALL, "--policies", compared, "--static", "6", "--seeds", "0,1", "--out", str(tmp_path)]
    assert run(arguments) == 0
    first = capsys.readouterr()
    assert "max_min_fairness" in first.out
    assert "fifo:space-sharing" in first.out
    assert first.out.count("±") == 2
    assert "4/4 " in first.err
    for name in ("results.csv", "completions.csv", "report.html", "jct.png", "cdf.png", "figures.png"):
        assert (tmp_path / name).stat().st_size > 100
    assert run([*arguments, "--json"]) == 0
    again = capsys.readouterr()
    document: dict[str, Any] = json.loads(again.out)
    assert (document["points"], document["already_known"], document["failed"]) == (4, 4, [])
    assert [(row["policy"], row["load"]) for row in document["averages"]] == [
        ("max_min_fairness", 6.0),
        ("fifo:space-sharing", 6.0),
    ]
    assert all(row["average_jct_seconds"] > 0 for row in document["averages"])
    assert again.err == f"gavel: 4 of 4 points are already in {tmp_path / 'results.csv'}\n"


def test_a_failed_point_is_reported_beside_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*SMALL, "--static", "8", "--out", str(tmp_path), "--json", "--policies"]
    assert run([*arguments, "fifo"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))  # every process ends before it has an answer
    assert run([*arguments, "allox,fifo"]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert [row["policy"] for row in document["averages"]] == ["fifo"]
    assert "its process ended" in document["failed"][0]["reason"]
    assert "failed: allox, 8 jobs, seed 0: " in captured.err
    assert captured.err.endswith("gavel: 1 of 2 points failed; the same command tries them again\n")


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, after = stat.read_text().rpartition(") ")
        except OSError:
            continue  # it has ended
        if int(after.split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def test_ctrl_c_says_how_to_resume_and_leaves_no_process(tmp_path: Path) -> None:
    arguments = [*SMALL, "--loads", "0.2", "--jobs", "40", "--seeds", ",".join(map(str, range(200)))]
    with subprocess.Popen([GAVEL, *arguments, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True) as sweep:
        assert sweep.stderr is not None
        assert sweep.stderr.readline().startswith("1/200 ")
        workers = children(sweep.pid)
        assert workers
        sweep.send_signal(signal.SIGINT)
        code = sweep.wait(timeout=10)
        said = sweep.stderr.read().splitlines()[-1]
    assert code == 130
    assert said == f"gavel: interrupted; run the same command again to resume from {tmp_path / 'results.csv'}"
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policies", "fifi", "--static", "4"], "there is no policy 'fifi'; did you mean fifo?"),
        (["--policies", "fifo:packed", "--static", "4"], "there is no variant 'packed'; the variants are agnostic"),
        (["--policies", "fifo:", "--static", "4"], "there is no variant ''"),
        (["--policies", ",", "--static", "4"], "--policies is empty"),
        (["--static", ""], "--static is empty"),
        (["--loads", "2,x", "--jobs", "5"], "--loads 2,x: give numbers"),
        (["--loads", "0,1", "--jobs", "5"], "a load of 0 makes no sense"),
        (["--loads", "-1", "--jobs", "5"], "a load of -1 makes no sense"),
        (["--static", "2.5"], "a whole number of jobs"),
        (["--static", "4", "--seeds", "-1"], "-1 is less than 0"),
        (["--static", "4", "--seeds", "1.5"], "--seeds 1.5: give numbers"),
        (["--loads", "2"], "--loads needs --jobs"),
        (["--static", "4", "--jobs", "4"], "--static needs none"),
        (["--jobs", "4"], "give either --loads"),
        (["--loads", "1", "--static", "1"], "give either --loads"),
        (["--static", "4", "--window", "3:9"], "the window 3:9 does not lie within the 4 jobs"),
        (["--static", "4", "--throughputs", "nowhere.json"], "nowhere.json"),
        (["--static", "4", "--workers", "0"], "--workers"),
        (["--static", "4", "--seeds", "0,4", "--multi-worker", "--policies", "fifo,allox"], "single-worker jobs only"),
        (["--static", "4", "--policies", "fifo,min_cost:normalised,fifo:normalised"], "--normalised is for max_thr"),
        (["--static", "4", "--policies", "fifo,fifo:plain+ideal"], "without a mechanism; leave out plain"),
        (["--static", "4", "--policies", "fifo:plain", "--ideal"], "without a mechanism; leave out plain"),
        (["--static", "4", "--failures", "nowhere.csv"], "cannot read nowhere.csv"),
        (["--static", "4", "--entities", "nowhere.json"], "cannot read nowhere.json"),
        (["--static", "4", "--slo", "0"], "an SLO factor must be greater than 0"),
    ],
)
def test_a_wrong_sweep_is_one_sentence_and_leaves_nothing(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert said in refusal(capsys, *SMALL, *arguments, "--out", str(out))
    assert not out.exists()


def test_an_out_that_cannot_take_the_results_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert "it is a file; give another --out" in refusal(capsys, *SMALL, "--static", "4", "--out", str(file))
    theirs = "policy,load\nfifo,1"
    (tmp_path / "results.csv").write_text(theirs)
    assert "lacks the columns point" in refusal(capsys, *SMALL, "--static", "4", "--out", str(tmp_path))
    assert file.read_text() == "mine"
    assert (tmp_path / "results.csv").read_text() == theirs
    assert {path.name for path in tmp_path.iterdir()} == {"file", "results.csv"}


def test_a_sweep_compares_with_the_ideal_under_failures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "failures.csv").write_text("seconds,event,server\n1000,lost,v100-0\n90000,joined,v100-0\n")
    failing = ["--failures", str(tmp_path / "failures.csv"), "--entities", "a,b", "--out", str(tmp_path / "out")]
    compared = ["--policies", "hierarchical,hierarchical:ideal", "--static", "6", "--json"]
    assert run([*SMALL, *compared, *failing]) == 0
    rounds, ideal = json.loads(capsys.readouterr().out)["averages"]
    assert ideal["jobs_completed"] == rounds["jobs_completed"] == 6
    assert ideal["restarts_per_job"] == 0.0 < rounds["restarts_per_job"]
    # The ideal is not a bound: rounds let jobs that are nearly done finish first, which is better on average.
    assert ideal["average_jct_seconds"] == pytest.approx(rounds["average_jct_seconds"], rel=0.15)


def test_simulate_writes_plots_beside_its_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["simulate", "--cluster", "v100=2,k80=2", "--static", "8", "--json"]
    assert run(arguments) == 0
    alone = json.loads(capsys.readouterr().out)
    assert run([*arguments, "--plots", str(tmp_path / "plots")]) == 0
    watched = json.loads(capsys.readouterr().out)
    assert watched["average_jct_seconds"] == alone["average_jct_seconds"]
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert names == {
        *(f"{name}.png" for name in ("utilisation", "cdf", "received", "convergence", "gantt")),
        "report.html",
    }
    (tmp_path / "file").touch()
    assert "it is a file" in refusal(capsys, *arguments, "--plots", str(tmp_path / "file"))


def test_other_commands_do_not_load_the_plotting_library() -> None:
    code = "import sys, gavel.cli.app; sys.exit(any(name.startswith('matplotlib') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
