"""The lines that guarantee the safety properties, one promise each: every test fails when its line is removed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_fleet import job_request

from gavel.client.views import JobState, Transition
from gavel.core.cluster import Server
from gavel.core.errors import InputError
from gavel.core.events import AllocationReady, JobCancelled, Launch, RoundDue
from gavel.core.facts import JobEnded, JobRequeued, RoundPlanned, Started
from gavel.core.jobs import Cause
from gavel.core.locality import Locality
from gavel.journal import Journal, sqlite_url
from gavel.policies.registry import allocate
from gavel.runtime.abilities import ABILITIES
from gavel.runtime.agent.exit_verdict import LastWords, judge
from gavel.runtime.agent.state import StateDirectory, mark_of
from gavel.runtime.agent.stream import SchedulerStream, _Connection
from gavel.runtime.agents import AgentRecord, Agents
from gavel.runtime.attempts import parts_of
from gavel.runtime.configuration import Configurator, Scheduling, ServeSettings, settings_document, settings_of
from gavel.runtime.engine import Engine
from gavel.runtime.events import (
    AgentAttached,
    AgentGone,
    AttemptEnded,
    AttemptOutcome,
    Began,
    DrainAsked,
    Event,
    ForgetAsked,
    JobsSubmitted,
    SettingsGiven,
    StepsCounted,
)
from gavel.runtime.executor import Done
from gavel.runtime.facts import AgentForgotten, AgentJoined, AgentLost, AttemptClosed, Fact
from gavel.runtime.fleet import Fleet, FleetSettings, RefusedError, SchedulerIdentity
from gavel.runtime.jobs import JobRegistry, LiveJobRecord
from gavel.runtime.messages import (
    Ending,
    FromAgentFrame,
    Heartbeat,
    Hello,
    Lease,
    StartAttempt,
    StopAttempt,
    TaskEnded,
    TaskStarted,
    TaskStatus,
    ToAgent,
)
from gavel.runtime.open_attempts import OpenAttempts
from gavel.runtime.server import build_engine
from gavel.runtime.state import ClusterState
from gavel.runtime.time_limits import TIME_LIMIT
from gavel.wire import PROTOCOL

SETTINGS = FleetSettings()
V100 = Server("a", "v100", 1)

# ---- the fleet alone ----


@dataclass
class Wire:
    """What an agent was told."""

    sent: list[ToAgent] = field(default_factory=list)

    def send(self, message: ToAgent) -> None:
        self.sent.append(message)

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def started(self) -> list[int]:
        return [message.attempt for message in self.sent if isinstance(message, StartAttempt)]

    def stopped(self) -> list[tuple[int, bool]]:
        return [(message.attempt, message.at_once) for message in self.sent if isinstance(message, StopAttempt)]


class Secrets:
    """Every secret is known."""

    def fault(self, job: str, names: Sequence[str]) -> str:  # noqa: ARG002
        return ""

    def of(self, job: str, names: Sequence[str]) -> dict[str, str]:  # noqa: ARG002
        return dict.fromkeys(names, "value")


class Site:
    """A fleet whose clock and journal move when a test says so; job 1 is to run."""

    def __init__(self, workers: int = 1, state: JobState = JobState.RUNNING, attempts: int = 0, **wanted: Any) -> None:
        self.now = 1000.0
        self.posted: list[Event] = []
        self.unwritten: list[Done] = []
        self.acknowledged: list[int] = []
        history = (Transition(0.0, state, ""),)
        request = job_request(1e6, workers=workers, **wanted)
        record = LiveJobRecord(id="1", request=request, submitted=0.0, history=history, attempts=attempts)
        self.fleet = Fleet(SETTINGS, SchedulerIdentity("lab", 3), lambda: self.now, self._post, {"1": record})

    def _post(self, event: Event, done: Done | None = None) -> None:
        self.posted.append(event)
        if done is not None:
            self.unwritten.append(done)

    def write(self) -> None:
        """The journal has everything that was posted."""
        done, self.unwritten = self.unwritten, []
        for tell in done:
            tell(None)

    def attach(self, name: str, *tasks: TaskStatus, agent: str = "", confidential: bool = True, **more: Any) -> Wire:
        wire, known = Wire(), {"incarnation": "1", "abilities": ABILITIES, **more}
        hello = Hello(
            protocol=PROTOCOL, name=name, agent=agent or f"id-{name}", accelerators={"v100": 2}, tasks=tasks, **known
        )
        self.fleet.attach(hello, wire, confidential=confidential)
        return wire

    def launch(self, attempt: int, *servers: str, until: float = 1360.0) -> None:
        launch = Launch("1", "v100", dict.fromkeys(servers, 1), until, attempt=attempt)
        self.fleet.launch(launch, {server: f"id-{server}" for server in servers})

    def end(self, name: str, attempt: int, ending: Ending = Ending.LEFT, rank: int = 0, **status: Any) -> None:
        ended = TaskEnded(status=task(attempt, rank, **status), ending=ending)
        self.fleet.ended(f"id-{name}", ended, lambda: self.acknowledged.append(attempt))

    def silence(self, seconds: float, *heard: str) -> None:
        """Time passes, in which only these agents are heard of."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for name in heard:
                if f"id-{name}" in self.fleet.members:
                    self.fleet.heartbeat(f"id-{name}", Heartbeat(self._tasks(name)))
            self.fleet.tick()

    def _tasks(self, name: str) -> tuple[TaskStatus, ...]:
        attempt = self.fleet.attempts.get("1")
        part = attempt.part_at(f"id-{name}") if attempt else None
        return (
            () if attempt is None or part is None or part.sent_at is None else (task(attempt.number, part.first_rank),)
        )

    def ends(self) -> list[AttemptEnded]:
        return [event for event in self.posted if isinstance(event, AttemptEnded)]

    def gone(self) -> list[AgentGone]:
        return [event for event in self.posted if isinstance(event, AgentGone)]


