"""A whole live system in virtual time: the real engine, journal and fleet; agents and their processes are modelled.

The scheduler's process can be ended between any two of its operations: `point` numbers them, and `crash_at` names one.
What must hold is checked by `safety.Checker` at every operation and after every step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from safety import Checker
from virtual_agent import Agent, Connection, Process, Task

from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.core.events import AllocationReady, JobCancelled, Solve
from gavel.journal import leader as leading
from gavel.journal import queries
from gavel.journal.database import sqlite_url
from gavel.journal.errors import LeadershipLostError, TemporaryJournalError
from gavel.journal.store import Journal
from gavel.policies.registry import allocate
from gavel.runtime.clock import SteadyClock
from gavel.runtime.engine import DecisionBatch, Engine
from gavel.runtime.events import (
    DrainAsked,
    EditAsked,
    Event,
    ForgetAsked,
    HoldAsked,
    JobsSubmitted,
    LimitsGiven,
    ReleaseAsked,
    RemovalAsked,
    RequeueAsked,
    UndrainAsked,
)
from gavel.runtime.executor import Done
from gavel.runtime.facts import Fact
from gavel.runtime.fleet import Fleet, FleetSettings, RefusedError
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.journal_retry import at_once
from gavel.runtime.messages import (
    Ack,
    AttachRefused,
    CheckpointsHandled,
    Draining,
    FromAgentFrame,
    Heartbeat,
    Hello,
    TaskEnded,
    TaskStarted,
    TaskStatus,
)
from gavel.runtime.server import ServeSettings, build_engine, fleet_for
from gavel.security.quotas import Limits, Subject

STEP = 0.25
SETTINGS = FleetSettings(
    heartbeat_seconds=0.5,
    agent_timeout_seconds=3.0,
    lease_slack_seconds=2.0,
    checkpoint_grace_seconds=1.0,
    terminate_grace_seconds=0.5,
    retry_seconds=0.5,
)
RETRY_SECONDS = 0.25
"""Before a write is tried again."""
RATES = {"h100": 20.0, "v100": 10.0, "p100": 5.0, "k80": 2.0}
IDLE = ("tick", "receive Heartbeat")
"""Operations that leave nothing behind, unless another one follows."""
WALL = 1_000_000.0
"""What the wall clock shows when virtual time is 0."""


class Crash(BaseException):
    """The scheduler's process ends here."""


@contextmanager
def shared_connections() -> Iterator[None]:
    """Have journals in one place use the same SQLAlchemy engines, which remember the statements that they compiled."""
    places = [(leading, "writer_engine"), (queries, "reader_engine")]
    before = [getattr(module, name) for module, name in places]
    for (module, name), make in zip(places, before, strict=True):
        setattr(module, name, cache(make))
    try:
        yield
    finally:
        for (module, name), make in zip(places, before, strict=True):
            setattr(module, name, make)


class WatchedJournal(Journal):
    """The real journal, in which the process can end and writes can fail before and after they are made."""

    world: VirtualFleet

    def append(self, documents: Sequence[Any], beside: Sequence[Any] = ()) -> None:
        world = self.world
        world.point("append")
        fails = world.journal_fails.pop(0) if world.journal_fails else ""
        if fails == "before":
            world.count("append failed")
            raise TemporaryJournalError("the disk is full")
        super().append(documents, beside)
        world.checker.wrote(documents, self.last)
        if fails == "after":
            # As if the connection was lost during the commit: the head is not known to have moved.
            world.count("append in doubt")
            self._head = world.checker.head_before
            self._in_doubt = True
            raise TemporaryJournalError("the connection was lost")
        world.checker.head_before = self._head
        world.point("appended")

    def keep(self, *args: Any, **kwargs: Any) -> None:
        self.world.point("keep")
        super().keep(*args, **kwargs)
        self.world.point("kept")


@dataclass(eq=False)
class Request:
    """What a client asks for, again and again until it is answered."""

    make: Callable[[Engine], Event | None]
    """The event, for an engine to take in; None if it cannot be asked yet."""
    verify: Callable[[], None]
    """Raises AssertionError unless what was asked for is in the journal."""
    asked: Leader | None = None
    answered: bool = False
    error: InputError | None = None


