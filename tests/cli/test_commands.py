"""The commands as a user runs them: what they print, and how they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gavel.cli.app import run
from gavel.policies.registry import POLICIES
from gavel.version import __version__

EXAMPLES = Path(__file__).parents[2] / "examples"
THREE = str(EXAMPLES / "three-jobs.json")
TEAMS = str(EXAMPLES / "teams.json")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json"))
    return document


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gavel: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_policies_lists_every_policy_with_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    listed = answer(capsys, "policies")["policies"]
    assert [policy["name"] for policy in listed] == list(POLICIES)
    assert all(policy["description"] for policy in listed)
    text = printed(capsys, "policies")
    assert all(name in text for name in POLICIES)


def test_allocate_prints_the_documented_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "allocate", THREE, "--policy", "max_min_fairness")
    assert document["policy"] == "max_min_fairness"
    assert document["objective"] == pytest.approx(8 / 11)
    assert document["gap"] <= 1e-6
    assert document["allocation"][0] == {"jobs": ["resnet"], "shares": pytest.approx({"v100": 5 / 11, "k80": 0.0})}
    assert document["throughput"]["resnet"] == pytest.approx(20 / 11)
    assert set(document["prices"]) == {"v100", "k80"}
    assert document["limits"]["a3c"] == {"kind": "saturated"}
    assert document["solve_seconds"] > 0


def test_pairs_take_part_only_with_space_sharing(capsys: pytest.CaptureFixture[str]) -> None:
    alone = answer(capsys, "allocate", THREE)
    shared = answer(capsys, "allocate", THREE, "--space-sharing")
    assert all(len(row["jobs"]) == 1 for row in alone["allocation"])
    assert [row["jobs"] for row in shared["allocation"] if len(row["jobs"]) == 2] == [["gan", "a3c"]]
    assert shared["objective"] > alone["objective"]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "allox"])
def test_every_policy_answers_a_hierarchy_of_templates(
    policy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    problem = json.loads(Path(TEAMS).read_text())
    for job in problem["jobs"]:
        job["steps"] = 1000
    file = tmp_path / "teams.json"
    file.write_text(json.dumps(problem))
    document = answer(capsys, "allocate", str(file), "--policy", policy, "--space-sharing")
    assert set(document["throughput"]) == {job["id"] for job in problem["jobs"]}


def test_explain_says_what_limits_each_job_and_what_each_type_is_worth(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "allocate", THREE, "--explain")
    assert "limited by v100" in text
    assert "has all of its time" in text
    assert "one more raises the objective by" in text
    assert "lowers" in printed(capsys, "allocate", THREE, "--explain", "--policy", "makespan")


def test_the_answer_of_a_placement_sensitive_job_says_how_much_is_consolidated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "placed.json"
    rates = {"v100": {"consolidated": 4.0, "unconsolidated": 2.0}}
    jobs = [{"id": name, "workers": 3, "rates": rates} for name in ("a", "b", "c")]
    file.write_text(json.dumps({"types": {"v100": {"count": 9, "servers": [4, 5]}}, "jobs": jobs}))
    rows = answer(capsys, "allocate", str(file))["allocation"]
    assert sum(row["consolidated"]["v100"] for row in rows) == pytest.approx(2.0)
    assert sum(row["shares"]["v100"] for row in rows) == pytest.approx(3.0)
    assert "c: with all workers" in printed(capsys, "allocate", str(file))


def test_agnostic_is_never_better_than_aware(capsys: pytest.CaptureFixture[str]) -> None:
    aware = answer(capsys, "allocate", THREE)
    agnostic = answer(capsys, "allocate", THREE, "--agnostic")
    assert agnostic["objective"] < aware["objective"]
    assert agnostic["bound"] == pytest.approx(aware["bound"])
    assert agnostic["notes"]


def test_a_deadline_that_cannot_be_met_is_reported_and_does_not_fail(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "late.json"
    jobs = [
        {"id": "late", "rates": {"v100": 1.0}, "steps": 1000, "deadline_seconds": 10},
        {"id": "fine", "rates": {"v100": 1.0}, "steps": 10, "deadline_seconds": 1000},
    ]
    file.write_text(json.dumps({"types": {"v100": {"count": 1}}, "jobs": jobs}))
    document = answer(capsys, "allocate", str(file), "--policy", "min_cost_slo")
    assert document["unmet_deadlines"] == ["late"]
    assert document["throughput"]["fine"] >= 0.01 * (1 - 1e-6)
    assert "late" in printed(capsys, "allocate", str(file), "--policy", "min_cost_slo")


def test_bench_times_estimates_and_what_they_add_to_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--references", "300", "--jobs", "10", "--cluster", "v100=2,p100=2,k80=2", "--repeat", "1")
    measured = answer(capsys, "bench", "estimator", *few)
    assert measured["estimate_seconds"] > 0
    assert {"plan_seconds", "round_known_milliseconds", "added_percent"} <= measured.keys()


def test_bench_times_a_generated_problem_beside_the_textbook(capsys: pytest.CaptureFixture[str]) -> None:
    measured = answer(capsys, "bench", "policies", "--jobs", "24", "--space-sharing", "--against", "textbook")
    assert measured["objective"] == pytest.approx(measured["textbook_objective"], rel=1e-4)
    assert measured["speedup"] == pytest.approx(measured["textbook_seconds"] / measured["solve_seconds"])


def test_the_demo_runs_real_processes_to_their_end_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(capsys, "demo", "--jobs", "3", "--seconds", "2")
    assert {job["state"] for job in result["jobs"]} == {"completed"}
    assert len(result["jobs"]) >= 3
    assert all(sum(job["received_seconds"].values()) > 0 for job in result["jobs"])
    assert result["simulated_average_jct_seconds"] < result["simulated_agnostic_average_jct_seconds"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["allocate", "nowhere.json"], "cannot read nowhere.json: no such file"),
        (["allocate", THREE, "--policy", "max_min"], "there is no policy 'max_min'; did you mean max_min_fairness"),
        (["allocate", THREE, "--policy", "xyzzy"], "`gavel policies` lists them all"),
        (["allocate", THREE, "--throughputs", "nowhere.json"], "nowhere.json"),
        (["allocate", THREE, "--plicy", "fifo"], "--policy"),
        (["allocate"], "PROBLEM.json"),
        (["bench", "policies", "--jobs", "0"], "--jobs"),
        (["bench", "policies", "--jobs", "x"], "--jobs"),
        (["bench", "policies", "--jobs", "8", "--against", "luck"], "'textbook'"),
        (["bench", "policies", "--jobs", "2000", "--own-rates", "--space-sharing"], "up to 1000"),
        (["verify", "-", "-"], "only one of the two files"),
        (["verify", THREE, THREE], "not an answer of gavel allocate --json"),
        (["verify", "nowhere.json", THREE], "nowhere.json"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capsys, *arguments)


def test_a_bug_in_gavel_is_one_sentence_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("gavel.cli.allocate.allocate", broken)
    assert run(["allocate", THREE]) == 1
    assert "ZeroDivisionError('oops')" in capsys.readouterr().err


def test_a_bad_problem_names_file_field_and_value(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text('{"types": {"v100": {"count": 1}}, "jobs": [{"id": "a", "rates": {"v100": -2}}]}')
    assert refusal(capsys, "allocate", str(file)).endswith("job 'a'.rates.v100 must be at least 0, not -2\n")
    file.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(capsys, "allocate", str(file))


def test_the_installed_command_reads_standard_input_and_has_no_traceback() -> None:
    def gavel(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "gavel"), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    good = gavel("allocate", "-", "--json", text=Path(THREE).read_text())
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["policy"] == "max_min_fairness"
    bad = gavel("allocate", "-", text="{")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("gavel: standard input: not valid JSON")
    assert gavel("--version", text="").stdout.startswith("gavel 0.")


def test_the_package_is_the_command() -> None:
    said = subprocess.run([sys.executable, "-m", "gavel", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"gavel {__version__}\n"


def test_an_answer_is_verified_and_a_changed_one_is_not(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = answer(capsys, "allocate", TEAMS, "--policy", "hierarchical")
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(document))
    text = printed(capsys, "verify", str(file), TEAMS)
    assert "checked: the bound follows from" in text
    assert "hierarchical: no faults found" in text
    assert answer(capsys, "verify", str(file), TEAMS)["ok"] is True
    document["throughput"][next(iter(document["throughput"]))] *= 1.5
    file.write_text(json.dumps(document))
    assert run(["verify", str(file), TEAMS]) == 1
    assert "WRONG: the throughput of" in capsys.readouterr().out


def test_the_document_has_stages_and_for_each_job_its_stage_and_limit(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "allocate", TEAMS, "--policy", "hierarchical")
    stages = document["stages"]
    assert [stage["value"] for stage in stages] == sorted(stage["value"] for stage in stages)
    for name, job in document["jobs"].items():
        assert name in stages[job["stage"]]["stopped"]
        assert job["limit"] == document["limits"][name]
    for stage in stages:
        assert set(stage) == {"kind", "value", "bound", "gap", "prices", "stopped", "worth", "time_worth"}


def test_explain_shows_every_stage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    problem = {
        "types": {"v100": {"count": 1}, "k80": {"count": 1}},
        "jobs": [{"id": name, "rates": {kind: 1.0}} for name, kind in (("a", "v100"), ("b", "v100"), ("c", "k80"))],
    }
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(problem))
    text = printed(capsys, "allocate", str(file), "--policy", "max_min_fairness_water_filling", "--explain")
    assert "level of jobs that still rise" in text
    assert [line.split()[-1] for line in text.splitlines() if line[:3] in {"a  ", "b  ", "c  "}][-3:] == ["1", "1", "2"]


def test_jobs_that_all_differ_and_share_accelerators_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("bench", "policies", "--policy", "makespan", "--jobs", "1200", "--distinct", "--space-sharing")
    assert answer(capsys, *arguments, "--repeat", "1", "--accelerators", "30")["gap"] <= 1e-6


def test_a_time_limit_is_reported_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "policies", "--jobs", "2000", "--distinct", "--limit-seconds", "0.001", "--repeat", "1"]) == 1
    assert "time limit of 0.001 s" in capsys.readouterr().err
