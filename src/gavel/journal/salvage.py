"""Saves what is intact of a damaged journal, as a new, complete journal.

A scheduler can start from the empty state or from a kept state. Salvage takes the undamaged facts that follow one of
these and reach furthest.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sql

from gavel.core.errors import InputError
from gavel.journal import finished as finished_jobs
from gavel.journal import integrity
from gavel.journal.database import is_sqlite, parse
from gavel.journal.errors import CorruptJournalError, JournalError
from gavel.journal.facts import Head, batch, checksum, decode, seed
from gavel.journal.integrity import About, LeaderRow
from gavel.journal.leader import Writer, read_mark
from gavel.journal.queries import JournalReader
from gavel.journal.rows import write_facts, write_learned, write_state
from gavel.journal.tables import ABOUT, BESIDE, FACTS, FINISHED, KEPT, LEARNED

_STEP = 1000
_DAMAGE = (CorruptJournalError, sql.exc.DatabaseError)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What a salvage saved and what was lost."""

    cluster: str
    first: int
    last: int
    last_time: float
    lost: int
    """Facts after the last saved one."""
    states: int
    finished: int
    finished_lost: int
    learned: int


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of undamaged facts: from a state that a scheduler can start from to the last fact before the damage."""

    start: Head
    end: Head


@dataclass(frozen=True, slots=True)
class _Source:
    """What a damaged journal still says about itself."""

    about: About
    term: int
    written: int
    finished: int


def salvage(url: str, to: str) -> SalvageReport:
    """Write the intact part of one journal as another; the damaged one is only read."""
    address, target = parse(url), parse(to)
    if is_sqlite(address) and not Path(address.database or "").is_file():
        raise InputError(f"there is no journal {address.database}; give the file, its folder or a postgresql:// URL")
    with JournalReader(address) as reader, reader.reading() as damaged:
        source = _source(damaged, address)
        starts = _starts(damaged, source.about.cluster)
        run = _furthest(damaged, starts)
        if run is None:
            raise JournalError(
                f"the journal {reader.name} has nothing intact that a scheduler could start from: neither the first"
                " facts nor a kept state; restore a backup"
            )
        writer = Writer.open(target)
        try:
            return _copy(damaged, writer, source, run, [start.number for start in starts])
        finally:
            writer.close()


def _source(connection: sql.Connection, address: sql.URL) -> _Source:
    mark = read_mark(Path((address.database or "") + ".lock")) if is_sqlite(address) else None
    about = _try(connection, lambda: integrity.about(connection)) or _about(connection, mark)
    leads = _try(connection, lambda: integrity.leader(connection))
    facts = sql.select(sql.func.max(FACTS.c.number), sql.func.max(FACTS.c.term))
    last, term = _try(connection, lambda: connection.execute(facts).one()) or (0, 0)
    remembered = mark[1] if mark is not None and mark[0] == about.cluster else 0
    return _Source(
        about=about,
        term=max(leads.term if leads else 0, term or 0),
        written=max(leads.last if leads else 0, last or 0, remembered),
        finished=leads.finished if leads else 0,
    )


def _about(connection: sql.Connection, mark: tuple[str, int] | None) -> About:
    """The cluster as far as known: from the lock file, from the damaged row, or a new one."""
    row = _try(connection, lambda: connection.execute(sql.select(ABOUT.c.cluster)).first())
    cluster = mark[0] if mark is not None else str(row[0]) if row else secrets.token_hex(8)
    return About(cluster, time.time(), 0)


def _starts(connection: sql.Connection, cluster: str) -> list[Head]:
    """The intact states that a scheduler can start from, in order."""
    leads = _try(connection, lambda: integrity.leader(connection))
    starts = [Head(0, seed(cluster))] if leads is None or leads.base == 0 else []
    numbers = _try(connection, lambda: connection.execute(sql.select(KEPT.c.number)).scalars().all()) or []
    kept = [_try(connection, partial(_kept, connection, number)) for number in sorted(numbers)]
    return starts + [head for head in kept if head is not None]


def _kept(connection: sql.Connection, number: int) -> Head:
    row = connection.execute(sql.select(KEPT).where(KEPT.c.number == number)).one()
    integrity.verify_kept(row)
    return Head(row.number, bytes(row.fact_checksum), row.time)


def _furthest(connection: sql.Connection, starts: list[Head]) -> _Run | None:
    best: _Run | None = None
    for start in starts:
        if best is not None and start.number <= best.end.number:
            continue  # part of the last run
        end = start
        for row in _intact(connection, start):
            end = Head(row.number, bytes(row.checksum), row.time)
        best = _Run(start, end)  # it ends after all earlier runs
    return best


def _intact(connection: sql.Connection, start: Head) -> Iterator[sql.Row[Any]]:
    try:
        yield from integrity.chain(connection, start)
    except _DAMAGE:
        return


def _copy(damaged: sql.Connection, writer: Writer, source: _Source, run: _Run, numbers: Iterable[int]) -> SalvageReport:
    about = About(source.about.cluster, source.about.created, source.about.lost + source.written - run.end.number)
    with writer.transaction() as connection:
        if integrity.found_format(connection, writer.name) is not None:
            raise InputError(f"there is already a journal in {writer.name}; give a place without one")
        start = Head(run.start.number, seed(about.cluster), run.start.time)
        # Facts are chained again, so that the new journal is complete wherever the old one began.
        heads = {head.number: head for head in _copy_facts(damaged, connection, run, start, set(numbers))}
        states = _copy_states(damaged, connection, heads)
        jobs, learned = _copy_finished(damaged, connection), _copy_learned(damaged, connection)
        _copy_beside(damaged, connection)
        end = heads[run.end.number]
        leads = LeaderRow(source.term, "", 0.0, end.number, end.checksum, start.number, start.checksum, jobs)
        integrity.describe(connection, about, leads)
    return SalvageReport(
        cluster=about.cluster,
        first=start.number + 1,
        last=end.number,
        last_time=end.time,
        lost=source.written - end.number,
        states=states,
        finished=jobs,
        finished_lost=max(source.finished - jobs, 0),
        learned=learned,
    )


def _copy_facts(
    damaged: sql.Connection, connection: sql.Connection, run: _Run, head: Head, wanted: set[int]
) -> Iterator[Head]:
    """Copy facts; yields the first head, the last, and those after which states were kept."""
    integrity.create_tables(connection)
    yield head
    rows = takewhile(lambda row: row.number <= run.end.number, _intact(damaged, run.start))
    for (term, _), group in groupby(rows, key=lambda row: (row.term, row.number // _STEP)):
        documents = [decode(bytes(row.document), f"fact {row.number}") for row in group]
        copied = batch(documents, head, term)
        write_facts(connection, copied)
        yield from (
            Head(row["number"], row["checksum"], row["time"]) for row in copied.facts if row["number"] in wanted
        )
        head = copied.after
    yield head


def _copy_states(damaged: sql.Connection, connection: sql.Connection, heads: dict[int, Head]) -> int:
    copied = 0
    for number, head in heads.items():
        body = _try(damaged, partial(_body, damaged, number))
        if body is not None:
            write_state(connection, head, body)
            copied += 1
    return copied


def _body(connection: sql.Connection, number: int) -> bytes | None:
    row = connection.execute(sql.select(KEPT).where(KEPT.c.number == number)).first()
    if row is None:
        return None
    integrity.verify_kept(row)
    return bytes(row.document)


def _copy_finished(damaged: sql.Connection, connection: sql.Connection) -> int:
    copied = 0
    for row in _readable(integrity.in_blocks(damaged, FINISHED.c.id)):
        if integrity.finished_intact(row):
            copied += finished_jobs.write(connection, [finished_jobs.of_row(row)])
    return copied


def _copy_learned(damaged: sql.Connection, connection: sql.Connection) -> int:
    rows = _readable(iter(damaged.execute(sql.select(LEARNED).order_by(LEARNED.c.key))))
    good = [row for row in rows if bytes(row.checksum) == checksum(row.key, bytes(row.document))]
    write_learned(connection, {row.key: decode(bytes(row.document), row.key) for row in good})
    return len(good)


def _copy_beside(damaged: sql.Connection, connection: sql.Connection) -> None:
    """Copy users, tokens, enrolled agents, secrets and the audit, as far as they can be read."""
    BESIDE.create_all(connection)
    there = integrity.tables_of(damaged)
    for table in BESIDE.sorted_tables:
        if table.name in there:
            rows = [dict(row._mapping) for row in _readable(iter(damaged.execute(sql.select(table))))]  # noqa: SLF001
            if rows:
                connection.execute(table.insert(), rows)


def _readable(rows: Iterator[sql.Row[Any]]) -> Iterator[sql.Row[Any]]:
    try:
        yield from rows
    except sql.exc.DatabaseError:
        return


def _try(connection: sql.Connection, step: Callable[[], Value]) -> Value | None:
    """The result of a step, or None if what it reads is damaged or missing."""
    try:
        with connection.begin_nested():
            return step()
    except _DAMAGE:
        return None
