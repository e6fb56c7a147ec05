"""What was appended is there, once, in order, and found by number, time, job, server and kind."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.journal import CorruptJournalError, Entry, FinishedJobRow, Journal, open_read_only
from gavel.journal.facts import WIDE
from journal_places import Place, file_place

Document = dict[str, Any]


def fact(time: float, kind: str = "tick", **more: object) -> Document:
    return {"kind": kind, "time": time, **more}


def numbers(entries: Iterable[Entry]) -> list[int]:
    return [entry.number for entry in entries]


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


def test_facts_are_found_by_what_they_name(place: Place) -> None:
    with place.open() as journal:
        journal.append(
            [
                fact(1.0, "queued", job="7"),
                fact(2.0, "joined", server="a"),
                fact(3.0, "launched", job="7", server="a"),
                fact(4.0, "planned", jobs=["7", "8"]),
                fact(5.0, "queued", job="8"),
            ]
        )
        assert numbers(journal.facts(job="7")) == [1, 3, 4]
        assert numbers(journal.facts(server="a")) == [2, 3]
        assert numbers(journal.facts(kinds=["queued", "joined"])) == [1, 2, 5]
        assert numbers(journal.facts(since=2.0, before=4.0)) == [2, 3]
        assert numbers(journal.facts(after=1, until=3)) == [2, 3]
        assert numbers(journal.facts(newest_first=True, limit=2)) == [5, 4]
        assert numbers(journal.facts(job="7", newest_first=True, limit=1)) == [4]
        assert numbers(journal.facts(job="nothing")) == []


def test_a_fact_that_names_very_many_jobs_is_found_by_each_of_them(place: Place) -> None:
    many = [str(number) for number in range(WIDE + 10)]
    with place.open() as journal:
        journal.append([fact(1.0, jobs=many), fact(2.0, "queued", job="5"), fact(3.0, jobs=many)])
        journal.append([fact(4.0, jobs=many[6:]), fact(5.0, "queued", job="x")])
        assert numbers(journal.facts(job="5")) == [2, 3]
        assert numbers(journal.facts(job="x")) == [5]
        assert len(place.execute("SELECT * FROM fact_jobs")) == 5


def test_reading_crosses_pages_without_gaps(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.journal.queries.PAGE", 3)
    with place.open() as journal:
        journal.append([fact(float(number), job=str(number % 2)) for number in range(1, 11)])
        assert numbers(journal.facts()) == list(range(1, 11))
        assert numbers(journal.facts(newest_first=True)) == list(range(10, 0, -1))
        assert numbers(journal.facts(job="0", limit=4)) == [2, 4, 6, 8]


def test_text_that_a_database_cannot_store_survives_in_the_document(place: Place) -> None:
    odd = fact(1.0, "k\0", job="a\0b", server="s\ud800", note="\0")
    with place.open() as journal:
        journal.append([odd])
        assert [entry.document for entry in journal.facts(job="a\ufffdb")] == [odd]
        assert journal.check().problems == ()


def test_facts_after_the_end_of_a_job_are_not_searched_for_it(place: Place) -> None:
    many = [str(number) for number in range(WIDE + 1)]
    with place.open() as journal:
        journal.append([fact(1.0, "queued", job="5"), fact(2.0, jobs=many), fact(3.0, "completed", job="5")])
        journal.append([fact(4.0, jobs=many), fact(5.0, "queued", job="6"), fact(6.0, jobs=many)])
        journal.keep({}, 6, [FinishedJobRow(5, "completed", "n", "t", "e", "u", 1.0, 3.0, {})])
        assert numbers(journal.facts(job="5")) == [1, 2, 3]
        assert numbers(journal.facts(job="6")) == [5, 6]


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_reader_does_not_skip_missing_facts_silently(place: Place, newest_first: bool) -> None:
    with place.open() as journal:
        journal.append([fact(float(number)) for number in range(5)])
        place.execute("DELETE FROM facts WHERE number = 3")
        with pytest.raises(CorruptJournalError, match=r"fact 3 of the journal .* is missing"):
            list(journal.facts(newest_first=newest_first))


@pytest.mark.parametrize("time", [float("nan"), float("inf")])
def test_a_time_that_is_not_finite_is_refused(tmp_path: Path, time: float) -> None:
    with file_place(tmp_path).open() as journal:
        with pytest.raises(ValueError, match="finite"):
            journal.append([fact(time)])
        assert journal.last == 0


def test_states_are_kept_and_the_newest_before_a_fact_is_found(place: Place) -> None:
    with place.open() as journal:
        assert journal.latest() is None
        journal.append([fact(1.0), fact(2.0), fact(3.0)])
        journal.keep({"a": 1}, 1)
        journal.keep({"a": 3}, 3)
        journal.keep({"a": "3 again"}, 3)
    with place.open() as journal:
        assert journal.latest() == (3, {"a": "3 again"})
        assert journal.latest(at=2) == (1, {"a": 1})
        assert journal.latest(at=0) is None


def test_a_state_before_any_fact_can_be_kept(place: Place) -> None:
    with place.open() as journal:
        journal.keep({"empty": True}, 0)
        with pytest.raises(ValueError, match="after fact 1"):
            journal.keep({}, 1)
    with place.open() as journal:
        assert journal.latest() == (0, {"empty": True})


def test_a_long_state_comes_back_unchanged(place: Place) -> None:
    state = {"jobs": [{"id": number, "name": "é"} for number in range(1000)], "by": {"x": {"y": [1.5] * 200}}, "e": []}
    with place.open() as journal:
        journal.keep(state, 0)
        assert journal.latest() == (0, state)


def test_what_was_learned_is_replaced_by_key(place: Place) -> None:
    with place.open() as journal:
        journal.keep({}, 0, learned={"a": {"rate": 1}, "b": {"rate": 2}})
        journal.keep({}, 0, learned={"b": {"rate": 3}})
        journal.keep({}, 0)
        assert journal.learned() == {"a": {"rate": 1}, "b": {"rate": 3}}
        assert journal.learned(["b", "c"]) == {"b": {"rate": 3}}


def test_readers_see_each_append_while_the_scheduler_runs(place: Place) -> None:
    with place.open() as journal, open_read_only(place.url) as reader:
        reading = reader.facts()
        journal.append([fact(1.0)])
        assert next(reading).number == 1
        journal.append([fact(2.0)])  # the open iterator holds no transaction
        assert numbers(reader.facts()) == [1, 2]
        assert reader.leader.last == 2


def test_threads_read_while_another_appends(place: Place) -> None:
    seen: list[list[int]] = []
    with place.open() as journal:
        journal.append([fact(0.0)])
        readers = [threading.Thread(target=lambda: seen.append(numbers(journal.facts()))) for _ in range(4)]
        for reader in readers:
            reader.start()
        for number in range(1, 20):
            journal.append([fact(float(number))])
        for reader in readers:
            reader.join()
    assert all(found == list(range(1, len(found) + 1)) and found for found in seen)
    assert len(seen) == 4


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
documents = st.builds(
    lambda time, kind, job, more: {**more, "kind": kind, "time": time, **({} if job is None else {"job": job})},
    st.floats(0, 1e9),
    texts,
    st.none() | texts,
    st.dictionaries(texts.filter(lambda key: key not in {"kind", "time", "job", "jobs", "server"}), texts, max_size=2),
)


@given(st.lists(st.lists(documents, min_size=1, max_size=4), max_size=5), st.integers(0, 20))
def test_any_prefix_is_read_back_and_continued(batches: list[list[Document]], cut: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        place, written = file_place(folder), list[Document]()
        for index, batch in enumerate(batches):
            with place.open() as journal:
                assert journal.last == len(written)
                journal.append(batch)
                written += batch
                if index % 2:
                    journal.keep({"count": len(written)}, len(written))
        with place.open() as journal:
            assert [entry.document for entry in journal.facts(until=cut)] == written[:cut]
            start, state = journal.latest(at=cut) or (0, {"count": 0})
            assert state["count"] + len(list(journal.facts(after=start, until=cut))) == min(cut, len(written))
            assert journal.check().problems == ()
    finally:
        shutil.rmtree(folder)


def test_the_journal_refuses_memory_and_other_databases() -> None:
    for url, reason in (("sqlite://", "memory"), ("mysql://x/y", "mysql"), ("nonsense", "is not a journal address")):
        with pytest.raises(ValueError, match=reason):
            Journal.open(url, holder="here")
