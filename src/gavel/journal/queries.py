"""Reads a journal: facts by number, time, job, server and kind; kept states; finished jobs.

Reads use separate connections and short transactions, from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sql

from gavel.core.errors import InputError
from gavel.journal import accounts, integrity
from gavel.journal import finished as finished_jobs
from gavel.journal.audit import AuditEntry, AuditWanted, read_audit
from gavel.journal.database import is_sqlite, parse, reader_engine, shown
from gavel.journal.errors import CorruptJournalError, classified
from gavel.journal.facts import Document, Entry, column, decode, jobs_of
from gavel.journal.finished import FinishedPage, FinishedQuery
from gavel.journal.notifications import read_notifications
from gavel.journal.tables import ANY_JOB, FACT_JOBS, FACTS, FINISHED, KEPT, LEARNED

PAGE = 1000
"""Facts read in one transaction."""
_CHUNK = 500

Fold = Callable[[Document | None, Iterator[Entry]], Document]
"""Applies facts to a state document (None: the empty state) and returns the state after them."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which facts."""

    after: int = 0
    until: int | None = None
    since: float | None = None
    before: float | None = None
    job: str | None = None
    server: str | None = None
    kinds: Collection[str] = ()

    @property
    def contiguous(self) -> bool:
        """Whether all facts in a range of numbers match."""
        return (self.since, self.before, self.job, self.server) == (None,) * 4 and not self.kinds


