"""`gavel bench fleet` from end to end, with a scheduler and agents small enough for a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gavel.bench.fleet.admission import User, secure
from gavel.bench.fleet.load import SCENARIOS
from gavel.bench.fleet.login import read_key_pairs
from gavel.bench.live import TARGETS
from gavel.cli.app import run

TINY = (
    *("bench", "fleet", "--agents", "3", "--accelerators-per-agent", "2", "--jobs", "20", "--round-seconds", "1"),
    *("--job-seconds", "0.2:1", "--seconds", "3", "--templates", "4", "--watchers", "2", "--finished", "30"),
)


def children(of: int) -> set[int]:
    return {int(pid) for pid in Path(f"/proc/{of}/task/{of}/children").read_text().split()}


def test_a_small_fleet_is_measured_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    before = children(os.getpid())
    assert run([*TINY, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert "trouble" not in measured
    assert measured["agents_connected"] == measured["agents_expected"] == 3
    assert measured["completions_per_second"] > 0
    assert measured["rounds"] >= 1
    assert measured["missed_leases"] == measured["connections_lost"] == measured["calls_failed"] == 0
    assert 0 < measured["share_of_a_core"] < 2
    assert 0 < measured["call_p50_seconds"] <= measured["stall_longest_seconds"]
    assert measured["watchers_caught_up"] == measured["watchers"] == 2
    assert measured["changes_seen"] > 0
    assert measured["jobs_command_seconds"] > measured["jobs_call_seconds"] > 0
    assert measured["peak_memory_mb"] >= measured["memory_mb"] > 10
    assert children(os.getpid()) <= before


@pytest.mark.parametrize("how", [[], ["--at-once"]], ids=["in turn", "at once"])
def test_an_open_and_a_secured_scheduler_are_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    before = children(os.getpid())
    assert run([*TINY, "--seconds", "2", "--finished", "5", "--secure", "--repeat", "1", *how, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert "trouble" not in compared
    (pair,) = compared["pairs"]
    for figures in (pair["open"], pair["secured"]):
        assert figures["agents_connected"] == figures["watchers_caught_up"] + 1 == 3
        assert figures["calls_failed"] == figures["refusals"] == figures["connections_lost"] == 0
        assert figures["completions_per_second"] > 0
        assert figures["jobs_command_seconds"] > 0
    assert compared["cpu_ratio"] == pair["secured"]["share_of_a_core"] / pair["open"]["share_of_a_core"]
    assert compared["added_call_p50_seconds"] == (
        pair["secured"]["call_p50_seconds"] - pair["open"]["call_p50_seconds"]
    )
    assert children(os.getpid()) <= before
    assert list(tmp_path.iterdir()) == []  # the contexts of the user are not touched


def test_a_secured_benchmark_keeps_tokens_and_keys_private(tmp_path: Path) -> None:
    admission = secure(tmp_path, tmp_path / "state", ["agent0", "agent1"])
    pairs = Path(admission.key_pairs)
    assert pairs.stat().st_mode & 0o777 == 0o600
    assert set(read_key_pairs(admission.key_pairs)) == {"agent0", "agent1"}
    assert all(token.startswith("gvl_") for token in admission.tokens.values())
    assert not any(token in repr(admission) for token in admission.tokens.values())
    assert admission.environment(User.SUBMITTER)["GAVEL_TOKEN"] == admission.tokens[User.SUBMITTER]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_benchmark_that_is_interrupted_leaves_no_process_behind(number: int) -> None:
    program = [sys.executable, "-c", "from gavel.cli.app import main; main()", *TINY, "--seconds", "600"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as bench:
        assert bench.stderr is not None
        next(line for line in bench.stderr if line.startswith(b"measuring"))
        started = children(bench.pid)
        assert len(started) >= 5  # a scheduler, a prober, agents, watchers
        bench.send_signal(number)
        bench.wait(60)
        bench.stderr.read()
    deadline = time.monotonic() + 30
    while alive := [pid for pid in started if _runs(pid)]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        os.sched_yield()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_scenario_has_a_row_with_targets_in_the_table() -> None:
    assert set(SCENARIOS) <= set(TARGETS)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--scenario", "250-agent"], "'250-agents'"),
        (["--job-seconds", "5"], "FROM:TO"),
        (["--job-seconds", "9:5"], "the shorter one first"),
        (["--repeat", "2"], "add --secure"),
        (["--at-once"], "add --secure"),
    ],
)
def test_an_invalid_load_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], named: str) -> None:
    assert run(["bench", "fleet", *arguments]) == 2
    assert named in capsys.readouterr().err
