"""Database errors: temporary ones leave the journal usable, and no fact is lost or written twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sql_event

from gavel.journal import FinishedJobRow, Journal, JournalError, TemporaryJournalError
from journal_places import Place, file_place

ONE, TWO = {"kind": "tick", "time": 1.0, "job": "1"}, {"kind": "tick", "time": 2.0}


def documents(journal: Journal) -> list[Any]:
    return [entry.document for entry in journal.facts()]


def lose_connection_at_commit(journal: Journal, monkeypatch: pytest.MonkeyPatch, *, written: bool) -> None:
    """Let the next commit fail: before it took effect, or after."""
    dialect = journal._writer._engine.dialect
    commit: Callable[[Any], None] = dialect.do_commit

    def fail(connection: Any) -> None:
        monkeypatch.undo()
        if written:
            commit(connection)
        if dialect.name == "sqlite":
            error: Exception = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR  # type: ignore[attr-defined]
        else:
            error = dialect.loaded_dbapi.OperationalError("server closed the connection unexpectedly")
        raise error

    monkeypatch.setattr(dialect, "do_commit", fail)


@pytest.mark.parametrize("written", [False, True])
def test_an_append_of_unknown_outcome_is_repeated_exactly_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    with place.open() as journal:
        journal.append([ONE])
        lose_connection_at_commit(journal, monkeypatch, written=written)
        with pytest.raises(TemporaryJournalError):
            journal.append([TWO, ONE])
        assert documents(journal) == ([ONE, TWO, ONE] if written else [ONE])
        journal.append([TWO, ONE])
        assert (journal.last, journal.last_time) == (3, 1.0)
        journal.append([TWO])
        assert documents(journal) == [ONE, TWO, ONE, TWO]
        assert journal.check().problems == ()


def test_other_facts_after_an_append_that_was_written_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open() as journal:
        lose_connection_at_commit(journal, monkeypatch, written=True)
        with pytest.raises(TemporaryJournalError):
            journal.append([ONE])
        with pytest.raises(JournalError, match="restart the scheduler"):
            journal.append([TWO])
        assert documents(journal) == [ONE]


def test_a_kept_state_of_unknown_outcome_may_be_kept_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FinishedJobRow(1, "completed", "n", "t", "e", "u", 0.0, 1.0, {})
    with place.open() as journal:
        journal.append([ONE])
        lose_connection_at_commit(journal, monkeypatch, written=True)
        with pytest.raises(TemporaryJournalError):
            journal.keep({"a": 1}, 1, [job])
        journal.keep({"a": 1}, 1, [job])
        assert journal.check().problems == ()


def test_a_foreign_lock_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.journal.database.WRITER_PATIENCE", 0.05)
    place = file_place(tmp_path)
    with place.open() as journal:
        journal.append([ONE])
        foreign = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
        foreign.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TemporaryJournalError, match="locked"):
            journal.append([TWO])
        with pytest.raises(TemporaryJournalError, match="locked"):
            journal.keep({}, 1)
        foreign.execute("ROLLBACK")
        foreign.close()
        journal.append([TWO])
        journal.keep({}, 2)
        assert documents(journal) == [ONE, TWO]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)  # SQLite's lock has its own test
def test_a_locked_table_in_postgres_passes(place: Place) -> None:
    with place.open() as journal:
        with place.stranger() as connection:
            connection.exec_driver_sql("LOCK TABLE facts IN EXCLUSIVE MODE")
            with pytest.raises(TemporaryJournalError, match="lock timeout"):
                journal.append([ONE])
        journal.append([ONE])
        assert documents(journal) == [ONE]


def test_a_full_disk_passes(tmp_path: Path) -> None:
    large = {"kind": "large", "time": 2.0, "noise": [str(hash((1, number))) for number in range(20_000)]}
    room: list[int] = []

    def limit(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count={room[0] if room else 2**30}")

    with file_place(tmp_path).open() as journal:
        sql_event.listen(journal._writer._engine, "connect", limit)
        journal.append([ONE])
        room.append(1)  # SQLite takes the present size instead
        journal._writer._drop()
        for _ in range(2):
            with pytest.raises(TemporaryJournalError, match="full"):
                journal.append([large])
        assert documents(journal) == [ONE]
        room.clear()
        journal.append([large])
        assert documents(journal) == [ONE, large]
        assert journal.check().problems == ()


@pytest.mark.parametrize("place", ["postgres"], indirect=True)  # SQLite has no connection to lose
def test_a_lost_connection_is_made_again(place: Place) -> None:
    with place.open() as journal:
        journal.append([ONE])
        place.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database() AND backend_type = 'client backend'"
        )
        with pytest.raises(TemporaryJournalError):
            journal.append([TWO])
        journal.append([TWO])
        assert documents(journal) == [ONE, TWO]
        with pytest.raises(JournalError, match="another scheduler is using"):
            place.open()  # the lock was taken again with the new connection


@pytest.mark.parametrize("place", ["postgres"], indirect=True)  # SQLite has no sessions
def test_a_lost_session_that_the_server_still_holds_does_not_lock_its_scheduler_out(place: Place) -> None:
    with place.open() as journal:
        held, journal._writer._connection = journal._writer._connection, None  # as if the network had gone
        journal.append([ONE])
        assert documents(journal) == [ONE]
        assert held is not None
        held.invalidate()


def test_a_server_that_cannot_be_reached_is_a_temporary_error() -> None:
    with pytest.raises(TemporaryJournalError, match="Connection refused"):
        Journal.open("postgresql://127.0.0.1:9/gavel", holder="here")


def test_a_database_that_does_not_exist_is_a_permanent_error(postgres: str) -> None:
    with pytest.raises(JournalError, match="does not exist") as found:
        Journal.open(postgres.replace("/postgres?", "/nowhere?"), holder="here")
    assert not isinstance(found.value, TemporaryJournalError)
