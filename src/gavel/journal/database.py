"""Addresses and connections: the only module that distinguishes SQLite and PostgreSQL when connecting."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy import event as sql_event
from sqlalchemy.pool import NullPool

from gavel.core.errors import InputError

FILE_NAME = "journal.sqlite"
WRITER_PATIENCE = 1.0
"""Seconds to wait for another session's lock before the write fails temporarily."""
READER_PATIENCE = 10.0
_NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""So that a silent network is noticed within about ten seconds."""
_POSTGRES_WRITER = (
    "SET lock_timeout = '1s'",
    "SET statement_timeout = '60s'",
    "SET idle_in_transaction_session_timeout = '10s'",
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
_SQLITE_WRITER = (
    "PRAGMA auto_vacuum=INCREMENTAL",
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA journal_size_limit=33554432",
)


def sqlite_url(path: Path) -> str:
    """The address of a journal in a file."""
    return f"sqlite:///{path.absolute()}"


def journal_url(text: str) -> str:
    """The address of a journal named by a user: a URL, a scheduler's folder or a file."""
    if "://" in text:
        return text
    path = Path(text)
    return sqlite_url(path / FILE_NAME if path.is_dir() else path)


def parse(url: str) -> sql.URL:
    """Parse an address and add our driver; refuses what cannot be a journal."""
    try:
        address = sql.make_url(url)
    except sql.exc.ArgumentError:
        raise InputError("this is not a journal address; give sqlite:///FILE or postgresql://...") from None
    kind = address.get_backend_name()
    if kind == "sqlite":
        return _file(address)
    if kind in {"postgresql", "postgres"}:
        return _server(address)
    raise InputError(f"a journal cannot be kept in {kind}; give sqlite:///FILE or postgresql://...")


def _file(address: sql.URL) -> sql.URL:
    if not address.database or address.database == ":memory:":
        raise InputError("a journal in memory would not survive its scheduler; give sqlite:///FILE")
    return address


def _server(address: sql.URL) -> sql.URL:
    if find_spec("psycopg") is None:
        raise InputError(
            "a journal in PostgreSQL needs the driver psycopg; install it with: pip install 'gavel-scheduler[postgres]'"
        )
    return address.set(drivername="postgresql+psycopg")


def shown(address: sql.URL) -> str:
    """An address for messages: the file, or the URL without its password."""
    return address.database or "" if is_sqlite(address) else address.render_as_string(hide_password=True)


def is_sqlite(address: sql.URL) -> bool:
    """Whether the journal is a file."""
    return address.get_backend_name() == "sqlite"


def writer_engine(address: sql.URL) -> sql.Engine:
    """Connections that write; each transaction takes the write lock when it begins."""
    if is_sqlite(address):
        return _sqlite_engine(address, _SQLITE_WRITER, "BEGIN IMMEDIATE", WRITER_PATIENCE, poolclass=NullPool)
    return _postgres_engine(address, _POSTGRES_WRITER, poolclass=NullPool)


def reader_engine(address: sql.URL) -> sql.Engine:
    """Read-only connections for any thread."""
    if is_sqlite(address):
        return _sqlite_engine(_read_only(address), ("PRAGMA query_only=ON",), "BEGIN", READER_PATIENCE)
    settings = ("SET default_transaction_read_only = on",)
    return _postgres_engine(address, settings, pool_pre_ping=True, isolation_level="REPEATABLE READ")


def _read_only(address: sql.URL) -> sql.URL:
    path = Path(address.database or "").absolute()
    return sql.URL.create(address.drivername, database=f"file:{path}", query={"mode": "ro", "uri": "true"})


def _sqlite_engine(
    address: sql.URL, settings: tuple[str, ...], begin: str, patience: float, **options: Any
) -> sql.Engine:
    arguments = {"timeout": patience, "check_same_thread": False, "isolation_level": None}
    engine = sql.create_engine(address, connect_args=arguments, **options)
    sql_event.listen(engine, "connect", _setting_up(settings))
    # The driver would begin transactions only before certain statements; we begin them ourselves.
    sql_event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _postgres_engine(address: sql.URL, settings: tuple[str, ...], **options: Any) -> sql.Engine:
    arguments = {name: value for name, value in _NETWORK.items() if name not in address.query}
    engine = sql.create_engine(address, connect_args=arguments, **options)
    sql_event.listen(engine, "connect", _setting_up(settings))
    return engine


def _setting_up(settings: tuple[str, ...]) -> Any:
    def set_up(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        for setting in settings:
            cursor.execute(setting)
        cursor.close()
        connection.commit()

    return set_up