def task(attempt: int, rank: int = 0, **more: Any) -> TaskStatus:
    return TaskStatus(job="1", attempt=attempt, rank=rank, **more)


@pytest.fixture
def moved() -> tuple[Site, Wire]:
    """Job 1 runs at `a`, is asked to leave, and launched again at `b`."""
    site = Site()
    site.attach("a")
    other = site.attach("b")
    site.launch(1, "a")
    site.fleet.stop("1", Cause("yielded"))
    site.launch(2, "b")
    return site, other


def test_an_attempt_starts_only_when_the_one_before_it_has_ended_and_the_journal_has_it(
    moved: tuple[Site, Wire],
) -> None:
    site, other = moved
    assert other.started() == []
    site.end("a", 1)
    assert other.started() == []
    assert site.acknowledged == []
    site.write()
    assert other.started() == [2]
    assert site.acknowledged == [1]


def test_an_end_that_is_said_twice_is_acknowledged_twice_and_only_once_it_is_written(moved: tuple[Site, Wire]) -> None:
    site, _ = moved
    site.end("a", 1)
    site.end("a", 1)
    assert site.acknowledged == []
    site.write()
    assert site.acknowledged == [1, 1]


def test_what_a_lost_agent_ran_starts_elsewhere_only_after_lease_slack_and_the_time_for_ending() -> None:
    site = Site()
    site.attach("a")
    other = site.attach("b")
    site.fleet.renew(1100.0)
    site.launch(1, "a", until=1100.0)
    site.fleet.renew(1200.0)  # a lease that the agent was told of later
    site.silence(SETTINGS.agent_timeout_seconds + 2, "b")
    until = 1200.0 + SETTINGS.lease_slack_seconds + SETTINGS.ending_seconds
    (gone,) = site.gone()
    assert gone.fences == {"1": until}
    site.write()
    site.launch(2, "b")
    site.silence(until - site.now - 1, "b")
    assert other.started() == []
    site.silence(1, "b")
    assert other.started() == [2]


def test_a_lease_that_an_agent_gets_when_it_comes_back_counts_in_its_fence() -> None:
    site = Site()
    site.attach("a")
    site.fleet.renew(1100.0)
    site.launch(1, "a", until=1100.0)
    site.silence(200, "a")
    wire = site.attach("a", task(1))
    (lease,) = [message for message in wire.sent if isinstance(message, Lease)]
    until = site.now + lease.seconds + SETTINGS.ending_seconds
    site.silence(SETTINGS.agent_timeout_seconds + 2)
    assert site.gone()[0].fences == {"1": until}


@pytest.mark.parametrize("grace", [0.5, 900.0])
def test_the_fence_of_a_job_with_its_own_grace_lasts_as_long_as_that_grace(grace: float) -> None:
    site = Site(grace_seconds=grace)
    site.attach("a")
    other = site.attach("b")
    site.fleet.renew(1100.0)
    site.launch(1, "a", until=1100.0)
    site.silence(SETTINGS.agent_timeout_seconds + 2, "b")
    until = 1100.0 + SETTINGS.lease_slack_seconds + grace + SETTINGS.terminate_grace_seconds
    assert site.gone()[0].fences == {"1": until}
    site.write()
    site.launch(2, "b")
    site.silence(until - site.now - 1, "b")
    assert other.started() == []
    site.silence(2, "b")
    assert other.started() == [2]


def test_a_stray_of_a_job_with_its_own_grace_is_fenced_for_as_long_as_that_grace() -> None:
    site = Site(grace_seconds=900.0)
    site.attach("a")
    site.launch(1, "a")
    site.end("a", 1)
    site.write()
    site.attach("a", task(1))  # of a plan that no longer holds
    site.silence(SETTINGS.agent_timeout_seconds + 2)
    assert site.gone()[0].fences["1"] >= site.now + 900.0


# ---- one process for each server ----


def spread() -> Site:
    """Job 1 has one process for each server."""
    return Site(workers=3, launcher="per-server")


def launched(site: Site) -> tuple[Wire, Wire]:
    """Have it run at `a`, with two accelerators, and at `b`, with one."""
    a, b = site.attach("a"), site.attach("b")
    site.fleet.launch(Launch("1", "v100", {"a": 2, "b": 1}, 1360.0, attempt=1), {"a": "id-a", "b": "id-b"})
    first = TaskStarted(job="1", attempt=1, rank=0, master_address="10.0.0.1", master_port=5, gang_port=6)
    site.fleet.started("id-a", first)
    return a, b


def test_each_server_starts_one_process_that_is_known_by_the_number_of_the_server() -> None:
    site = spread()
    starts = [message for wire in launched(site) for message in wire.sent if isinstance(message, StartAttempt)]
    assert [(each.node, each.nodes, each.first_rank, each.ranks) for each in starts] == [(0, 2, 0, 2), (1, 2, 2, 1)]
    assert [list(each.process_ranks) for each in starts] == [[0], [1]]
    assert [site.fleet.holds("id-b", "1", 1, rank) for rank in range(3)] == [False, True, False]


