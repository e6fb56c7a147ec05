"""Errors of a journal, and which database errors are temporary."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sql

from gavel.core.errors import GavelError


class JournalError(GavelError):
    """The journal cannot be used."""


class TemporaryJournalError(JournalError):
    """The journal cannot be used now; the same call may succeed later and is safe to repeat."""


class JournalInUseError(JournalError):
    """Another scheduler is using the journal."""


class LeadershipLostError(JournalError):
    """Another scheduler took over; this one must stop acting."""


class CorruptJournalError(JournalError):
    """The journal is damaged; `reason` says where, the message also what is intact and how to salvage it."""

    def __init__(self, message: str, *, reason: str | None = None, written: int = 0) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.written = written
        """How many facts are known to have been written, from outside the journal."""


@contextmanager
def classified(name: str) -> Iterator[None]:
    """Convert database errors into errors of the journal called `name`."""
    try:
        yield
    except sql.exc.SQLAlchemyError as error:
        raise classify(error, name) from error


def classify(error: sql.exc.SQLAlchemyError, name: str) -> JournalError:
    """The journal error that a database error amounts to."""
    cause = getattr(error, "orig", None) or error
    reason = " ".join(str(cause).split())
    if _damage(cause):
        return CorruptJournalError(f"the journal {name} is damaged: {reason}; {advice(name)}", reason=reason)
    if _passes(error, cause):
        return TemporaryJournalError(f"the journal {name} cannot be used at the moment: {reason}")
    return JournalError(f"the journal {name} cannot be used: {reason}")


def advice(name: str) -> str:
    """What to do with a damaged journal."""
    return f"save what can be read with: gavel journal salvage {name} --to NEW"


_SQLITE_PASSES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_SQLITE_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_POSTGRES_PASSES = ("08", "40", "53", "55P03", "57", "58", "25006", "25P03")
"""Classes of SQLSTATE: connections, conflicts, resources, locks, operator intervention, I/O, read-only standby."""
_POSTGRES_DAMAGE = ("XX001", "XX002")
_REFUSED_FOR_NOW = re.compile(r"starting up|shutting down|recovery|too many|connection slots|not accepting")


def _damage(cause: BaseException) -> bool:
    if isinstance(cause, sqlite3.Error):
        return _sqlite_code(cause) in _SQLITE_DAMAGE
    return _state(cause) in _POSTGRES_DAMAGE


def _passes(error: sql.exc.SQLAlchemyError, cause: BaseException) -> bool:
    if isinstance(cause, sqlite3.Error):
        return _sqlite_code(cause) in _SQLITE_PASSES
    if state := _state(cause):
        return state.startswith(_POSTGRES_PASSES)
    if not isinstance(error, sql.exc.OperationalError | sql.exc.InterfaceError):
        return isinstance(error, sql.exc.TimeoutError) or getattr(error, "connection_invalidated", False)
    # Without a state, the server did not answer, or refused the connection with only a message.
    text = str(cause)
    return "FATAL" not in text or _REFUSED_FOR_NOW.search(text) is not None


def _sqlite_code(cause: sqlite3.Error) -> int:
    """The primary code; the upper bits give more detail than we need."""
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF


def _state(cause: BaseException) -> str:
    return getattr(cause, "sqlstate", None) or ""
