"""Leadership: which scheduler may write to a journal, and the connection it writes on.

A lock shows that a leader is alive; the term in the database, checked in every transaction, shows which one leads.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, Protocol

import sqlalchemy as sql

from gavel.journal.database import is_sqlite, shown, writer_engine
from gavel.journal.errors import JournalError, JournalInUseError, LeadershipLostError, TemporaryJournalError, classify
from gavel.journal.tables import LEADER

_MARK_BYTES = 128
PULSE_SECONDS = 5.0
"""How often a leader in PostgreSQL gives a sign of life, even with nothing to write."""
SILENCE_SECONDS = 30.0
"""A leader in PostgreSQL that is silent for this long may be replaced."""


class Lock(Protocol):
    """Shows that a leader is alive."""

    def hold(self, connection: sql.Connection) -> bool:
        """Take the lock unless another session has it."""

    def release(self, connection: sql.Connection | None) -> None:
        """Release it; `connection` is the one that took it, if it still exists."""


class FileLock:
    """A lock on a file beside an SQLite journal; the file also records how far the journal went."""

    def __init__(self, address: sql.URL) -> None:
        self._path = Path((address.database or "") + ".lock")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644), "r+b", buffering=0)
        except OSError as error:
            raise JournalError(f"the journal's folder {self._path.parent} is not writable: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise in_use(shown(address)) from error

    def hold(self, connection: sql.Connection) -> bool:  # noqa: ARG002 - held since the constructor
        return True

    def release(self, connection: sql.Connection | None) -> None:  # noqa: ARG002 - the file is ours
        self._file.close()

    @property
    def path(self) -> Path:
        """The path of the lock file."""
        return self._path

    def mark(self, cluster: str, last: int) -> None:
        """Record that this cluster's journal has a fact with that number."""
        text = json.dumps({"cluster": cluster, "last": last}).encode().ljust(_MARK_BYTES - 1) + b"\n"
        with suppress(OSError):  # on a full disk this loses a later warning, but no fact
            os.pwrite(self._file.fileno(), text, 0)

    def marked(self) -> tuple[str, int] | None:
        """The cluster and number last recorded."""
        return read_mark(self._path)


