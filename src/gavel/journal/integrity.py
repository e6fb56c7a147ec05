"""Checks that a journal is undamaged: cheaply when it is opened, completely on request.

Every fact's checksum covers the facts before it, and the leader's row holds the last checksum, so facts missing from
the beginning, the middle or the end are always noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import sqlalchemy as sql

from gavel.core.errors import InputError
from gavel.journal.errors import CorruptJournalError, JournalError, advice
from gavel.journal.facts import WIDE, Head, checksum, column, decode, jobs_of, link, seed, server_of
from gavel.journal.finished import row_checksum
from gavel.journal.tables import ABOUT, ANY_JOB, FACT_JOBS, FACTS, FINISHED, FORMAT, KEPT, LEADER, LEARNED, METADATA

QUICK_CHECK_BYTES = 64 * 1024 * 1024
"""SQLite verifies the pages of files up to this size when the journal is opened, in about a tenth of a second."""
_BLOCK = 2000
"""Facts whose index rows are compared at a time."""


@dataclass(frozen=True, slots=True)
class About:
    """The constants of a journal."""

    cluster: str
    created: float
    lost: int
    """Facts that a salvage could not save; ids they assigned must not be reused."""


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """The leader, and the numbers and checksums of the last fact and of the last fact that compaction removed."""

    term: int
    holder: str
    since: float
    last: int
    last_checksum: bytes
    base: int
    base_checksum: bytes
    finished: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a complete check."""

    cluster: str
    first: int
    last: int
    intact: int
    """Facts first..intact are in order and unchanged; equals `last` if all are."""
    intact_time: float
    kept: tuple[int, ...]
    """Numbers of the intact kept states."""
    finished: int
    learned: int
    problems: tuple[str, ...] = field(default=())

    @property
    def whole(self) -> bool:
        """Whether the journal is undamaged."""
        return not self.problems


# ---- parts ----


def tables_of(connection: sql.Connection) -> set[str]:
    """The tables that exist."""
    return set(sql.inspect(connection).get_table_names())


def found_format(connection: sql.Connection, name: str) -> int | None:
    """The format of a journal; None if there is none yet."""
    tables = tables_of(connection)
    if "about" in tables:
        formats = connection.execute(sql.select(ABOUT.c.format)).scalars().all()
        if len(formats) == 1:
            return int(formats[0])
        if not formats and "facts" not in tables:
            return None if not tables & {"events", "leader"} else 1
    if damaged := sorted(tables & {"about", "facts", "leader", "kept"}):
        reason = f"it has the tables {', '.join(damaged)}, but no row that gives its format"
        raise CorruptJournalError(f"the journal {name} is damaged: {reason}; restore it from a backup", reason=reason)
    return None


def check_format(connection: sql.Connection, name: str) -> None:
    """Refuse a journal that this version cannot read."""
    found = found_format(connection, name)
    if found == FORMAT:
        return
    if found is None:
        raise InputError(f"there is no journal in {name}")
    if found < FORMAT:
        raise InputError(f"the journal {name} has format {found}; start a scheduler on it to upgrade it")
    raise newer(name, found)


def newer(name: str, found: int) -> JournalError:
    """The error for a journal of a later version."""
    return JournalError(f"the journal {name} has format {found}; this version reads {FORMAT}: install a newer Gavel")


def about(connection: sql.Connection) -> About:
    """Read and verify the constants."""
    rows = connection.execute(sql.select(ABOUT)).all()
    if len(rows) != 1 or bytes(rows[0].checksum) != about_checksum(rows[0].cluster, rows[0].created, rows[0].lost):
        raise CorruptJournalError("the table about, which holds the cluster's id, is damaged")
    return About(rows[0].cluster, rows[0].created, rows[0].lost)


def about_checksum(cluster: str, created: float, lost: int) -> bytes:
    """The checksum of the row in the table `about`."""
    return checksum(FORMAT, cluster, float(created), lost)


def leader(connection: sql.Connection) -> LeaderRow:
    """Read the leader's row."""
    row = connection.execute(sql.select(LEADER)).first()
    if row is None:
        raise CorruptJournalError("the leader's row, which holds the number of the last fact, is missing")
    return LeaderRow(
        term=row.term,
        holder=row.holder,
        since=row.since,
        last=row.last,
        last_checksum=bytes(row.last_checksum),
        base=row.base,
        base_checksum=bytes(row.base_checksum),
        finished=row.finished,
    )


def kept_checksum(number: int, time: float, fact_checksum: bytes, body: bytes) -> bytes:
    """The checksum of a kept state."""
    return checksum(number, float(time), fact_checksum, body)


def verify_kept(row: sql.Row[Any]) -> None:
    """Refuse a kept state that has changed since it was written."""
    if bytes(row.checksum) != kept_checksum(row.number, row.time, bytes(row.fact_checksum), bytes(row.document)):
        raise CorruptJournalError(f"the state kept after fact {row.number} is damaged")


# ---- the chain ----