def test_an_attempt_with_one_process_for_each_server_is_over_when_each_has_ended() -> None:
    site = spread()
    launched(site)
    site.fleet.stop("1", Cause("yielded"))
    site.end("a", 1)
    assert site.ends() == []
    site.end("b", 1, rank=1)
    assert [ended.outcome for ended in site.ends()] == [AttemptOutcome.LEFT]


def test_a_restarted_scheduler_expects_one_process_for_each_server() -> None:
    site = spread()
    records = [AgentRecord(agent=f"id-{n}", name=n, servers=(Server(n, "v100", 2),), since=0.0) for n in "ab"]
    launch = Launch("1", "v100", {"a": 2, "b": 1}, 1360.0, attempt=1)
    site.fleet.jobs = {"1": replace(site.fleet.jobs["1"], attempts=1)}
    site.fleet.begin(records, [("1", [launch])], {}, 1000.0, {("1", 1): {"a": "id-a", "b": "id-b"}})
    site.attach("a", task(1, 0))
    wire = site.attach("b", task(1, 1))
    assert wire.stopped() == []
    site.end("a", 1, Ending.DONE)
    site.end("b", 1, Ending.DONE, rank=1)
    assert [ended.outcome for ended in site.ends()] == [AttemptOutcome.DONE]


# ---- what an agent is able to do ----

NEEDS = [
    ({"grace_seconds": 5.0}, "its own time to save"),
    ({"launcher": "per-server"}, "one process for each server"),
    ({"venv": "/venv"}, "a virtual environment"),
    ({"modules": ("cuda",)}, "environment modules"),
    ({"container": "image"}, "a container"),
]


@pytest.mark.parametrize(("wanted", "said"), NEEDS)
def test_a_job_does_not_start_at_an_agent_that_would_run_it_otherwise_than_it_asks(
    wanted: dict[str, Any], said: str
) -> None:
    site = Site(**wanted)
    wire = site.attach("a", abilities=())
    site.launch(1, "a")
    assert wire.started() == []
    (ended,) = site.ends()
    assert (ended.outcome, ended.hopeless) == (AttemptOutcome.BLOCKED, False)
    assert said in ended.reason
    assert "upgrade gavel there" in ended.reason


def test_no_part_of_a_gang_starts_if_one_of_its_agents_cannot_run_it() -> None:
    site = spread()
    able = site.attach("a")
    site.attach("b", abilities=())
    site.launch(1, "a", "b")
    assert able.started() == []
    assert "agent b" in site.ends()[0].reason


def test_an_agent_of_an_earlier_version_runs_what_it_knows() -> None:
    site = Site()
    wire = site.attach("a", abilities=())
    site.launch(1, "a")
    assert wire.started() == [1]


def test_what_an_agent_cannot_do_is_found_when_it_comes_back_after_a_restart_of_the_scheduler() -> None:
    site = Site(grace_seconds=5.0)
    away = AgentRecord(agent="id-a", name="a", servers=(V100,), since=0.0)
    site.fleet.begin([away], [], {}, 1000.0)
    site.launch(1, "a")
    assert site.ends() == []
    wire = site.attach("a", abilities=())
    assert wire.started() == []
    assert [ended.outcome for ended in site.ends()] == [AttemptOutcome.BLOCKED]


def test_no_secret_goes_to_an_agent_that_comes_back_without_tls_after_a_restart_of_the_scheduler() -> None:
    """Until it attaches, nobody knows how it connects."""
    site = Site(secrets=("TOKEN",))
    site.fleet.secrets = Secrets()  # type: ignore[assignment]
    away = AgentRecord(agent="id-a", name="a", servers=(V100,), since=0.0)
    site.fleet.begin([away], [], {}, 1000.0)
    site.launch(1, "a")
    assert site.ends() == []
    wire = site.attach("a", confidential=False)
    assert wire.started() == []
    (ended,) = site.ends()
    assert (ended.outcome, ended.hopeless) == (AttemptOutcome.BLOCKED, False)
    assert "agent a is connected without TLS" in ended.reason


def test_a_job_at_its_time_limit_saves_though_its_agent_was_lost_meanwhile() -> None:
    site = Site()
    site.attach("a")
    site.launch(1, "a")
    ended = Transition(site.now, JobState.FAILED, "its time limit of 12h is reached", TIME_LIMIT)
    site.fleet.jobs["1"] = replace(site.fleet.jobs["1"], history=(ended,))  # type: ignore[index]
    site.fleet.close("1", Cause(TIME_LIMIT, ended.reason))
    site.silence(SETTINGS.agent_timeout_seconds + 2)
    site.write()
    assert site.attach("a", task(1)).stopped() == [(1, False)]


def test_a_fence_that_the_journal_has_holds_after_a_restart() -> None:
    site = Site()
    away = AgentRecord(agent="id-a", name="a", servers=(V100,), since=0.0, lost=True)
    site.fleet.begin([away], [], {("1", "id-a"): 1050.0}, 1000.0)
    other = site.attach("b")
    site.launch(2, "b")
    site.silence(49, "b")
    assert other.started() == []
    site.silence(1, "b")
    assert other.started() == [2]


def test_a_lost_agent_that_comes_back_with_its_task_has_it_stopped_before_the_job_starts_elsewhere() -> None:
    site = Site()
    site.attach("a")
    other = site.attach("b")
    site.launch(1, "a")
    site.silence(SETTINGS.agent_timeout_seconds + 2, "b")
    site.write()
    site.launch(2, "b")
    back = site.attach("a", task(1))
    assert back.stopped() == [(1, False)]
    assert other.started() == []
    site.end("a", 1)
    assert other.started() == [2]


