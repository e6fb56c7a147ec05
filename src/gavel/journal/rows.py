"""Writes facts, kept states and what was learned, in a transaction that the caller leads."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sql

from gavel.journal.facts import Document, FactBatch, Head, checksum, column, encode
from gavel.journal.integrity import kept_checksum
from gavel.journal.tables import FACT_JOBS, FACTS, KEPT, LEARNED


def write_facts(connection: sql.Connection, rows: FactBatch) -> None:
    """Write facts and their index by job."""
    connection.execute(FACTS.insert(), rows.facts)
    if rows.jobs:
        connection.execute(FACT_JOBS.insert(), rows.jobs)


def write_state(connection: sql.Connection, fact: Head, body: bytes) -> None:
    """Write the state after a fact, replacing one with the same number."""
    connection.execute(KEPT.delete().where(KEPT.c.number == fact.number))
    mark = kept_checksum(fact.number, fact.time, fact.checksum, body)
    connection.execute(
        KEPT.insert().values(
            number=fact.number, time=fact.time, fact_checksum=fact.checksum, checksum=mark, document=body
        )
    )


def write_learned(connection: sql.Connection, documents: Mapping[str, Document]) -> None:
    """Write what was learned, replacing existing rows with the same keys."""
    bodies = {column(key): encode(document) for key, document in documents.items()}
    if not bodies:
        return
    gone = LEARNED.delete().where(LEARNED.c.key == sql.bindparam("old"))
    connection.execute(gone, [{"old": key} for key in bodies])
    rows = [{"key": key, "document": body, "checksum": checksum(key, body)} for key, body in bodies.items()]
    connection.execute(LEARNED.insert(), rows)
