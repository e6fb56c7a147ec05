"""A whole live system in virtual time: the real engine, journal and fleet; agents and their processes are modelled.

Faults are drawn from a seed: connections break, agents and the scheduler are killed and come back, ranks crash. After
every step it is checked that no job runs twice at once and no accelerator is given twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gavel.runtime.book import Record
from gavel.runtime.journal import Journal, sqlite_url
from google.protobuf.json_format import MessageToDict

from gavel.core.events import AllocationReady, Command, Event, JobSubmitted, Solve
from gavel.policies.registry import allocate
from gavel.runtime.engine import Engine
from gavel.runtime.fleet import FleetSettings, RefusedError
from gavel.runtime.server import ServeSettings, build_engine
from gavel.runtime.service import spec_of
from gavel.scheduler.machine import check_invariants
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb

How = pb.TaskEnded.How
STEP = 0.25

SETTINGS = FleetSettings(
    heartbeat_seconds=0.5,
    agent_timeout_seconds=3.0,
    lease_slack_seconds=2.0,
    checkpoint_grace_seconds=1.0,
    terminate_grace_seconds=0.5,
    retry_seconds=0.5,
)


@dataclass
class Process:
    """One rank of a job."""

    job: str
    attempt: int
    rank: int
    total: float
    steps: float
    rate: float
    ends_at: float | None = None
    """When it will have left, once asked to."""
    measured: float = 0.0


@dataclass
class Task:
    """What a Start asked for: it waits for accelerators, then its ranks run."""

    start: pb.Start
    lease_until: float
    processes: list[Process] = field(default_factory=list)
    stopping: bool = False


class Wire:
    """A connection: messages are delivered at the agent's next step, or lost with it."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.inbox: list[pb.ToAgent] = []

    def send(self, message: pb.ToAgent) -> None:
        self.inbox.append(message)

    def close(self) -> None:
        self.agent.cut(self)