def test_a_stray_at_an_agent_that_is_lost_again_is_fenced() -> None:
    site = Site()
    site.attach("a")
    other = site.attach("b")
    site.launch(1, "a")
    site.end("a", 1)
    site.write()
    site.attach("a", task(1))  # of a plan that no longer holds
    site.launch(2, "b")
    site.silence(SETTINGS.agent_timeout_seconds + 2, "b")
    (gone,) = site.gone()
    assert gone.fences["1"] >= site.now + SETTINGS.ending_seconds
    assert other.started() == []


@pytest.mark.parametrize(("state", "at_once"), [(JobState.RUNNING, False), (JobState.CANCELLED, True)])
def test_a_task_that_should_not_run_is_stopped_and_may_save_only_if_its_job_continues(
    state: JobState, at_once: bool
) -> None:
    site = Site(state=state)
    wire = site.attach("a")
    site.launch(1, "a")
    site.end("a", 1)
    site.fleet.heartbeat("id-a", Heartbeat((task(1),)))
    assert wire.stopped() == [(1, at_once)]
    site.fleet.heartbeat("id-a", Heartbeat((task(1),)))
    assert len(wire.stopped()) == 1


def test_an_older_attempt_is_not_taken_for_the_present_one() -> None:
    site = Site()
    site.attach("a")
    site.launch(1, "a")
    site.end("a", 1)
    site.write()
    site.launch(2, "a")
    del site.posted[:]
    back = site.attach("a", task(1), task(2))
    assert back.stopped() == [(1, False)]
    site.end("a", 1)
    assert "1" in site.fleet.attempts
    assert not site.ends()


def test_after_a_restart_only_the_first_open_attempt_may_have_processes_and_the_next_one_waits_for_its_end() -> None:
    site = Site(attempts=2)
    servers = (replace(V100, accelerators=2), Server("b", "v100", 2))
    known = [AgentRecord(agent=f"id-{s.name}", name=s.name, servers=(s,), since=0.0) for s in servers]
    launches = [Launch("1", "v100", {name: 1}, 1100.0, attempt=n) for n, name in enumerate("ab", start=1)]
    site.fleet.begin(known, [("1", launches)], {}, 1100.0)
    other = site.attach("b")
    assert other.started() == []
    first = site.attach("a", task(1))
    assert first.stopped() == [(1, False)]
    assert other.started() == []
    site.end("a", 1)
    site.write()
    assert other.started() == [2]


def test_after_a_restart_a_namesake_is_not_taken_for_the_agent_that_a_part_was_launched_at() -> None:
    """The one with the part is lost, and what may run there is fenced; its namesake has never heard of it."""
    site = Site(workers=2)
    servers = (replace(V100, accelerators=1), Server("b", "v100", 1))
    known = [AgentRecord(agent=f"id-{s.name}", name=s.name, servers=(s,), since=0.0) for s in servers]
    gang = Launch("1", "v100", {"a": 1, "b": 1}, 1100.0, attempt=1)
    holders = {("1", 1): {"a": "id-a", "b": "other"}}
    site.fleet.begin(known, [("1", [gang])], {("1", "other"): 1200.0}, 1100.0, holders)
    assert site.fleet.attempts["1"].part_at("id-b") is None
    site.attach("b")
    site.attach("a", task(1))
    assert site.ends() == []
    site.end("a", 1)
    assert [ended.attempt for ended in site.ends()] == [1], "nothing is waited for that cannot come"


def test_a_launch_does_not_start_at_a_namesake_of_the_agent_that_the_journal_names() -> None:
    """The name passed to another agent while the launch was written."""
    site = Site()
    namesake = site.attach("a", agent="another")
    site.launch(1, "a")
    assert namesake.started() == []
    assert [ended.attempt for ended in site.ends()] == [1]


def test_a_launch_that_waits_over_a_restart_does_not_start_at_a_namesake_either() -> None:
    site = Site(attempts=2)
    servers = (replace(V100, accelerators=2), Server("b", "v100", 2))
    known = [AgentRecord(agent=f"id-{s.name}", name=s.name, servers=(s,), since=0.0) for s in servers]
    launches = [Launch("1", "v100", {name: 1}, 1100.0, attempt=n) for n, name in enumerate("ba", start=1)]
    holders = {("1", 1): {"b": "id-b"}, ("1", 2): {"a": "id-a"}}
    site.fleet.begin(known, [("1", launches)], {}, 1100.0, holders)
    namesake = site.attach("a", agent="another")
    site.attach("b", task(1))
    site.end("b", 1)
    site.write()
    assert namesake.started() == []
    assert [ended.attempt for ended in site.ends()] == [1, 2]


def test_the_end_of_a_part_that_was_lost_before_a_restart_is_heard_and_lets_the_next_attempt_start() -> None:
    """Its agent returns while the rest of the gang is still leaving."""
    site = Site(workers=2, attempts=2)
    servers = (replace(V100, accelerators=2), Server("b", "v100", 2))
    known = [AgentRecord(agent=f"id-{s.name}", name=s.name, servers=(s,), since=0.0) for s in servers]
    known[1] = replace(known[1], lost=True)
    launches = [Launch("1", "v100", {"a": 1, "b": 1}, 1100.0, attempt=n) for n in (1, 2)]
    holders = {("1", n): {"a": "id-a", "b": "id-b"} for n in (1, 2)}
    site.fleet.begin(known, [("1", launches)], {("1", "id-b"): 1200.0}, 1100.0, holders)
    first = site.attach("a", task(1))
    site.attach("b", task(1, 1))
    site.end("b", 1, rank=1)
    assert first.started() == []
    site.end("a", 1)
    site.write()
    assert first.started() == [2]


