"""Journals of format 1, which stored events that were decided again at every start.

They are copied, read once, and replaced by the state they amount to.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from gavel.journal.facts import Document
from gavel.journal.finished import FinishedJobRow

SUFFIX = "format-1"
_TABLES = ("about", "events", "states", "jobs")


@dataclass(frozen=True, slots=True)
class OldJob:
    """A job that had finished in a journal of format 1."""

    id: int
    state: int
    ended: float
    document: Document


class OldJournal:
    """A journal of format 1, to be read once."""

    def __init__(self, connection: sql.Connection) -> None:
        self._connection = connection

    @property
    def last(self) -> int:
        """The number of the last event, or of the last state if there are no events."""
        numbers = [self._scalar(f"SELECT max(number) FROM {table}") for table in ("events", "states")]  # noqa: S608 - constants
        return max(int(number or 0) for number in numbers)

    @property
    def last_time(self) -> float:
        """The time of the last event; 0 if there is none."""
        return float(self._scalar("SELECT time FROM events ORDER BY number DESC LIMIT 1") or 0.0)

    def latest(self) -> tuple[int, Document] | None:
        """The last kept state, and the number of the last event before it."""
        row = self._connection.execute(sql.text("SELECT * FROM states ORDER BY number DESC LIMIT 1")).first()
        return None if row is None else (row.number, json.loads(row.document))

    def events(self, after: int = 0) -> Iterator[Document]:
        """Events in order, after that number."""
        statement = sql.text("SELECT document FROM events WHERE number > :after ORDER BY number")
        for row in self._connection.execute(statement, {"after": after}):
            yield json.loads(row.document)

    def over(self) -> Iterator[OldJob]:
        """Jobs that had finished when the state was last kept, by id."""
        for row in self._connection.execute(sql.text("SELECT * FROM jobs ORDER BY id")):
            yield OldJob(row.id, row.state, row.ended, json.loads(row.document))

    def _scalar(self, statement: str) -> Any:
        return self._connection.execute(sql.text(statement)).scalar()


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What a journal of format 1 amounts to: the state after its last event, and the data stored beside it."""

    state: Document
    finished: Iterable[FinishedJobRow] = ()
    learned: Mapping[str, Document] = field(default_factory=dict)


Upgrade = Callable[[OldJournal], Upgraded]


def copy_file(path: Path) -> Path:
    """Copy an SQLite journal beside itself; the copy is complete or does not exist."""
    copy, half = (path.with_name(f"{path.name}.{SUFFIX}{end}") for end in ("", ".part"))
    half.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(half)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")
    with half.open("rb") as written:
        os.fsync(written.fileno())
    half.replace(copy)
    return copy


def set_aside(connection: sql.Connection) -> None:
    """Make room for the new tables: PostgreSQL keeps the old ones under other names, SQLite has its copy."""
    for table in _TABLES:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"DROP TABLE {table}")
        else:
            connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {table}_{SUFFIX.replace('-', '_')}")
