"""The seam between the scheduler and what runs jobs: another executor serves as well as the fleet of agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from modelled_executor import AGENT, ModelledExecutor, Processes
from virtual_fleet import job_request

from gavel.client.views import JobState
from gavel.core.cluster import Server
from gavel.core.events import AllocationReady, JobCancelled, Solve
from gavel.policies.registry import allocate
from gavel.runtime.engine import Engine
from gavel.runtime.events import DrainAsked, Event, JobsSubmitted, UndrainAsked
from gavel.runtime.executor import Executor
from gavel.runtime.fleet import Fleet, FleetSettings, SchedulerIdentity
from gavel.runtime.server import ServeSettings, build_engine, open_journal
from gavel.runtime.views import cluster_view, job_view
from gavel.scheduler.machine import check_invariants

SERVERS = (Server("fast", "v100", 2), Server("slow", "k80", 2))


@dataclass
class Lab:
    """An engine with a modelled executor, in virtual time."""

    folder: Path
    now: float = 1_000.0
    processes: Processes = field(default_factory=Processes)
    wake_at: float | None = None
    asked: list[Solve] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.boot()

    def boot(self) -> None:
        settings = ServeSettings(folder=self.folder, round_seconds=10.0)
        self.wake_at, self.asked = None, []
        self.journal = open_journal(settings)
        self.engine: Engine = build_engine(settings, self.journal, clock=lambda: self.now)
        engine = self.engine
        self.executor = ModelledExecutor(self.processes, SERVERS, engine.clock, engine.post, engine.records)
        engine.begin(self, self.executor)
        engine.take_in()

    def kill(self) -> None:
        self.journal.close()

    def ask(self, solve: Solve) -> None:
        self.asked.append(solve)

    def wake(self, at: float) -> None:
        self.wake_at = at

    def hurry(self) -> None:
        pass

    def say(self, event: Event) -> None:
        self.engine.post(event)
        self.engine.take_in()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            self.processes.advance(0.5)
            self.executor.tick()
            if self.wake_at is not None and self.wake_at <= self.now:
                self.wake_at = None
                self.engine.round_due()
            self.engine.take_in()
            while self.asked:
                solve = self.asked.pop()
                self.say(AllocationReady(self.now, solve.number, allocate(solve.problem)))
            check_invariants(self.engine.scheduler)

    def state(self, job: str) -> JobState:
        record = self.engine.record(job)
        assert record is not None
        return record.state


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.kill()


def test_both_executors_keep_the_protocol(lab: Lab) -> None:
    executors: list[Executor] = [
        lab.executor,
        Fleet(FleetSettings(), SchedulerIdentity("lab", 1), lambda: 0.0, lab.engine.post, {}),
    ]
    assert len(executors) == 2  # what they are is checked by mypy


def test_jobs_take_turns_complete_and_are_seen_through_any_executor(lab: Lab) -> None:
    sizes = (1, 1, 2, 1, 1, 2)
    lab.say(JobsSubmitted(lab.now, tuple(job_request(200.0, workers=size) for size in sizes), "key"))
    lab.run(5.0)
    view = cluster_view(lab.engine)
    assert [server.state for server in view.servers] == ["connected", "connected"]
    assert view.running == len(list(lab.executor.running())) > 0
    record = lab.engine.records[next(iter(lab.executor.running()))]
    assert job_view(lab.engine, record).steps_done > 0
    lab.run(400.0)
    assert [lab.state(str(number)) for number in range(1, 7)] == [JobState.COMPLETED] * 6


def test_what_runs_is_found_in_place_by_the_next_scheduler(lab: Lab) -> None:
    lab.say(JobsSubmitted(lab.now, tuple(job_request(500.0) for _ in range(3)), "key"))
    lab.run(5.0)
    before = dict(lab.processes.running)
    assert len(before) == 3
    lab.kill()
    lab.boot()
    lab.run(2.0)
    assert lab.processes.running == before
    lab.run(400.0)
    assert all(lab.state(job) is JobState.COMPLETED for job in before)
    assert len(lab.processes.started) == len(set(lab.processes.started))


def test_a_cancelled_job_ends_and_a_drained_executor_runs_empty(lab: Lab) -> None:
    lab.say(JobsSubmitted(lab.now, (job_request(1e6), job_request(1e6)), "key"))
    lab.run(5.0)
    lab.say(JobCancelled(lab.now, "1"))
    assert list(lab.executor.running()) == ["2"]
    lab.say(DrainAsked(lab.now, AGENT, "operator"))
    assert list(lab.executor.running()) == ["2"], "it may stay until the round ends"
    lab.run(12.0)
    assert not list(lab.executor.running())
    assert [server.state for server in cluster_view(lab.engine).servers] == ["drained", "drained"]
    lab.say(UndrainAsked(lab.now, AGENT, "operator"))
    lab.run(12.0)
    assert list(lab.executor.running()) == ["2"]
