"""Conservation: steps, accelerator time and restarts equal an independent count from the scheduler's commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.core.cluster import Cluster, parse_cluster
from gavel.core.events import (
    Command,
    Event,
    JobFinished,
    JobSubmitted,
    Launch,
    Renew,
    RoundDue,
    ServerJoined,
    ServerLost,
    Stop,
)
from gavel.core.jobs import JobSpec
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.priorities import Priorities
from gavel.sim.experiment import Experiment, run
from gavel.sim.failures import random_failures
from gavel.sim.ideal import simulate_ideally
from gavel.sim.outcome import Outcome
from gavel.sim.simulate import simulate
from gavel.sim.world import SimulatedWorld
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()
LIMIT = 2e6
"""Seconds: far more than any of these stories should take."""
MECHANISMS = {"credits": Credits, "plain": Priorities}


@dataclass
class Seat:
    """A job on its accelerators, according to the commands."""

    launch: Launch
    workers: int
    ready: float


@dataclass
class Ledger:
    """An independent count, from events and commands alone."""

    restart_seconds: float
    now: float = 0.0
    servers: dict[str, int] = field(default_factory=dict)
    specs: dict[str, JobSpec] = field(default_factory=dict)
    seats: dict[str, Seat] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    steps: dict[str, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    """Steps at the last end of the lease or orderly stop: what a job keeps when its server is lost."""
    leased_until: float = 0.0
    finished: dict[str, float] = field(default_factory=dict)
    """Steps that a job had made when it finished."""
    offered: float = 0.0
    given: float = 0.0
    restarting: float = 0.0

    def advance(self, time: float) -> None:
        elapsed = time - self.now
        self.offered += sum(self.servers.values()) * elapsed
        shared: set[str] = set()
        for job, seat in self.seats.items():
            partner = self.partner(job)
            pace = max(time - max(self.now, seat.ready), 0.0) * self.rate(job, partner)
            self.steps[job] = self.steps.get(job, 0.0) + pace
            if job in shared:
                continue
            shared |= {job, partner} if partner else {job}
            ready = min(seat.ready, self.seats[partner].ready) if partner else seat.ready
            self.given += seat.workers * elapsed
            self.restarting += seat.workers * max(min(time, ready) - self.now, 0.0)
        self.now = time

    def partner(self, job: str) -> str | None:
        beside = self.seats[job].launch.beside
        return beside if beside in self.seats and self.seats[beside].launch.beside == job else None

    def rate(self, job: str, partner: str | None) -> float:
        spec, launch = self.specs[job], self.seats[job].launch
        mine = (spec.template, spec.workers)
        if partner is None:
            return float(TABLE.rates([mine], [launch.type])[0, 0, launch.locality])
        its = (self.specs[partner].template, self.specs[partner].workers)
        first, second, rates = TABLE.pairs([mine, its], [launch.type])
        [pair] = [r for a, b, r in zip(first.tolist(), second.tolist(), rates, strict=True) if (a, b) == (0, 1)]
        return float(pair[0, 0])

    def hear(self, event: Event, commands: Sequence[Command]) -> None:
        self.advance(event.time)
        match event:
            case ServerJoined():
                self.servers[event.server.name] = event.server.accelerators
            case ServerLost():
                del self.servers[event.server]
            case JobSubmitted():
                self.specs[event.job.id] = event.job
            case RoundDue() if event.time >= self.leased_until:
                self.kept = dict(self.steps)
            case JobFinished():
                self.finished[event.job] = self.steps[event.job]
                del self.seats[event.job]
            case _:
                pass
        for command in commands:
            self.see(command, lost=isinstance(event, ServerLost))

    def see(self, command: Command, *, lost: bool) -> None:
        if isinstance(command, Stop):
            del self.seats[command.job]
            if lost:
                self.steps[command.job] = self.kept.get(command.job, 0.0)
            else:
                self.kept[command.job] = self.steps.get(command.job, 0.0)
        if isinstance(command, Renew):
            self.leased_until = command.until
        if isinstance(command, Launch):
            cost = self.restart_seconds if command.job in self.ran else 0.0
            self.ran.add(command.job)
            workers = sum(command.accelerators.values())
            assert workers == self.specs[command.job].workers
            self.seats[command.job] = Seat(command, workers, self.now + cost)


@dataclass(frozen=True)
class Story:
    """A workload, a cluster and what happens to it."""

    trace: Trace
    cluster: Cluster
    failures: Sequence[Event]
    settings: Settings
    mechanism: str
    restart_seconds: float

    def outcome(self) -> Outcome:
        return simulate(
            self.trace,
            self.cluster,
            TABLE,
            allocate,
            MECHANISMS[self.mechanism](),
            self.settings,
            restart_seconds=self.restart_seconds,
            until_seconds=LIMIT,
            disturbances=self.failures,
        )

    def ledger(self) -> Ledger:
        """The same simulation, counted independently."""
        scheduler = Scheduler(TABLE, MECHANISMS[self.mechanism](), self.settings)
        world, ledger = SimulatedWorld(TABLE, allocate, self.restart_seconds), Ledger(self.restart_seconds)
        joining = [ServerJoined(0.0, server) for server in self.cluster.servers]
        arriving = [JobSubmitted(job.arrival, job.spec()) for job in self.trace.jobs]
        for event in (*joining, *self.failures, *arriving):
            world.expect(event)
        left = {job.id for job in self.trace.jobs}
        for event in world:
            assert event.time < LIMIT
            commands = scheduler.handle(event)
            ledger.hear(event, commands)
            for command in commands:
                world.perform(command)
            left -= {event.job} if isinstance(event, JobFinished) else set()
            if not left:
                break
        return ledger


@st.composite
def stories(draw: st.DrawFn, *, sharing: bool = True, failing: bool = True) -> Story:
    cluster = parse_cluster(draw(st.sampled_from(["v100=2", "v100=4,k80=4", "v100=3,p100=2,k80=1", "p100=8"])))
    room = max(kind.count for kind in cluster.types())
    profiles = [profile for profile in TABLE.profiles if profile[1] <= room]
    jobs = []
    for number in range(draw(st.integers(1, 9))):
        template, workers = draw(st.sampled_from(profiles))
        seconds = draw(st.sampled_from([1.0, 300.0, 3600.0, 20_000.0]))
        steps = seconds * float(TABLE.rates([(template, workers)], ["p100"])[0, 0, 0])
        jobs.append(TraceJob(f"j{number}", template, workers, steps, draw(st.sampled_from([0.0, 0.0, 100.0, 5000.0]))))
    failures: list[Event] = []
    if failing and draw(st.booleans()):
        seed = draw(st.integers(0, 100))
        failures = random_failures(cluster, per_server_day=10.0, repair_hours=0.5, until_seconds=2e5, seed=seed)
    settings = Settings(
        round_seconds=draw(st.sampled_from([60.0, 360.0])), space_sharing=sharing and draw(st.booleans())
    )
    mechanism = draw(st.sampled_from(sorted(MECHANISMS)))
    return Story(Trace.of(jobs), cluster, failures, settings, mechanism, draw(st.sampled_from([0.0, 10.0, 50.0])))


@given(story=stories())
@settings(max_examples=60)
def test_every_finished_job_has_made_all_its_steps(story: Story) -> None:
    ledger = story.ledger()
    assert ledger.finished == pytest.approx({job.id: job.steps for job in story.trace.jobs}, rel=1e-7)


@given(story=stories())
@settings(max_examples=60)
def test_busy_restarting_and_idle_time_add_up_to_what_the_servers_offered(story: Story) -> None:
    ledger, outcome = story.ledger(), story.outcome()
    assert outcome.stopped == ledger.now
    assert outcome.offered_seconds == pytest.approx(ledger.offered)
    assert outcome.given_seconds == pytest.approx(ledger.given)
    assert outcome.restart_seconds == pytest.approx(ledger.restarting, abs=1e-6)
    assert 0.0 <= outcome.restart_seconds <= outcome.given_seconds <= outcome.offered_seconds * (1 + 1e-9)
    if not story.failures:
        accelerators = sum(server.accelerators for server in story.cluster.servers)
        assert outcome.offered_seconds == pytest.approx(accelerators * outcome.end)


@given(story=stories(failing=False, sharing=False))
@settings(max_examples=30)
def test_where_nothing_fails_no_busy_second_is_wasted(story: Story) -> None:
    """Time received on each type, times the rate there, equals the job's steps."""
    outcome = story.outcome()
    assert outcome.drained
    received = sum(job.workers * float(job.received.sum()) for job in outcome.jobs.values())
    assert outcome.given_seconds == pytest.approx(received)
    for job in story.trace.jobs:
        done = outcome.jobs[job.id]
        rates = TABLE.rates([(job.template, job.workers)], TABLE.types)[0]
        most, least = float(done.received @ rates.max(axis=1)), float(done.received @ rates.min(axis=1))
        lost = done.restarts * story.restart_seconds * float(rates.max())
        assert (least - lost) * (1 - 1e-9) <= job.steps <= most * (1 + 1e-9)