class Leader:
    """One process of the scheduler: engine, fleet and journal, and the driver's work as small operations."""

    def __init__(self, world: VirtualFleet) -> None:
        self.world = world
        journal = WatchedJournal.open(sqlite_url(world.settings.folder / "journal.sqlite"), holder="virtual")
        assert isinstance(journal, WatchedJournal)
        self.journal = journal
        self.journal.world = world
        self.term = self.journal.term
        self.connections: list[Connection] = []
        self.frozen = self.dead = False
        self.wake_at: float | None = None
        self.answers: list[tuple[float, Solve]] = []
        self.batch: DecisionBatch | None = None
        """Decided, and being written."""
        self.write_at = 0.0
        self.ticked_at = world.now
        self.engine: Engine
        self.fleet: Fleet

    def begin(self) -> None:
        world = self.world
        wall, monotonic = lambda: WALL + world.now + world.wall_offset, lambda: 77.0 + world.now
        clock = SteadyClock(not_before=self.journal.last_time, wall=wall, monotonic=monotonic)
        world.checker.head_before = self.journal._head
        self.engine = build_engine(
            world.settings,
            self.journal,
            clock=clock,
            facts_between_states=world.facts_between_states,
            insist=at_once,  # a process that cannot start ends, and another one starts
        )
        world.checker.began(self.engine)
        self.engine.witnesses.append(world.story.extend)
        self.fleet = fleet_for(self.engine, world.settings.fleet)
        self.fleet.post = self.post
        world.point("begin")
        self.engine.begin(self, self.fleet)

    def post(self, event: Event, done: Done | None = None) -> None:
        """Pass on what the fleet reports."""
        if self is self.world.leader:
            self.world.checker.reports(event)
        self.engine.post(event, done)

    def close(self) -> None:
        """The process is gone, and with it everything in memory."""
        self.dead = True
        self.journal.close()
        for connection in self.connections:
            connection.cut()

    # ---- EngineHost ----

    def hurry(self) -> None:
        pass

    def wake(self, at: float) -> None:
        self.world.point("wake")
        self.wake_at = at

    def ask(self, solve: Solve) -> None:
        self.world.point("ask")
        self.answers.append((self.world.now + self.world.solve_seconds(), solve))

    # ---- a step of time ----

    def step(self) -> None:
        world = self.world
        if world.now - self.ticked_at > 1.0 + world.step_seconds:
            self.fleet.excuse(world.now - self.ticked_at - world.step_seconds)
        self.ticked_at = world.now
        world.point("tick")
        self.engine.tick()
        for connection in list(self.connections):
            self.listen(connection)
        if self.wake_at is not None and self.wake_at <= self.engine.clock():
            self.wake_at = None
            world.point("round due")
            self.engine.round_due()
        due = [solve for at, solve in self.answers if at <= world.now]
        self.answers = [(at, solve) for at, solve in self.answers if at > world.now]
        for solve in due:
            world.point("answer")
            self.engine.post(AllocationReady(self.engine.clock(), solve.number, world.answer(solve)))
        world.ask_requests(self)
        self.work()

    def work(self) -> None:
        """Prepare, write and perform as long as there is anything to do; writing may take until a later step."""
        world = self.world
        while True:
            if self.batch is None:
                self.batch = self.engine.prepare()
                if self.batch is None:
                    return
                self.write_at = world.now + world.write_seconds()
            if self.write_at > world.now or not self.write():
                return

    def write(self) -> bool:
        batch = self.batch
        assert batch is not None
        if batch.facts:
            try:
                self.engine.write(batch)
            except TemporaryJournalError:
                self.write_at = self.world.now + RETRY_SECONDS
                return False
        self.batch = None
        if self is self.world.leader:
            self.world.checker.decided(self.engine)
        self.engine.perform(batch)
        self.world.point("performed")
        if self.engine.state_due:
            self.engine.keep_state()
        return True

    # ---- what agents say ----

    def listen(self, connection: Connection) -> None:
        while connection.open and connection.to_leader and connection.to_leader[0][0] <= self.world.now:
            _, frame = connection.to_leader.pop(0)
            connection.heard = max(connection.heard, frame.number)
            self.world.point(f"receive {type(frame.message).__name__}")
            self.hear(connection, frame)
        if not connection.open:
            self.connections.remove(connection)
            self.world.point("detached")
            self.fleet.detached(connection.agent.identity, connection)

    def hear(self, connection: Connection, frame: FromAgentFrame) -> None:
        fleet, agent, message = self.fleet, connection.agent.identity, frame.message
        if isinstance(message, Hello):
            try:
                fleet.attach(message, connection)
            except RefusedError as refusal:
                connection.send(AttachRefused(reason=str(refusal), retry=refusal.retry))
            return
        member = fleet.members.get(agent)
        if member is None or member.link is not connection:
            return
        match message:
            case Heartbeat():
                self.world.checker.heard(self.counted(agent, message.tasks))
                fleet.heartbeat(agent, message)
            case TaskStarted():
                fleet.started(agent, message)
            case TaskEnded():
                self.world.checker.heard(self.counted(agent, (message.status,)))
                fleet.ended(agent, message, lambda: self.acknowledge(connection, frame.number, message))
            case Draining():
                fleet.draining(agent)
            case CheckpointsHandled():
                fleet.handled(agent, message)

    def counted(self, agent: str, statuses: Iterable[TaskStatus]) -> list[TaskStatus]:
        """Those of attempts that still count."""
        attempts = self.fleet.attempts
        known = [status for status in statuses if status.job in attempts]
        return [
            status
            for status in known
            if attempts[status.job].number == status.attempt and attempts[status.job].part_at(agent) is not None
        ]

    def acknowledge(self, connection: Connection, number: int, ended: TaskEnded) -> None:
        self.world.checker.acknowledges(connection.agent, ended)
        connection.send(Ack(number))


