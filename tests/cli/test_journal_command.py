"""`gavel journal` as an operator runs it: what it prints, and how it refuses."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gavel.cli.app import run
from gavel.client.requests import Submission
from gavel.core.events import JobCancelled
from gavel.journal import Journal, sqlite_url
from gavel.runtime.events import JobsSubmitted
from gavel.runtime.server import ServeSettings, build_engine, fleet_for, open_journal

START = 1_700_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="here") as journal:
        for number in range(1, 7):
            kind = "job_queued" if number % 2 else "job_launched"
            journal.append(
                [{"kind": kind, "time": START + number, "job": str(number % 3), "server": "s1", "x": number}]
            )
        journal.keep({"facts": 4}, 4)
    return tmp_path


def damage(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
        database.execute("UPDATE facts SET time = 1 WHERE number = 5")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(["journal", *arguments]) == code
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json", code=code))
    return document


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["journal", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_check_says_that_a_journal_is_undamaged(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "intact: facts 1 to 6" in printed(capsys, "check", str(folder))
    report = answer(capsys, "check", str(folder / "journal.sqlite"))
    assert (report["whole"], report["last"], report["kept"]) == (True, 6, [4])


def test_check_says_what_is_damaged(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    damage(folder)
    said = printed(capsys, "check", str(folder), code=1)
    assert "damaged: fact 5 does not match its checksum" in said
    assert "intact: facts 1 to 4" in said
    assert answer(capsys, "check", str(folder), code=1)["intact"] == 4


def test_check_works_beside_a_scheduler(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with Journal.open(sqlite_url(folder / "journal.sqlite"), holder="here") as journal:
        journal.append([{"kind": "tick", "time": START + 7}])
        assert answer(capsys, "check", str(folder))["last"] == 7


def test_salvage_writes_an_undamaged_journal(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    damage(folder)
    new = folder / "new.sqlite"
    said = printed(capsys, "salvage", str(folder), "--to", str(new))
    assert "saved facts 1 to 4" in said
    assert "2 are lost" in said
    assert answer(capsys, "check", str(new))["whole"]
    assert "already" in refusal(capsys, "salvage", str(folder), "--to", str(new))


class Idle:
    """A world in which no time passes."""

    def ask(self, solve: object) -> None:
        pass

    def wake(self, at: float) -> None:
        pass

    def hurry(self) -> None:
        pass


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """The folder of a scheduler with two jobs, of which the first was cancelled."""
    settings = ServeSettings(folder=tmp_path)
    now = [START]
    with open_journal(settings) as journal:
        engine = build_engine(settings, journal, clock=lambda: now[0])
        engine.begin(Idle(), fleet_for(engine, settings.fleet))
        requests = tuple(Submission(command=("train",), name=name, template="mine") for name in ("one", "two"))
        for event in (JobsSubmitted(START, requests, "key"), JobCancelled(START, "1")):
            now[0] += 10.0
            engine.post(event)
            engine.take_in()
    return tmp_path


def test_show_prints_the_facts_of_a_job(capsys: pytest.CaptureFixture[str], lab: Path) -> None:
    said = printed(capsys, "show", str(lab), "--job", "1")
    assert "job 1 (one) was submitted: mine" in said
    assert "job 1 cancelled: cancelled" in said
    assert "job 2" not in said
    facts = answer(capsys, "show", str(lab), "--job", "1", "--limit", "1")["facts"]
    assert [fact["document"]["fact"]["outcome"] for fact in facts] == ["cancelled"]


def test_show_stops_at_a_number_or_a_time(capsys: pytest.CaptureFixture[str], lab: Path) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(START + 15))
    for at in ("4", moment):
        found = answer(capsys, "show", str(lab), "--at", at)
        assert [fact["number"] for fact in found["facts"]] == [1, 2, 3, 4]
        assert found["at"] == 4
    assert [fact["kind"] for fact in answer(capsys, "show", str(lab), "--since", moment)["facts"]] == ["job_ended"]
    assert answer(capsys, "show", str(lab), "--since", "1h")["facts"] == []


def test_show_prints_the_state_at_a_time(capsys: pytest.CaptureFixture[str], lab: Path) -> None:
    before, after = (answer(capsys, "show", str(lab), "--at", number)["state"]["jobs"] for number in ("4", "5"))
    assert [(job["id"], job["state"]) for job in before] == [("1", "queued"), ("2", "queued")]
    assert [(job["id"], job["state"]) for job in after] == [("1", "cancelled"), ("2", "queued")]
    assert "queued" in printed(capsys, "show", str(lab), "--at", "4")


def test_compact_removes_what_is_old(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert answer(capsys, "compact", str(folder)) == {"facts": 4, "states": 0, "finished": 0, "learned": 0}
    assert [fact["number"] for fact in answer(capsys, "show", str(folder))["facts"]] == [5, 6]
    assert "the facts 5 to 6" in refusal(capsys, "show", str(folder), "--at", "3")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["check", "nowhere"], "no journal"),
        (["check", "mysql://x/y"], "mysql"),
        (["show", "{folder}", "--at", "noon"], "not a time"),
        (["show", "{folder}", "--at", "99"], "1 to 6"),
        (["show", "{folder}", "--at", "1999-01-01"], "that early"),
        (["show", "{folder}", "--since", "3 weeks"], "not a time"),
        (["salvage", "nowhere", "--to", "x"], "no journal"),
        (["salvage", "{folder}"], "--to"),
        (["compact", "{folder}", "--journal-days", "0"], "--journal-days"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], reason: str
) -> None:
    assert reason in refusal(capsys, *(argument.format(folder=folder) for argument in arguments))