class JournalReader:
    """Read access to a journal, for any thread."""

    def __init__(self, address: sql.URL) -> None:
        self.name = shown(address)
        self.address = address
        self._readers = reader_engine(address)

    @property
    def leader(self) -> integrity.LeaderRow:
        """The current leader and the end of the journal, according to the database."""
        with self.reading() as connection:
            return integrity.leader(connection)

    def facts(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        since: float | None = None,
        before: float | None = None,
        job: str | None = None,
        server: str | None = None,
        kinds: Collection[str] = (),
        newest_first: bool = False,
        limit: int | None = None,
    ) -> Iterator[Entry]:
        """Facts in order: numbers in (after, until], times in [since, before), naming that job and that server."""
        wanted = Filter(after, until, since, before, job, server, tuple(kinds))
        found = self._matching(wanted, newest_first=newest_first, most=limit)
        for _, entry in zip(range(limit), found, strict=False) if limit is not None else enumerate(found):
            yield entry

    def _matching(self, wanted: Filter, *, newest_first: bool, most: int | None) -> Iterator[Entry]:
        """All matches, read page by page; facts that name very many jobs are checked one by one."""
        statement = _statement(wanted, newest_first=newest_first).limit(min(PAGE, most or PAGE))
        position: int | None = None
        while True:
            with self.reading() as connection:
                rows = connection.execute(_beyond(statement, position, newest_first=newest_first)).all()
                base = integrity.leader(connection).base if position is None and wanted.contiguous else 0
            if wanted.contiguous:
                self._check_numbers(rows, wanted, position, base, newest_first=newest_first)
            for row in rows:
                entry = Entry(row.number, row.time, row.kind, decode(bytes(row.document), f"fact {row.number}"))
                if wanted.job is None or column(wanted.job) in jobs_of(entry.document):
                    yield entry
            if not rows:
                return
            position = rows[-1].number

    def _check_numbers(self, rows: Any, wanted: Filter, position: int | None, base: int, *, newest_first: bool) -> None:
        """Raise if facts are missing, instead of silently skipping them."""
        step = -1 if newest_first else 1
        expected = position + step if position is not None else None if newest_first else max(wanted.after, base) + 1
        for row in rows:
            if expected is not None and row.number != expected:
                raise CorruptJournalError(
                    f"fact {expected} of the journal {self.name} is missing: it was removed while the journal was read,"
                    " or the journal is damaged; run: gavel journal check"
                )
            expected = row.number + step

    def latest(self, at: int | None = None) -> tuple[int, Mapping[str, Any]] | None:
        """The newest kept state, or the newest at or before that fact, and the number of the last fact in it."""
        statement = sql.select(KEPT).order_by(KEPT.c.number.desc()).limit(1)
        with self.reading() as connection:
            row = connection.execute(statement if at is None else statement.where(KEPT.c.number <= at)).first()
        if row is None:
            return None
        integrity.verify_kept(row)
        return row.number, decode(bytes(row.document), f"the state after fact {row.number}")

    def kept(self) -> list[tuple[int, float]]:
        """The number and time of every kept state, in order."""
        with self.reading() as connection:
            rows = connection.execute(sql.select(KEPT.c.number, KEPT.c.time).order_by(KEPT.c.number))
            return [(row.number, row.time) for row in rows]

    def finished(self, query: FinishedQuery) -> FinishedPage:
        """One page of finished jobs."""
        with self.reading() as connection:
            return finished_jobs.page(connection, query)

    def find(self, job: str) -> Mapping[str, Any] | None:
        """The document of one finished job."""
        if not (job.isascii() and job.isdecimal()) or len(job) > 18:
            return None
        with self.reading() as connection:
            body = connection.execute(sql.select(FINISHED.c.document).where(FINISHED.c.id == int(job))).scalar()
        return None if body is None else decode(bytes(body), f"finished job {job}")

    def documents(self, kind: str) -> dict[str, Document]:
        """All documents of a kind beside the facts: users, tokens, enrolled agents, limits."""
        with self.reading() as connection:
            return accounts.read_documents(connection, kind)

    def secrets(self, job: str) -> dict[str, bytes]:
        """The sealed secrets of a job, by name."""
        with self.reading() as connection:
            return accounts.read_secrets(connection, job)

    def all_secrets(self) -> dict[str, dict[str, bytes]]:
        """All sealed secrets, by job and name."""
        with self.reading() as connection:
            return accounts.read_all_secrets(connection)

    def notifications(self) -> dict[str, Document]:
        """Notifications that have not been delivered, by id, oldest first."""
        with self.reading() as connection:
            return read_notifications(connection)

    def audited(self, wanted: AuditWanted) -> list[AuditEntry]:
        """Rows of the audit, oldest first."""
        with self.reading() as connection:
            return list(read_audit(connection, wanted))

    def learned(self, keys: Collection[str] = ()) -> dict[str, Mapping[str, Any]]:
        """What was learned about these templates, or about all."""
        wanted = list(map(column, keys))
        chunks = [wanted[start : start + _CHUNK] for start in range(0, len(wanted), _CHUNK)]
        conditions: list[sql.ColumnElement[bool]] = [LEARNED.c.key.in_(chunk) for chunk in chunks]
        with self.reading() as connection:
            rows = [
                row
                for condition in conditions or [sql.true()]
                for row in connection.execute(sql.select(LEARNED).where(condition))
            ]
        return {row.key: decode(bytes(row.document), f"what was learned about {row.key}") for row in rows}

    def check(self) -> integrity.CheckReport:
        """Verify everything; takes time proportional to the size of the journal."""
        with self.reading() as connection:
            return integrity.check(connection)

    @contextmanager
    def reading(self) -> Iterator[sql.Connection]:
        """A read-only transaction."""
        with classified(self.name), self._readers.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Disconnect."""
        self._readers.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_read_only(url: str) -> JournalReader:
    """Open a journal for reading, even while a scheduler writes to it."""
    address = parse(url)
    if is_sqlite(address) and not Path(address.database or "").is_file():
        raise InputError(f"there is no journal {address.database}; give the file, its folder or a postgresql:// URL")
    reader = JournalReader(address)
    try:
        with reader.reading() as connection:
            integrity.check_format(connection, reader.name)
    except BaseException:
        reader.close()
        raise
    return reader


def state_at(reader: JournalReader, number: int, fold: Fold) -> Document:
    """The state after that fact: the newest kept state before it, plus the facts after that."""
    kept = reader.latest(at=number)
    start, state = kept if kept is not None else (0, None)
    base = reader.leader.base
    if start < base:
        raise InputError(f"the state after fact {number} is no longer available: facts up to {base} were compacted")
    return fold(state, reader.facts(after=start, until=number))


def _statement(wanted: Filter, *, newest_first: bool) -> sql.Select[Any]:
    facts = FACTS.c
    conditions = [facts.number > wanted.after]
    if wanted.until is not None:
        conditions.append(facts.number <= wanted.until)
    if wanted.since is not None:
        conditions.append(facts.time >= wanted.since)
    if wanted.before is not None:
        conditions.append(facts.time < wanted.before)
    if wanted.server is not None:
        conditions.append(facts.server == column(wanted.server))
    if wanted.kinds:
        conditions.append(facts.kind.in_(list(map(column, wanted.kinds))))
    if wanted.job is not None:
        conditions.append(_names(column(wanted.job)))
    chosen = sql.select(facts.number, facts.time, facts.kind, facts.document).where(*conditions)
    return chosen.order_by(facts.number.desc() if newest_first else facts.number)


def _names(job: str) -> sql.ColumnElement[bool]:
    """Facts that name the job, alone or among few; and facts about very many jobs, from its first fact to its end."""
    index = FACT_JOBS.c
    number = int(job) if job.isdecimal() and len(job) <= 18 else -1
    ended = sql.exists().where(FINISHED.c.id == number)
    first = sql.select(sql.func.min(index.number)).where(index.job == job).scalar_subquery()
    last = sql.select(sql.func.max(index.number)).where(index.job == job, ended).scalar_subquery()
    life = (index.number > sql.func.coalesce(first, 0)) & (index.number < sql.func.coalesce(last, 2**62))
    wide = (index.job == ANY_JOB) & life
    return FACTS.c.number.in_(sql.select(index.number).where((index.job == job) | wide))


def _beyond(statement: sql.Select[Any], position: int | None, *, newest_first: bool) -> sql.Select[Any]:
    if position is None:
        return statement
    return statement.where(FACTS.c.number < position if newest_first else FACTS.c.number > position)