def test_when_one_rank_crashes_all_ranks_are_stopped_and_the_attempt_ends_when_all_have() -> None:
    site = Site(workers=2)
    wires = {name: site.attach(name) for name in "ab"}
    site.launch(1, "a", "b")
    site.fleet.started("id-a", TaskStarted(job="1", attempt=1, rank=0, master_address="x", master_port=1, gang_port=2))
    assert [message.first_rank for message in wires["b"].sent if isinstance(message, StartAttempt)] == [1]
    site.end("b", 1, Ending.CRASHED, rank=1)
    assert wires["a"].stopped() == [(1, True)]
    assert not site.ends()
    site.end("a", 1)
    assert [end.outcome for end in site.ends()] == [AttemptOutcome.CRASHED]


def test_a_gang_is_done_whichever_rank_says_so_last() -> None:
    site = Site(workers=2)
    for name in "ab":
        site.attach(name)
    site.launch(1, "a", "b")
    site.fleet.started("id-a", TaskStarted(job="1", attempt=1, rank=0, master_address="x", master_port=1, gang_port=2))
    site.end("a", 1, Ending.DONE)
    site.end("b", 1, Ending.LEFT, rank=1)
    assert [end.outcome for end in site.ends()] == [AttemptOutcome.DONE]


def test_ranks_are_numbered_over_all_agents_of_an_attempt() -> None:
    launch = Launch("1", "v100", {"a": 2, "b": 2}, 0.0)
    assert [(part.first_rank, part.ranks) for part in parts_of(launch, {"a": "x", "b": "y"})] == [(0, 2), (2, 2)]


@pytest.mark.parametrize(("ending", "kept"), [(Ending.LEFT, 40.0), (Ending.CRASHED, 40.0), (Ending.DONE, 50.0)])
def test_of_an_attempt_that_is_not_done_only_what_a_checkpoint_holds_is_kept(ending: Ending, kept: float) -> None:
    site = Site()
    site.attach("a")
    site.launch(1, "a")
    site.end("a", 1, ending, counts=True, steps=50.0, saved_steps=40.0)
    assert [end.steps for end in site.ends()] == [kept]


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ({"term": 4}, "later scheduler"),
        ({"cluster": "elsewhere"}, "another cluster"),
        ({"agent": "another"}, "another agent called 'a'"),
    ],
)
def test_an_agent_that_could_be_confused_with_another_is_refused(hello: dict[str, Any], said: str) -> None:
    site = Site()
    site.attach("a")
    with pytest.raises(RefusedError, match=said):
        site.attach("a", task(1), **hello)


def test_a_namesake_of_a_silent_agent_does_not_inherit_what_may_still_run_there() -> None:
    site = Site()
    site.attach("a")
    site.launch(1, "a")
    site.silence(SETTINGS.heartbeat_seconds * 4)
    site.attach("a", agent="another")
    (gone,) = site.gone()
    assert gone.agent == "id-a"
    assert "1" in gone.fences


# ---- what the journal keeps ----


class Cluster:
    """A state with one agent, to which events happen one after the other."""

    def __init__(self, **settings: Any) -> None:
        self.configurator = Configurator(ServeSettings(round_seconds=100.0, **settings).scheduling)
        self.state = ClusterState(self.configurator)
        self.facts: list[Fact] = []
        self.take(
            SettingsGiven(0.0, "test", settings_document(ServeSettings(round_seconds=100.0, **settings).scheduling))
        )
        self.attach(0.0)

    def take(self, event: Event) -> list[Fact]:
        """Let an event happen."""
        facts = self.state.take(event)
        self.facts += facts
        return facts

    def attach(self, time: float, **more: Any) -> list[Fact]:
        event = AgentAttached(time=time, agent="id-a", name="a", servers=(V100,), **more)
        return self.take(event)

    def submit(self, key: str = "k", **more: Any) -> None:
        self.take(JobsSubmitted(1.0, (job_request(1e6, **more),), key))

    def run(self, time: float = 2.0) -> None:
        """A round begins."""
        facts = self.state.take(RoundDue(time))
        solve = self.state.scheduler.unanswered
        if solve is not None:
            facts += self.state.take(AllocationReady(time, solve.number, allocate(solve.problem)))
        self.facts += facts

    def ends(self, time: float, outcome: AttemptOutcome, attempt: int = 1, **more: Any) -> list[Fact]:
        return self.take(AttemptEnded(time=time, job="1", attempt=attempt, outcome=outcome, **more))

    def job(self) -> LiveJobRecord:
        return self.state.jobs["1"]

    def again(self) -> ClusterState:
        """The state, written down and read back."""
        return ClusterState.of(self.state.document(), self.configurator)


@pytest.fixture
def running() -> Cluster:
    cluster = Cluster()
    cluster.submit()
    cluster.run()
    assert cluster.job().state is JobState.RUNNING
    return cluster


def test_a_call_that_is_repeated_takes_effect_once_also_after_a_restart(running: Cluster) -> None:
    running.submit()
    again = running.again()
    again.take(JobsSubmitted(3.0, (job_request(1.0),), "k"))
    assert list(running.state.jobs.records) == list(again.jobs.records) == ["1"]
    again.take(JobsSubmitted(4.0, (job_request(1.0),), "other"))
    assert list(again.jobs.records) == ["1", "2"]