def chain(connection: sql.Connection, head: Head) -> Iterator[sql.Row[Any]]:
    """Facts after the head while they are in order and unchanged; raises at the first damaged one."""
    previous = head.checksum
    for expected, row in enumerate(in_blocks(connection, FACTS.c.number, head.number), head.number + 1):
        if row.number != expected:
            raise CorruptJournalError(f"fact {expected} is missing: fact {row.number} follows fact {expected - 1}")
        body = bytes(row.document)
        previous = link(previous, row.number, row.term, row.time, row.kind, row.server, body)
        if bytes(row.checksum) != previous:
            raise CorruptJournalError(f"fact {expected} does not match its checksum")
        yield row


def in_blocks(connection: sql.Connection, key: sql.Column[int], after: int = -1) -> Iterator[sql.Row[Any]]:
    """The rows after a key in the key's table, in order, read block by block."""
    statement = sql.select(key.table).order_by(key).limit(_BLOCK)
    while rows := connection.execute(statement.where(key > after)).all():
        yield from rows
        after = rows[-1]._mapping[key]  # noqa: SLF001 - a public name


def verify_tail(connection: sql.Connection, head: Head, leads: LeaderRow) -> Head:
    """Verify the facts from the head to the last one; returns the last."""
    for row in chain(connection, head):
        head = Head(row.number, bytes(row.checksum), row.time)
        if row.term > leads.term:
            raise CorruptJournalError(f"fact {row.number} has term {row.term}, but the last leader had {leads.term}")
    if head.number != leads.last:
        raise CorruptJournalError(f"facts {head.number + 1} to {leads.last} are missing")
    if head.checksum != leads.last_checksum:
        raise CorruptJournalError(f"fact {head.number} is not the last one that the leader recorded")
    return head


# ---- when a journal is opened ----


def verify(connection: sql.Connection) -> tuple[About, Head]:
    """Verify cheaply: counts and ends of every table, and everything a restart reads; returns the last fact."""
    _quick_check(connection)
    what, leads = about(connection), leader(connection)
    count, first = connection.execute(sql.select(sql.func.count(), sql.func.min(FACTS.c.number))).one()
    if count and first != leads.base + 1:
        raise CorruptJournalError(f"facts {leads.base + 1} to {first - 1} are missing")
    if count != leads.last - leads.base:
        raise CorruptJournalError(f"the journal holds {count} facts, but {leads.last - leads.base} were written")
    newest = connection.execute(sql.select(KEPT).order_by(KEPT.c.number.desc()).limit(1)).first()
    if newest is None and leads.base:
        raise CorruptJournalError(f"facts up to {leads.base} were compacted into a kept state, which is missing")
    head = Head(leads.base, leads.base_checksum)
    if newest is not None:
        verify_kept(newest)
        head = Head(newest.number, bytes(newest.fact_checksum), newest.time)
    return what, verify_tail(connection, head, leads)


def _quick_check(connection: sql.Connection) -> None:
    """Let SQLite check the pages of a small file."""
    if connection.dialect.name != "sqlite":
        return
    size = connection.exec_driver_sql("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").scalar()
    if (size or 0) <= QUICK_CHECK_BYTES:
        _sqlite_check(connection, "quick_check")


def _sqlite_check(connection: sql.Connection, pragma: str) -> None:
    found = connection.exec_driver_sql(f"PRAGMA {pragma}(1)").scalar()
    if found != "ok":
        raise CorruptJournalError(f"the database file is damaged: {' '.join(str(found).split())}")


# ---- on request ----


def check(connection: sql.Connection) -> CheckReport:
    """Verify everything."""
    problems: list[str] = []
    if connection.dialect.name == "sqlite":
        _note(problems, lambda: _sqlite_check(connection, "integrity_check"))
    what = _note(problems, lambda: about(connection)) or About("unknown", 0.0, 0)
    leads = leader(connection)
    _note(problems, lambda: _check_base(connection, what, leads))
    intact = _check_facts(connection, leads, problems)
    kept = _check_kept(connection, problems)
    return CheckReport(
        cluster=what.cluster,
        first=leads.base + 1,
        last=leads.last,
        intact=intact.number,
        intact_time=intact.time,
        kept=tuple(kept),
        finished=_check_finished(connection, leads, problems),
        learned=_check_learned(connection, problems),
        problems=tuple(problems),
    )


def _note(problems: list[str], step: Any) -> Any:
    """Run one step and record the problems it finds."""
    try:
        return step()
    except CorruptJournalError as error:
        problems.append(error.reason)
        return None


def _check_base(connection: sql.Connection, what: About, leads: LeaderRow) -> None:
    if leads.base == 0 and leads.base_checksum != seed(what.cluster):
        raise CorruptJournalError("the facts belong to a different cluster than the journal")
    verify(connection)


def _check_facts(connection: sql.Connection, leads: LeaderRow, problems: list[str]) -> Head:
    """Follow the chain from its beginning, and compare the index with the documents."""
    head = Head(leads.base, leads.base_checksum)
    rows = chain(connection, head)
    try:
        while block := list(islice(rows, _BLOCK)):
            head = Head(block[-1].number, bytes(block[-1].checksum), block[-1].time)
            _check_block(connection, block)
    except CorruptJournalError as error:
        _add(problems, error.reason)
        return _intact(connection, leads)
    if head.number != leads.last:
        _add(problems, f"facts {head.number + 1} to {leads.last} are missing")
    return head


