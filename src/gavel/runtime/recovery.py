"""The state recorded in a journal: the last kept state and every fact after it. Nothing is decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gavel.core.codec import kind_of
from gavel.core.errors import InputError
from gavel.core.events import SolveFailed
from gavel.core.facts import AllocationAdopted
from gavel.journal.queries import JournalReader
from gavel.runtime.facts import fact_of
from gavel.runtime.state import ClusterState, Configure, Retries

ADOPTED = kind_of(AllocationAdopted)


def recover(
    journal: JournalReader, configure: Configure, retries: Retries | None = None, *, until: int | None = None
) -> ClusterState:
    """The state after the last fact, or after the fact with the number `until`."""
    number, state = last_kept(journal, configure, retries, until=until)
    for entry in journal.facts(after=number, until=until):
        apply(state, entry.document)
    state.jobs.touched.clear()
    state.changed.clear()
    return state


def last_kept(
    journal: JournalReader, configure: Configure, retries: Retries | None = None, *, until: int | None = None
) -> tuple[int, ClusterState]:
    """The last kept state, or the last one before a fact, and the number of the last fact in it."""
    kept = journal.latest(at=until)
    if kept is None:
        return 0, ClusterState(configure, retries)
    number, document = kept
    return number, ClusterState.of(document, configure, retries)


def apply(state: ClusterState, document: Mapping[str, Any]) -> None:
    """Apply a fact from the journal."""
    try:
        fact = fact_of(document, state.problem_of)
    except InputError as error:
        if document["kind"] != ADOPTED:
            raise
        # Written by a version that posed the problem differently. The next round asks again.
        fact = SolveFailed(document["time"], document["fact"]["number"], f"its recorded answer cannot be read: {error}")
    state.evolve(fact)
