"""Old data is removed in small steps; what a restart needs stays."""

from __future__ import annotations

import pytest

from gavel.core.errors import InputError
from gavel.journal import CompactReport, FinishedJobRow, Retention, open_read_only, state_at
from gavel.journal.facts import Document
from journal_places import Place

DAY = 86_400.0


def fill(place: Place, days: int, *, keep_every: int = 1) -> None:
    with place.open() as journal:
        for day in range(days):
            journal.append([{"kind": "tick", "time": day * DAY + hour, "job": str(day)} for hour in range(10)])
            if day % keep_every == 0:
                job = FinishedJobRow(day, "completed", "n", "t", "e", "u", 0.0, day * DAY, {})
                journal.keep({"facts": journal.last}, journal.last, [job])


def test_old_facts_and_jobs_go_and_a_restart_still_works(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.journal.retention.STEP", 7)
    fill(place, 10)
    pauses: list[int] = []
    with place.open() as journal:
        report = journal.compact(facts_before=5 * DAY, finished_before=3 * DAY, pause=lambda: pauses.append(1))
        assert report == CompactReport(facts=50, states=4, finished=3)
        assert len(pauses) >= 50 // 7
        assert [entry.number for entry in journal.facts()] == list(range(51, 101))
        assert list(journal.facts(job="0")) == []
        assert journal.latest(at=50) == (50, {"facts": 50})
        journal.append([{"kind": "tick", "time": 11 * DAY}])
        assert journal.compact(facts_before=5 * DAY).facts == 0
    with place.open() as journal:
        assert journal.last == 101
        assert journal.check().problems == ()
        assert journal.check().first == 51


def test_facts_after_the_newest_kept_state_stay_however_old(place: Place) -> None:
    fill(place, 10, keep_every=9)
    with place.open() as journal:
        assert journal.compact(facts_before=1000 * DAY) == CompactReport(facts=100, states=1, finished=0)
        journal.append([{"kind": "tick", "time": 11 * DAY}])
        assert journal.compact(facts_before=1000 * DAY).facts == 0
        assert [entry.number for entry in journal.facts()] == [101]
    with place.open() as journal:
        assert journal.latest() == (100, {"facts": 100})


def test_without_a_kept_state_nothing_goes(place: Place) -> None:
    with place.open() as journal:
        journal.append([{"kind": "tick", "time": 1.0}])
        assert journal.compact(facts_before=1000 * DAY).facts == 0


def test_every_fact_that_stays_belongs_to_a_state_that_can_be_rebuilt(place: Place) -> None:
    def fold(state: Document | None, facts: object) -> Document:
        return {"facts": (state or {"facts": 0})["facts"] + len(list(facts))}  # type: ignore[call-overload]

    fill(place, 12, keep_every=4)
    with place.open() as journal:
        Retention(journal_days=4).apply(journal, now=11 * DAY)
    with open_read_only(place.url) as reader:
        first = reader.leader.base + 1
        assert first > 1
        for entry in reader.facts():
            assert state_at(reader, entry.number, fold) == {"facts": entry.number}
        with pytest.raises(InputError, match="compacted"):
            state_at(reader, first - 2, fold)


def test_states_are_thinned_to_one_a_day_and_the_newest(place: Place) -> None:
    with place.open() as journal:
        for hour in range(60):
            journal.append([{"kind": "tick", "time": hour * 3600.0}])
            journal.keep({}, journal.last)
        Retention(newest_states=2).apply(journal, now=60 * 3600.0)
        assert [time / 3600 for _, time in journal.kept()] == [0, 24, 48, 58, 59]


def test_compaction_by_another_process_leaves_the_leader_in_place(place: Place) -> None:
    fill(place, 4)
    with place.open() as journal, open_read_only(place.url) as other:
        Retention(journal_days=1).apply(other, now=4 * DAY)
        journal.append([{"kind": "tick", "time": 5 * DAY}])
        journal.keep({}, journal.last)
        assert journal.check().problems == ()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)  # PostgreSQL manages its own space
def test_a_file_shrinks_when_much_is_removed(place: Place) -> None:
    with place.open() as journal:
        noise = [str(hash((1, number))) for number in range(200)]
        for number in range(200):
            journal.append([{"kind": "tick", "time": float(number), "noise": noise[number:] + noise[:number]}])
        journal.keep({}, journal.last)
        before = place.execute("PRAGMA page_count")[0][0]
        journal.compact(facts_before=1000.0)
        assert place.execute("PRAGMA page_count")[0][0] < before / 2


@pytest.mark.parametrize("wrong", [{"journal_days": 0.0}, {"finished_days": -1.0}, {"newest_states": 0}])
def test_retention_of_zero_days_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be"):
        Retention(**wrong)  # type: ignore[arg-type]
