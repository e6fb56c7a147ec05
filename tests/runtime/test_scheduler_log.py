"""The scheduler's log: joins and losses, submissions, rounds, how long the policy took, and what is wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.core.cluster import Server
from gavel.core.events import SolveFailed
from gavel.core.facts import JobEnded, JobQueued, RoundPlanned, SolveAsked, Started, Stopped, TimePassed
from gavel.core.jobs import Cause, JobSpec
from gavel.core.locality import Locality
from gavel.journal.database import sqlite_url
from gavel.journal.store import Journal
from gavel.runtime.engine import Engine
from gavel.runtime.facts import AgentJoined, AgentLost, Fact
from gavel.runtime.jobs import JobChange, Refusal
from gavel.runtime.scheduler_log import BlackBox
from gavel.runtime.server import ServeSettings, build_engine

ON_GPU1 = Started(("1",), (1,), "v100", {"gpu1": 1}, locality=Locality.SERVER, cause=Cause("new", "it is new"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="a test") as journal:
        yield build_engine(ServeSettings(folder=tmp_path, round_seconds=60.0), journal)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="gavel")
    return caplog


def queued(number: int) -> JobQueued:
    return JobQueued(1.0, JobSpec(id=str(number), template="A3C", workers=1, steps=100.0))


def test_jobs_that_are_submitted_together_are_one_record(engine: Engine, logged: pytest.LogCaptureFixture) -> None:
    BlackBox(engine)([queued(number) for number in range(1, 1001)])
    (record,) = logged.records
    assert record.getMessage() == "1,000 jobs submitted: 1 to 1000"
    assert record.__dict__["count"] == 1000


@pytest.mark.parametrize(
    ("fact", "level", "said", "fields"),
    [
        (
            AgentJoined(1.0, "id", "gpu1", (Server("gpu1", "v100", 2),)),
            *(logging.INFO, "agent gpu1 joined with 2 v100", {"kind": "agent_joined", "server": "gpu1"}),
        ),
        (
            AgentLost(1.0, "id", "it has stopped responding", {"7": 9.0}, "gpu1"),
            *(logging.WARNING, "agent gpu1 was lost: it has stopped responding; job 7 may still run there"),
            {"job": "7", "server": "gpu1"},
        ),
        (
            JobEnded(1.0, "7", "completed", "all steps done"),
            *(logging.INFO, "job 7 completed: all steps done", {"kind": "job_ended", "job": "7"}),
        ),
        (
            RoundPlanned(1.0, 4, 7.0, 7.0, (Stopped(("2", "3"), Cause("turn", "")),), started=(ON_GPU1,)),
            *(logging.INFO, "a round begins: 1 started, 0 moved, 2 stopped, 0 running, 0 waiting"),
            {"round": 4, "started": 1, "stopped": 2},
        ),
        (TimePassed(1.0), logging.DEBUG, "time was accounted for", {"kind": "time_passed"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_fact_is_a_sentence_with_fields(
    fact: Fact, level: int, said: str, fields: dict[str, object], engine: Engine, logged: pytest.LogCaptureFixture
) -> None:
    BlackBox(engine)([fact])
    (record,) = logged.records
    assert (record.levelno, record.getMessage()) == (level, said)
    assert record.__dict__["fact"] == engine.journal.last
    assert fields.items() <= record.__dict__.items()


def test_an_answer_says_how_long_the_policy_took(engine: Engine, logged: pytest.LogCaptureFixture) -> None:
    box = BlackBox(engine)
    box([SolveAsked(10.0, 3, 11.0)])
    box([SolveFailed(12.5, 3, "no solver agrees")])
    record = logged.records[-1]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "the policy has no answer: no solver agrees, after 2.500 s"
    assert record.__dict__["seconds"] == 2.5


def test_a_refused_transition_is_logged_once(engine: Engine, logged: pytest.LogCaptureFixture) -> None:
    box = BlackBox(engine)
    engine.state.jobs.refusals.append(Refusal("7", JobChange.LAUNCHED, None))
    for _ in range(2):
        box([TimePassed(1.0)])
    (record,) = [record for record in logged.records if record.levelno == logging.ERROR]
    assert "job 7 cannot be launched: there is no such job" in record.getMessage()


def test_an_alarm_is_logged_when_it_begins_and_when_it_ends(engine: Engine, logged: pytest.LogCaptureFixture) -> None:
    logged.set_level(logging.WARNING, logger="gavel")
    box = BlackBox(engine)
    engine.alarms["files"] = "no file can be opened"
    for _ in range(2):
        box([TimePassed(1.0)])
    engine.alarms.clear()
    box([TimePassed(1.0)])
    assert logged.messages == ["alarm: no file can be opened", "alarm cleared: no file can be opened"]


def test_a_bug_in_the_log_does_not_reach_the_scheduler(engine: Engine, logged: pytest.LogCaptureFixture) -> None:
    BlackBox(engine)([object()])  # type: ignore[list-item] # no fact at all
    assert "a bug in the scheduler's log" in logged.messages[-1]