class Agent:
    """Stands for one agent and its server."""

    def __init__(self, world: VirtualFleet, name: str, kind: str, count: int) -> None:
        self.world, self.name, self.kind, self.count = world, name, kind, count
        self.incarnation = 0
        self.wire: Wire | None = None
        self.tasks: dict[tuple[str, int], Task] = {}
        self.unacknowledged: dict[int, pb.TaskEnded] = {}
        self.number = 0
        self.away_until = 0.0
        self.heartbeat_at = 0.0

    def connect(self) -> None:
        engine = self.world.engine
        if engine is None or self.world.now < self.away_until:
            return
        hello = pb.Hello(
            protocol=PROTOCOL,
            name=self.name,
            incarnation=f"{self.name}-{self.incarnation}",
            accelerators=[pb.Accelerators(type=self.kind, count=self.count)],
            tasks=self.statuses(),
        )
        self.wire = Wire(self)
        try:
            engine.fleet.attach(hello, self.wire)
        except RefusedError:
            self.wire = None
            return
        for number, message in list(self.unacknowledged.items()):
            engine.fleet.ended(self.name, message, partial(self.acknowledged, number))

    def cut(self, wire: Wire) -> None:
        if self.wire is wire:
            self.wire = None
            if self.world.engine is not None:
                self.world.engine.fleet.detached(self.name, wire)

    def acknowledged(self, number: int) -> None:
        self.unacknowledged.pop(number, None)

    def die(self) -> None:
        """Killed with everything that it started."""
        wire, self.wire = self.wire, None
        self.tasks.clear()
        self.unacknowledged.clear()
        self.incarnation += 1
        if wire is not None and self.world.engine is not None:
            self.world.engine.fleet.detached(self.name, wire)

    def statuses(self) -> list[pb.TaskStatus]:
        found = []
        for (job, attempt), task in self.tasks.items():
            steps = {process.rank: process for process in task.processes}
            for rank in range(task.start.first_rank, task.start.first_rank + task.start.ranks):
                process = steps.get(rank)
                if process is None and task.processes:
                    continue
                status = pb.TaskStatus(job=job, attempt=attempt, rank=rank)
                if process is not None:
                    status.counts, status.steps = True, process.steps
                    status.saved_steps = self.world.disk.get(job, 0.0)
                    status.measured_steps, status.measured_seconds = process.measured * process.rate, process.measured
                    process.measured = 0.0
                found.append(status)
        return found

    def step(self) -> None:
        if self.wire is None:
            self.connect()
        else:
            inbox, self.wire.inbox = self.wire.inbox, []
            for message in inbox:
                self.receive(message)
        for key, task in list(self.tasks.items()):
            self.work(key, task)
        if self.wire is not None and self.world.engine is not None and self.world.now >= self.heartbeat_at:
            self.heartbeat_at = self.world.now + SETTINGS.heartbeat_seconds
            self.world.engine.fleet.heartbeat(self.name, pb.Heartbeat(tasks=self.statuses()))

    def receive(self, message: pb.ToAgent) -> None:
        now = self.world.now
        match message.WhichOneof("message"):
            case "start":
                start = message.start
                self.tasks[start.job, start.attempt] = Task(start, now + start.lease_seconds)
            case "lease":
                for (job, _), task in self.tasks.items():
                    if job in message.lease.jobs and not task.stopping:
                        task.lease_until = now + message.lease.seconds
            case "stop":
                asked = self.tasks.get((message.stop.job, message.stop.attempt))
                if asked is not None:
                    self.ask_to_leave(asked, at_once=message.stop.at_once)

    def ask_to_leave(self, task: Task, *, at_once: bool) -> None:
        if task.stopping:
            return
        task.stopping = True
        for process in task.processes:
            process.ends_at = self.world.now + (0.0 if at_once else self.world.random.uniform(0.0, 1.0))

    def work(self, key: tuple[str, int], task: Task) -> None:
        now = self.world.now
        if now > task.lease_until:
            self.ask_to_leave(task, at_once=False)
        if not task.processes:
            if task.stopping:
                del self.tasks[key]
                self.say_ended_unstarted(task)
            elif self.busy() + task.start.ranks <= self.count:
                self.begin(task)
            return
        for process in list(task.processes):
            self.advance(task, process)
        if not task.processes:
            self.tasks.pop(key, None)

    def busy(self) -> int:
        return sum(len(task.processes) for task in self.tasks.values())

    def begin(self, task: Task) -> None:
        start = task.start
        for rank in range(start.first_rank, start.first_rank + start.ranks):
            steps = self.world.disk.get(start.job, 0.0)
            process = Process(start.job, start.attempt, rank, start.request.steps, steps, self.world.rate(start.type))
            task.processes.append(process)
        first = pb.TaskStarted(job=start.job, attempt=start.attempt, rank=start.first_rank)
        if start.first_rank == 0 and start.workers > start.ranks:
            first.master_address, first.master_port, first.gang_port = "127.0.0.1", 1, 2
        if self.wire is not None and self.world.engine is not None:
            self.world.engine.fleet.started(self.name, first)

    def advance(self, task: Task, process: Process) -> None:
        world = self.world
        if process.ends_at is not None:
            if world.now >= process.ends_at:
                if process.rank == 0:
                    world.disk[process.job] = max(process.steps, world.disk.get(process.job, 0.0))
                self.end(task, process, How.LEFT, "left")
            return
        process.steps = min(process.steps + STEP * process.rate, process.total)
        process.measured += STEP
        if process.steps >= process.total:
            world.disk[process.job] = process.total
            self.end(task, process, How.DONE, "done")
        elif world.random.random() < world.crash_rate:
            self.end(task, process, How.CRASHED, "exit code 1")

    def end(self, task: Task, process: Process, how: int, reason: str) -> None:
        task.processes.remove(process)
        status = pb.TaskStatus(
            job=process.job,
            attempt=process.attempt,
            rank=process.rank,
            counts=True,
            steps=process.steps,
            saved_steps=self.world.disk.get(process.job, 0.0),
        )
        self.say(pb.TaskEnded(status=status, how=how, reason=reason))  # type: ignore[arg-type]

    def say_ended_unstarted(self, task: Task) -> None:
        start = task.start
        for rank in range(start.first_rank, start.first_rank + start.ranks):
            status = pb.TaskStatus(job=start.job, attempt=start.attempt, rank=rank)
            self.say(pb.TaskEnded(status=status, how=How.LEFT, reason="never started"))

    def say(self, message: pb.TaskEnded) -> None:
        self.number += 1
        number = self.number
        self.unacknowledged[number] = message
        if self.wire is not None and self.world.engine is not None:
            self.world.engine.fleet.ended(self.name, message, lambda: self.acknowledged(number))


