"""Small documents beside the facts: users, tokens, enrolled agents, limits; and the sealed secrets of jobs.

They are not facts, because a revocation must not be undone by restoring an earlier state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def remove_secrets(connection: sql.Connection, jobs: Iterable[str]) -> None:
    """Remove the secrets of jobs that have finished."""
    gone = SECRETS.delete().where(SECRETS.c.job == sql.bindparam("gone"))
    if names := [{"gone": job} for job in jobs]:
        connection.execute(gone, names)