def _add(problems: list[str], reason: str) -> None:
    if reason not in problems:
        problems.append(reason)


def _check_block(connection: sql.Connection, block: list[sql.Row[Any]]) -> None:
    expected: set[tuple[str, int]] = set()
    for row in block:
        document = decode(bytes(row.document), f"fact {row.number}")
        listed = (column(document["kind"]), document["time"], server_of(document))
        if (row.kind, row.time, row.server) != listed:
            raise CorruptJournalError(f"fact {row.number} is indexed under the wrong kind, time or server")
        named = jobs_of(document)
        expected |= {(job, row.number) for job in (named if len(named) <= WIDE else [ANY_JOB])}
    between = FACT_JOBS.c.number.between(block[0].number, block[-1].number)
    found = {(row.job, row.number) for row in connection.execute(sql.select(FACT_JOBS).where(between))}
    if wrong := sorted(expected ^ found, key=lambda pair: pair[1]):
        raise CorruptJournalError(f"fact {wrong[0][1]} is indexed under the wrong jobs")


def _intact(connection: sql.Connection, leads: LeaderRow) -> Head:
    """The last fact before any damage."""
    head = Head(leads.base, leads.base_checksum)
    try:
        for row in chain(connection, head):
            head = Head(row.number, bytes(row.checksum), row.time)
    except (CorruptJournalError, sql.exc.DatabaseError):
        pass
    return head


def _check_kept(connection: sql.Connection, problems: list[str]) -> list[int]:
    good = []
    for number in connection.execute(sql.select(KEPT.c.number).order_by(KEPT.c.number)).scalars().all():
        row = connection.execute(sql.select(KEPT).where(KEPT.c.number == number)).one()
        before = len(problems)
        _note(problems, lambda row=row: verify_kept(row))
        actual = connection.execute(sql.select(FACTS.c.checksum).where(FACTS.c.number == number)).scalar()
        if actual is not None and bytes(actual) != bytes(row.fact_checksum):
            problems.append(f"the state kept after fact {number} belongs to other facts")
        if len(problems) == before:
            good.append(number)
    return good


def _check_finished(connection: sql.Connection, leads: LeaderRow, problems: list[str]) -> int:
    count = 0
    for row in in_blocks(connection, FINISHED.c.id):
        count += 1
        if not finished_intact(row):
            problems.append(f"finished job {row.id} does not match its checksum")
    if count != leads.finished:
        problems.append(f"the journal holds {count} finished jobs, but {leads.finished} were written")
    return count


def finished_intact(row: sql.Row[Any]) -> bool:
    """Whether a finished job is unchanged."""
    values = {name: bytes(value) if name == "document" else value for name, value in row._mapping.items()}  # noqa: SLF001 - a public name
    return bytes(row.checksum) == row_checksum(values)


def _check_learned(connection: sql.Connection, problems: list[str]) -> int:
    rows = connection.execute(sql.select(LEARNED)).all()
    wrong = [row.key for row in rows if bytes(row.checksum) != checksum(row.key, bytes(row.document))]
    problems += [f"what was learned about {key} does not match its checksum" for key in wrong]
    return len(rows)


# ---- messages ----


def damage(connection: sql.Connection, name: str, reason: str, written: int = 0) -> CorruptJournalError:
    """The error that says what is intact, what is lost, and what to do."""
    try:
        leads = leader(connection)
        known = _known(leads, _intact(connection, leads), _check_kept(connection, []), max(written, leads.last))
    except (CorruptJournalError, sql.exc.DatabaseError):
        known = "it is unknown what is intact"
    return CorruptJournalError(
        f"the journal {name} is damaged: {reason}; {known}; {advice(name)}", reason=reason, written=written
    )


def _known(leads: LeaderRow, head: Head, states: list[int], written: int) -> str:
    facts = "no fact is intact"
    if head.number > leads.base:
        facts = f"facts {leads.base + 1} to {head.number} (until {moment(head.time)}) are intact"
    lost = (
        f"the {written - head.number} facts after them are lost or damaged" if written > head.number else "none is lost"
    )
    kept = f"the newest intact state is the one after fact {states[-1]}" if states else "no intact state is kept"
    return f"{facts}, {lost}, {kept}"


def moment(time: float) -> str:
    """A time in a form for people.

    >>> moment(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def create_tables(connection: sql.Connection) -> None:
    """Create the tables of a journal."""
    METADATA.create_all(connection, checkfirst=False)


def describe(connection: sql.Connection, what: About, leads: LeaderRow) -> None:
    """Write the initial rows of a journal."""
    mark = about_checksum(what.cluster, what.created, what.lost)
    connection.execute(ABOUT.insert().values(format=FORMAT, checksum=mark, **asdict(what)))
    connection.execute(LEADER.insert().values(id=1, **asdict(leads)))
