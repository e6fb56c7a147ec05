"""Saves states from a second copy that replays the journal, so that a save never blocks the live state.

It reads what any other reader would, so every kept state is also a successful recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gavel.journal.facts import encode_long
from gavel.journal.finished import FinishedJobRow
from gavel.journal.store import Journal
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.recovery import apply
from gavel.runtime.state import ClusterState
from gavel.runtime.templates import Learned


@dataclass(frozen=True, slots=True)
class Kept:
    """A state that is ready to be written: its bytes, the number of its last fact, and jobs that finished before it."""

    state: bytes
    number: int
    finished: tuple[LiveJobRecord, ...]
    learned: Mapping[str, Learned]
    """What was learned about templates that were forgotten before it."""


class StateKeeper:
    """Follows a journal in its own thread: `catch_up` runs there, `write` where the journal is written."""

    def __init__(self, journal: Journal, recovered: Callable[[], tuple[int, ClusterState]]) -> None:
        self._journal = journal
        self._recovered = recovered
        self._state: ClusterState | None = None
        self._number = 0

    def catch_up(self, until: int) -> Kept:
        """Apply all facts up to that one."""
        if self._state is None:
            self._number, self._state = self._recovered()
        for entry in self._journal.facts(after=self._number, until=until):
            apply(self._state, entry.document)
            self._number = entry.number
        self._state.jobs.touched.clear()
        self._state.changed.clear()
        finished = tuple(self._state.jobs.hand_over())
        learned, self._state.forgotten = self._state.forgotten, {}
        return Kept(encode_long(self._state.document()), self._number, finished, learned)

    def write(self, kept: Kept) -> None:
        """Write a state; may be repeated after a TemporaryJournalError."""
        self._journal.keep(kept.state, kept.number, finished_jobs(kept.finished), kept.learned)


def finished_jobs(records: tuple[LiveJobRecord, ...]) -> list[FinishedJobRow]:
    """Records of finished jobs as rows of the journal."""
    return [
        FinishedJobRow(
            id=int(record.id),
            state=record.state,
            name=record.request.name,
            template=record.request.template,
            entity=record.request.entity or "",
            user=record.request.user,
            submitted=record.submitted,
            ended=record.changed,
            document=record.document(),
        )
        for record in records
    ]
