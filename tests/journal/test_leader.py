"""One leader: a second scheduler waits or is refused, and a leader that was replaced writes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gavel.journal import (
    FinishedJobRow,
    Journal,
    JournalError,
    JournalInUseError,
    LeadershipLostError,
    TemporaryJournalError,
)
from journal_places import Place, file_place

TICK = {"kind": "tick", "time": 1.0}
DONE = FinishedJobRow(1, "completed", "n", "t", "e", "u", 0.0, 1.0, {})


def overthrow(place: Place) -> Journal:
    """A second leader, although the first one is alive: its lock is taken from it."""
    if place.sqlite:
        Path(place.url.removeprefix("sqlite:///") + ".lock").unlink()
    else:
        place.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    return place.open(holder="the other", wait_seconds=5.0)


def persistently(write: Callable[[], None]) -> None:
    """Write, and again if the connection turns out to be lost."""
    try:
        write()
    except TemporaryJournalError:
        write()


def test_the_cluster_stays_and_the_term_rises(place: Place) -> None:
    with place.open() as journal:
        cluster, term = journal.cluster, journal.term
    with place.open() as journal:
        assert (journal.cluster, journal.term) == (cluster, term + 1)


def test_two_journals_are_two_clusters(place: Place) -> None:
    with place.open() as one, Journal.open(place.another(), holder="here") as two:
        assert one.cluster != two.cluster


def test_a_second_scheduler_is_refused_while_the_first_is_alive(place: Place) -> None:
    with place.open() as first:
        with pytest.raises(JournalInUseError, match="another scheduler is using"):
            place.open()
        first.append([TICK])
    place.open().close()


def test_a_second_scheduler_waits_until_the_first_ends(place: Place) -> None:
    first, waiting = place.open(), threading.Event()
    terms: list[int] = []

    def second() -> None:
        waiting.set()
        with place.open(wait_seconds=30.0) as journal:
            terms.append(journal.term)

    thread = threading.Thread(target=second)
    thread.start()
    waiting.wait()
    first.append([TICK])
    first.close()
    thread.join()
    assert terms == [first.term + 1]


def test_a_leader_that_was_replaced_writes_nothing(place: Place) -> None:
    first = place.open()
    first.append([TICK])
    with overthrow(place) as second:
        writes: list[Callable[[], None]] = [
            lambda: first.append([TICK]),
            lambda: first.keep({"old": True}, 1, [DONE], {"a": {}}),
        ]
        for write in writes:
            with pytest.raises(LeadershipLostError, match=r"another scheduler took over.*the other"):
                persistently(write)
        assert second.last == 1
        assert (second.latest(), second.find("1"), second.learned()) == (None, None, {})
        second.append([TICK])
        assert [entry.number for entry in second.facts()] == [1, 2]
        with pytest.raises(LeadershipLostError):
            first.append([TICK])
    first.close()


def test_a_failed_append_of_a_replaced_leader_is_not_taken_for_the_new_leaders_facts(place: Place) -> None:
    first = place.open()
    with overthrow(place) as second:
        second.append([TICK])
        with pytest.raises(LeadershipLostError):  # the same document is there, but not in this leader's term
            persistently(lambda: first.append([TICK]))
    first.close()


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.journal.database.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install 'gavel-scheduler\[postgres\]'"):
        Journal.open("postgresql://localhost/gavel", holder="here")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="is not writable"):
        file_place(tmp_path / "file").open()


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(JournalError) as error:
        Journal.open("postgresql://me:secret@127.0.0.1:9/gavel", holder="here")
    assert "secret" not in str(error.value)
