"""What starts, moves and is measured during a round: the real engine, journal and fleet in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from virtual_fleet import STEP, VirtualFleet, job_request

from gavel.client.views import JobState, Transition
from gavel.core.events import JobsProgressed, Launch, RateMeasured, RestartMeasured
from gavel.core.facts import JobEnded, RoundPlanned, SolveAsked
from gavel.core.jobs import Cause
from gavel.runtime.configuration import ServeSettings, rounds
from gavel.runtime.events import Event
from gavel.runtime.executor import Done
from gavel.runtime.facts import Fact
from gavel.runtime.fleet import Fleet, FleetSettings, SchedulerIdentity
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.messages import Ending, Heartbeat, Hello, StartAttempt, TaskEnded, TaskStarted, TaskStatus, ToAgent
from gavel.wire import PROTOCOL

ROUND_SECONDS = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[VirtualFleet]:
    """Six fast accelerators and long rounds."""
    made = VirtualFleet(tmp_path, 1, round_seconds=ROUND_SECONDS)
    made.boot()
    for number in range(3):
        made.add_agent(f"fast{number}", "v100", 2)
    made.run(1.0)
    yield made
    made.finish()


def told(world: VirtualFleet, kind: type[Fact]) -> list[float]:
    return [fact.time for fact in world.story if isinstance(fact, kind)]


def plans(world: VirtualFleet) -> list[RoundPlanned]:
    return [fact for fact in world.story if isinstance(fact, RoundPlanned)]


def every_launch(world: VirtualFleet) -> list[tuple[float, Launch]]:
    return [
        (plan.time, launch)
        for plan in plans(world)
        for run in (*plan.moved, *plan.started)
        for launch in run.launches(plan.until)
    ]


def launches(world: VirtualFleet) -> dict[str, tuple[float, float]]:
    """By job: when it was launched first, and until when."""
    found: dict[str, tuple[float, float]] = {}
    for time, launch in every_launch(world):
        found.setdefault(launch.job, (time, launch.until))
    return found


def renewals(world: VirtualFleet) -> list[tuple[float, float]]:
    return [(plan.time, plan.until) for plan in plans(world) if not plan.mid_round]


def test_jobs_that_finish_together_are_replaced_by_one_plan_in_the_same_round(world: VirtualFleet) -> None:
    world.submit(steps=10_000.0)
    short = [world.submit(steps=100.0) for _ in range(5)]
    later = [world.submit(steps=10_000.0) for _ in range(5)]
    world.run(20.0)
    (finished,) = set(told(world, JobEnded))
    assert len(told(world, JobEnded)) == len(short)
    (_, ends), *_ = renewals(world)
    started = launches(world)
    ((begun, until),) = {started[job] for job in later}
    assert finished <= begun <= finished + 2 * STEP
    assert until == ends
    assert [plan.time for plan in plans(world) if plan.time >= finished] == [begun]
    assert len(told(world, SolveAsked)) == 1


def test_steps_and_rates_are_told_when_a_round_ends_and_not_during_it(world: VirtualFleet) -> None:
    for _ in range(4):
        world.submit(steps=10_000.0)
    world.run(20.0)
    world.submit(steps=10_000.0)
    before = len(world.story)
    world.run(2.0)
    assert not any(isinstance(fact, JobsProgressed | RateMeasured) for fact in world.story[before:])
    world.run(ROUND_SECONDS)
    (counted,) = [fact for fact in world.story[before:] if isinstance(fact, JobsProgressed)]
    assert len(counted.jobs) == 5
    assert any(isinstance(fact, RateMeasured) for fact in world.story[before:])


@pytest.mark.parametrize("facts_between_states", [1, 5_000], ids=["state", "journal"])
def test_a_scheduler_killed_between_a_wake_and_its_plan_plans_when_it_is_back_and_ends_the_round_on_time(
    tmp_path: Path, facts_between_states: int
) -> None:
    world = VirtualFleet(tmp_path, 1, round_seconds=ROUND_SECONDS, facts_between_states=facts_between_states)
    world.boot()
    world.add_agent("fast", "v100", 2)
    first = world.submit(steps=10_000.0)
    world.run(20.0)
    ((_, ends),) = renewals(world)
    second = world.submit(steps=10_000.0)  # in the journal, with the wake that it asks for
    assert second not in launches(world)
    world.kill_scheduler(2.0)
    world.run(4.0)
    started, until = launches(world)[second]
    assert started < ends - ROUND_SECONDS / 2
    assert until == ends
    world.run(ROUND_SECONDS)
    assert renewals(world)[1][0] == pytest.approx(ends, abs=1.0)
    assert world.record(first).attempts == world.record(second).attempts == 1
    world.finish()


def test_a_run_moves_to_a_faster_type_that_becomes_idle_and_its_restart_is_measured(tmp_path: Path) -> None:
    world = VirtualFleet(tmp_path, 2, round_seconds=ROUND_SECONDS)
    world.boot()
    world.add_agent("fast", "v100", 1)
    world.run(1.0)
    short = world.submit(steps=500.0)
    world.run(2.0)
    long = world.submit(steps=1_000.0)
    world.add_agent("slow", "k80", 1)
    world.run(40.0)
    assert world.record(short).state is JobState.RUNNING
    assert world.record(long).type == "k80"
    world.run_until_over()
    (finished, _) = told(world, JobEnded)
    ((moved, launch),) = [(time, each) for time, each in every_launch(world) if (each.job, each.type) == (long, "v100")]
    assert finished <= moved <= finished + 2 * STEP
    assert launch.until in {until for _, until in renewals(world)}  # the end of the round that was under way
    assert launch.until < moved + ROUND_SECONDS - 1.0
    assert any(turn.reason == "moves to v100" for turn in world.record(long).history)
    (measured,) = [fact for fact in world.story if isinstance(fact, RestartMeasured)]
    assert measured.job == long
    assert 0.0 <= measured.seconds <= 3.0  # up to a second to leave, steps of the clock, and a heartbeat
    world.finish()


@pytest.mark.parametrize(("mechanism", "starts"), [("credits", True), ("plain", False)])
def test_the_scheduler_is_told_what_restarts_cost_and_whether_jobs_start_during_rounds(
    mechanism: Literal["credits", "plain"], starts: bool
) -> None:
    settings = rounds(ServeSettings(restart_seconds=7.0, mechanism=mechanism).scheduling)
    assert (settings.restart_seconds, settings.start_mid_round) == (7.0, starts)


# ---- the fleet alone ----


@dataclass
class Wire:
    sent: list[ToAgent] = field(default_factory=list)

    def send(self, message: ToAgent) -> None:
        self.sent.append(message)

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def starts(self) -> list[StartAttempt]:
        return [message for message in self.sent if isinstance(message, StartAttempt)]


@dataclass
class Site:
    """A fleet with one agent that has two accelerators, and one job, at a time that is set by hand."""

    now: float = 0.0
    posted: list[Event] = field(default_factory=list)
    wire: Wire = field(default_factory=Wire)
    attempts: int = 0

    def __post_init__(self) -> None:
        queued = Transition(0.0, JobState.QUEUED, "")
        record = LiveJobRecord(id="1", request=job_request(1e6), submitted=0.0, history=(queued,))
        self.fleet = Fleet(FleetSettings(), SchedulerIdentity("lab", 1), lambda: self.now, self.post, {"1": record})
        hello = Hello(protocol=PROTOCOL, name="a", agent="a", incarnation="1", accelerators={"v100": 2})
        self.fleet.attach(hello, self.wire)
        self.fleet.renew(360.0)

    def post(self, event: Event, done: Done | None = None) -> None:
        """The journal is written at once."""
        self.posted.append(event)
        if done is not None:
            done(None)

    def launch(self, until: float = 360.0) -> None:
        self.attempts += 1
        self.fleet.launch(Launch("1", "v100", {"a": 1}, until, attempt=self.attempts), {"a": "a"})

    def stop(self) -> None:
        self.fleet.stop("1", Cause("yielded"))

    def started(self) -> None:
        self.fleet.started("a", TaskStarted(job="1", attempt=self.attempts, rank=0))

    def status(self, steps: float, measured: tuple[float, float] = (0.0, 0.0), **more: Any) -> TaskStatus:
        told: dict[str, Any] = {"attempt": self.attempts, "counts": True, **more}
        return TaskStatus(
            job="1",
            rank=0,
            steps=steps,
            saved_steps=steps,
            measured_steps=measured[0],
            measured_seconds=measured[1],
            **told,
        )

    def left(self, status: TaskStatus, ending: Ending = Ending.LEFT) -> None:
        self.fleet.ended("a", TaskEnded(status=status, ending=ending), lambda: None)

    def heartbeat(self, status: TaskStatus) -> None:
        self.fleet.heartbeat("a", Heartbeat((status,)))

    def restarts(self) -> list[float]:
        return [event.seconds for event in self.posted if isinstance(event, RestartMeasured)]


def test_a_restart_costs_saving_and_loading_but_not_the_time_between_them() -> None:
    site = Site()
    site.launch()
    site.started()
    site.heartbeat(site.status(100.0, (50.0, 5.0)))
    assert site.restarts() == []  # the first start is none
    site.now = 20.0
    site.stop()
    site.now = 24.0
    site.left(site.status(120.0))
    site.now = 100.0  # others had their turn
    site.launch()
    site.now = 107.0  # their processes have left
    site.started()
    site.now = 110.0
    site.heartbeat(site.status(120.0))
    assert site.restarts() == []  # loaded, but no step yet
    site.now = 120.0
    site.heartbeat(site.status(131.0, (10.0, 5.0)))
    assert site.restarts() == [pytest.approx(4.0 + (120.0 - 107.0 - 11 * 0.5))]
    site.now = 122.0
    site.heartbeat(site.status(135.0, (4.0, 2.0)))
    assert len(site.restarts()) == 1


@pytest.mark.parametrize("how", ["crashed", "does not count", "agent away"])
def test_restarts_that_were_not_seen_as_a_whole_are_not_measured(how: str) -> None:
    site = Site()
    counts = how != "does not count"
    site.launch()
    site.started()
    site.heartbeat(site.status(100.0, (50.0, 5.0), counts=counts))
    if how == "crashed":
        site.left(site.status(100.0), Ending.CRASHED)
    else:
        if how == "agent away":
            site.fleet.detached("a", site.wire)
        site.stop()
        site.now = 14.0
        site.fleet.members["a"].link = site.wire
        site.left(site.status(100.0, counts=counts))
    site.launch()
    site.started()
    site.now = 30.0
    site.heartbeat(site.status(131.0, (10.0, 5.0), counts=counts))
    assert site.restarts() == []


def test_a_launch_that_waited_beyond_its_round_has_the_lease_of_the_round_it_starts_in() -> None:
    site = Site()
    site.launch()
    site.now = 359.0
    site.stop()
    site.launch()  # to be moved a second before the round ends
    site.now = 360.0
    site.fleet.renew(720.0)
    site.now = 370.0
    site.left(site.status(100.0, attempt=1))
    assert site.wire.starts()[-1].lease_seconds == pytest.approx(350.0 + FleetSettings().lease_slack_seconds)
