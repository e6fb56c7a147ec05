"""A modelled agent, its job processes and its connections, in virtual time. It follows the real agent's rules.

Processes and what they saved outlive the agent's connection. Time is the agent's own monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gavel.runtime.abilities import ABILITIES
from gavel.runtime.messages import (
    Ack,
    AttachRefused,
    CheckpointsHandled,
    Draining,
    Ending,
    FromAgent,
    FromAgentFrame,
    Heartbeat,
    Hello,
    Lease,
    RemoveCheckpoints,
    StartAttempt,
    StopAttempt,
    TaskEnded,
    TaskStarted,
    TaskStatus,
    ToAgent,
    ToAgentFrame,
    Welcome,
)
from gavel.wire import PROTOCOL

if TYPE_CHECKING:
    from virtual_fleet import Leader, VirtualFleet

Key = tuple[str, int]
REDIAL_SECONDS = 0.5


@dataclass(eq=False)
class Process:
    """One rank of a job."""

    rank: int
    steps: float
    ends_at: float | None = None
    """When it will have left, once asked to."""
    measured: float = 0.0
    saved_at: float = 0.0


@dataclass(eq=False)
class Task:
    """What a StartAttempt asked for: it waits for devices, then its ranks run."""

    start: StartAttempt
    lease_ends: float
    processes: list[Process] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    began: bool = False
    asked: bool = False

    @property
    def key(self) -> Key:
        return self.start.job, self.start.attempt


class Connection:
    """One stream: it keeps the order of messages, and loses those on their way when it breaks. The leader's Link."""

    def __init__(self, agent: Agent, leader: Leader) -> None:
        self.agent, self.leader = agent, leader
        self.to_agent: list[tuple[float, ToAgentFrame]] = []
        self.to_leader: list[tuple[float, FromAgentFrame]] = []
        self.sent: dict[int, float] = {}
        """When the agent sent its messages, by number, on its own clock."""
        self.heard = 0
        self.open = True
        self.noticed = False
        """Whether the leader knows that it broke."""
        self.welcome = False

    def send(self, message: ToAgent) -> None:
        """Put a message on its way to the agent."""
        world = self.agent.world
        if self.leader is world.leader:  # an agent obeys no other
            world.checker.sends(self.agent, message)
        world.point(f"send {type(message).__name__}")
        if self.open:
            frame = ToAgentFrame(message, self.leader.term, self.heard)
            for _ in range(world.copies(message)):
                self.to_agent.append((world.arrival(self.to_agent, self.agent.late_orders), frame))

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        """End the connection, from the leader's side."""
        self.agent.world.point("close")
        self.cut()
        self.noticed = True

    def cut(self) -> None:
        """Break: what is on its way is lost."""
        self.open = False
        self.to_agent.clear()
        self.to_leader.clear()
        if self.agent.connection is self:
            self.agent.connection = None


