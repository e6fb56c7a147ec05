"""Notifications that have not been delivered yet, beside the facts that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sql

from gavel.journal.facts import Document, decode, encode
from gavel.journal.tables import NOTIFICATIONS


def write_notifications(connection: sql.Connection, pending: Mapping[str, Document]) -> None:
    """Write notifications by id, replacing those with the same ids; each document has a `time`."""
    remove_notifications(connection, pending)
    rows = [{"id": key, "time": each["time"], "document": encode(each)} for key, each in pending.items()]
    if rows:
        connection.execute(NOTIFICATIONS.insert(), rows)


def read_notifications(connection: sql.Connection) -> dict[str, Document]:
    """All that have not been delivered, by id, oldest first."""
    rows = connection.execute(sql.select(NOTIFICATIONS).order_by(NOTIFICATIONS.c.time, NOTIFICATIONS.c.id)).all()
    return {row.id: decode(bytes(row.document), f"notification {row.id}") for row in rows}


def remove_notifications(connection: sql.Connection, ids: Iterable[str]) -> None:
    """Remove those that were delivered or given up."""
    if rows := [{"gone": key} for key in ids]:
        connection.execute(NOTIFICATIONS.delete().where(NOTIFICATIONS.c.id == sql.bindparam("gone")), rows)
