"""A start outlasts a journal that cannot be written for a moment, says so, and gives up in a stated time."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from test_safety_driver import FailingJournal

from gavel.journal.database import sqlite_url
from gavel.journal.errors import JournalError, LeadershipLostError, TemporaryJournalError
from gavel.runtime.journal_retry import START_SECONDS, insisting
from gavel.runtime.server import ServeSettings, build_engine

FULL = TemporaryJournalError("the journal x cannot be used at the moment: database or disk is full")


class Outage:
    """Time that passes only while a scheduler sleeps, and a journal that fails until some time."""

    def __init__(self, folder: Path, until: float, error: Exception = FULL) -> None:
        self.now, self.until = 100.0, 100.0 + until
        journal = FailingJournal.open(sqlite_url(folder / "journal.sqlite"), holder="here")
        assert isinstance(journal, FailingJournal)
        self.journal = journal
        self.attempts = 0
        journal.error, journal.tried = error, self.tried
        self.insist = insisting(sleep=self.sleep, clock=lambda: self.now)

    def tried(self) -> None:
        self.attempts += 1

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.until:
            self.journal.error = None


def test_a_start_outlasts_a_full_disk_with_one_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(tmp_path, until=20.0)
    with caplog.at_level(logging.WARNING), outage.journal as journal:
        engine = build_engine(ServeSettings(folder=tmp_path), journal, insist=outage.insist)
        assert outage.attempts > 5
        assert engine.state.configured
        kinds = [entry.document["kind"] for entry in journal.facts()]
        assert kinds.count("scheduler_started") == 1
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"alarm: the start cannot be recorded; trying again for 60 s: {FULL}",
        "the journal can be written again; the scheduler starts",
    ]


def test_a_start_gives_up_in_the_stated_time_with_a_sentence(tmp_path: Path) -> None:
    outage = Outage(tmp_path, until=1e9)
    with (
        outage.journal as journal,
        pytest.raises(JournalError, match=r"did not start.*for 60 s.*disk is full") as error,
    ):
        build_engine(ServeSettings(folder=tmp_path), journal, insist=outage.insist)
    assert not isinstance(error.value, TemporaryJournalError), "it is not tried any more"
    assert "start it again" in str(error.value)
    assert START_SECONDS <= outage.now - 100.0 < START_SECONDS + 3.0


def test_a_start_that_lost_the_lead_ends_at_once(tmp_path: Path) -> None:
    outage = Outage(tmp_path, until=1e9, error=LeadershipLostError("another scheduler took over"))
    with outage.journal as journal, pytest.raises(LeadershipLostError):
        build_engine(ServeSettings(folder=tmp_path), journal, insist=outage.insist)
    assert outage.attempts == 1