class VirtualFleet:
    """Everything together; also the engine's World."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        crash_rate: float = 0.0,
        events_between_states: int = 5_000,
        round_seconds: float = 2.0,
    ) -> None:
        self.random = random.Random(seed)
        self.crash_rate = crash_rate
        self.now = 1_000.0
        self.disk: dict[str, float] = {}
        self.agents: dict[str, Agent] = {}
        self.events_between_states = events_between_states
        self.settings = ServeSettings(folder=folder, round_seconds=round_seconds, fleet=SETTINGS)
        self.engine: Engine | None = None
        self.story: list[tuple[Event, list[Command]]] = []
        self.submitted: list[str] = []
        self.back_at: float | None = None
        self._wake_at: float | None = None
        self._answers: list[tuple[float, Solve]] = []
        self._journal: Journal | None = None

    # ---- World ----

    def hurry(self) -> None:
        pass

    def wake(self, at: float) -> None:
        self._wake_at = at

    def ask(self, solve: Solve) -> None:
        self._answers.append((self.now + self.random.uniform(0.0, 1.0), solve))

    # ---- the scheduler's life ----

    def boot(self) -> None:
        self._journal = Journal(sqlite_url(self.settings.folder / "journal.sqlite"))
        self.engine = build_engine(
            self.settings, self._journal, clock=lambda: self.now, events_between_states=self.events_between_states
        )
        self.engine.performed = lambda event, commands: self.story.append((event, list(commands)))
        self.engine.begin(self)

    def kill_scheduler(self, seconds: float) -> None:
        """It dies between two transactions; what it had in memory is gone."""
        self.close()
        self._wake_at, self._answers = None, []
        self.back_at = self.now + seconds
        for agent in self.agents.values():
            agent.wire = None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self.engine = self._journal = None

    @staticmethod
    def rate(kind: str) -> float:
        return {"v100": 10.0, "k80": 2.0}[kind]

    def add_agent(self, name: str, kind: str, count: int) -> None:
        self.agents[name] = Agent(self, name, kind, count)

    def submit(self, steps: float, workers: int = 1, retries: int = 1000) -> str:
        assert self.engine is not None
        book = self.engine.book
        name = str(book.next_number)
        book.next_number += 1
        request = pb.JobRequest(
            command=["train"], template="mine", steps=steps, workers=workers, weight=1.0, retries=retries
        )
        self.engine.post(JobSubmitted(self.now, spec_of(name, request)), {"request": MessageToDict(request)})
        self.engine.take_in()
        self.submitted.append(name)
        return name

    # ---- time ----

    def step(self) -> None:
        self.now += STEP
        if self.engine is None and self.back_at is not None and self.now >= self.back_at:
            self.boot()
        for agent in self.agents.values():
            agent.step()
        if (engine := self.engine) is not None:
            engine.fleet.tick()
            if self._wake_at is not None and self._wake_at <= self.now:
                self._wake_at = None
                engine.round_due()
            due = [solve for at, solve in self._answers if at <= self.now]
            self._answers = [(at, solve) for at, solve in self._answers if at > self.now]
            for solve in due:
                engine.post(AllocationReady(self.now, solve.number, allocate(solve.problem)), {})
            for _ in range(3):
                engine.take_in()
            check_invariants(engine.scheduler)
        self.check()

    def check(self) -> None:
        """No job runs twice at once, and no server runs more than it has accelerators."""
        attempts: dict[str, set[int]] = {}
        for agent in self.agents.values():
            assert agent.busy() <= agent.count, f"{agent.name} runs {agent.busy()} on {agent.count}"
            for (job, attempt), task in agent.tasks.items():
                if task.processes:
                    attempts.setdefault(job, set()).add(attempt)
        for job, found in attempts.items():
            assert len(found) == 1, f"job {job} runs as attempts {found} at {self.now}"

    def run(self, seconds: float, each_step: Callable[[], None] = lambda: None) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step()
            each_step()

    def run_until_over(self, limit: float = 3_000.0) -> None:
        end = self.now + limit
        while not self.all_over():
            assert self.now < end, f"not over: {[(r.id, r.history[-3:]) for r in self.records() if not r.over]}"
            self.step()

    def records(self) -> list[Record]:
        return [self.record(job) for job in self.submitted]

    def record(self, job: str) -> Record:
        assert self.engine is not None
        if job in self.engine.book:
            return self.engine.book[job]
        kept = self.engine.journal.find(int(job))
        assert kept is not None, f"job {job} is lost"
        return Record.of(kept)

    def all_over(self) -> bool:
        return self.engine is not None and all(record.over for record in self.records())
