"""What was appended is there, once, in order, and found by number, time, job, server and kind."""

from __future__ import annotations

import pytest
from places import Place

from gavel.journal import Entry, JournalInUseError


def fact(time: float, kind: str = "tick", **more: object) -> dict[str, object]:
    return {"kind": kind, "time": time, **more}


def numbers(entries: object) -> list[int]:
    return [entry.number for entry in entries]  # type: ignore[attr-defined]


def test_facts_come_back_in_order_after_reopening(place: Place) -> None:
    with place.open() as journal:
        journal.append([fact(1.0), fact(2.0, x=1)])
        journal.append([fact(3.0)])
    with place.open() as journal:
        assert (journal.last, journal.last_time) == (3, 3.0)
        assert list(journal.facts(after=1)) == [
            Entry(2, 2.0, "tick", {"kind": "tick", "time": 2.0, "x": 1}),
            Entry(3, 3.0, "tick", {"kind": "tick", "time": 3.0}),
        ]


def test_the_cluster_stays_and_the_term_rises(place: Place) -> None:
    with place.open() as journal:
        cluster, term = journal.cluster, journal.term
    with place.open() as journal:
        assert (journal.cluster, journal.term) == (cluster, term + 1)


def test_a_second_scheduler_is_refused_while_the_first_is_alive(place: Place) -> None:
    with place.open(), pytest.raises(JournalInUseError, match="another scheduler is using"):
        place.open()
    place.open().close()