def test_the_end_of_an_attempt_counts_once(running: Cluster) -> None:
    assert running.ends(3.0, AttemptOutcome.CRASHED)
    assert running.ends(4.0, AttemptOutcome.CRASHED) == []
    assert running.job().failures == 1


def test_a_job_that_was_cancelled_does_not_complete_and_makes_no_more_steps(running: Cluster) -> None:
    running.take(JobCancelled(3.0, "1"))
    facts = running.ends(4.0, AttemptOutcome.DONE, steps=1e6)
    running.take(StepsCounted(5.0, {"1": 7.0}))
    assert [type(fact) for fact in facts] == [AttemptClosed]
    assert running.job().state is JobState.CANCELLED
    assert running.job().steps_done == 0.0
    assert not running.state.jobs.refusals


@pytest.mark.parametrize(("outcome", "failures"), [(AttemptOutcome.LOST, 0), (AttemptOutcome.CRASHED, 1)])
def test_only_a_crash_costs_a_retry(running: Cluster, outcome: AttemptOutcome, failures: int) -> None:
    running.ends(3.0, outcome)
    assert running.job().failures == failures
    assert [type(fact) for fact in running.facts if isinstance(fact, JobRequeued | JobEnded)] == [JobRequeued]


@pytest.mark.parametrize(("retries", "hopeless"), [(0, False), (5, True)])
def test_a_hopeless_job_or_one_without_retries_fails(retries: int, hopeless: bool) -> None:
    cluster = Cluster()
    cluster.submit(retries=retries)
    cluster.run()
    cluster.ends(3.0, AttemptOutcome.CRASHED, hopeless=hopeless)
    assert cluster.job().state is JobState.FAILED


def test_leases_and_fences_last_after_a_restart_as_if_no_time_had_passed(running: Cluster) -> None:
    state = running.state
    assert state.renewed_until == 102.0
    running.take(AgentGone(10.0, "id-a", "silent", {"1": 150.0}))
    assert state.agents.fences == {("1", "id-a"): 150.0}
    again = running.again()
    assert (again.renewed_until, again.agents.fences) == (102.0, {("1", "id-a"): 150.0})
    again.take(Began(4010.0, "1", 2, "here"))  # an hour later, or the clock was set
    assert (again.renewed_until, again.agents.fences) == (4102.0, {("1", "id-a"): 4150.0})


def test_a_shorter_round_does_not_shorten_a_promised_lease(running: Cluster) -> None:
    settings = settings_document(ServeSettings(round_seconds=10.0).scheduling)
    running.take(SettingsGiven(50.0, "test", settings))
    running.state._evolve_rest(RoundPlanned(51.0, 2, 61.0, 61.0))
    assert running.state.renewed_until == 102.0


def test_a_lost_server_takes_no_work_and_its_jobs_are_stopped(running: Cluster) -> None:
    running.take(AgentGone(10.0, "id-a", "silent", {}))
    assert not list(running.state.scheduler.servers())
    assert running.job().state is JobState.PREEMPTED
    assert running.state.agents.records["id-a"].offered == ()


def test_an_attempt_is_open_until_its_end_is_recorded_also_in_a_kept_state(running: Cluster) -> None:
    assert running.again().attempts.has("1", 1)
    running.take(AgentGone(10.0, "id-a", "silent", {}))
    assert running.again().attempts.has("1", 1)
    running.ends(11.0, AttemptOutcome.LOST)
    assert not running.again().attempts.has("1", 1)


def started(attempt: int, server: str) -> Started:
    return Started(("1",), (attempt,), "v100", {server: 1}, Locality.SERVER, Cause("turn"))


def test_open_attempts_are_told_apart_and_the_earliest_comes_first() -> None:
    attempts = OpenAttempts()
    attempts.evolve(RoundPlanned(0.0, 1, 10.0, 10.0, started=(started(10, "a"),)), {"a": "id-a"})
    attempts.evolve(RoundPlanned(10.0, 2, 20.0, 20.0, moved=(started(9, "b"),)), {"a": "id-a", "b": "id-b"})
    ((_, launches),) = attempts
    assert [launch.attempt for launch in launches] == [9, 10]
    assert OpenAttempts.of(attempts.document()).holders == {("1", 9): {"b": "id-b"}, ("1", 10): {"a": "id-a"}}
    attempts.evolve(AttemptClosed(11.0, "1", 9, AttemptOutcome.LEFT), {})
    assert (attempts.has("1", 9), attempts.has("1", 10)) == (False, True)
    assert attempts.holders == {("1", 10): {"a": "id-a"}}


def test_a_server_belongs_to_the_agent_that_joined_with_it_last() -> None:
    agents = Agents()
    agents.evolve(AgentJoined(0.0, "x", "a", (V100,)))
    agents.evolve(AgentLost(1.0, "x", "silent"))
    agents.evolve(AgentJoined(2.0, "y", "a", (V100,)))
    assert Agents.of(agents.document()).by_server == agents.by_server == {V100.name: "y"}
    agents.evolve(AgentForgotten(3.0, "x", "operator"))
    assert agents.by_server == {V100.name: "y"}
    agents.evolve(AgentForgotten(4.0, "y", "operator"))
    assert agents.by_server == {}


