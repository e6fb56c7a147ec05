"""The journal of a running scheduler: facts are appended here, in its term, before they take effect."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import sqlalchemy as sql

from gavel.journal import finished as finished_jobs
from gavel.journal import integrity, retention
from gavel.journal.database import is_sqlite, parse
from gavel.journal.errors import CorruptJournalError, JournalError, JournalInUseError, TemporaryJournalError, classify
from gavel.journal.facts import Document, FactBatch, Head, batch, encode_long, seed
from gavel.journal.finished import FinishedJobRow
from gavel.journal.integrity import About, LeaderRow
from gavel.journal.leader import SILENCE_SECONDS, FileLock, Writer
from gavel.journal.queries import JournalReader
from gavel.journal.retention import CompactReport
from gavel.journal.rows import write_facts, write_learned, write_state
from gavel.journal.tables import BESIDE, FACTS, FORMAT, KEPT, LEADER
from gavel.journal.upgrade import OldJournal, Upgrade, copy_file, set_aside

Write = Callable[[sql.Connection], None]
"""Writes to tables beside the facts, in a transaction of the leader."""
_PAUSE = 0.05
"""Seconds between attempts to open a journal that is in use."""


class Journal(JournalReader):
    """Facts in order, kept states and finished jobs, with the right to append.

    One thread writes, any thread reads. After a TemporaryJournalError the same call may be repeated: nothing is
    written twice, even if the connection was lost during the commit.
    """

    def __init__(self, address: sql.URL, writer: Writer, about: About, head: Head) -> None:
        super().__init__(address)
        self.cluster = about.cluster
        self.lost = about.lost
        """Facts that a salvage could not save; ids they assigned must not be reused."""
        self.term = writer.term
        self._writer = writer
        self._head = head
        self._in_doubt = False
        """Whether the last append may have been written although it failed."""
        self._mark()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        holder: str,
        wait_seconds: float = 0.0,
        upgrade: Upgrade | None = None,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> Journal:
        """Open or create a journal and lead in a new term; waits while it is in use or unreachable.

        In PostgreSQL, a leader that is silent for `silence_seconds` is replaced: its process is suspended.
        """
        address, deadline = parse(url), time.monotonic() + wait_seconds
        while True:
            try:
                return cls._open(address, holder, upgrade, silence_seconds)
            except (JournalInUseError, TemporaryJournalError):
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE)

    @classmethod
    def _open(cls, address: sql.URL, holder: str, upgrade: Upgrade | None, silence_seconds: float) -> Journal:
        writer = Writer.open(address, silence_seconds)
        try:
            about, head = _prepared(address, writer, upgrade)
            with writer.transaction() as connection:
                BESIDE.create_all(connection)
            writer.raise_term(holder)
            return cls(address, writer, about, head)
        except BaseException:
            writer.close()
            raise

    @property
    def last(self) -> int:
        """The number of the last fact."""
        return self._head.number

    @property
    def last_time(self) -> float:
        """The time of the last fact; 0 if there is none."""
        return self._head.time

    def append(self, documents: Sequence[Document], beside: Sequence[Write] = ()) -> None:
        """Write facts, and what belongs to them in other tables, all or none; they are durable when this returns."""
        if not documents:
            self.write(beside)
            return
        rows = batch(documents, self._head, self.term)
        try:
            with self._writer.transaction() as connection:
                if self._write(connection, rows):
                    for write in beside:
                        write(connection)
        except TemporaryJournalError:
            self._in_doubt = True
            raise
        self._in_doubt = False
        self._head = rows.after
        self._mark()

    def write(self, beside: Sequence[Write]) -> None:
        """Write to the tables beside the facts, all or none; each write must be safe to repeat."""
        if beside:
            with self._writer.led() as connection:
                for write in beside:
                    write(connection)

    def _write(self, connection: sql.Connection, rows: FactBatch) -> bool:
        """Advance the head, which only the leader can do and only from its current place, and write the facts.

        False if they had been written before.
        """
        before, after = self._head, rows.after
        ours = (LEADER.c.term == self.term) & (LEADER.c.last == before.number)
        move = LEADER.update().where(ours & (LEADER.c.last_checksum == before.checksum))
        moved = connection.execute(move.values(last=after.number, last_checksum=after.checksum)).rowcount
        if not moved:
            self._settle(connection, rows)
            return False
        write_facts(connection, rows)
        return True

    def _settle(self, connection: sql.Connection, rows: FactBatch) -> None:
        """Find out why the head is elsewhere: these facts were already written, or we no longer lead."""
        found = integrity.leader(connection)
        if found.term != self.term:
            raise self._writer.lost(connection)
        if self._in_doubt and (found.last, found.last_checksum) == (rows.after.number, rows.after.checksum):
            return
        raise JournalError(
            f"the journal {self.name} ends at fact {found.last}, but this scheduler last knew fact {self._head.number}:"
            " an append that seemed to fail was written, and other facts were given after it; restart the scheduler"
        )

    def keep(
        self,
        state: Document | bytes,
        number: int,
        finished: Iterable[FinishedJobRow] = (),
        learned: Mapping[str, Document] | None = None,
    ) -> None:
        """Write the state after that fact, possibly already encoded, and what it no longer holds.

        That is finished jobs, and what was learned about templates; both replace existing rows with the same
        keys.
        """
        body, jobs = state if isinstance(state, bytes) else encode_long(state), list(finished)
        with self._writer.led() as connection:
            write_state(connection, self._fact(connection, number), body)
            grown = finished_jobs.write(connection, jobs)
            connection.execute(LEADER.update().values(finished=LEADER.c.finished + grown))
            write_learned(connection, learned or {})

    def _fact(self, connection: sql.Connection, number: int) -> Head:
        row = connection.execute(sql.select(FACTS.c.checksum, FACTS.c.time).where(FACTS.c.number == number)).first()
        if row is not None:
            return Head(number, bytes(row.checksum), row.time)
        leads = integrity.leader(connection)
        if number == leads.base:
            kept = connection.execute(sql.select(KEPT.c.time).where(KEPT.c.number == number)).scalar()
            return Head(number, leads.base_checksum, kept or 0.0)
        raise ValueError(f"no state can be kept after fact {number}; it must be {leads.base + 1} to {leads.last}")

    def check_lead(self) -> None:
        """Raise LeadershipLostError if another scheduler leads; may run in any thread."""
        with self.reading() as connection:
            if integrity.leader(connection).term != self.term:
                raise self._writer.lost(connection)

    def compact(
        self, *, facts_before: float, finished_before: float | None = None, pause: retention.Pause | None = None
    ) -> CompactReport:
        """Remove facts and finished jobs older than these times, in small steps; may run in any thread."""
        return retention.compact(self.address, facts_before=facts_before, finished_before=finished_before, pause=pause)

    def close(self) -> None:
        """Disconnect and let another scheduler lead."""
        super().close()
        self._writer.close()

    def _mark(self) -> None:
        if isinstance(self._writer.lock, FileLock):
            self._writer.lock.mark(self.cluster, self._head.number)


# ---- opening ----


def _prepared(address: sql.URL, writer: Writer, upgrade: Upgrade | None) -> tuple[About, Head]:
    """Open a journal: create, upgrade or verify it."""
    with writer.transaction() as connection:
        found = integrity.found_format(connection, writer.name)
        if found is None:
            _check_mark(writer, None, 0)
            return _create(connection)
    if found > FORMAT:
        raise integrity.newer(writer.name, found)
    if found < FORMAT:
        return _upgraded(address, writer, upgrade)
    return _verified(writer)


def _create(connection: sql.Connection) -> tuple[About, Head]:
    about = About(secrets.token_hex(8), time.time(), 0)
    start = seed(about.cluster)
    _make(connection, about, LeaderRow(0, "", 0.0, 0, start, 0, start, 0))
    return about, Head(0, start)


def _make(connection: sql.Connection, about: About, leads: LeaderRow) -> None:
    integrity.create_tables(connection)
    integrity.describe(connection, about, leads)


def _verified(writer: Writer) -> tuple[About, Head]:
    with writer.transaction() as connection:
        try:
            about, head = integrity.verify(connection)
            _check_mark(writer, about.cluster, head.number)
        except CorruptJournalError as error:
            raise integrity.damage(connection, writer.name, error.reason, error.written) from error
        except sql.exc.SQLAlchemyError as error:
            if not isinstance(found := classify(error, writer.name), CorruptJournalError):
                raise
            raise integrity.damage(connection, writer.name, found.reason) from error
    return about, head


def _check_mark(writer: Writer, cluster: str | None, last: int) -> None:
    """Compare a journal in a file with what its lock file recorded."""
    if not isinstance(writer.lock, FileLock):
        return
    mark = writer.lock.marked()
    if mark is None or (mark[0] == cluster and mark[1] <= last) or (cluster is None and not mark[1]):
        return
    known, number = mark
    found = "is empty" if cluster is None else f"is of cluster {cluster} and ends at fact {last}"
    reason = (
        f"it {found}, but the journal here was of cluster {known} and had {number} facts (if this one was put here on"
        f" purpose, remove {writer.lock.path} first)"
    )
    message = f"the journal {writer.name} is not the one that was here: {reason}; restore it"
    raise CorruptJournalError(message, reason=reason, written=number)


def _upgraded(address: sql.URL, writer: Writer, upgrade: Upgrade | None) -> tuple[About, Head]:
    """Replace a journal of format 1 by the state it amounts to; on an error it stays unchanged."""
    if upgrade is None:
        raise JournalError(f"the journal {writer.name} has format 1; start a scheduler on it to upgrade it")
    if is_sqlite(address):
        copy_file(Path(address.database or ""))
    with writer.transaction() as connection:
        old = OldJournal(connection)
        number, moment = old.last, old.last_time
        result = upgrade(old)
        jobs, body = list(result.finished), encode_long(result.state)
        set_aside(connection)
        about = About(secrets.token_hex(8), time.time(), 0)
        head = Head(number, seed(about.cluster), moment)
        _make(connection, about, LeaderRow(0, "", 0.0, number, head.checksum, number, head.checksum, 0))
        write_state(connection, head, body)
        connection.execute(LEADER.update().values(finished=finished_jobs.write(connection, jobs)))
        write_learned(connection, result.learned)
    return about, head
