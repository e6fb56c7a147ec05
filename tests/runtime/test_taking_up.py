"""A journal of format 1, which held events to be decided again, is upgraded with every job in place."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gavel.client.requests import Submission
from gavel.client.views import JobState
from gavel.runtime.agents import identity_of
from gavel.runtime.events import JobsSubmitted
from gavel.runtime.messages import Hello, TaskStatus, ToAgent
from gavel.runtime.server import ServeSettings, build_engine, fleet_for, open_journal
from gavel.wire import PROTOCOL

DUMP = Path(__file__).parent / "journal_format_1.sql"
"""Written by that version: one job completed, three running on two servers, one queued; a state was just kept."""
PLACES = {"2": {"fast": 1}, "3": {"slow": 2}, "4": {"fast": 1}, "5": {}}


@pytest.fixture(params=["stopped", "killed"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServeSettings:
    """After an orderly stop a state is there; of a scheduler that was killed soon, only events."""
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as journal:
        journal.executescript(DUMP.read_text())
        if request.param == "killed":
            journal.execute("DELETE FROM states")
            journal.execute("DELETE FROM jobs")
            journal.commit()
    return ServeSettings(folder=tmp_path, round_seconds=20.0)


@dataclass
class Idle:
    """A world in which no time passes."""

    sent: list[ToAgent] = field(default_factory=list)

    def ask(self, solve: object) -> None:
        pass

    def wake(self, at: float) -> None:
        pass

    def hurry(self) -> None:
        pass

    def send(self, message: ToAgent) -> None:
        self.sent.append(message)

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        pass


def test_every_job_is_found_in_place_and_a_copy_is_kept(settings: ServeSettings) -> None:
    with open_journal(settings) as journal:
        engine = build_engine(settings, journal)
        found = {job: dict(record.places) for job, record in engine.records.items() if not record.finished}
        assert found == PLACES
        done = engine.record("1")
        assert done is not None
        assert (done.state, done.steps_done) == (JobState.COMPLETED, 40.0)
        assert engine.records["2"].request.command == ("train",)
        engine.post(JobsSubmitted(engine.clock(), (Submission(command=("train",), template="mine"),), "key"))
        engine.begin(Idle(), fleet_for(engine, settings.fleet))
        engine.take_in()
        assert engine.state.jobs.keys["key"] == ["6"], "ids are not given again"
    assert (settings.folder / "journal.sqlite.format-1").is_file()
    with open_journal(settings) as journal:  # the second time nothing is upgraded
        assert "6" in build_engine(settings, journal).records


def test_agents_of_the_version_before_keep_their_jobs(settings: ServeSettings) -> None:
    """They have no identity but their name, and are told nothing that they do not know."""
    with open_journal(settings) as journal:
        engine = build_engine(settings, journal)
        fleet = fleet_for(engine, settings.fleet)
        world = Idle()
        engine.begin(world, fleet)
        tasks = tuple(TaskStatus(job=job, attempt=1, rank=0) for job in ("2", "4"))
        known, kinds = identity_of("fast"), {"v100": 2}
        hello = Hello(protocol=PROTOCOL, name="fast", agent=known, incarnation="x", accelerators=kinds, tasks=tasks)
        fleet.attach(hello, world)
        engine.take_in()
        assert not fleet.strays
        assert {"2", "4"} <= fleet.attempts.keys()
        assert engine.records["2"].attempts == 1