def test_a_namesake_makes_the_other_agent_lost_for_good(running: Cluster) -> None:
    other = AgentAttached(time=10.0, agent="id-b", name="a", servers=(V100,))
    facts = running.take(other)
    assert [fact.agent for fact in facts if isinstance(fact, AgentLost)] == ["id-a"]
    assert set(running.state.agents.records) == {"id-b"}
    assert running.job().state is JobState.PREEMPTED


def test_a_drain_outlasts_the_return_of_its_agent(running: Cluster) -> None:
    running.take(DrainAsked(10.0, "a", "operator", now=True))
    assert not list(running.state.scheduler.servers())
    running.take(AgentGone(20.0, "id-a", "silent", {}))
    running.attach(30.0)
    assert running.state.agents.records["id-a"].draining
    assert not list(running.state.scheduler.servers())


def test_an_agent_is_forgotten_only_once_it_is_lost_or_drained(running: Cluster) -> None:
    with pytest.raises(InputError, match="neither lost nor drained"):
        running.take(ForgetAsked(10.0, "a", "operator"))
    running.take(AgentGone(20.0, "id-a", "silent", {}))
    running.take(ForgetAsked(30.0, "a", "operator"))
    assert not running.state.agents.records


def test_a_fence_outlasts_the_return_of_its_agent_and_others_until_its_time_has_come() -> None:
    agents = Agents()
    agents.evolve(AgentJoined(0.0, "x", "x", (V100,)))
    agents.evolve(AgentLost(1.0, "x", "silent", {"1": 50.0}))
    agents.evolve(AgentJoined(49.0, "x", "x", (V100,)))
    assert agents.fences == {("1", "x"): 50.0}
    agents.evolve(AgentJoined(50.0, "y", "y", (V100,)))
    assert agents.fences == {}


OTHER = ServeSettings(round_seconds=7.0, policy="fifo", space_sharing=True, restart_seconds=3.0).scheduling


def test_settings_are_recorded_in_full_and_read_back_as_they_were() -> None:
    document = settings_document(OTHER)
    assert set(document) == set(Scheduling.__slots__)
    assert settings_of(document) == OTHER


def test_a_recorded_state_works_under_the_settings_of_its_time_whatever_is_configured_now(running: Cluster) -> None:
    again = ClusterState.of(running.state.document(), Configurator(OTHER))
    assert again.scheduler.settings == running.state.scheduler.settings


# ---- the engine ----


@dataclass
class Outside:
    """A world and an executor that write down, in order, what they are asked to do."""

    calls: list[str] = field(default_factory=list)
    on_call: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*_: object, **__: object) -> None:
            self.on_call()
            self.calls.append(name)

        return call


@dataclass
class Bench:
    """An engine on a real journal, at a time that is set by hand."""

    folder: Path
    now: float = 100.0
    journals: list[Journal] = field(default_factory=list)

    def engine(self, **options: Any) -> Engine:
        for journal in self.journals:
            journal.close()
        journal = Journal.open(sqlite_url(self.folder / "journal.sqlite"), holder="test")
        self.journals.append(journal)
        settings = ServeSettings(folder=self.folder, round_seconds=100.0)
        return build_engine(settings, journal, clock=lambda: self.now, **options)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.journals[-1].close()


def begun(engine: Engine) -> Outside:
    outside = Outside()
    engine.begin(outside, outside)
    outside.calls.clear()
    return outside


def occupy(engine: Engine) -> None:
    engine.post(AgentAttached(time=0.0, agent="id-a", name="a", servers=(V100,)))
    engine.post(JobsSubmitted(0.0, (job_request(1e6), job_request(1e6)), "k"))
    engine.take_in()
    engine.round_due()
    engine.take_in()


def test_everything_is_in_the_journal_before_anything_is_told(bench: Bench) -> None:
    engine = bench.engine()
    outside, told = begun(engine), list[int]()
    outside.on_call = lambda: told.append(engine.journal.last)
    before = engine.journal.last
    engine.post(AgentAttached(time=0.0, agent="id-a", name="a", servers=(V100,)))
    engine.post(
        JobsSubmitted(0.0, (job_request(1e6),), "k"),
        lambda _: told.append(engine.journal.last if engine.records else 0),
    )
    assert told.pop(0) == before  # it is asked to hurry, and nothing else
    batch = engine.prepare()
    assert batch is not None
    assert told == [before]
    engine.write(batch)
    engine.perform(batch)
    told.clear()
    engine.post(JobsSubmitted(0.0, (job_request(1e6),), "l"), lambda _: told.append(engine.journal.last))
    last = engine.journal.last
    told.clear()
    engine.take_in()
    assert told
    assert all(number > last for number in told)


def test_a_question_and_a_wake_that_are_under_way_are_taken_up_after_a_restart(bench: Bench) -> None:
    engine = bench.engine()
    begun(engine)
    occupy(engine)
    assert engine.scheduler.unanswered is not None
    outside = Outside()
    again = bench.engine()
    again.begin(outside, outside)
    assert {"ask", "wake"} <= set(outside.calls)


def test_facts_never_go_back_in_time(bench: Bench) -> None:
    engine = bench.engine()
    begun(engine)
    bench.now = 50.0
    occupy(engine)
    times = [entry.time for entry in engine.journal.facts()]
    assert times == sorted(times)
    assert times[-1] == 100.0


