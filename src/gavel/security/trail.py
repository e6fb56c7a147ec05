"""The audit trail of a running scheduler: entries for calls, and those that no other transaction carries.

Entries about changes are written with the change. Refusals and reads of private things are collected here and written
every second; a flood of refusals is counted, not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from gavel.journal.audit import AuditEntry, write_audit
from gavel.journal.store import Write
from gavel.security.roles import Caller

MOST_WAITING = 1_000
"""Entries that wait to be written."""
LISTED_PER_MINUTE = 60
"""Refusals of one address that are listed each minute; the others are counted."""


class Trail:
    """Makes entries, and keeps those that wait to be written."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: list[AuditEntry] = []
        self._minute = 0
        self._listed: Counter[str] = Counter()
        """Refusals in this minute, by address."""
        self._unlisted: Counter[str] = Counter()

    def entry(
        self,
        caller: Caller,
        method: str,
        *,
        subject: str = "",
        what: str = "",
        outcome: str = "done",
    ) -> AuditEntry:
        """An entry about a call now."""
        return AuditEntry(
            key=uuid4().hex,
            time=self._clock(),
            user=caller.by or caller.user or caller.agent_name,
            acting_for=caller.user if caller.by else "",
            role=str(caller.role) if caller.user or caller.agent else "",
            address=caller.address,
            method=method,
            object=subject,
            what=what,
            outcome=outcome,
        )

    def entries(self, caller: Caller, method: str, subjects: Sequence[str], what: Sequence[str] = ()) -> Write:
        """Write entries about a call now, one for each subject; they are made where they are written."""
        first, made = self.entry(caller, method), list[AuditEntry]()

        def write(connection: Any) -> None:
            if not made:
                told = what or [""] * len(subjects)
                pairs = zip(subjects, told, strict=True)
                made.extend([replace(first, key=uuid4().hex, object=subject, what=text) for subject, text in pairs])
            write_audit(connection, made)

        return write

    def note(self, entry: AuditEntry) -> None:
        """Have an entry written soon."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(entry)
        else:
            self._unlisted[entry.address] += 1

    def refused(self, caller: Caller, method: str, outcome: str, *, subject: str = "") -> None:
        """Note that a call was refused; of a flood only the first ones are listed."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute, self._listed = minute, Counter()
        self._listed[caller.address] += 1
        if self._listed[caller.address] > LISTED_PER_MINUTE or len(self._listed) > MOST_WAITING:
            self._unlisted[caller.address if len(self._unlisted) < MOST_WAITING else "other addresses"] += 1
        else:
            self.note(self.entry(caller, method, subject=subject, outcome=f"refused: {outcome}"))

    def due(self) -> Write | None:
        """What waits to be written; None if nothing does."""
        entries, self._waiting = self._waiting, []
        unlisted, self._unlisted = self._unlisted, Counter()
        entries += [self._flood(address, count) for address, count in unlisted.items()]
        return written(entries) if entries else None

    def _flood(self, address: str, count: int) -> AuditEntry:
        what = f"{count:,} more refused calls from this address are not listed"
        return AuditEntry(
            key=uuid4().hex, time=self._clock(), user="", address=address, method="", what=what, outcome="refused"
        )


def written(entries: Sequence[AuditEntry]) -> Write:
    """Write entries in a transaction, for example of what they describe."""
    return partial(_write_audit, entries=tuple(entries))


def _write_audit(connection: Any, *, entries: Sequence[AuditEntry]) -> None:
    write_audit(connection, entries)