@dataclass(eq=False)
class VirtualFleet:
    """Everything together."""

    folder: Path
    seed: int = 0
    round_seconds: float = 2.0
    facts_between_states: int = 5_000
    crash_rate: float = 0.0
    crash_at: int = 0
    """The number of the operation before which the scheduler's process ends; 0: never."""
    down_seconds: float = 1.0
    """How long it stays away after that."""
    delays: float = 0.0
    """Messages take up to this long."""
    writes: float = 0.0
    """A transaction takes up to this long; agents are heard meanwhile."""
    doubles: float = 0.0
    """The share of messages that arrive twice."""
    saves: float = 1.0
    """The share of processes that save when they leave."""
    slow_to_leave: bool = False
    """Whether processes take all of their grace."""
    checkpoint_seconds: float = 3.0
    step_seconds: float = STEP
    settings: ServeSettings = field(init=False)
    now: float = 1_000.0
    wall_offset: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.settings = ServeSettings(folder=self.folder, round_seconds=self.round_seconds, fleet=SETTINGS)
        self.checker = Checker(self)
        self.disk: dict[str, float] = {}
        """What is saved of each job."""
        self.gangs: dict[tuple[str, int], float] = {}
        """By job and attempt: how far the first rank is."""
        self.agents: dict[str, Agent] = {}
        self.leader: Leader | None = None
        self.former: list[Leader] = []
        """Schedulers that were replaced while they were suspended."""
        self.back_at: float | None = None
        self.thaw_at = 0.0
        self.points = self.crashes = 0
        self.idle_until = 0.0
        self.labels: list[str] | None = None
        self.counts: Counter[str] = Counter()
        self.journal_fails: list[str] = []
        """Of the next appends: whether they fail "before" they are made, "after", or not at all ("")."""
        self.story: list[Fact] = []
        """Every fact, in the order in which it was written."""
        self.requests: list[Request] = []
        self.keys: dict[str, str] = {}
        """Jobs by the label that a client has for them."""
        self.done_jobs: set[str] = set()
        """Jobs of which a rank said that it has done everything."""
        self.solving: Callable[[], float] = lambda: self.random.uniform(0.0, 0.5)

    # ---- faults ----

    @property
    def engine(self) -> Engine | None:
        return None if self.leader is None else self.leader.engine

    @property
    def leaders(self) -> list[Leader]:
        """The present scheduler, and those that were replaced."""
        return [*([self.leader] if self.leader else []), *self.former]

    @property
    def fleet(self) -> Fleet:
        assert self.leader is not None
        return self.leader.fleet

    @property
    def fleet_settings(self) -> FleetSettings:
        return self.settings.fleet

    def point(self, label: str) -> None:
        """An operation of the scheduler's process is about to happen.

        Of ticks and heartbeats between which nothing is written or sent, one in a second is enough: what a crash
        leaves behind is the same.
        """
        if label in IDLE:
            if self.now < self.idle_until:
                return
            self.idle_until = self.now + 1.0
        else:
            self.idle_until = 0.0
        self.points += 1
        if self.labels is not None:
            self.labels.append(label)
        if self.points == self.crash_at:
            raise Crash(label)

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def arrival(self, queue: Sequence[tuple[float, Any]], late: float = 0.0) -> float:
        """When the next message of a connection arrives: not before those sent earlier."""
        last = queue[-1][0] if queue else 0.0
        return max(last, self.now + late + (self.random.uniform(0.0, self.delays) if self.delays else 0.0))

    def copies(self, message: Any) -> int:
        doubled = self.doubles and not isinstance(message, Hello) and self.random.random() < self.doubles
        self.counts["doubled"] += bool(doubled)
        return 2 if doubled else 1

    def write_seconds(self) -> float:
        return self.random.uniform(0.0, self.writes) if self.writes else 0.0

    def solve_seconds(self) -> float:
        return self.solving()

    def leaving_seconds(self, longest: float) -> float:
        return longest if self.slow_to_leave else self.random.uniform(0.0, longest)

    def answer(self, solve: Solve) -> Any:
        return allocate(solve.problem, self.settings.policy)

    @staticmethod
    def rate(kind: str) -> float:
        return RATES[kind]

    def gang_steps(self, task: Task, process: Process) -> float:
        """The steps of a rank a moment later: the first advances while all are there, and takes the others along."""
        start = task.start
        if process.rank:
            return max(self.gangs.get(task.key, 0.0), process.steps)
        there = (agent.tasks.get(task.key) for agent in self.agents.values())
        if start.workers == 1 or sum(len(part.processes) for part in there if part) == (start.nodes or start.workers):
            process.steps += self.step_seconds * self.rate(start.type) * (0.7 if start.beside else 1.0)
        self.gangs[task.key] = process.steps
        return process.steps

    def save(self, job: str, steps: float) -> None:
        self.disk[job] = steps
        self.checker.saved(job)

    # ---- the scheduler's life ----

    def boot(self) -> None:
        """Start a scheduler on the journal."""
        self.leader = Leader(self)
        self.back_at = None
        self._guarded(self.leader, self.leader.begin)

    def kill_scheduler(self, seconds: float) -> None:
        """Its process ends; what it had in memory is gone."""
        self.close()
        self.back_at = self.now + seconds

    def close(self) -> None:
        if self.leader is not None:
            self.leader.close()
        self.leader = None

    def finish(self) -> None:
        """Close everything."""
        self.close()
        for leader in self.former:
            leader.close()

    def replace_scheduler(self, seconds: float, *, back_after: float = 1.0) -> None:
        """The scheduler is suspended, another takes over after a while, and then the first one continues."""
        old = self.leader
        if old is None or old.frozen:
            return
        old.frozen = True
        old.journal._writer.lock.release(None)
        for connection in old.connections:
            connection.cut()
        self.former.append(old)
        self.leader, self.back_at, self.thaw_at = None, self.now + back_after, self.now + seconds

    def stand_still(self, seconds: float) -> None:
        """The scheduler's process is stopped for a while; nothing else is."""
        if self.leader is not None:
            self.leader.frozen = True
            self.thaw_at = self.now + seconds

    def _guarded(self, leader: Leader, work: Callable[[], None]) -> None:
        """Let a scheduler work; it may end on the way."""
        try:
            work()
        except Crash:
            self.crashes += 1
            self.kill_scheduler(self.down_seconds)
        except TemporaryJournalError:
            self.count("start failed")
            self.kill_scheduler(self.down_seconds)
        except LeadershipLostError:
            assert leader in self.former, "the only scheduler lost its journal"
            self.count("old leader ended")
            leader.close()

    # ---- time ----

    def step(self) -> None:
        self.now += self.step_seconds
        if self.leader is None and self.back_at is not None and self.now >= self.back_at:
            self.boot()
        for agent in list(self.agents.values()):
            agent.step()
        for leader in self.leaders:
            if leader.frozen and self.now >= self.thaw_at:
                leader.frozen = False
            if not leader.frozen and not leader.dead:
                self._guarded(leader, leader.step)
        self.checker.check()

    def run(self, seconds: float, each_step: Callable[[], None] = lambda: None) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step()
            each_step()

    def run_until_over(self, limit: float = 3_000.0) -> None:
        end = self.now + limit
        while not self.all_over():
            assert self.now < end, self.unfinished()
            self.step()

    def unfinished(self) -> str:
        records = [self.record(job) for job in self.checker.queued] if self.engine is not None else []
        jobs = [(record.id, record.history[-3:]) for record in records if not record.finished]
        return f"at {self.now} not answered: {[r for r in self.requests if not r.answered]}; not finished: {jobs}"

    def all_over(self) -> bool:
        """Whether clients have their answers, and jobs have finished and agents know that the scheduler knows."""
        return (
            self.engine is not None
            and self.leader is not None
            and not self.leader.frozen
            and not any(leader.frozen for leader in self.former)
            and all(request.answered for request in self.requests)
            and self.checker.ended.keys() >= self.checker.queued.keys()
            and not any(agent.tasks or (agent.endings and agent.connection) for agent in self.agents.values())
            and not self.checker.unremoved()
        )

    # ---- agents and clients ----

    def add_agent(self, name: str, kind: str, count: int, *, identity: str = "") -> Agent:
        agent = Agent(self, name, kind, count, identity=identity)
        self.agents[agent.identity] = agent
        return agent

    def ask_requests(self, leader: Leader) -> None:
        """Clients ask again whatever was not answered by a scheduler that is gone."""
        for request in self.requests:
            if request.answered or request.asked is leader:
                continue
            event = request.make(leader.engine)
            if event is not None:
                request.asked = leader
                self.point(f"request {type(event).__name__}")
                leader.engine.post(event, lambda error, request=request: self._answer(request, error))  # type: ignore[misc]

    def _answer(self, request: Request, error: InputError | None) -> None:
        if error is None:
            request.verify()
        request.answered, request.error = True, error
        self.point("answered")

    def client_submits(self, label: str, steps: float, **wanted: Any) -> None:
        """A client submits a job; `label` is its name for it."""
        request = job_request(steps, **wanted)

        def verify() -> None:
            assert label in self.checker.keys, f"job {label!r} was acknowledged before it was in the journal"
            self.keys[label] = self.checker.keys[label]

        self.requests.append(Request(lambda engine: submission(engine, request, label), verify))

    def client_cancels(self, label: str) -> None:
        """A client cancels a job of which it knows the id."""

        def make(engine: Engine) -> Event | None:
            return JobCancelled(engine.clock(), self.keys[label]) if label in self.keys else None

        def verify() -> None:
            assert self.keys[label] in self.checker.ended, f"the cancelling of {label!r} is not in the journal"

        self.requests.append(Request(make, verify))

    def client_edits(self, label: str, **new: Any) -> None:
        """A client changes fields of a job of which it knows the id; refused if the job has finished."""
        changes = Submission(command=("changes",), **new)

        def make(engine: Engine) -> Event | None:
            job = self.keys.get(label)
            return EditAsked(engine.clock(), (job,), changes, tuple(new), "ann") if job is not None else None

        def verify() -> None:
            assert self.keys[label] in self.checker.edited, f"the edit of {label!r} is not in the journal"

        self.requests.append(Request(make, verify))

    def client_asks(self, asked: type[HoldAsked | ReleaseAsked | RequeueAsked], label: str) -> None:
        """A client holds, releases or requeues a job of which it knows the id; what is in vain then is refused."""

        def make(engine: Engine) -> Event | None:
            return asked(engine.clock(), (self.keys[label],), "ann") if label in self.keys else None

        def verify() -> None:
            written = (self.keys[label], asked is HoldAsked) in self.checker.holds
            assert written or asked is RequeueAsked, f"{asked.__name__} for {label!r} is not in the journal"

        self.requests.append(Request(make, verify))

    def operator_drains(self, name: str, *, now: bool = False) -> None:
        def verify() -> None:
            assert (name, True) in self.checker.drained, f"the drain of {name} is not in the journal"

        self.requests.append(Request(lambda engine: DrainAsked(engine.clock(), name, "operator", now), verify))

    def operator_undrains(self, name: str) -> None:
        def verify() -> None:
            assert (name, False) in self.checker.drained, f"the undrain of {name} is not in the journal"

        self.requests.append(Request(lambda engine: UndrainAsked(engine.clock(), name, "operator"), verify))

    def client_removes_checkpoints(self, label: str) -> None:
        """A client asks for the removal of the checkpoints of a job, once it has finished and nothing of it runs."""

        def make(engine: Engine) -> Event | None:
            job, now = self.keys.get(label, ""), engine.clock()
            finished = job in self.checker.ended and not engine.state.why_checkpoints_stay(job, now)
            return RemovalAsked(now, (job,), "operator") if finished else None

        def verify() -> None:
            assert self.keys[label] in self.checker.unwanted, f"the removal for {label!r} is not in the journal"

        self.requests.append(Request(make, verify))

    def operator_limits(self, subject: Subject, accelerators: int) -> None:
        """An operator sets the limit of accelerators; 0 removes it."""
        limits = Limits(running_accelerators=accelerators)

        def verify() -> None:
            known = limits == Limits() or (subject, limits) in self.checker.limited
            assert known, f"the limit of {subject} is not in the journal"

        self.requests.append(Request(lambda engine: LimitsGiven(engine.clock(), "operator", subject, limits), verify))

    def operator_removes(self, name: str) -> None:
        self.requests.append(Request(lambda engine: ForgetAsked(engine.clock(), name, "operator"), lambda: None))

    def submit(self, steps: float, workers: int = 1, retries: int = 1000, template: str = "mine") -> str:
        """Submit a job and have it taken in at once."""
        assert self.engine is not None
        number = str(self.engine.state.jobs.next_number)
        request = job_request(steps, workers=workers, retries=retries, template=template)
        key = f"key {number}"

        def answered(_: InputError | None) -> None:
            assert key in self.checker.keys, f"job {number} was acknowledged before it was in the journal"

        self.engine.post(submission(self.engine, request, key), answered)
        self.engine.take_in()
        return number

    def records(self) -> list[LiveJobRecord]:
        return [self.record(job) for job in self.checker.queued]

    def record(self, job: str) -> LiveJobRecord:
        assert self.engine is not None
        found = self.engine.record(job)
        assert found is not None, f"job {job} is lost"
        return found

    def with_settings(self, **changes: Any) -> None:
        """Settings of the next start."""
        self.settings = replace(self.settings, **changes)


def submission(engine: Engine, request: Submission, key: str) -> JobsSubmitted:
    """A submission with what the journal's table has of its template, as the service makes it."""
    unknown = engine.state.unknown_templates([request])
    return JobsSubmitted(engine.clock(), (request,), key, engine.recalled(unknown))


def job_request(steps: float, *, workers: int = 1, retries: int = 1000, **more: Any) -> Submission:
    return Submission(command=("train",), **{"template": "mine", **more}, steps=steps, workers=workers, retries=retries)
