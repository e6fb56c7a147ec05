"""The agents, and what runs there: performs launches, stops and renewals, and reports what happened as events.

No I/O and no clock of its own: messages leave through links, events through `post`, and `tick` is told the time. What
must survive a restart of the scheduler is in the journal; this is rebuilt from it and from what agents say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from gavel.core.cluster import Server
from gavel.core.errors import GavelError
from gavel.core.events import (
    Event,
    JobFailed,
    JobFinished,
    JobsProgressed,
    Launch,
    RateMeasured,
    RestartMeasured,
    ServerJoined,
    ServerLost,
)
from gavel.runtime.attempts import Attempt, Part, parts_of
from gavel.runtime.book import Book, Note
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb

MISSED_HEARTBEATS = 3
"""A task that an agent does not list for so many heartbeats after its start was lost on the way."""
MOST_DOUBLINGS = 60
"""Of the pause before a failed job runs again: beyond that it is longer than any limit."""
MEASURED_SECONDS = 0.5
"""A rate is worth something when it was measured for so long."""


class Link(Protocol):
    """The way to an agent."""

    def send(self, message: pb.ToAgent) -> None:
        """Put a message on its way; it may get lost with the connection."""

    def close(self) -> None:
        """End the connection."""


Post = Callable[[Event, Note], None]


class RefusedError(GavelError):
    """An agent that may not attach, with the reason that it is told; `retry` if that may pass."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """How patient the scheduler is with agents and jobs."""

    heartbeat_seconds: float = 2.0
    agent_timeout_seconds: float = 15.0
    """An agent that is not heard of for so long is lost."""
    lease_slack_seconds: float = 30.0
    """Leases end so long after the round, so that a scheduler that is restarted quickly is not missed."""
    checkpoint_grace_seconds: float = 60.0
    terminate_grace_seconds: float = 10.0
    retry_seconds: float = 10.0
    """Pause before a failed job runs again; doubles with each failure."""
    longest_retry_seconds: float = 600.0

    @property
    def ending_seconds(self) -> float:
        """How long a task may take to end when its lease is over."""
        return self.checkpoint_grace_seconds + self.terminate_grace_seconds


@dataclass(slots=True)
class Member:
    """One agent, attached or away."""

    name: str
    incarnation: str
    servers: dict[str, Server]
    """By type."""
    address: str
    heard_at: float
    link: Link | None
    draining: bool = False

    @property
    def state(self) -> str:
        if self.draining:
            return "draining"
        return "connected" if self.link else "away"


@dataclass(slots=True)
class Fleet:
    """Every agent and every attempt that may still be running."""

    settings: FleetSettings
    clock: Callable[[], float]
    post: Post
    book: Book
    members: dict[str, Member] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    """The one attempt of a job that may have processes: no other starts before it is over."""
    by_agent: dict[str, dict[str, Attempt]] = field(default_factory=dict)
    """The same attempts by agent and job, so that hearing an agent costs the same however many there are."""
    waiting: dict[str, Launch] = field(default_factory=dict)
    """Launches of jobs whose earlier attempt is not over yet."""
    strays: dict[str, set[tuple[str, int, int]]] = field(default_factory=dict)
    """By job: (agent, attempt, rank) of processes that should not be there any more and are being stopped."""
    finished: set[str] = field(default_factory=set)
    """Jobs whose end was posted; a launch that crosses it is ignored."""
    expected: dict[str, float] = field(default_factory=dict)
    """After a restart: agents that have not come back, and when they count as lost."""
    fences: dict[tuple[str, str], float] = field(default_factory=dict)
    """By job and agent: until when the job may still run at an agent that is lost."""
    counted: dict[str, float] = field(default_factory=dict)
    """By job: its steps once everything posted has taken effect; the book may not say so yet."""
    saving: dict[str, float] = field(default_factory=dict)
    """By job that counts steps: how long its last attempt took to save and leave, while no other has begun."""
    renewed_until: float = 0.0
    _safe: list[Callable[[], None]] = field(default_factory=list)
    """Acknowledgements of what will be in the journal once everything posted is."""

    # ---- what agents say ----

    def attach(self, hello: pb.Hello, link: Link) -> None:
        """An agent is here, for the first time or again."""
        member = self.members.get(hello.name)
        self._check(hello, member)
        servers = servers_of(hello)
        if member is None or member.incarnation != hello.incarnation or member.servers != servers:
            self._replace(member, hello, servers, link)
        else:
            if member.link is not None:
                member.link.close()
            member.link, member.heard_at = link, self.clock()
        self.expected.pop(hello.name, None)
        link.send(
            pb.ToAgent(
                welcome=pb.Welcome(
                    heartbeat_seconds=self.settings.heartbeat_seconds,
                    checkpoint_grace_seconds=self.settings.checkpoint_grace_seconds,
                    terminate_grace_seconds=self.settings.terminate_grace_seconds,
                )
            )
        )
        self._sort_out(self.members[hello.name], hello.tasks)
        # Only now is it known what still runs there.
        self._lift_fences(lambda _, agent: agent == hello.name)
        if hello.draining:
            self.drain(hello.name)

    def _check(self, hello: pb.Hello, member: Member | None) -> None:
        if hello.protocol != PROTOCOL:
            raise RefusedError(
                f"the agent speaks protocol {hello.protocol} (version {hello.version}) and the scheduler {PROTOCOL}; "
                "install the same version of gavel on both"
            )
        if not hello.name or not hello.accelerators:
            raise RefusedError("an agent needs a name and at least one accelerator")
        if ":" in hello.name:
            raise RefusedError(f"the agent's name {hello.name!r} contains a colon; give another --name")
        fresh = self.clock() - self.settings.heartbeat_seconds * MISSED_HEARTBEATS
        if member and member.link and member.incarnation != hello.incarnation and member.heard_at > fresh:
            reason = f"another agent called {hello.name!r} is attached; give one of them another --name"
            raise RefusedError(reason, retry=True)

    def _replace(self, member: Member | None, hello: pb.Hello, servers: dict[str, Server], link: Link) -> None:
        """An agent that is new, or was started anew: what ran there before has ended with it."""
        now = self.clock()
        gone = {} if member is None or member.draining else member.servers
        if member is not None:
            if member.link is not None:
                member.link.close()
            if member.incarnation != hello.incarnation and member.incarnation:
                self._ended_with(member.name, "its agent was restarted")
        for server in gone.values():
            if server not in servers.values():
                self.post(ServerLost(now, server.name), {})
        for server in servers.values():
            if server not in gone.values():
                self.post(ServerJoined(now, server), {})
        self.members[hello.name] = Member(hello.name, hello.incarnation, servers, hello.address, now, link)

    def _ended_with(self, agent: str, reason: str) -> None:
        """Whatever ran at an agent is surely gone."""
        for attempt in self._at(agent):
            part = attempt.part_at(agent)
            if part is not None and part.sent_at is not None and not part.over:
                self._lose(attempt, part, reason)
        for job, strays in list(self.strays.items()):
            self._forget_strays(job, {stray for stray in strays if stray[0] == agent})

    def _sort_out(self, member: Member, tasks: Iterable[pb.TaskStatus]) -> None:
        """Compare what runs at an agent with what should, and put right what differs."""
        for status in tasks:
            attempt = self.attempts.get(status.job)
            part = attempt.part_at(member.name) if attempt else None
            if attempt and part and attempt.number == status.attempt:
                part.confirmed = True
                self._hear(attempt, status)
                if attempt.stopping:
                    self._send_stop(attempt, part)
            else:
                self._stray(member, status)
        for attempt in self._at(member.name):
            part = attempt.part_at(member.name)
            if part is not None and part.sent_at is None:
                self._send_start(attempt, part)
        self._send_lease(member)

    def _stray(self, member: Member, status: pb.TaskStatus) -> None:
        """A process of an attempt that is no longer wanted: let it save if its job goes on, and wait for its end."""
        goes_on = status.job in self.book and not self.book[status.job].over
        self.strays.setdefault(status.job, set()).add((member.name, status.attempt, status.rank))
        stop = pb.Stop(job=status.job, attempt=status.attempt, reason="no longer planned here", at_once=not goes_on)
        if member.link:
            member.link.send(pb.ToAgent(stop=stop))

    def heartbeat(self, name: str, message: pb.Heartbeat) -> None:
        """An agent is well, and lists what it has."""
        member = self.members[name]
        member.heard_at = self.clock()
        listed = {(status.job, status.attempt) for status in message.tasks}
        for status in message.tasks:
            attempt = self.attempts.get(status.job)
            if attempt and attempt.number == status.attempt and (part := attempt.part_at(name)):
                part.confirmed = True
                self._hear(attempt, status)
            elif (name, status.attempt, status.rank) not in self.strays.get(status.job, set()):
                self._stray(member, status)
        patience = self.settings.heartbeat_seconds * MISSED_HEARTBEATS
        for attempt in self._at(name):
            part = attempt.part_at(name)
            if part is None or part.over or part.sent_at is None or (attempt.job, attempt.number) in listed:
                continue
            if self.clock() - part.sent_at > patience:
                self._lose(attempt, part, f"{name} lost it")

    def _hear(self, attempt: Attempt, status: pb.TaskStatus) -> None:
        """Take in how far an attempt is; its first steps show what the restart before them cost."""
        attempt.heard(status)
        now = self.clock()
        seconds = attempt.restart_seconds(now)
        if seconds is not None:
            attempt.saving_seconds = None
            self.post(RestartMeasured(now, attempt.job, seconds), {})

    def started(self, name: str, message: pb.TaskStarted) -> None:
        """A rank runs; the first one of a gang says where the others find it."""
        attempt = self.attempts.get(message.job)
        if attempt is None or attempt.number != message.attempt:
            return
        if part := attempt.part_at(name):
            part.confirmed = True
        if message.rank == 0 and attempt.started_at is None:
            attempt.started_at = self.clock()
        if message.rank == 0 and message.master_port:
            attempt.ports = message
            for part in attempt.parts:
                if part.sent_at is None and not attempt.stopping:
                    self._send_start(attempt, part)

    def ended(self, name: str, message: pb.TaskEnded, acknowledge: Callable[[], None]) -> None:
        """A rank has ended, in whatever way; the agent repeats itself until this is acknowledged."""
        status = message.status
        attempt = self.attempts.get(status.job)
        part = attempt.part_at(name) if attempt else None
        if attempt is None or part is None or attempt.number != status.attempt:
            self._forget_strays(status.job, {(name, status.attempt, status.rank)})
            self._safe.append(acknowledge)
            return
        attempt.ended(part, message)
        attempt.acknowledge.append(acknowledge)
        if attempt.crash is not None and not attempt.stopping:
            self._stop(attempt, at_once=True)  # a gang is whole or not at all
        self._settle(attempt)

    def detached(self, name: str, link: Link) -> None:
        """A connection broke; the agent has `agent_timeout_seconds` to come back."""
        member = self.members.get(name)
        if member is not None and member.link is link:
            member.link = None

    def drain(self, name: str) -> list[str]:
        """Take an agent's servers out of service; its jobs leave at a checkpoint. Returns those jobs."""
        member = self.members.get(name)
        if member is None:
            raise RefusedError(f"there is no agent {name!r}; attached: {', '.join(self.members) or 'none'}")
        if not member.draining:
            member.draining = True
            for server in member.servers.values():
                self.post(ServerLost(self.clock(), server.name), {})
        return [attempt.job for attempt in self._at(name)]

    # ---- what the scheduler says ----

    def launch(self, command: Launch) -> None:
        """Start a job, as soon as its earlier attempt is over."""
        job = command.job
        if job in self.finished:
            return
        if self._may_start(job):
            self._begin(command)
        else:
            self.waiting[job] = command

    def _may_start(self, job: str) -> bool:
        if job in self.attempts or self.strays.get(job):
            return False
        if self.expected and self.book[job].attempts > 1:
            return False  # it may be running where we cannot see it yet
        return all(fenced != job for fenced, _ in self.fences)  # few: only of agents that were lost

    def _begin(self, command: Launch) -> None:
        agent_of = {server: agent_name(server) for server in command.accelerators}
        if not all(self._has(agent, server) for server, agent in agent_of.items()):
            return  # a server is gone; the scheduler has heard, or is about to
        # It may have waited for its earlier attempt beyond the round that it was launched in.
        lease = self.clock() + self._lease_seconds(max(command.until, self.renewed_until))
        attempt = Attempt(command, self.book[command.job].attempts, parts_of(command, agent_of), lease)
        attempt.saving_seconds = self.saving.pop(command.job, None)
        self._enter(attempt)
        self._send_start(attempt, attempt.parts[0])

    def _enter(self, attempt: Attempt) -> None:
        self.attempts[attempt.job] = attempt
        for part in attempt.parts:
            self.by_agent.setdefault(part.agent, {})[attempt.job] = attempt

    def _at(self, agent: str) -> list[Attempt]:
        """The attempts that have a part at an agent."""
        return list(self.by_agent.get(agent, {}).values())

    def _has(self, agent: str, server: str) -> bool:
        member = self.members.get(agent)
        return member is not None and any(server == own.name for own in member.servers.values())

    def _send_start(self, attempt: Attempt, part: Part) -> None:
        member, command = self.members[part.agent], attempt.launch
        if member.link is None or attempt.stopping:
            return
        if part.first_rank and attempt.ports is None and part is not attempt.parts[0]:
            return  # it needs to know where the first rank is
        record = self.book[command.job]
        start = pb.Start(
            job=command.job,
            attempt=attempt.number,
            first_rank=part.first_rank,
            ranks=part.ranks,
            workers=record.request.workers,
            type=command.type,
            request=record.request,
            lease_seconds=max(attempt.lease_until - self.clock(), 0.0),
            beside=command.beside or "",
            consolidated=command.consolidated,
            steps_done=self.counted.get(record.id, record.steps_done),
        )
        if attempt.ports is not None:
            start.master_address = attempt.ports.master_address
            start.master_port, start.gang_port = attempt.ports.master_port, attempt.ports.gang_port
        part.sent_at = self.clock()
        member.link.send(pb.ToAgent(start=start))

    def stop(self, job: str) -> None:
        """Have a job save a checkpoint and leave."""
        if self.waiting.pop(job, None) is None and job in self.attempts:
            attempt = self.attempts[job]
            if self._reaches(attempt):
                attempt.stopped_at = self.clock()
            self._stop(attempt, at_once=False)
            self._settle(attempt)

    def _reaches(self, attempt: Attempt) -> bool:
        """Whether every agent of an attempt hears what it is told now."""
        members = [self.members.get(part.agent) for part in attempt.parts]
        return all(member is not None and member.link is not None for member in members)

    def closed(self, job: str) -> None:
        """The scheduler has heard that a job is over: end what still runs of it, without a checkpoint."""
        self.waiting.pop(job, None)
        self.counted.pop(job, None)
        self.saving.pop(job, None)
        self.finished.discard(job)
        if job in self.attempts:
            self.finished.add(job)
            self._stop(self.attempts[job], at_once=True)
            self._settle(self.attempts[job])

    def _stop(self, attempt: Attempt, *, at_once: bool) -> None:
        attempt.stopping = True
        for part in attempt.parts:
            if part.sent_at is None:
                part.give_up()
            elif not part.over:
                self._send_stop(attempt, part, at_once=at_once)

    def _send_stop(self, attempt: Attempt, part: Part, *, at_once: bool = False) -> None:
        member = self.members[part.agent]
        if member.link is not None:
            stop = pb.Stop(job=attempt.job, attempt=attempt.number, reason="preempted", at_once=at_once)
            member.link.send(pb.ToAgent(stop=stop))

    def renew(self, until: float) -> None:
        """Everyone who runs and is not being stopped goes on until that time."""
        self.renewed_until = until
        lease = self.clock() + self._lease_seconds(until)
        for attempt in self.attempts.values():
            if not attempt.stopping:
                attempt.lease_until = max(attempt.lease_until, lease)
        for member in self.members.values():
            self._send_lease(member)

    def _send_lease(self, member: Member) -> None:
        jobs = [attempt.job for attempt in self._at(member.name) if not attempt.stopping]
        if jobs and member.link is not None:
            seconds = self._lease_seconds(self.renewed_until)
            member.link.send(pb.ToAgent(lease=pb.Lease(seconds=seconds, jobs=jobs)))

    def _lease_seconds(self, until: float) -> float:
        return max(until - self.clock(), 0.0) + self.settings.lease_slack_seconds

    # ---- what follows ----

    def _lose(self, attempt: Attempt, part: Part, reason: str) -> None:
        """A part is gone through no fault of its job."""
        part.give_up()
        if attempt.crash is None and not attempt.stopping:
            attempt.crash, attempt.blameless = reason, True
            self._stop(attempt, at_once=True)
        self._settle(attempt)

    def _settle(self, attempt: Attempt) -> None:
        """Once every rank has ended: say what became of the job, and start what waits for it."""
        if not attempt.over or self.attempts.get(attempt.job) is not attempt:
            return
        job, now = attempt.job, self.clock()
        del self.attempts[job]
        for part in attempt.parts:
            self.by_agent[part.agent].pop(job, None)
        self._safe += attempt.acknowledge
        if job in self.finished:
            self.finished.discard(job)
            return
        self._count([attempt], final=True)
        self._measure(attempt)
        self._leave_alone(attempt)
        if attempt.crash is not None:
            self._failed(attempt)
        elif attempt.done:
            self.finished.add(job)
            self.waiting.pop(job, None)
            self.post(JobFinished(now, job), {})
        elif attempt.stopping:
            if attempt.stopped_at is not None and attempt.steps is not None:
                self.saving[job] = now - attempt.stopped_at
        else:
            self.post(JobFailed(now, job, "its lease ended before the scheduler renewed it"), {"counts": False})
        self._start_waiting(job)

    def _leave_alone(self, attempt: Attempt) -> None:
        """Whoever shared accelerators with an attempt that is over goes on alone: what it measures is of that."""
        other = self.attempts.get(attempt.launch.beside) if attempt.launch.beside else None
        if other is not None and other.launch.beside == attempt.job:
            other.launch = replace(other.launch, beside=None)
            other.measured_steps = other.measured_seconds = 0.0

    def acknowledge(self) -> None:
        """Everything posted so far is in the journal: agents may forget what they told us."""
        told, self._safe = self._safe, []
        for acknowledge in told:
            acknowledge()

    def _failed(self, attempt: Attempt) -> None:
        job, now, record = attempt.job, self.clock(), self.book[attempt.job]
        reason = attempt.crash or "it failed"
        self.waiting.pop(job, None)
        if attempt.blameless:
            self.post(JobFailed(now, job, reason), {"counts": False})
            return
        retry = not attempt.hopeless and record.failures < record.request.retries
        if not retry:
            self.finished.add(job)
            self.post(JobFailed(now, job, reason, retry=False, crashed=True), {})
            return
        doubled = self.settings.retry_seconds * 2.0 ** min(record.failures, MOST_DOUBLINGS)
        pause = min(doubled, self.settings.longest_retry_seconds)
        left = record.request.retries - record.failures - 1
        sentence = f"{reason}; runs again in {pause:.0f} s, {left} more retries"
        self.post(JobFailed(now, job, sentence, not_before=now + pause, crashed=True), {})

    def _start_waiting(self, job: str) -> None:
        if job in self.waiting and self._may_start(job):
            self._begin(self.waiting.pop(job))

    def _forget_strays(self, job: str, ended: set[tuple[str, int, int]]) -> None:
        if job in self.strays:
            self.strays[job] -= ended
            if not self.strays[job]:
                del self.strays[job]
                self._start_waiting(job)

    def progress(self, *, rates: bool = True) -> None:
        """Post what running jobs have done since this was last asked, all in one event, and how fast they were."""
        attempts = list(self.attempts.values())
        self._count(attempts)
        if rates:
            for attempt in attempts:
                self._measure(attempt)

    def _count(self, attempts: Iterable[Attempt], *, final: bool = False) -> None:
        """Post the steps of attempts; of those that are over, what no checkpoint holds is lost with the process."""
        done: dict[str, float] = {}
        for attempt in attempts:
            if attempt.steps is None or attempt.job not in self.book:
                continue
            total = attempt.saved_steps if final and not attempt.done else attempt.steps
            before = self.counted.get(attempt.job, self.book[attempt.job].steps_done)
            if total != before:
                self.counted[attempt.job] = total
                done[attempt.job] = total - before
        if done:
            self.post(JobsProgressed(self.clock(), tuple(done), np.array(list(done.values()))), {})

    def _measure(self, attempt: Attempt) -> None:
        """Post how fast an attempt has been since this was last asked."""
        if attempt.crash is not None or attempt.job not in self.book:
            return  # how a job ran before it crashed says nothing
        if attempt.measured_seconds >= MEASURED_SECONDS and attempt.measured_steps > 0:
            rate = attempt.measured_steps / attempt.measured_seconds
            beside = attempt.launch.beside
            close = attempt.launch.consolidated
            self.post(RateMeasured(self.clock(), attempt.job, attempt.launch.type, rate, close, beside), {})
            attempt.measured_steps = attempt.measured_seconds = 0.0

    def excuse(self, seconds: float) -> None:
        """The scheduler itself stood still for so long: nobody is blamed for not having been heard."""
        for member in self.members.values():
            member.heard_at += seconds
        for name in self.expected:
            self.expected[name] += seconds

    def tick(self) -> None:
        """Notice who has been silent for too long."""
        now = self.clock()
        for member in list(self.members.values()):
            if now - member.heard_at > self.settings.agent_timeout_seconds:
                self._lost(member)
        for name, deadline in list(self.expected.items()):
            if now > deadline:
                self._lost(self.members[name])
        self._lift_fences(lambda job, agent: self.fences[job, agent] <= now)
        if not self.expected:
            for job in list(self.waiting):
                self._start_waiting(job)

    def _lift_fences(self, wanted: Callable[[str, str], bool]) -> None:
        for job, agent in [key for key in self.fences if wanted(*key)]:
            del self.fences[job, agent]
            self._start_waiting(job)

    def _lost(self, member: Member) -> None:
        """An agent is gone. What runs there may go on until its lease is over; none of it starts elsewhere before."""
        now = self.clock()
        if member.link is not None:
            member.link.close()
        del self.members[member.name]
        self.expected.pop(member.name, None)
        for attempt in self._at(member.name):
            part = attempt.part_at(member.name)
            if part is not None and not part.over:
                if part.sent_at is not None:
                    self.fences[attempt.job, member.name] = attempt.lease_until + self.settings.ending_seconds
                self._lose(attempt, part, f"server {member.name} is not heard of")
        for job, strays in list(self.strays.items()):
            if any(agent == member.name for agent, _, _ in strays):
                self.fences[job, member.name] = now + self.settings.ending_seconds
            self._forget_strays(job, {stray for stray in strays if stray[0] == member.name})
        fenced = {job: until for (job, agent), until in self.fences.items() if agent == member.name}
        if not member.draining:
            for server in member.servers.values():
                self.post(ServerLost(now, server.name), {"fences": fenced} if fenced else {})

    # ---- after a restart of the scheduler ----

    def expect(self, servers: Iterable[Server], placed: Mapping[str, Launch], renewed_until: float) -> None:
        """Begin with what the journal says is there; agents will come back and say what is true."""
        now = self.clock()
        self.renewed_until = renewed_until
        for server in servers:
            name = agent_name(server.name)
            member = self.members.setdefault(name, Member(name, "", {}, "", now, None))
            member.servers[server.type] = server
            self.expected[name] = now + self.settings.agent_timeout_seconds
        lease = max(renewed_until, now) + self.settings.lease_slack_seconds
        for job, launch in placed.items():
            parts = parts_of(launch, {server: agent_name(server) for server in launch.accelerators})
            for part in parts:
                part.sent_at = now
            self._enter(Attempt(launch, self.book[job].attempts, parts, lease))


def agent_name(server: str) -> str:
    """The agent that a server belongs to.

    >>> agent_name("lab3"), agent_name("lab3:v100")
    ('lab3', 'lab3')
    """
    return server.partition(":")[0]


def servers_of(hello: pb.Hello) -> dict[str, Server]:
    """An agent's servers, one for each type; the agent's name if there is one type only."""
    several = len(hello.accelerators) > 1
    return {
        group.type: Server(f"{hello.name}:{group.type}" if several else hello.name, group.type, group.count)
        for group in hello.accelerators
    }
