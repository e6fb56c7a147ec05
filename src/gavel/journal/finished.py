"""Finished jobs as rows: written when a state is kept, read in pages whose cost does not grow with their number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

import sqlalchemy as sql

from gavel.journal.facts import checksum, column, decode, encode
from gavel.journal.tables import FINISHED

MOST_BRANCHES = 60
"""Most combinations of states and names that are looked up one by one; beyond this, names are only filtered."""
_CHUNK = 500
"""Values in one IN list."""


@dataclass(frozen=True, slots=True)
class FinishedJobRow:
    """A finished job: the fields that lists filter and sort by, and everything else as a document."""

    id: int
    state: str
    name: str
    template: str
    entity: str
    user: str
    submitted: float
    ended: float
    document: Mapping[str, Any] = field(hash=False)


Key = tuple[float, int]
"""End time and id: the order of finished jobs."""


@dataclass(frozen=True, slots=True)
class FinishedQuery:
    """A filter for finished jobs; empty fields match all. Sorted by end time, then by id."""

    ids: Sequence[int] = ()
    states: Sequence[str] = ()
    names: Sequence[str] = ()
    patterns: Sequence[str] = ()
    """For names, as in a shell; jobs that match none may be found, too."""
    between: Sequence[tuple[int, int]] = ()
    """Ranges of ids."""
    entity: str | None = None
    user: str | None = None
    ended_after: float | None = None
    limit: int = 50
    order: Literal["newest", "oldest"] = "newest"
    after: Key | None = None
    """The `next` of the previous page."""


@dataclass(frozen=True, slots=True)
class FinishedPage:
    """Jobs in order, and where the next page begins; None after the last page."""

    jobs: tuple[FinishedJobRow, ...]
    next: Key | None


def to_row(job: FinishedJobRow) -> dict[str, Any]:
    """A job as a row of the table."""
    row = {
        "id": job.id,
        "state": column(job.state),
        "name": column(job.name),
        "template": column(job.template),
        "entity": column(job.entity),
        "user_name": column(job.user),
        "submitted": float(job.submitted),
        "ended": float(job.ended),
        "document": encode(job.document),
    }
    return row | {"checksum": row_checksum(row)}


def row_checksum(row: Mapping[str, Any]) -> bytes:
    """The checksum of all other columns."""
    return checksum(*(row[column.name] for column in FINISHED.columns if column.name != "checksum"))


def of_row(row: sql.Row[Any]) -> FinishedJobRow:
    """The job of a row."""
    return FinishedJobRow(
        id=row.id,
        state=row.state,
        name=row.name,
        template=row.template,
        entity=row.entity,
        user=row.user_name,
        submitted=row.submitted,
        ended=row.ended,
        document=decode(bytes(row.document), f"finished job {row.id}"),
    )


def write(connection: sql.Connection, jobs: Iterable[FinishedJobRow]) -> int:
    """Write jobs, replacing those with the same ids; returns by how many rows the table grew."""
    rows = list({job.id: to_row(job) for job in jobs}.values())
    replaced = 0
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        replaced += connection.execute(
            FINISHED.delete().where(FINISHED.c.id.in_([row["id"] for row in chunk]))
        ).rowcount
        connection.execute(FINISHED.insert(), chunk)
    return len(rows) - replaced


def page(connection: sql.Connection, query: FinishedQuery) -> FinishedPage:
    """One page of finished jobs."""
    if query.limit < 1:
        raise ValueError(f"a page holds at least one job, not {query.limit}")
    rows = connection.execute(_statement(connection, query)).all()
    jobs = tuple(of_row(row) for row in rows[: query.limit])
    more = len(rows) > query.limit
    return FinishedPage(jobs, (jobs[-1].ended, jobs[-1].id) if more else None)


def _statement(connection: sql.Connection, query: FinishedQuery) -> sql.Select[Any]:
    """Merge the best rows of each branch, each read from the end of an index."""
    if query.ids:
        return _branch(query, FINISHED.c.id.in_(list(query.ids)))
    states = list(dict.fromkeys(map(column, query.states))) or _states(connection)
    names: list[str | None] = [*dict.fromkeys(map(column, query.names))] or [None]
    conditions: list[sql.ColumnElement[bool]]
    if len(states) * len(names) > MOST_BRANCHES:
        conditions = [(FINISHED.c.state == state) & FINISHED.c.name.in_(names) for state in states]
    else:
        conditions = [_equal(state, name) for state, name in product(states, names)]
    if not conditions:
        return _branch(query, sql.false())
    branches = [sql.select(_branch(query, condition).subquery()) for condition in conditions]
    found = sql.union_all(*branches).subquery()
    return _ordered(sql.select(found), query, found.c.ended, found.c.id)


def _equal(state: str, name: str | None) -> sql.ColumnElement[bool]:
    condition = FINISHED.c.state == state
    return condition if name is None else condition & (FINISHED.c.name == name)


def _branch(query: FinishedQuery, condition: sql.ColumnElement[bool]) -> sql.Select[Any]:
    statement = sql.select(FINISHED).where(condition)
    if query.ids and query.states:
        statement = statement.where(FINISHED.c.state.in_(list(query.states)))
    if query.ids and query.names:
        statement = statement.where(FINISHED.c.name.in_(list(query.names)))
    if query.patterns:
        statement = statement.where(sql.or_(*(_like(pattern) for pattern in query.patterns)))
    if query.between:
        statement = statement.where(sql.or_(*(FINISHED.c.id.between(first, last) for first, last in query.between)))
    if query.entity is not None:
        statement = statement.where(FINISHED.c.entity == column(query.entity))
    if query.user is not None:
        statement = statement.where(FINISHED.c.user_name == column(query.user))
    if query.ended_after is not None:
        statement = statement.where(FINISHED.c.ended >= query.ended_after)
    if query.after is not None:
        key, last = sql.tuple_(FINISHED.c.ended, FINISHED.c.id), sql.tuple_(*query.after)
        statement = statement.where(key < last if query.order == "newest" else key > last)
    return _ordered(statement, query, FINISHED.c.ended, FINISHED.c.id)


def _like(pattern: str) -> sql.ColumnElement[bool]:
    """What a database understands of a pattern: each class of characters, and each odd character, is any character."""
    wider = re.sub(r"\[!?\]?[^]]*\]", "?", pattern)
    text = "".join({"*": "%", "?": "_"}.get(each, each if each.isalnum() and each.isascii() else "_") for each in wider)
    return FINISHED.c.name.like(text) | (FINISHED.c.name == column(pattern))


def _ordered(
    statement: sql.Select[Any], query: FinishedQuery, ended: sql.ColumnElement[float], number: sql.ColumnElement[int]
) -> sql.Select[Any]:
    newest = query.order == "newest"
    keys = (ended.desc(), number.desc()) if newest else (ended, number)
    return statement.order_by(*keys).limit(query.limit + 1)


def _states(connection: sql.Connection) -> list[str]:
    """The states that occur, each found by one step in the index."""
    found: list[str] = []
    while True:
        beyond = FINISHED.c.state > found[-1] if found else sql.true()
        state = connection.execute(sql.select(sql.func.min(FINISHED.c.state)).where(beyond)).scalar()
        if state is None:
            return found
        found.append(state)
