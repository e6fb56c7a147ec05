"""Tables beside the facts: written with facts or not at all, by the leader only, and saved by a salvage."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from gavel.journal.accounts import write_document, write_secrets
from gavel.journal.audit import AuditEntry, AuditWanted, write_audit
from gavel.journal.database import sqlite_url
from gavel.journal.errors import JournalError
from gavel.journal.queries import open_read_only
from gavel.journal.salvage import salvage
from gavel.journal.store import Journal
from gavel.runtime.housekeeping import remove_old_entries

FACT: dict[str, Any] = {"kind": "test", "time": 1.0, "fact": {}}


def opened(folder: Path) -> Journal:
    return Journal.open(sqlite_url(folder / "journal.sqlite"), holder="test")


def entry(key: str, time: float = 1.0, user: str = "ann") -> AuditEntry:
    return AuditEntry(key=key, time=time, user=user, method="Submit", object="7")


def fails(_connection: sql.Connection) -> None:
    raise RuntimeError("the process ends here")


def test_a_fact_and_what_belongs_to_it_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        note = partial(write_audit, entries=[entry("a")])
        with pytest.raises(RuntimeError):
            journal.append([FACT], [note, fails])
        assert (journal.last, journal.audited(AuditWanted())) == (0, [])
        journal.append([FACT], [note])
        assert journal.last == 1
        assert [row.key for row in journal.audited(AuditWanted())] == ["a"]


def test_only_the_leader_writes_beside_the_facts(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        with journal._writer.transaction() as connection:
            connection.execute(sql.text("UPDATE leader SET term = term + 1"))
        with pytest.raises(JournalError, match="took over"):
            journal.write([partial(write_document, kind="user", key="ann", document={"name": "ann"})])
        assert journal.documents("user") == {}


def test_a_journal_without_the_tables_gets_them_when_it_is_opened(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.append([FACT])
        with journal._writer.transaction() as connection:
            for table in ("accounts", "audit", "secrets"):
                connection.execute(sql.text(f"DROP TABLE {table}"))
    with opened(tmp_path) as journal:
        assert (journal.last, journal.documents("user"), journal.audited(AuditWanted())) == (1, {}, [])


def test_the_audit_is_read_by_time_user_and_object(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        rows = [entry("a", 1.0), entry("b", 2.0, "bob"), entry("c", 3.0)]
        journal.write([partial(write_audit, entries=rows)])
        found = {
            "since": AuditWanted(since=2.0),
            "user": AuditWanted(user="ann"),
            "object": AuditWanted(object="8"),
            "limit": AuditWanted(limit=1),
        }
        keys = {what: [row.key for row in journal.audited(wanted)] for what, wanted in found.items()}
        assert keys == {"since": ["b", "c"], "user": ["a", "c"], "object": [], "limit": ["c"]}


def test_only_old_entries_leave_the_audit(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.write([partial(write_audit, entries=[entry("a", 1.0), entry("b", 2.0)])])
        remove_old_entries(journal, 2.0)
        assert [row.key for row in journal.audited(AuditWanted())] == ["b"]


def test_a_salvage_saves_accounts_secrets_and_the_audit(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        writes = [
            partial(write_document, kind="user", key="ann", document={"name": "ann"}),
            partial(write_secrets, job="1", sealed={"KEY": b"sealed"}),
            partial(write_audit, entries=[entry("a")]),
        ]
        journal.append([FACT], writes)
    target = tmp_path / "saved.sqlite"
    salvage(sqlite_url(tmp_path / "journal.sqlite"), sqlite_url(target))
    with open_read_only(sqlite_url(target)) as saved:
        assert saved.documents("user") == {"ann": {"name": "ann"}}
        assert saved.secrets("1") == {"KEY": b"sealed"}
        assert [row.key for row in saved.audited(AuditWanted())] == ["a"]
