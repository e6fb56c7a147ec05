"""The journal: every event in a SQL database before it takes effect, and now and then the whole state.

One scheduler at a time writes to it. SQLite is the default; nothing here but `_tune` knows that.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sql
from sqlalchemy import event as sql_event

from gavel.core.errors import GavelError

FORMAT = 1
"""Of the tables and of what is in them."""

_metadata = sql.MetaData()
_about = sql.Table("about", _metadata, sql.Column("format", sql.Integer, nullable=False))
_events = sql.Table(
    "events",
    _metadata,
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("time", sql.Float, nullable=False),
    sql.Column("kind", sql.String(40), nullable=False),
    sql.Column("document", sql.Text, nullable=False),
)
_states = sql.Table(
    "states",
    _metadata,
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("document", sql.Text, nullable=False),
)
_jobs = sql.Table(
    "jobs",
    _metadata,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("state", sql.Integer, nullable=False),
    sql.Column("ended", sql.Float, nullable=False),
    sql.Column("document", sql.Text, nullable=False),
)


class JournalError(GavelError):
    """The journal cannot be used."""


Document = Mapping[str, Any]


class Journal:
    """Events in order, the latest state, and the jobs that are over."""

    def __init__(self, url: str) -> None:
        with ExitStack() as opened:
            opened.enter_context(_locked(url))
            self._engine = sql.create_engine(url)
            opened.callback(self._engine.dispose)
            if self._engine.dialect.name == "sqlite":
                sql_event.listen(self._engine, "connect", _tune)
            try:
                _metadata.create_all(self._engine)
                self._connection = opened.enter_context(self._engine.connect())
                self.last = self._check_format()
            except sql.exc.SQLAlchemyError as error:
                raise JournalError(f"the journal {url} cannot be opened: {_reason(error)}") from error
            self._opened = opened.pop_all()

    def _check_format(self) -> int:
        with self._connection.begin():
            found = self._connection.execute(sql.select(_about.c.format)).scalar()
            if found is None:
                self._connection.execute(_about.insert().values(format=FORMAT))
            elif found != FORMAT:
                raise JournalError(f"the journal is of format {found}, and this version reads {FORMAT}")
            return int(self._connection.execute(sql.select(sql.func.max(_events.c.number))).scalar() or 0)

    def append(self, documents: Sequence[Document]) -> None:
        """Write events down, all or none; when this returns they are safe."""
        rows = [
            {
                "number": self.last + offset,
                "time": document["time"],
                "kind": document["kind"],
                "document": json.dumps(document, allow_nan=False),
            }
            for offset, document in enumerate(documents, start=1)
        ]
        with self._connection.begin():
            self._connection.execute(_events.insert(), rows)
        self.last += len(rows)

    def events(self, after: int = 0) -> Iterator[Document]:
        """Events in order, beginning after that number."""
        query = sql.select(_events.c.document).where(_events.c.number > after).order_by(_events.c.number)
        with self._engine.connect() as connection:
            for row in connection.execution_options(stream_results=True).execute(query):
                yield json.loads(row.document)

    def keep(self, state: Document, over: Iterable[tuple[int, int, float, Document]]) -> None:
        """Write down the state after the last event, and jobs that are over: number, state, time of the end, record."""
        rows = [
            {"id": number, "state": code, "ended": ended, "document": json.dumps(document, allow_nan=False)}
            for number, code, ended, document in over
        ]
        with self._connection.begin():
            if rows:
                self._connection.execute(_jobs.delete().where(_jobs.c.id.in_([row["id"] for row in rows])))
                self._connection.execute(_jobs.insert(), rows)
            self._connection.execute(_states.delete())
            self._connection.execute(
                _states.insert().values(number=self.last, document=json.dumps(state, allow_nan=False))
            )

    def latest(self) -> tuple[int, Document] | None:
        """The last state kept, and the number of the last event before it."""
        with self._connection.begin():
            row = self._connection.execute(sql.select(_states).order_by(_states.c.number.desc())).first()
        return (row.number, json.loads(row.document)) if row is not None else None

    def over(self, *, states: Iterable[int] = (), limit: int = 0) -> list[Document]:
        """The jobs that were over when the state was last kept, newest first."""
        query = sql.select(_jobs.c.document).order_by(_jobs.c.id.desc())
        if wanted := list(states):
            query = query.where(_jobs.c.state.in_(wanted))
        with self._connection.begin():
            rows = self._connection.execute(query.limit(limit) if limit else query)
            return [json.loads(row.document) for row in rows]

    def find(self, number: int) -> Document | None:
        """One job that is over."""
        with self._connection.begin():
            row = self._connection.execute(sql.select(_jobs.c.document).where(_jobs.c.id == number)).first()
        return json.loads(row.document) if row is not None else None

    def close(self) -> None:
        """Give the journal back."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sqlite_url(path: Path) -> str:
    """The address of a journal in a file."""
    return f"sqlite:///{path.absolute()}"


def _locked(url: str) -> AbstractContextManager[object]:
    """Hold a file beside an SQLite journal, so that two schedulers never write to one."""
    database = sql.make_url(url).database
    if not url.startswith("sqlite") or not database:
        return nullcontext()
    path = Path(database + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise JournalError(f"the journal's folder {path.parent} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise JournalError(f"another scheduler is using the journal {database}; stop it first") from error
    return lock


def _tune(connection: Any, _record: object) -> None:
    """A commit survives a killed process and a power cut, and readers do not wait for writers."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _reason(error: sql.exc.SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error)