@given(story=stories())
@settings(max_examples=30)
def test_the_ideal_grants_no_more_than_there_is(story: Story) -> None:
    outcome = simulate_ideally(story.trace, story.cluster, TABLE, allocate, story.settings, disturbances=story.failures)
    assert set(outcome.jobs) == {job.id for job in story.trace.jobs}
    assert outcome.given_seconds <= outcome.offered_seconds * (1 + 1e-6)
    assert outcome.restart_seconds == 0.0


@pytest.mark.parametrize("change", [{}, {"ideal": True}, {"failures_per_server_day": 3.0}, {"limit_days": 1.0}])
def test_the_reports_three_figures_add_up_to_capacity_times_time(change: dict[str, float]) -> None:
    report = run(Experiment.of({"cluster": "v100=6,k80=6", "jobs": 30, "arrivals_per_hour": 2.0, **change}))
    document = report.document()
    figures = [document[f"{name}_accelerator_hours"] for name in ("busy", "restart", "idle")]
    assert min(figures) >= -1e-9
    assert sum(figures) == pytest.approx(report.outcome.offered_seconds / 3600.0)
    assert document["utilization"] == pytest.approx(1.0 - figures[2] / sum(figures))
    if "failures_per_server_day" in change:
        assert sum(figures) < 12 * document["simulated_seconds"] / 3600.0
    else:
        assert sum(figures) == pytest.approx(12 * document["simulated_seconds"] / 3600.0)