def test_events_of_one_instant_are_taken_in_the_order_in_which_they_came(bench: Bench) -> None:
    engine = bench.engine()
    begun(engine)
    for key in ("first", "second"):
        engine.post(JobsSubmitted(0.0, (job_request(1e6, name=key),), key))
    engine.take_in()
    assert {job: record.request.name for job, record in engine.records.items()} == {"1": "first", "2": "second"}


def test_what_follows_from_one_batch_is_done_in_its_order(bench: Bench) -> None:
    engine = bench.engine()
    outside = begun(engine)
    occupy(engine)
    answer(engine)
    outside.calls.clear()
    engine.post(JobCancelled(0.0, "1"))
    engine.round_due()
    engine.take_in()
    assert outside.calls.index("close") < outside.calls.index("ask")


def answer(engine: Engine) -> None:
    solve = engine.scheduler.unanswered
    assert solve is not None
    engine.post(AllocationReady(0.0, solve.number, allocate(solve.problem)))
    engine.take_in()


def test_when_a_round_ends_steps_are_counted_before_it_is_planned(bench: Bench) -> None:
    engine = bench.engine()
    outside = begun(engine)
    occupy(engine)
    answer(engine)
    bench.now = 300.0
    queued = list[int]()
    outside.calls.clear()
    outside.on_call = lambda: queued.append(len(engine._queue))
    engine.round_due()
    assert outside.calls[0] == "report"
    assert queued[0] == 0


def test_kept_states_take_every_fact_in_once_and_finished_jobs_stay_known(bench: Bench) -> None:
    engine = bench.engine()
    begun(engine)
    occupy(engine)
    engine.keep_state()
    engine.post(JobCancelled(0.0, "2"))
    engine.take_in()
    engine.keep_state()
    engine.post(StepsCounted(0.0, {"1": 10.0}))
    engine.take_in()
    engine.keep_state()
    again = bench.engine()
    assert again.state.jobs["1"].steps_done == 10.0
    found = again.record("2")
    assert found is not None
    assert found.state is JobState.CANCELLED


def test_ids_are_not_given_again_though_their_jobs_have_left_the_state() -> None:
    jobs = JobRegistry()
    jobs.next_number = 12
    assert JobRegistry.of(jobs.document()).next_number == 12


# ---- the agent ----

SAID_DONE, SAID_LEFT, SAID_FAILED = LastWords(done=True), LastWords(stopped=True), LastWords(failed="no data")


@pytest.mark.parametrize(
    ("code", "words", "asked", "ending"),
    [
        (0, LastWords(), False, Ending.DONE),
        (3, LastWords(), False, Ending.CRASHED),
        (0, LastWords(), True, Ending.LEFT),
        (143, LastWords(), True, Ending.LEFT),
        (1, SAID_DONE, True, Ending.DONE),
        (0, SAID_LEFT, False, Ending.LEFT),
        (0, SAID_FAILED, True, Ending.CRASHED),
    ],
)
def test_an_end_is_judged_by_last_words_then_by_orders_then_by_the_exit_code(
    code: int, words: LastWords, asked: bool, ending: Ending
) -> None:
    assert judge(code, words, "preempted" if asked else None, reached=asked).ending is ending


def test_a_lease_counts_from_when_the_message_was_sent_that_the_scheduler_had_heard() -> None:
    clock: Any = SimpleNamespace(time=lambda: 50.0)
    connection = _Connection(None, clock, sent={4: 10.0, 5: 20.0})
    assert connection.heard(4) == 10.0
    assert connection.heard(5) == 20.0
    assert connection.heard(3) == 0.0  # too long ago to be remembered: it gives no time


def stream_of(desk: Any = None) -> SchedulerStream:
    pauses = {"first_pause_seconds": 0.1, "longest_pause_seconds": 1.0, "patience_seconds": 1.0}
    settings: Any = SimpleNamespace(scheduler="nowhere", credentials=None, **pauses)
    identity: Any = None
    return SchedulerStream(settings, identity, desk)


def test_an_end_is_kept_until_it_is_acknowledged_itself() -> None:
    stream = stream_of()
    for attempt in (1, 2):
        stream.ended(TaskEnded(status=task(attempt), ending=Ending.LEFT), None)
    stream._acknowledge(2)
    assert stream.is_ending(("1", 1))
    assert not stream.is_ending(("1", 2))
    stream._acknowledge(1)
    assert not stream.is_ending(("1", 1))


def test_a_task_whose_end_is_not_on_its_way_yet_is_in_the_heartbeat() -> None:
    sent: list[Heartbeat] = []

    class Over(Exception):  # noqa: N818 - ends the conversation
        pass

    class Connection:
        async def send(self, frame: FromAgentFrame) -> None:
            assert isinstance(frame.message, Heartbeat)
            sent.append(frame.message)
            raise Over

    async def story() -> None:
        stream, connection = stream_of(SimpleNamespace(heartbeat=Heartbeat)), Connection()
        stream.attached = True
        stream.ended(TaskEnded(status=task(1), ending=Ending.LEFT), None)
        stream.hurry()
        await stream._heartbeats(connection, 5.0)  # type: ignore[arg-type] # it needs no more

    with pytest.raises(Over):
        asyncio.run(story())
    assert sent == [Heartbeat((task(1),))]


def test_the_next_agent_ends_what_the_last_one_noted_also_where_there_are_no_containers(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True) as left:
        with StateDirectory(tmp_path, contain=False) as first:
            first.remember(mark_of(left.pid, "/no/socket", None))
        with StateDirectory(tmp_path, contain=False) as second:
            leftovers = second.leftovers
            left.kill()  # whatever became of it
        assert leftovers == 1