class Agent:
    """Stands for one agent and its server."""

    def __init__(self, world: VirtualFleet, name: str, kind: str, count: int, *, identity: str = "") -> None:
        self.world, self.name, self.kind, self.count = world, name, kind, count
        self.identity = identity or f"id-{name}"
        self.incarnation = 1
        self.cluster, self.term = "", 0
        self.connection: Connection | None = None
        self.tasks: dict[Key, Task] = {}
        self.endings: dict[int, TaskEnded] = {}
        """Ends that are not acknowledged, by number."""
        self.unsaid: list[TaskEnded] = []
        """Ends that happened while the agent was hung."""
        self.number = 0
        self.away_until = self.hung_until = self.heartbeat_at = 0.0
        self.draining = self.gone = False
        self.leaves_at: float | None = None
        """When it ends after it asked its jobs to leave; it comes back then."""
        self.late_orders = 0.0
        """What the scheduler says takes this much longer to arrive."""
        self.refusals = 0
        self.removals: list[str] = []
        """Jobs whose checkpoints it was told to remove, every time that it was."""

    # ---- what happens to it ----

    @property
    def here(self) -> float:
        """Its own clock, which counts the same seconds as others do from another start."""
        return self.world.now + 50_000.0

    @property
    def hung(self) -> bool:
        return self.world.now < self.hung_until

    def lose_connection(self, seconds: float = 0.0) -> None:
        self.away_until = max(self.away_until, self.world.now + seconds)
        if self.connection is not None:
            self.connection.cut()

    def die(self, seconds: float = 1.0) -> None:
        """Killed with everything that it started; the next incarnation makes sure of that before it attaches."""
        self.lose_connection(seconds)
        self.tasks.clear()
        self.endings.clear()
        self.unsaid.clear()
        self.incarnation += 1
        self.draining = False
        self.hung_until = 0.0

    def vanish(self) -> None:
        """Its machine is switched off for good."""
        self.die(1e9)
        self.gone = True

    def hang(self, seconds: float) -> None:
        """It is suspended; its jobs and their guards are not."""
        self.hung_until = self.world.now + seconds

    def drain(self) -> None:
        """It leaves by itself."""
        self.draining = True
        self.say(Draining())
        for task in list(self.tasks.values()):
            self.ask_to_leave(task, at_once=False)

    def crash_task(self, job: str, *, hopeless: bool = False, blameless: bool = False) -> bool:
        """Have the first rank here of a job end with an error."""
        for task in self.tasks.values():
            if task.start.job == job and task.processes and task.processes[0].ends_at is None:
                self.end(task, task.processes[0], Ending.CRASHED, "exit code 3", hopeless=hopeless, blameless=blameless)
                return True
        return False

    # ---- a step of time ----

    def step(self) -> None:
        if self.gone:
            return
        if self.leaves_at is not None and self.world.now >= self.leaves_at:
            self.leaves_at = None
            self.die()
        for task in list(self.tasks.values()):
            self.work(task)
        if self.hung:
            return
        for ended in self.unsaid:
            self.note_end(ended)
        self.unsaid.clear()
        if self.connection is not None:
            self.read(self.connection)
        for task in list(self.tasks.values()):
            self.watch(task)
        if self.connection is None:
            self.dial()
        elif self.connection.welcome and self.world.now >= self.heartbeat_at:
            self.heartbeat_at = self.world.now + self.world.fleet_settings.heartbeat_seconds
            self.say(Heartbeat(self.statuses()))

    def dial(self) -> None:
        there = [leader for leader in self.world.leaders if not leader.frozen and not leader.dead]
        if not there or self.world.now < self.away_until:
            return
        leader = there[0] if len(there) == 1 else self.world.random.choice(there)
        self.connection = Connection(self, leader)
        leader.connections.append(self.connection)
        self.say(
            Hello(
                protocol=PROTOCOL,
                name=self.name,
                agent=self.identity,
                incarnation=f"{self.identity}-{self.incarnation}",
                accelerators={self.kind: self.count},
                tasks=self.statuses(),
                draining=self.draining,
                cluster=self.cluster,
                term=self.term,
                abilities=ABILITIES,
            )
        )

    def say(self, message: FromAgent, number: int = 0) -> None:
        connection, world = self.connection, self.world
        if connection is None:
            return
        if not number:
            self.number += 1
            number = self.number
        connection.sent[number] = self.here
        for _ in range(world.copies(message)):
            connection.to_leader.append((world.arrival(connection.to_leader), FromAgentFrame(number, message)))

    def read(self, connection: Connection) -> None:
        while connection.to_agent and connection.to_agent[0][0] <= self.world.now:
            _, frame = connection.to_agent.pop(0)
            if frame.term < self.term:
                self.world.count("lower term refused")
                connection.cut()
                return
            self.term = frame.term
            self.receive(frame, connection)

    def receive(self, frame: ToAgentFrame, connection: Connection) -> None:  # noqa: C901 - one answer for each kind
        message, since = frame.message, connection.sent.get(frame.heard, 0.0)
        match message:
            case Welcome():
                self.welcomed(message, connection)
            case AttachRefused():
                self.refusals += 1
                self.away_until = self.world.now + REDIAL_SECONDS
                connection.cut()
            case StartAttempt():
                self.start(message, since + message.lease_seconds)
            case Lease():
                for task in self.tasks.values():
                    if task.start.job in message.jobs and not task.asked:
                        task.lease_ends = max(task.lease_ends, since + message.seconds)
            case StopAttempt():
                asked = self.tasks.get((message.job, message.attempt))
                if asked is not None:
                    self.ask_to_leave(asked, at_once=message.at_once)
            case Ack():
                self.endings.pop(message.number, None)
            case RemoveCheckpoints():
                self.remove(message)

    def remove(self, order: RemoveCheckpoints) -> None:
        """Remove checkpoints in order, up to the first job that is still here."""
        through, removed = 0, []
        for number, job in order.removals:
            if any(task.start.job == job for task in self.tasks.values()):
                break
            self.world.checker.removes(job)
            if self.world.disk.pop(job, None) is not None:
                removed.append(job)
            self.removals.append(job)
            through = number
        self.say(CheckpointsHandled(through=through, removed=tuple(removed)))

    def welcomed(self, welcome: Welcome, connection: Connection) -> None:
        self.cluster, connection.welcome = welcome.cluster, True
        if self.draining:
            self.say(Draining())
        for task in self.tasks.values():
            if task.processes:
                self.say(self.started(task))
        for number, ended in list(self.endings.items()):
            self.say(ended, number)
        self.heartbeat_at = self.world.now + self.world.fleet_settings.heartbeat_seconds

    def start(self, start: StartAttempt, lease_ends: float) -> None:
        key = (start.job, start.attempt)
        if key in self.tasks:
            if self.tasks[key].processes:
                self.say(self.started(self.tasks[key]))
        elif not any((ended.status.job, ended.status.attempt) == key for ended in self.endings.values()):
            self.tasks[key] = Task(start, lease_ends)
            if self.draining:
                self.ask_to_leave(self.tasks[key], at_once=False)

    # ---- its tasks ----

    def watch(self, task: Task) -> None:
        """What a task needs the agent for: a begin, and the end of its lease."""
        if self.here > task.lease_ends:
            self.ask_to_leave(task, at_once=False)
        if not task.began:
            if task.asked:
                del self.tasks[task.key]
                for rank in task.start.process_ranks:
                    status = TaskStatus(job=task.start.job, attempt=task.start.attempt, rank=rank)
                    self.note_end(TaskEnded(status=status, ending=Ending.LEFT, reason="before it began"))
            else:
                self.begin(task)

    def begin(self, task: Task) -> None:
        start = task.start
        if any(job == start.job and attempt < start.attempt for job, attempt in self.tasks):
            return
        devices = self.devices_for(start)
        if devices is None:
            return
        task.began, task.devices = True, devices
        steps = self.world.disk.get(start.job, 0.0)
        self.world.checker.begins(start.job, steps)
        task.processes = [Process(rank, steps, saved_at=self.world.now) for rank in start.process_ranks]
        self.say(self.started(task))

    def devices_for(self, start: StartAttempt) -> list[int] | None:
        held: dict[int, list[Task]] = {}
        for task in self.tasks.values():
            if task.processes:
                for device in task.devices:
                    held.setdefault(device, []).append(task)
        other = next((t for t in self.tasks.values() if t.processes and t.start.job == start.beside), None)
        if other is not None and other.start.beside == start.job and not other.asked:
            alone = [device for device in other.devices if len(held[device]) == 1]
            return alone if len(alone) == start.ranks else None
        free = [device for device in range(self.count) if device not in held]
        return free[: start.ranks] if len(free) >= start.ranks else None

    def started(self, task: Task) -> TaskStarted:
        first = TaskStarted(job=task.start.job, attempt=task.start.attempt, rank=task.start.process_ranks[0])
        if task.start.first_rank == 0 and task.start.workers > 1:
            first = replace(first, master_address="127.0.0.1", master_port=1, gang_port=2)
        return first

    def work(self, task: Task) -> None:
        """What processes and guards do by themselves."""
        if self.here >= task.lease_ends + self.grace_seconds(task):
            self.ask_to_leave(task, at_once=True)
        for process in list(task.processes):
            self.advance(task, process)

    def ask_to_leave(self, task: Task, *, at_once: bool) -> None:
        graces, now = self.world.fleet_settings, self.world.now
        longest = graces.terminate_grace_seconds if at_once else graces.ending_with(self.grace_seconds(task))
        if task.began and task.asked and not at_once:
            return
        task.asked = True
        for process in task.processes:
            ends_at = now + self.world.leaving_seconds(longest)
            process.ends_at = ends_at if process.ends_at is None else min(process.ends_at, ends_at)

    def grace_seconds(self, task: Task) -> float:
        """How long a task may take to save."""
        own = task.start.request.grace_seconds
        return self.world.fleet_settings.checkpoint_grace_seconds if own is None else own

    def advance(self, task: Task, process: Process) -> None:
        world, job = self.world, task.start.job
        if process.ends_at is not None and world.now >= process.ends_at:
            if process.rank == 0 and world.random.random() < world.saves:
                self.save(job, process)
            self.end(task, process, Ending.LEFT, "left")
            return
        total, before = task.start.request.steps or 0.0, process.steps
        process.steps = min(world.gang_steps(task, process), total)
        process.measured += world.step_seconds if process.steps != before else 0.0
        if process.rank == 0 and world.now - process.saved_at >= world.checkpoint_seconds:
            self.save(job, process)
        if process.steps >= total:
            if process.rank == 0:
                self.save(job, process)
            self.end(task, process, Ending.DONE, "done")
        elif world.random.random() < world.crash_rate:
            self.end(task, process, Ending.CRASHED, "exit code 1")

    def save(self, job: str, process: Process) -> None:
        process.saved_at = self.world.now
        self.world.save(job, process.steps)

    def end(
        self,
        task: Task,
        process: Process,
        ending: Ending,
        reason: str,
        *,
        hopeless: bool = False,
        blameless: bool = False,
    ) -> None:
        task.processes.remove(process)
        ended = TaskEnded(
            status=self.status(task, process), ending=ending, reason=reason, hopeless=hopeless, blameless=blameless
        )
        if self.hung:
            self.unsaid.append(ended)
        else:
            self.note_end(ended)
        if not task.processes:
            self.tasks.pop(task.key, None)
        if ending is Ending.DONE:
            self.world.done_jobs.add(task.start.job)

    def note_end(self, ended: TaskEnded) -> None:
        self.number += 1
        self.endings[self.number] = ended
        if self.connection is not None and self.connection.welcome:
            self.say(ended, self.number)

    def status(self, task: Task, process: Process) -> TaskStatus:
        job, seconds = task.start.job, process.measured
        process.measured = 0.0
        return TaskStatus(
            job=job,
            attempt=task.start.attempt,
            rank=process.rank,
            counts=True,
            steps=process.steps,
            saved_steps=self.world.disk.get(job, 0.0),
            measured_steps=seconds * self.world.rate(task.start.type),
            measured_seconds=seconds,
        )

    def statuses(self) -> tuple[TaskStatus, ...]:
        found: list[TaskStatus] = []
        for task in self.tasks.values():
            if task.began:
                found += [self.status(task, process) for process in task.processes]
            else:
                job, attempt = task.key
                found += [TaskStatus(job=job, attempt=attempt, rank=rank) for rank in task.start.process_ranks]
        return tuple(found)
