"""How long a journal keeps data, and the removal of older data in steps too small to delay a scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sql

from gavel.core.errors import InputError
from gavel.journal import integrity
from gavel.journal.database import shown, writer_engine
from gavel.journal.errors import classified
from gavel.journal.facts import decode
from gavel.journal.tables import FACT_JOBS, FACTS, FINISHED, KEPT, LEADER, LEARNED

STEP = 500
"""Rows removed in one transaction."""
_DAY = 86_400.0

Pause = Callable[[], None]
"""Called between two steps, so that other writers get their turn."""


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What compaction removed."""

    facts: int
    states: int
    finished: int
    learned: int = 0
    """Templates about which nothing is known any more."""

    def __add__(self, other: CompactReport) -> CompactReport:
        return CompactReport(
            self.facts + other.facts,
            self.states + other.states,
            self.finished + other.finished,
            self.learned + other.learned,
        )


class Compactable(Protocol):
    """What retention needs from a journal."""

    @property
    def address(self) -> sql.URL: ...

    def kept(self) -> list[tuple[int, float]]: ...


@dataclass(frozen=True, slots=True)
class Retention:
    """How long data is kept. Facts that the newest kept state needs stay, however old they are."""

    journal_days: float = 30.0
    finished_days: float = 365.0
    newest_states: int = 3
    """How many of the newest states are kept, however close together."""
    hours_between_states: float = 24.0
    """Older states are thinned to one per this time; `gavel journal show --at` starts from them."""
    learned_templates: int = 10_000
    """How many templates without jobs keep what was learned about them: those used most recently."""

    def __post_init__(self) -> None:
        if not self.journal_days > 0 or not self.finished_days > 0:
            raise InputError(
                f"retention must be greater than 0 days, not {self.journal_days:g} and {self.finished_days:g} days"
            )
        if self.newest_states < 1:
            raise InputError(f"at least one state must be kept, not {self.newest_states}")

    def apply(
        self, journal: Compactable, now: float, pause: Pause | None = None, *, finished_until: float = math.inf
    ) -> CompactReport:
        """Remove older data; finished jobs only if they ended before a time; may run in any thread."""
        thinned = drop_states(journal.address, self.superfluous(journal.kept()))
        return CompactReport(0, thinned, 0) + compact(
            journal.address,
            facts_before=now - self.journal_days * _DAY,
            finished_before=min(now - self.finished_days * _DAY, finished_until),
            learned_templates=self.learned_templates,
            pause=pause,
        )

    def superfluous(self, kept: list[tuple[int, float]]) -> list[int]:
        """The numbers of the states that thinning removes.

        >>> hourly = Retention(newest_states=1, hours_between_states=1)
        >>> hourly.superfluous([(1, 0.0), (2, 60.0), (3, 3600.0), (4, 3700.0)])
        [2]
        """
        dropped, previous = [], -float("inf")
        for number, time in kept[: -self.newest_states]:
            if time - previous < self.hours_between_states * 3600.0:
                dropped.append(number)
            else:
                previous = time
        return dropped


def compact(
    address: sql.URL,
    *,
    facts_before: float,
    finished_before: float | None = None,
    learned_templates: int | None = None,
    pause: Pause | None = None,
) -> CompactReport:
    """Remove facts up to the newest kept state older than the time, and finished jobs; works without leadership.

    What was learned is kept for `learned_templates` templates.
    """
    compaction = _Compaction(address, pause)
    try:
        states, facts = compaction.facts(facts_before)
        finished = 0 if finished_before is None else compaction.finished(finished_before)
        learned = 0 if learned_templates is None else compaction.learned(learned_templates)
        compaction.give_back()
        return CompactReport(facts, states, finished, learned)
    finally:
        compaction.close()


def drop_states(address: sql.URL, numbers: list[int]) -> int:
    """Remove these kept states, but never the newest."""
    if not numbers:
        return 0
    compaction = _Compaction(address, None)
    try:
        return compaction.states(numbers)
    finally:
        compaction.close()


