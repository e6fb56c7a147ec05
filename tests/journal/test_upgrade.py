"""A journal of format 1 becomes one of format 2, a copy is kept, and an error changes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gavel.core.errors import InputError
from gavel.journal import FinishedJobRow, JournalError, OldJournal, Upgraded, open_read_only
from journal_places import Place

DUMP = Path(__file__).parent / "format_1.sql"
TABLES = ("about", "events", "states", "jobs")


@pytest.fixture(autouse=True)
def old(place: Place) -> None:
    with place.stranger() as connection:
        for statement in DUMP.read_text().strip().split(";\n"):
            connection.exec_driver_sql(statement)


def upgrade(old: OldJournal) -> Upgraded:
    number, state = old.latest() or (0, {})
    submitted = [event["job"] for event in old.events(after=number) if event["kind"] == "submitted"]
    finished = [
        FinishedJobRow(job.id, "completed", job.document["name"], "t", "e", "u", 0.0, job.ended, job.document)
        for job in old.over()
        if job.state == 4
    ]
    return Upgraded({"jobs": [*state["jobs"], *submitted]}, finished, {"t": {"rate": 1}})


def contents(place: Place) -> dict[str, list[object]]:
    return {table: place.execute(f"SELECT * FROM {table}") for table in TABLES}  # noqa: S608 - constants


def test_the_state_after_the_last_event_is_the_beginning(place: Place) -> None:
    with place.open(upgrade=upgrade) as journal:
        assert (journal.last, journal.last_time) == (5, 150.0)
        assert journal.latest() == (5, {"jobs": ["2", "3"]})
        assert journal.find("1") == {"id": "1", "name": "it's first"}
        assert journal.learned() == {"t": {"rate": 1}}
        journal.append([{"kind": "tick", "time": 160.0}])
        cluster = journal.cluster
    with place.open() as journal:
        assert (journal.last, journal.cluster) == (6, cluster)
        assert [entry.number for entry in journal.facts()] == [6]
        assert journal.check().problems == ()


def test_a_copy_of_the_old_journal_is_kept(place: Place) -> None:
    before = contents(place)
    place.open(upgrade=upgrade).close()
    if place.sqlite:
        path = place.url.removeprefix("sqlite:///") + ".format-1"
        with closing(sqlite3.connect(path)) as copy:
            found = {table: copy.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608
    else:
        found = {table: place.execute(f"SELECT * FROM {table}_format_1") for table in TABLES}  # noqa: S608
    assert found == before


def test_an_error_leaves_the_old_journal_as_it_was(place: Place) -> None:
    def fail(old: OldJournal) -> Upgraded:
        raise InputError(f"event {old.last} is unknown")

    before = contents(place)
    with pytest.raises(InputError, match="event 5 is unknown"):
        place.open(upgrade=fail)
    assert contents(place) == before
    with place.open(upgrade=upgrade) as journal:
        assert journal.last == 5


def test_a_job_that_cannot_be_written_leaves_the_old_journal_as_it_was(place: Place) -> None:
    def fail(old: OldJournal) -> Upgraded:
        return Upgraded(
            upgrade(old).state, [FinishedJobRow(1, "x", "n", "t", "e", "u", 0.0, 0.0, {"bad": float("nan")})]
        )

    before = contents(place)
    with pytest.raises(ValueError, match="JSON"):
        place.open(upgrade=fail)
    assert contents(place) == before


def test_without_an_upgrade_the_journal_is_refused(place: Place) -> None:
    with pytest.raises(JournalError, match="format 1; start a scheduler"):
        place.open()
    with pytest.raises(InputError, match="format 1; start a scheduler"):
        open_read_only(place.url)