def read_mark(path: Path) -> tuple[str, int] | None:
    """The cluster and fact number that a lock file records."""
    try:
        mark = json.loads(path.read_bytes())
        return str(mark["cluster"]), int(mark["last"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


class SessionLock:
    """An advisory lock of a PostgreSQL session; it ends with the session, or when the session is silent for too long.

    The connection of a suspended process stays alive. A working leader gives regular signs of life, so silence means
    that it is suspended and another may lead; the term keeps the first from writing when it wakes up.
    """

    def __init__(self, silence_seconds: float) -> None:
        self._silence = silence_seconds
        self._session: int | None = None

    def hold(self, connection: sql.Connection) -> bool:
        schema = connection.execute(sql.text("SELECT current_schema()")).scalar()
        key = int.from_bytes(blake2b(f"gavel journal {schema}".encode(), digest_size=8).digest(), "big", signed=True)
        held = self._try(connection, key) or (self._end_stale(connection, key) and self._try(connection, key))
        if held:
            self._session = connection.execute(sql.text("SELECT pg_backend_pid()")).scalar()
        return held

    def release(self, connection: sql.Connection | None) -> None:
        if connection is not None:  # otherwise the lock ends when the server notices that the session ended
            with suppress(sql.exc.SQLAlchemyError), connection.begin():
                connection.execute(sql.text("SELECT pg_advisory_unlock_all()"))

    def _try(self, connection: sql.Connection, key: int) -> bool:
        return bool(connection.execute(sql.text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar())

    def _end_stale(self, connection: sql.Connection, key: int) -> bool:
        """End the session that holds the lock if it is our own lost one, or if its leader has been silent too long."""
        values = {"key": key, "former": self._session or 0, "silence": self._silence}
        return bool(connection.execute(_END_STALE, values).scalar())


_END_STALE = sql.text(
    "SELECT pg_terminate_backend(pid, 1000) FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND ((classid::bigint << 32) | objid::bigint) = :key"
    " AND (pid = :former OR (usename = current_user AND state LIKE 'idle%'"
    " AND state_change < clock_timestamp() - make_interval(secs => :silence)))"
)


class Writer:
    """The leader's connection: one transaction at a time, each in the leader's term; reconnects after errors."""

    def __init__(self, address: sql.URL, engine: sql.Engine, lock: Lock) -> None:
        self.name = shown(address)
        self.lock = lock
        self.term = 0
        """0 until a term begins."""
        self._engine = engine
        self._connection: sql.Connection | None = None
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="journal-pulse", daemon=True)

    @classmethod
    def open(cls, address: sql.URL, silence_seconds: float = SILENCE_SECONDS) -> Writer:
        """Take the lock and connect; a PostgreSQL leader that is silent for that long is replaced."""
        lock: Lock = FileLock(address) if is_sqlite(address) else SessionLock(silence_seconds)
        writer = cls(address, writer_engine(address), lock)
        try:
            with writer.transaction():
                pass
        except BaseException:
            writer.close()
            raise
        if isinstance(lock, SessionLock):
            writer._pulse.start()
        return writer

    def _beat(self) -> None:
        """Give signs of life for as long as the process runs."""
        while not self._closed.wait(PULSE_SECONDS):
            with suppress(JournalError), self.transaction() as connection:  # the next write reports the error
                connection.execute(sql.text("SELECT 1"))

    @contextmanager
    def transaction(self) -> Iterator[sql.Connection]:
        """One transaction; a database error rolls it back, and the next one gets a new connection."""
        with self._turn:
            try:
                connection = self._connected()
                with connection.begin():
                    yield connection
            except sql.exc.SQLAlchemyError as error:
                self._drop()
                raise classify(error, self.name) from error

    @contextmanager
    def led(self) -> Iterator[sql.Connection]:
        """One transaction, refused if another scheduler has taken over."""
        with self.transaction() as connection:
            update = LEADER.update().where(LEADER.c.term == self.term).values(term=self.term)
            if connection.execute(update).rowcount != 1:
                raise self.lost(connection)
            yield connection

    def raise_term(self, holder: str) -> int:
        """Begin a new term."""
        with self.transaction() as connection:
            connection.execute(LEADER.update().values(term=LEADER.c.term + 1, holder=holder, since=time.time()))
            term = int(connection.execute(sql.select(LEADER.c.term)).scalar_one())
        self.term = term
        return term

    def lost(self, connection: sql.Connection) -> LeadershipLostError:
        """The error that names the new leader."""
        row = connection.execute(sql.select(LEADER.c.holder, LEADER.c.term)).first()
        holder, term = (row.holder, row.term) if row else ("unknown", "unknown")
        return LeadershipLostError(
            f"another scheduler took over the journal {self.name}: {holder} leads in term {term}, and this one was"
            f" the leader of term {self.term}; nothing was written"
        )

    def close(self) -> None:
        """Disconnect and release the lock."""
        self._closed.set()
        if self._pulse.is_alive():
            self._pulse.join()
        with self._turn:
            self.lock.release(self._connection)
            self._drop()
            self._engine.dispose()

    def _connected(self) -> sql.Connection:
        if self._connection is None:
            connection = self._engine.connect()
            try:
                with connection.begin():
                    self._hold(connection)
            except BaseException:
                connection.invalidate()
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _hold(self, connection: sql.Connection) -> None:
        if self.lock.hold(connection):
            return
        if not self.term:
            raise in_use(self.name)
        if connection.execute(sql.select(LEADER.c.term)).scalar() != self.term:
            raise self.lost(connection)
        raise TemporaryJournalError(f"another session holds the lock of the journal {self.name} and is about to lead")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sql.exc.SQLAlchemyError):
                connection.invalidate()
            connection.close()


def in_use(name: str) -> JournalInUseError:
    """The error for a second scheduler."""
    return JournalInUseError(f"another scheduler is using the journal {name}; stop it first")