class _Compaction:
    """Short transactions on a separate connection; moves the journal's beginning, never its end."""

    def __init__(self, address: sql.URL, pause: Pause | None) -> None:
        self._name = shown(address)
        self._engine = writer_engine(address)
        self._pause = pause or (lambda: None)

    def facts(self, before: float) -> tuple[int, int]:
        """Remove states and facts; returns how many of each."""
        with classified(self._name), self._engine.begin() as connection:
            target = self._target(connection, before)
            if target is None:
                return 0, 0
            states = connection.execute(KEPT.delete().where(KEPT.c.number < target)).rowcount
        removed = 0
        while step := self._step(target):
            removed += step
            self._pause()
        return states, removed

    def _target(self, connection: sql.Connection, before: float) -> int | None:
        """The state that becomes the new beginning."""
        young = sql.select(FACTS.c.number).where(FACTS.c.time >= before).order_by(FACTS.c.number).limit(1)
        first_young = connection.execute(young).scalar()
        states = sql.select(sql.func.max(KEPT.c.number))
        if first_young is not None:
            states = states.where(KEPT.c.number < first_young)
        target = connection.execute(states).scalar()
        return None if target is None else int(target)

    def _step(self, target: int) -> int:
        with classified(self._name), self._engine.begin() as connection:
            # Lock the row first: a leader that appends meanwhile waits for this short transaction, or vice versa.
            connection.execute(LEADER.update().values(base=LEADER.c.base))
            base = integrity.leader(connection).base
            upto = min(target, base + STEP)
            if upto <= base:
                return 0
            last = connection.execute(sql.select(FACTS.c.checksum).where(FACTS.c.number == upto)).scalar_one()
            connection.execute(FACT_JOBS.delete().where(FACT_JOBS.c.number.between(base + 1, upto)))
            connection.execute(FACTS.delete().where(FACTS.c.number.between(base + 1, upto)))
            connection.execute(LEADER.update().values(base=upto, base_checksum=last))
            return upto - base

    def states(self, numbers: list[int]) -> int:
        """Remove kept states."""
        with classified(self._name), self._engine.begin() as connection:
            newest = connection.execute(sql.select(sql.func.max(KEPT.c.number))).scalar()
            chosen = [number for number in numbers if number != newest]
            return sum(connection.execute(KEPT.delete().where(KEPT.c.number == number)).rowcount for number in chosen)

    def finished(self, before: float) -> int:
        """Remove finished jobs that ended before a time."""
        removed = 0
        oldest = sql.select(FINISHED.c.id).where(FINISHED.c.ended < before).order_by(FINISHED.c.ended).limit(STEP)
        while True:
            with classified(self._name), self._engine.begin() as connection:
                chosen = connection.execute(oldest).scalars().all()
                count = connection.execute(FINISHED.delete().where(FINISHED.c.id.in_(chosen))).rowcount if chosen else 0
                connection.execute(LEADER.update().values(finished=LEADER.c.finished - count))
            if not count:
                return removed
            removed += count
            self._pause()

    def learned(self, most: int) -> int:
        """Remove what was learned about the templates forgotten first, beyond a number."""
        with classified(self._name), self._engine.begin() as connection:
            count = connection.execute(sql.select(sql.func.count()).select_from(LEARNED)).scalar_one()
            if count <= most:
                return 0
            rows = connection.execute(sql.select(LEARNED)).all()
        by_age = sorted(rows, key=lambda row: (decode(bytes(row.document), row.key).get("time", 0.0), row.key))
        removed = 0
        for start in range(0, count - most, STEP):
            chosen = by_age[start : min(start + STEP, count - most)]
            with classified(self._name), self._engine.begin() as connection:
                for row in chosen:
                    same = (LEARNED.c.key == row.key) & (LEARNED.c.checksum == row.checksum)  # not rewritten since
                    removed += connection.execute(LEARNED.delete().where(same)).rowcount
            self._pause()
        return removed

    def give_back(self) -> None:
        """Let an SQLite file shrink, a little at a time."""
        if self._engine.dialect.name != "sqlite":
            return
        with classified(self._name), self._engine.connect() as connection:
            while self._shrink(connection.connection.dbapi_connection):
                self._pause()

    def _shrink(self, connection: object) -> bool:
        cursor = connection.cursor()  # type: ignore[attr-defined]
        before: int = cursor.execute("PRAGMA freelist_count").fetchone()[0]
        if before:
            cursor.execute("PRAGMA incremental_vacuum(200)").fetchall()
        after: int = cursor.execute("PRAGMA freelist_count").fetchone()[0]
        cursor.close()
        return 0 < after < before

    def close(self) -> None:
        self._engine.dispose()
