"""`gavel journal` as an operator runs it: what it prints, and how it refuses."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gavel.cli import journal as command
from gavel.cli.app import run
from gavel.journal import Journal, sqlite_url

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


def test_check_says_that_a_journal_is_whole(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "intact: facts 1 to 6" in printed(capsys, "check", str(folder))
    report = answer(capsys, "check", str(folder / "journal.sqlite"))
    assert (report["whole"], report["last"], report["kept"]) == (True, 6, [4])


def test_check_says_what_is_damaged(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    damage(folder)
    said = printed(capsys, "check", str(folder), code=1)
    assert "damaged: fact 5 is not what was written" in said
    assert "intact: facts 1 to 4" in said
    assert answer(capsys, "check", str(folder), code=1)["intact"] == 4


def test_check_works_beside_a_scheduler(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    with Journal.open(sqlite_url(folder / "journal.sqlite"), holder="here") as journal:
        journal.append([{"kind": "tick", "time": START + 7}])
        assert answer(capsys, "check", str(folder))["last"] == 7


def test_salvage_writes_a_journal_that_is_whole(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    damage(folder)
    new = folder / "new.sqlite"
    said = printed(capsys, "salvage", str(folder), "--to", str(new))
    assert "saved facts 1 to 4" in said
    assert "2 are lost" in said
    assert answer(capsys, "check", str(new))["whole"]
    assert "already" in refusal(capsys, "salvage", str(folder), "--to", str(new))


def test_show_prints_the_facts_of_a_job(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    said = printed(capsys, "show", str(folder), "--job", "1")
    assert [line.split()[0] for line in said.splitlines()[1:]] == ["1", "4"]
    assert "job_queued" in said
    assert "x=4" in said
    facts = answer(capsys, "show", str(folder), "--job", "1", "--limit", "1")["facts"]
    assert [(fact["number"], fact["document"]["x"]) for fact in facts] == [(4, 4)]


def test_show_stops_at_a_number_or_a_time(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(START + 3))
    for at in ("3", moment):
        found = answer(capsys, "show", str(folder), "--at", at)
        assert [fact["number"] for fact in found["facts"]] == [1, 2, 3]
        assert (found["at"], found["state"]) == (3, None)
    assert [fact["number"] for fact in answer(capsys, "show", str(folder), "--since", moment)["facts"]] == [3, 4, 5, 6]
    assert answer(capsys, "show", str(folder), "--since", "1h")["facts"] == []


def test_show_prints_the_state_where_facts_can_be_applied(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        command, "FOLD", lambda state, facts: {"facts": (state or {"facts": 0})["facts"] + len(list(facts))}
    )
    for number in (2, 4, 5):
        assert answer(capsys, "show", str(folder), "--at", str(number))["state"] == {"facts": number}


def test_compact_removes_what_is_old(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert answer(capsys, "compact", str(folder)) == {"facts": 4, "states": 0, "finished": 0}
    assert [fact["number"] for fact in answer(capsys, "show", str(folder))["facts"]] == [5, 6]
    assert "the facts 5 to 6" in refusal(capsys, "show", str(folder), "--at", "3")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["check", "nowhere"], "no journal"),
        (["check", "mysql://x/y"], "mysql"),
        (["show", "{folder}", "--at", "noon"], "no time"),
        (["show", "{folder}", "--at", "99"], "1 to 6"),
        (["show", "{folder}", "--at", "1999-01-01"], "so early"),
        (["show", "{folder}", "--since", "3 weeks"], "no time"),
        (["salvage", "nowhere", "--to", "x"], "no journal"),
        (["salvage", "{folder}"], "--to"),
        (["compact", "{folder}", "--journal-days", "0"], "--journal-days"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], reason: str
) -> None:
    assert reason in refusal(capsys, *(argument.format(folder=folder) for argument in arguments))
