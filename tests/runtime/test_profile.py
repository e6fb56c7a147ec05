"""`gavel profile` with real processes on emulated accelerators: what it measures is what the emulation does."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from live_cluster import GAVEL, LiveCluster

from gavel.cli.app import run as gavel
from gavel.core.events import RatesProfiled, Solve
from gavel.core.throughputs import Condition, builtin_table, read_table, write_table
from gavel.estimator.fingerprint import profiling_plan
from gavel.estimator.learned import LearnedTable
from gavel.estimator.references import References
from gavel.journal.database import sqlite_url
from gavel.journal.store import Journal
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.profiling import Found, TrialTable
from gavel.runtime.server import ServeSettings, build_engine, fleet_for

SCALE = 4.0
TRAINING = """
from gavel import GavelIterator

steps = GavelIterator(range(1000), load_checkpoint=lambda folder: None, save_checkpoint=lambda folder: None)
while not steps.done:
    for _ in steps:
        pass
"""
PARTNER = "LM (batch size 80)"


@pytest.fixture
def set_aside(tmp_path: Path) -> Iterator[LiveCluster]:
    """Workers for a scheduler that `gavel profile` will be."""
    cluster = LiveCluster(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        cluster.address = f"127.0.0.1:{probe.getsockname()[1]}"
    (tmp_path / "train.py").write_text(TRAINING)
    partner = {"command": [sys.executable, str(tmp_path / "train.py")], "template": PARTNER}
    (tmp_path / "partner.json").write_text(json.dumps(partner))
    cluster.start_agent("one", "v100=2", SCALE)
    cluster.start_agent("two", "k80=1", SCALE)
    yield cluster
    cluster.__exit__()


def profiled(cluster: LiveCluster, *options: str, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GAVEL, "profile", "--listen", cluster.address, *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def test_rates_alone_and_together_are_measured_and_written(
    set_aside: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = set_aside.folder
    out, command = folder / "mine.json", (sys.executable, str(folder / "train.py"))
    options = ("--template", "A3C", "--types", "v100,k80", "--beside", str(folder / "partner.json"))
    done = profiled(set_aside, *options, "--seconds", "3", "--out", str(out), "--json", command=command)
    assert done.returncode == 0, done.stderr + set_aside.everything()
    assert json.loads(done.stdout)["notes"] == []
    found, truth = read_table(out), builtin_table()
    assert found.profiles == (("A3C", 1), (PARTNER, 1))
    for kind in ("v100", "k80"):
        for profile in found.profiles:
            true = truth.rates([profile], [kind])[0, 0, 0] * SCALE
            assert found.rates([profile], [kind])[0, 0, 0] == pytest.approx(true, rel=0.15)
        true_pair = [rate * SCALE for rate in truth.together(*found.profiles, kind)]
        assert found.together(*found.profiles, kind) == pytest.approx(true_pair, rel=0.15)
    assert gavel(["estimate", "A3C", "--throughputs", str(out), "--references", "builtin", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured_figures"] == 4


def test_a_command_that_crashes_is_told_in_a_sentence_and_nothing_is_written(set_aside: LiveCluster) -> None:
    out = set_aside.folder / "mine.json"
    options = ("--template", "mine", "--types", "k80", "--seconds", "1", "--out", str(out))
    done = profiled(set_aside, *options, command=(sys.executable, "-c", "raise SystemExit(3)"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("gavel: nothing was measured; mine on k80: ")
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "say what to measure"),
        (("--", "true"), "name each type once"),
        (("--out", "/nowhere/at/all.json", "--", "true"), "there is no directory"),
        (("--beside", "nothing.yaml", "--", "true"), "cannot read nothing.yaml"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    types = "v100,v100" if options == ("--", "true") else "v100"
    given = ["profile", "--template", "t", "--types", types, "--out", str(tmp_path / "t.json"), *options]
    assert gavel(given) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1


def test_a_trial_table_packs_every_pair_and_records_reports() -> None:
    table = TrialTable()
    table.admit("v100")
    first, second, rates = table.pairs([("a", 1), ("b", 1)], table.types)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 1)]
    assert (rates > table.rates([("a", 1)], table.types).max()).all()
    assert not table.learn(Condition("a", 1, "v100"), 3.0)
    assert not table.learn(Condition("a", 1, "v100"), float("nan"))
    assert table.reports == {Condition("a", 1, "v100"): [3.0]}


def test_a_pair_of_which_one_side_is_missing_cannot_share() -> None:
    found = Found({Condition("a", 1, "v100"): 2.0, Condition("b", 1, "v100"): 2.0})
    found.rates[Condition("a", 1, "v100", beside="b")] = 1.0
    table = found.table(["a", "b", "a"], ["v100"])
    assert table.profiles == (("a", 1), ("b", 1))
    assert table.together(("a", 1), ("b", 1), "v100") == (0.0, 0.0)


def test_a_scheduler_begins_with_what_was_profiled_and_keeps_it(tmp_path: Path) -> None:
    write_table(builtin_table().only({"A3C", PARTNER}), tmp_path / "mine.json")
    base = builtin_table().only(set(builtin_table().templates) - {"A3C"})
    write_table(base, tmp_path / "base.json")
    settings = ServeSettings(throughputs=str(tmp_path / "base.json"), profiled=(str(tmp_path / "mine.json"),))
    with Journal.open(sqlite_url(tmp_path / "journal"), holder="test") as journal:
        table = build_engine(settings, journal).scheduler.table
        assert isinstance(table, LearnedTable)
        truth = builtin_table().together(("A3C", 1), (PARTNER, 1), "v100")[0]
        assert table.believed(Condition("A3C", 1, "v100", beside=PARTNER)) == pytest.approx(truth)
        engine = build_engine(settings, journal)
        engine.keep_state()
    with Journal.open(sqlite_url(tmp_path / "journal"), holder="test") as journal:
        again = build_engine(settings, journal).scheduler.table
        assert isinstance(again, LearnedTable)
        assert again.document() == table.document()


class Idle:
    """A world in which no time passes."""

    def ask(self, solve: Solve) -> None:
        pass

    def wake(self, at: float) -> None:
        pass

    def hurry(self) -> None:
        pass


@pytest.mark.parametrize("keeps_state", [False, True])
def test_estimates_and_confidence_are_in_the_journal_and_survive_a_restart(tmp_path: Path, keeps_state: bool) -> None:
    truth, new = builtin_table(), "LM (batch size 20)"
    base = truth.only(set(truth.templates) - {new})
    write_table(base, tmp_path / "base.json")
    settings = ServeSettings(throughputs=str(tmp_path / "base.json"), space_sharing=True)
    with Journal.open(sqlite_url(tmp_path / "journal"), holder="test") as journal:
        engine = build_engine(settings, journal)
        engine.begin(Idle(), fleet_for(engine, FleetSettings()))
        for kind in truth.types:
            engine.post(RatesProfiled(1.0, new, kind, float(truth.rates([(new, 1)], [kind])[0, 0, 0])))
        for partner, kind in profiling_plan(References.of(base)):
            mine, its = truth.together((new, 1), (partner, 1), kind)
            engine.post(RatesProfiled(2.0, new, kind, mine, partner, its))
        engine.take_in()
        before = engine.scheduler.table
        if keeps_state:
            engine.keep_state()
    with Journal.open(sqlite_url(tmp_path / "journal"), holder="test") as journal:
        after = build_engine(settings, journal).scheduler.table
    assert after.document() == before.document()
    assert after.document()["resembles"][new]["confidence"] > 0.5
    profiles = [(new, 1), *base.profiles]
    estimated = [table.pairs(profiles, truth.types) for table in (before, after)]
    assert 0 in estimated[0][0], "it is packed by its estimates"
    for ours, theirs in zip(*estimated, strict=True):
        assert np.array_equal(ours, theirs)
