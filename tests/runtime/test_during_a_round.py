"""What starts, moves and is measured during a round: the real engine, journal and fleet in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from gavel.runtime.book import Book, Note, Record
from virtual_fleet import STEP, VirtualFleet

from gavel.core.events import (
    Event,
    JobFinished,
    JobsProgressed,
    JobSubmitted,
    Launch,
    RateMeasured,
    Renew,
    RestartMeasured,
    RoundDue,
    Solve,
)
from gavel.core.jobs import JobSpec
from gavel.core.throughputs import builtin_table
from gavel.runtime.fleet import Fleet, FleetSettings
from gavel.runtime.server import ServeSettings, fresh_scheduler
from gavel.scheduler import state
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb

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
    made.close()


def told(world: VirtualFleet, kind: type[Event]) -> list[float]:
    return [event.time for event, _ in world.story if isinstance(event, kind)]


def launches(world: VirtualFleet) -> dict[str, tuple[float, float]]:
    """By job: when it was launched first, and until when."""
    found: dict[str, tuple[float, float]] = {}
    for event, commands in world.story:
        for command in commands:
            if isinstance(command, Launch):
                found.setdefault(command.job, (event.time, command.until))
    return found


def renewals(world: VirtualFleet) -> list[tuple[float, float]]:
    return [(event.time, c.until) for event, commands in world.story for c in commands if isinstance(c, Renew)]


def test_jobs_that_finish_together_are_replaced_by_one_plan_in_the_same_round(world: VirtualFleet) -> None:
    world.submit(steps=10_000.0)
    short = [world.submit(steps=100.0) for _ in range(5)]
    later = [world.submit(steps=10_000.0) for _ in range(5)]
    world.run(20.0)
    (finished,) = set(told(world, JobFinished))
    assert len(told(world, JobFinished)) == len(short)
    (_, ends), *_ = renewals(world)
    started = launches(world)
    ((begun, until),) = {started[job] for job in later}
    assert finished <= begun <= finished + 2 * STEP
    assert until == ends
    assert [time for time in told(world, RoundDue) if time >= finished] == [begun]
    assert sum(isinstance(c, Solve) for _, commands in world.story for c in commands) == 1


def test_wakes_during_a_round_count_steps_in_one_event_and_measure_no_rates(world: VirtualFleet) -> None:
    for _ in range(4):
        world.submit(steps=10_000.0)
    world.run(20.0)
    world.submit(steps=10_000.0)
    before = len(world.story)
    world.run(2.0)
    events = [event for event, _ in world.story[before:]]
    (counted,) = [event for event in events if isinstance(event, JobsProgressed)]
    assert len(counted.jobs) == 4
    assert not any(isinstance(event, RateMeasured) for event in events)
    world.run(ROUND_SECONDS)
    assert any(isinstance(event, RateMeasured) for event, _ in world.story[before:])


@pytest.mark.parametrize("events_between_states", [1, 5_000], ids=["state", "journal"])
def test_a_scheduler_killed_between_a_wake_and_its_plan_plans_when_it_is_back_and_ends_the_round_on_time(
    tmp_path: Path, events_between_states: int
) -> None:
    world = VirtualFleet(tmp_path, 1, round_seconds=ROUND_SECONDS, events_between_states=events_between_states)
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
    world.close()


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
    assert world.record(short).state == pb.RUNNING
    assert world.record(long).type == "k80"
    world.run_until_over()
    (finished, _) = told(world, JobFinished)
    every = [(event.time, c) for event, commands in world.story for c in commands if isinstance(c, Launch)]
    ((moved, launch),) = [(time, c) for time, c in every if (c.job, c.type) == (long, "v100")]
    assert finished <= moved <= finished + 2 * STEP
    assert launch.until in {until for _, until in renewals(world)}  # the end of the round that was under way
    assert launch.until < moved + ROUND_SECONDS - 1.0
    assert any(turn.reason == "moves to v100" for turn in world.record(long).history)
    (measured,) = [event for event, _ in world.story if isinstance(event, RestartMeasured)]
    assert measured.job == long
    assert 0.0 <= measured.seconds <= 3.0  # up to a second to leave, steps of the clock, and a heartbeat
    world.close()


def test_the_journal_of_starts_and_moves_during_rounds_recovers_to_the_same_state(world: VirtualFleet) -> None:
    world.add_agent("slow", "k80", 2)
    for number in range(12):
        world.submit(steps=100.0 + 90.0 * number)
        world.run(3.0)
    assert world.engine is not None
    assert any(isinstance(event, RoundDue) for event, _ in world.story)
    live = state.dump(world.engine.scheduler)
    world.close()
    world.boot()
    assert world.engine is not None
    assert state.dump(world.engine.scheduler) == live


@pytest.mark.parametrize(("mechanism", "starts"), [("credits", True), ("plain", False)])
def test_the_scheduler_is_told_what_restarts_cost_and_whether_jobs_start_during_rounds(
    mechanism: Literal["credits", "plain"], starts: bool
) -> None:
    settings = ServeSettings(restart_seconds=7.0, mechanism=mechanism)
    told = fresh_scheduler(settings, builtin_table()).settings
    assert (told.restart_seconds, told.start_mid_round) == (7.0, starts)


# ---- the fleet alone ----


@dataclass
class Wire:
    sent: list[pb.ToAgent] = field(default_factory=list)

    def send(self, message: pb.ToAgent) -> None:
        self.sent.append(message)

    def close(self) -> None:
        pass

    def starts(self) -> list[pb.Start]:
        return [message.start for message in self.sent if message.WhichOneof("message") == "start"]


@dataclass
class Site:
    """A fleet with one agent that has two accelerators, and one job, at a time that is set by hand."""

    now: float = 0.0
    posted: list[Event] = field(default_factory=list)
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        book = Book()
        book.apply(JobSubmitted(0.0, JobSpec("1", "mine", 1, 1e6)), {"request": {"command": ["train"]}}, [])
        self.record: Record = book["1"]
        self.fleet = Fleet(FleetSettings(), lambda: self.now, self.post, book)
        accelerators = [pb.Accelerators(type="v100", count=2)]
        self.fleet.attach(pb.Hello(protocol=PROTOCOL, name="a", incarnation="1", accelerators=accelerators), self.wire)
        self.fleet.renew(360.0)

    def post(self, event: Event, _: Note) -> None:
        self.posted.append(event)

    def launch(self, until: float = 360.0) -> None:
        self.record.attempts += 1
        self.fleet.launch(Launch("1", "v100", {"a": 1}, until))

    def started(self) -> None:
        self.fleet.started("a", pb.TaskStarted(job="1", attempt=self.record.attempts))

    def status(self, steps: float, measured: tuple[float, float] = (0.0, 0.0), *, counts: bool = True) -> pb.TaskStatus:
        return pb.TaskStatus(
            job="1",
            attempt=self.record.attempts,
            counts=counts,
            steps=steps,
            saved_steps=steps,
            measured_steps=measured[0],
            measured_seconds=measured[1],
        )

    def left(self, status: pb.TaskStatus, how: int = pb.TaskEnded.How.LEFT) -> None:
        self.fleet.ended("a", pb.TaskEnded(status=status, how=how), lambda: None)  # type: ignore[arg-type]

    def heartbeat(self, status: pb.TaskStatus) -> None:
        self.fleet.heartbeat("a", pb.Heartbeat(tasks=[status]))

    def restarts(self) -> list[float]:
        return [event.seconds for event in self.posted if isinstance(event, RestartMeasured)]


def test_a_restart_costs_saving_and_loading_but_not_the_time_between_them() -> None:
    site = Site()
    site.launch()
    site.started()
    site.heartbeat(site.status(100.0, (50.0, 5.0)))
    assert site.restarts() == []  # the first start is none
    site.now = 20.0
    site.fleet.stop("1")
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
        site.left(site.status(100.0), pb.TaskEnded.How.CRASHED)
    else:
        if how == "agent away":
            site.fleet.detached("a", site.wire)
        site.fleet.stop("1")
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
    site.fleet.stop("1")
    site.launch()  # to be moved a second before the round ends
    site.now = 360.0
    site.fleet.renew(720.0)
    site.now = 370.0
    site.record.attempts -= 1
    site.left(site.status(100.0))
    site.record.attempts += 1
    assert site.wire.starts()[-1].lease_seconds == pytest.approx(350.0 + FleetSettings().lease_slack_seconds)
