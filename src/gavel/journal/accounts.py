"""Small documents beside the facts: users, tokens, enrolled agents, limits; and the sealed secrets of jobs.

They are not facts, because a revocation must not be undone by restoring an earlier state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import sqlalchemy as sql

from gavel.journal.facts import Document, column, decode, encode
from gavel.journal.tables import ACCOUNTS, SECRETS


def read_documents(connection: sql.Connection, kind: str) -> dict[str, Document]:
    """All documents of a kind, by key."""
    rows = connection.execute(sql.select(ACCOUNTS).where(ACCOUNTS.c.kind == kind).order_by(ACCOUNTS.c.key)).all()
    return {row.key: decode(bytes(row.document), f"{kind} {row.key}") for row in rows}


def write_document(connection: sql.Connection, kind: str, key: str, document: Document | None) -> None:
    """Write a document, replacing one with the same key; None removes it."""
    key = column(key)
    connection.execute(ACCOUNTS.delete().where((ACCOUNTS.c.kind == kind) & (ACCOUNTS.c.key == key)))
    if document is not None:
        connection.execute(ACCOUNTS.insert().values(kind=kind, key=key, document=encode(document)))


def write_secrets(connection: sql.Connection, job: str, sealed: Mapping[str, bytes]) -> None:
    """Write the sealed secrets of a job, replacing earlier ones."""
    remove_secrets(connection, [job])
    if sealed:
        rows = [{"job": job, "name": column(name), "sealed": body} for name, body in sealed.items()]
        connection.execute(SECRETS.insert(), rows)


def read_secrets(connection: sql.Connection, job: str) -> dict[str, bytes]:
    """The sealed secrets of a job, by name."""
    rows = connection.execute(sql.select(SECRETS).where(SECRETS.c.job == job)).all()
    return {row.name: bytes(row.sealed) for row in rows}


def read_all_secrets(connection: sql.Connection) -> dict[str, dict[str, bytes]]:
    """All sealed secrets, by job and name."""
    found: dict[str, dict[str, bytes]] = {}
    for row in connection.execute(sql.select(SECRETS)):
        found.setdefault(row.job, {})[row.name] = bytes(row.sealed)
    return found


def remove_secrets(connection: sql.Connection, jobs: Iterable[str]) -> None:
    """Remove the secrets of jobs that have finished, and overwrite them where the database can."""
    gone = SECRETS.delete().where(SECRETS.c.job == sql.bindparam("gone"))
    if names := [{"gone": job} for job in jobs]:
        with _overwriting(connection):
            connection.execute(gone, names)


@contextmanager
def _overwriting(connection: sql.Connection) -> Iterator[None]:
    """Have SQLite fill what it deletes with zeros; for other deletions that would only be slow."""
    if connection.dialect.name != "sqlite":
        yield
        return
    connection.exec_driver_sql("PRAGMA secure_delete=ON")
    try:
        yield
    finally:
        connection.exec_driver_sql("PRAGMA secure_delete=OFF")
