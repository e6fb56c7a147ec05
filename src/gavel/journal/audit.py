"""The audit: rows about who did what, written in the transaction of what they describe and never changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sql

from gavel.journal.facts import column
from gavel.journal.tables import AUDIT

LONGEST = 1000
"""Characters of each text in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One call that changed something, read something private, or was refused."""

    key: str
    """Unique: an entry that may have been written before is not written twice."""
    time: float
    user: str
    """Who called."""
    acting_for: str = ""
    """The user whose rights counted; empty: the caller's own."""
    role: str = ""
    address: str = ""
    method: str
    object: str = ""
    what: str = ""
    outcome: str = "done"
    number: int = 0
    """In the order of writing; 0 until it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditWanted:
    """Which rows to read; empty fields match all."""

    since: float = 0.0
    user: str = ""
    object: str = ""
    limit: int = 0
    """The newest; 0: all."""


def write_audit(connection: sql.Connection, entries: Iterable[AuditEntry]) -> None:
    """Append rows; those that were written before stay as they are."""
    rows = {entry.key: _row(entry) for entry in entries}
    if not rows:
        return
    known = connection.execute(sql.select(AUDIT.c.key).where(AUDIT.c.key.in_(list(rows)))).scalars().all()
    before = set(known)
    fresh = [row for key, row in rows.items() if key not in before]
    if fresh:
        connection.execute(AUDIT.insert(), fresh)


def _row(entry: AuditEntry) -> dict[str, Any]:
    row = {name: column(value)[:LONGEST] if isinstance(value, str) else value for name, value in asdict(entry).items()}
    del row["number"]
    return row


def read_audit(connection: sql.Connection, wanted: AuditWanted) -> Iterator[AuditEntry]:
    """Rows that match, oldest first."""
    statement = sql.select(AUDIT).where(AUDIT.c.time >= wanted.since)
    if wanted.user:
        user = column(wanted.user)
        statement = statement.where((AUDIT.c.user == user) | (AUDIT.c.acting_for == user))
    if wanted.object:
        statement = statement.where(AUDIT.c.object == column(wanted.object))
    newest = statement.order_by(AUDIT.c.number.desc()).limit(wanted.limit or None)
    for row in reversed(connection.execute(newest).all()):
        yield AuditEntry(**row._mapping)  # noqa: SLF001 - its public name for a row as a mapping


def remove_audit(connection: sql.Connection, before: float) -> int:
    """Remove rows older than that: the only way in which rows leave."""
    return connection.execute(AUDIT.delete().where(AUDIT.c.time < before)).rowcount
