"""The driver lets nothing happen outside before it is written, however long the journal takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from virtual_fleet import job_request

from gavel.core.allocation import Allocation
from gavel.core.cluster import Server
from gavel.core.errors import InputError
from gavel.core.problem import Problem
from gavel.journal.database import sqlite_url
from gavel.journal.errors import LeadershipLostError, TemporaryJournalError
from gavel.journal.store import Journal
from gavel.policies.registry import allocate
from gavel.runtime import driver as driving
from gavel.runtime.driver import Driver
from gavel.runtime.events import AgentAttached, JobsSubmitted
from gavel.runtime.messages import Hello, StartAttempt, ToAgent
from gavel.runtime.server import ServeSettings, build_engine, fleet_for
from gavel.wire import PROTOCOL

SECONDS = 20.0
"""More than any of this takes."""


class FailingJournal(Journal):
    """A journal that fails for as long as it is told to."""

    error: Exception | None = None
    tried: Callable[[], None]

    def append(self, documents: Sequence[Any], beside: Sequence[Any] = ()) -> None:
        error = self.error
        if error is not None:
            self.tried()
            raise error
        super().append(documents, beside)


class Wire:
    """Where an agent would listen."""

    def __init__(self) -> None:
        self.heard: list[ToAgent] = []
        self.started = asyncio.Event()

    def send(self, message: ToAgent) -> None:
        self.heard.append(message)
        if isinstance(message, StartAttempt):
            self.started.set()

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        pass


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FailingJournal]:
    with FailingJournal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="test") as opened:
        assert isinstance(opened, FailingJournal)
        yield opened


class Live:
    """A driver at work, with one agent attached."""

    def __init__(self, journal: FailingJournal, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.settings = ServeSettings(folder=folder, round_seconds=1.0)
        self.journal = journal
        self.engine = build_engine(self.settings, journal)
        self.fleet = fleet_for(self.engine, self.settings.fleet)
        self.driver = Driver(self.engine, self.fleet, solve)
        self.wire, self.attempts = Wire(), 0
        self.tried = asyncio.Event()
        journal.tried = lambda: void(loop.call_soon_threadsafe(self._tried))
        self.work = asyncio.create_task(self.driver.run())

    def _tried(self) -> None:
        self.attempts += 1
        if self.attempts >= 2:
            self.tried.set()

    async def attach(self) -> None:
        await asyncio.sleep(0)  # the driver begins
        hello = Hello(protocol=PROTOCOL, name="a", agent="id-a", incarnation="1", accelerators={"v100": 1})
        self.fleet.attach(hello, self.wire)
        await self.driver.post(AgentAttached(time=0.0, agent="id-a", name="a", servers=(Server("a", "v100", 1),)))

    def submit(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.driver.post(JobsSubmitted(0.0, (job_request(100.0),), "key")))


def solve(problem: Problem) -> Allocation:
    return allocate(problem, "max_min_fairness")


def void(_: object) -> None:
    pass


def test_a_submission_is_acknowledged_and_started_only_once_it_could_be_written(
    journal: FailingJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "RETRY_SECONDS", (0.01, 0.01))

    async def story() -> None:
        live = Live(journal, tmp_path)
        await live.attach()
        journal.error = TemporaryJournalError("the disk is full")
        submitted = live.submit()
        await asyncio.wait_for(live.tried.wait(), SECONDS)
        assert not submitted.done()
        assert "1" not in live.engine.records
        assert "disk is full" in live.engine.alarms["journal"]
        journal.error = None
        await asyncio.wait_for(submitted, SECONDS)
        assert "job_queued" in {entry.kind for entry in journal.facts()}
        assert "journal" not in live.engine.alarms
        await asyncio.wait_for(live.wire.started.wait(), SECONDS)
        assert "round_planned" in {entry.kind for entry in journal.facts()}
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_a_scheduler_that_lost_its_journal_ends_and_acknowledges_nothing(
    journal: FailingJournal, tmp_path: Path
) -> None:
    async def story() -> None:
        live = Live(journal, tmp_path)
        await live.attach()
        said = len(live.wire.heard)
        journal.error = LeadershipLostError("another scheduler took over")
        submitted = live.submit()
        with pytest.raises(LeadershipLostError):
            await asyncio.wait_for(live.work, SECONDS)
        with pytest.raises(InputError, match="stopped before this was recorded"):
            await submitted
        assert len(live.wire.heard) == said
        assert "1" not in live.engine.records

    asyncio.run(story())
