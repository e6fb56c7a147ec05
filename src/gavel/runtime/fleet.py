"""The executor that works through agents: performs launches, stops and renewals, and reports what happened.

It does no I/O: messages leave through connections, events through `post`, and time comes from the injected `clock`.
What must survive a restart of the scheduler is in the journal; this is rebuilt from it and from agents' reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from gavel.client.request_rules import PER_SERVER
from gavel.client.views import JobState
from gavel.core.cluster import Server
from gavel.core.errors import GavelError
from gavel.core.events import Launch, RateMeasured, RestartMeasured
from gavel.core.jobs import Cause
from gavel.limits import MOST_TYPES_OVER_TIME
from gavel.runtime.abilities import ABILITIES, inability
from gavel.runtime.agents import ITSELF, AgentRecord
from gavel.runtime.attempts import Attempt, Order, Part, parts_of
from gavel.runtime.clearing import Clearing
from gavel.runtime.events import (
    AgentAttached,
    AgentGone,
    AttemptBegan,
    AttemptEnded,
    AttemptOutcome,
    DrainAsked,
    StepsCounted,
)
from gavel.runtime.executor import AttemptStatus, EventSink, Presence
from gavel.runtime.holding import Holding, RefusedWords
from gavel.runtime.job_secrets import JobSecrets
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.messages import (
    CheckpointsHandled,
    Ending,
    Heartbeat,
    Hello,
    Lease,
    StartAttempt,
    StopAttempt,
    TaskEnded,
    TaskLog,
    TaskStarted,
    TaskStatus,
    TerminalKeys,
    ToAgent,
    Welcome,
)
from gavel.runtime.offers import hello_fault
from gavel.runtime.removals import Outstanding
from gavel.runtime.time_limits import may_save
from gavel.wire import PROTOCOL

MISSED_HEARTBEATS = 3
"""After this many heartbeats without it, a task that was sent over an earlier connection counts as lost.

If it was sent over the current connection, that connection is closed: the order may be late, and still be carried out.
"""
MOST_UNREAD_BY_TERMINAL = 64
"""While more messages than this wait for an agent, it is sent nothing that was typed: its user waits."""
MEASURED_SECONDS = 0.5
"""The shortest measurement that gives a useful rate."""


class AgentConnection(Protocol):
    """The connection to an agent."""

    def send(self, message: ToAgent) -> None:
        """Queue a message; it may be lost with the connection."""

    def close(self) -> None:
        """End the connection."""

    def unread(self) -> int:
        """How many messages wait for the agent to read them."""


class RefusedError(GavelError):
    """An agent may not attach, with the reason it is given; `retry` if a later attempt may succeed."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """How patient the scheduler is with agents and jobs."""

    heartbeat_seconds: float = 2.0
    agent_timeout_seconds: float = 15.0
    """An agent that is silent for this long is lost."""
    lease_slack_seconds: float = 30.0
    """Leases end this long after the round, so that jobs survive a quick restart of the scheduler."""
    checkpoint_grace_seconds: float = 60.0
    terminate_grace_seconds: float = 10.0
    retry_seconds: float = 10.0
    """Pause before a failed job runs again; doubles with each failure."""
    longest_retry_seconds: float = 600.0
    longest_grace_seconds: float = 3600.0
    """The longest time to save that a job may ask for."""

    @property
    def ending_seconds(self) -> float:
        """How long a task may take to end after its lease, unless its job has its own grace."""
        return self.ending_with(None)

    def ending_with(self, grace_seconds: float | None) -> float:
        """How long a task with this grace may take to end after its lease; None: with that of the cluster."""
        grace = self.checkpoint_grace_seconds if grace_seconds is None else grace_seconds
        return grace + self.terminate_grace_seconds


@dataclass(frozen=True, slots=True)
class SchedulerIdentity:
    """How the scheduler identifies itself to agents."""

    cluster: str
    term: int


@dataclass(slots=True)
class Member:
    """One agent, attached or away."""

    agent: str
    name: str
    incarnation: str
    servers: dict[str, Server]
    """By type."""
    heard_at: float
    link: AgentConnection | None
    since: float = 0.0
    """When it attached."""
    encrypts_gangs: bool = False
    confidential: bool = True
    """Whether it may be sent secrets: not if it connects without TLS while others have certificates."""
    abilities: frozenset[str] | None = None
    """What it can do beyond the first version of the protocol; None: it has not attached yet."""


@dataclass(slots=True)
class Fleet:
    """Every agent that is a member, and every attempt that may still be running."""

    settings: FleetSettings
    identity: SchedulerIdentity
    clock: Callable[[], float]
    post: EventSink
    jobs: Mapping[str, LiveJobRecord]
    """The journal's view of jobs; read only."""
    secrets: JobSecrets = field(default_factory=JobSecrets)
    members: dict[str, Member] = field(default_factory=dict)
    """By agent."""
    names: dict[str, str] = field(default_factory=dict)
    """Member agents by name."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    """The one attempt of each job that may have processes: no other starts before it has ended."""
    by_agent: dict[str, dict[str, Attempt]] = field(default_factory=dict)
    """The same attempts by agent and job, so that handling one agent's message costs the same in any fleet."""
    waiting: dict[str, Order] = field(default_factory=dict)
    """Launches of jobs whose earlier attempt has not ended yet."""
    strays: dict[str, set[tuple[str, int, int]]] = field(default_factory=dict)
    """By job: (agent, attempt, rank) of unwanted processes that are being stopped."""
    unsettled: dict[str, int] = field(default_factory=dict)
    """By job: ends of attempts on their way to the journal; nothing of the job starts meanwhile."""
    expected: dict[str, float] = field(default_factory=dict)
    """After a restart: agents that have not returned, and when they count as lost."""
    fences: dict[tuple[str, str], float] = field(default_factory=dict)
    """By job and agent: until when the job may still run at a lost agent."""
    saving: dict[str, float] = field(default_factory=dict)
    """By job that counts steps: seconds its last attempt took to save and leave; kept until the next attempt begins."""
    clearing: Clearing = field(default_factory=Clearing)
    """Checkpoints that agents are to remove."""
    offered: dict[str, set[str]] = field(default_factory=dict)
    """By agent: every type that it has offered."""
    renewed_until: float = 0.0
    held: Holding = field(default_factory=Holding)
    refused: RefusedWords = field(init=False)

    def __post_init__(self) -> None:
        self.refused = RefusedWords(self.clock)

    # ---- messages of agents ----

    def attach(self, hello: Hello, link: AgentConnection, *, confidential: bool = True) -> None:
        """Attach an agent, for the first time or again; unless it is `confidential`, it is sent no secrets."""
        self._check(hello)
        for rival in self._rivals(hello):
            self._lost(rival, f"another agent has taken the name {hello.name}")
        member, servers = self.members.get(hello.agent), servers_of(hello)
        if member is not None and member.link is not None:
            member.link.close()
        if member is not None and member.incarnation not in ("", hello.incarnation):
            self._ended_with(member.agent, "its agent was restarted")
        self.offered.setdefault(hello.agent, set()).update(hello.accelerators)
        now = self.clock()
        member = Member(hello.agent, hello.name, hello.incarnation, servers, now, link, now, hello.encrypts_gangs)
        member.confidential = confidential
        member.abilities = frozenset(ABILITIES).intersection(hello.abilities)
        self._seat(member)
        self.expected.pop(hello.agent, None)
        offered = tuple(servers.values())
        self.post(AgentAttached(time=now, agent=hello.agent, name=hello.name, servers=offered, draining=hello.draining))
        link.send(
            Welcome(
                cluster=self.identity.cluster,
                heartbeat_seconds=self.settings.heartbeat_seconds,
                checkpoint_grace_seconds=self.settings.checkpoint_grace_seconds,
                terminate_grace_seconds=self.settings.terminate_grace_seconds,
            )
        )
        for attempt in self._at(hello.agent):
            if attempt.active_at is not None:
                attempt.active_at = now  # what it did meanwhile was not heard
        self._sort_out(self.members[hello.agent], hello.tasks)
        # Only now do we know what still runs there.
        self._lift_fences(lambda _, agent: agent == hello.agent)
        self.clearing.forget(hello.agent)  # the next tick sends the order again

    def disconnect(self, agent: str) -> None:
        """Close the connection of an agent; it is lost if it does not return in time."""
        member = self.members.get(agent)
        if member is not None and member.link is not None:
            member.link.close()
            member.link = None

    def _seat(self, member: Member) -> None:
        before = self.members.get(member.agent)
        if before is not None:
            self.names.pop(before.name, None)
        self.members[member.agent] = member
        self.names[member.name] = member.agent

    def _check(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            raise RefusedError(
                f"the agent speaks protocol {hello.protocol} (version {hello.version}) but the scheduler {PROTOCOL}; "
                "install the same version of gavel on both"
            )
        if not hello.name or not hello.accelerators or not hello.agent:
            raise RefusedError("an agent needs a name, an identity and at least one accelerator")
        if (fault := hello_fault(hello)) is not None:
            raise RefusedError(fault)
        self._check_types(hello)
        if ":" in hello.name:
            raise RefusedError(f"the agent's name {hello.name!r} contains a colon; give another --name")
        if hello.term > self.identity.term:
            raise RefusedError(
                f"a later scheduler (term {hello.term}) has taken over from this one (term {self.identity.term})",
                retry=True,
            )
        if hello.tasks and hello.cluster not in ("", self.identity.cluster):
            raise RefusedError("the agent still runs jobs of another cluster", retry=True)
        fresh = self.clock() - self.settings.heartbeat_seconds * MISSED_HEARTBEATS
        for rival in self._rivals(hello):
            if rival.link is not None and rival.heard_at > fresh:
                reason = f"another agent called {hello.name!r} is attached; give one of them another --name"
                raise RefusedError(reason, retry=True)
        member = self.members.get(hello.agent)
        if member and member.link and member.incarnation != hello.incarnation and member.heard_at > fresh:
            reason = f"agent {hello.name!r} is attached already, perhaps by its own old connection"
            raise RefusedError(reason, retry=True)

    def _check_types(self, hello: Hello) -> None:
        """Refuse an agent that offers ever new types: the scheduler remembers all of them."""
        if len(self.offered.get(hello.agent, set()) | hello.accelerators.keys()) > MOST_TYPES_OVER_TIME:
            raise RefusedError(
                f"agent {hello.name!r} would have offered more than {MOST_TYPES_OVER_TIME} types of accelerators since "
                "the scheduler started; offer some of the earlier ones, or restart the scheduler"
            )

    def _rivals(self, hello: Hello) -> list[Member]:
        """Another agent with the same name: a different machine, which may still run jobs."""
        agent = self.names.get(hello.name)
        return [] if agent is None or agent == hello.agent else [self.members[agent]]

    def _ended_with(self, agent: str, reason: str) -> None:
        """Close what an earlier incarnation of an agent ran: the new one ends it before it attaches."""
        for attempt in self._at(agent):
            part = attempt.part_at(agent)
            if part is not None and part.sent_at is not None and not part.over:
                self._lose(attempt, part, reason)
        for job, strays in list(self.strays.items()):
            self._forget_strays(job, {stray for stray in strays if stray[0] == agent})

    def _sort_out(self, member: Member, tasks: Iterable[TaskStatus]) -> None:
        """Compare what runs at an agent with what should, and fix the differences."""
        for status in tasks:
            attempt = self.attempts.get(status.job)
            part = attempt.part_at(member.agent) if attempt else None
            if attempt and part and attempt.number == status.attempt:
                self._hear(member, attempt, status)
                if attempt.stopping:
                    self._send_stop(attempt, part)
            else:
                self._stray(member, status)
        for attempt in self._at(member.agent):
            part = attempt.part_at(member.agent)
            if part is not None and part.sent_at is None:
                self._send_start(attempt, part)
        self._send_lease(member)

    def _stray(self, member: Member, status: TaskStatus) -> None:
        """Stop a process of an unwanted attempt: let it save if that is of use, and wait for its end."""
        record = self.jobs.get(status.job)
        saves = record is not None and may_save(record)
        if self._may_hold(member.agent, status, record):
            self.strays.setdefault(status.job, set()).add((member.agent, status.attempt, status.rank))
            self.held.note(member.agent, status.job, status.attempt)
        else:
            self._refuse("a stray", member.agent, status)  # it is asked to stop, and no job waits for it
        if member.link:
            reason = "no longer planned here"
            member.link.send(StopAttempt(job=status.job, attempt=status.attempt, reason=reason, at_once=not saves))

    def _may_hold(self, agent: str, status: TaskStatus, record: LiveJobRecord | None) -> bool:
        """Whether an agent may have processes of an attempt that is not expected there."""
        if self.held.has(agent, status.job, status.attempt, status.rank):
            return True
        fenced = (status.job, agent) in self.fences
        return fenced and record is not None and 0 < status.attempt <= record.attempts

    def holds(self, agent: str, job: str, attempt: int, rank: int) -> bool:
        """Whether an agent has this rank, or had it until lately."""
        current = self.attempts.get(job)
        part = current.part_at(agent) if current is not None and current.number == attempt else None
        if part is not None:
            return rank in part.all_ranks
        record = self.jobs.get(job)
        if record is not None and rank >= record.request.workers:
            return False  # after a restart, the ranks of parts are not known
        return self.held.has(agent, job, attempt, rank)  # also of parts that a restarted scheduler took for lost

    def _refuse(self, kind: str, agent: str, about: TaskStatus | TaskStarted | TaskLog) -> None:
        member = self.members.get(agent)
        self.refused.note(kind, agent if member is None else member.name, about.job, about.attempt)

    def heartbeat(self, agent: str, message: Heartbeat) -> None:
        """Handle a heartbeat, which lists the agent's tasks."""
        member = self.members[agent]
        member.heard_at = now = self.clock()
        listed = {(status.job, status.attempt) for status in message.tasks}
        for status in message.tasks:
            attempt = self.attempts.get(status.job)
            if attempt and attempt.number == status.attempt and attempt.part_at(agent):
                self._hear(member, attempt, status)
            elif (agent, status.attempt, status.rank) not in self.strays.get(status.job, set()):
                self._stray(member, status)
        patience = self.settings.heartbeat_seconds * MISSED_HEARTBEATS
        for attempt in self._at(agent):
            part = attempt.part_at(agent)
            if part is None or part.over or part.sent_at is None or (attempt.job, attempt.number) in listed:
                continue
            if now - part.sent_at <= patience:
                continue
            if part.sent_at < member.since:
                self._lose(attempt, part, f"{member.name} lost it")
            elif member.link is not None:
                # Nothing is lost within a connection: the order is late, and may still be carried out. The next
                # connection begins with a list of everything that runs there.
                member.link.close()
                member.link = None

    def _hear(self, member: Member, attempt: Attempt, status: TaskStatus) -> None:
        """Apply an attempt's progress; its first steps show the cost of the restart before them."""
        if not attempt.held_by(member.agent, status.rank) or not status.plausible:
            self._refuse("progress", member.agent, status)
            return
        now = self.clock()
        if status.measured_steps > 0 or (status.rank == 0 and status.counts and status.steps != attempt.steps):
            attempt.active_at = now
        attempt.heard(status)
        seconds = attempt.restart_seconds(now)
        if seconds is not None:
            attempt.saving_seconds = None
            self.post(RestartMeasured(now, attempt.job, seconds))

    def started(self, agent: str, message: TaskStarted) -> None:
        """Handle the start of a rank; rank 0 of a gang says where the others find it."""
        attempt = self.attempts.get(message.job)
        part = attempt.part_at(agent) if attempt else None
        if not self.holds(agent, message.job, message.attempt, message.rank) or not message.plausible:
            self._refuse("a start", agent, message)
            return
        if attempt is None or part is None or attempt.number != message.attempt:
            return
        attempt.active_at = self.clock()
        if not attempt.begun:
            attempt.begun = True
            self.post(AttemptBegan(attempt.active_at, attempt.job, attempt.number))
        if message.rank:
            return  # only the agent that holds the first rank speaks for it
        if attempt.started_at is None:
            attempt.started_at = self.clock()
        if message.master_port:
            attempt.ports = message
            for other in attempt.parts:
                if other.sent_at is None and not attempt.stopping:
                    self._send_start(attempt, other)

    def ended(self, agent: str, message: TaskEnded, acknowledge: Callable[[], None]) -> None:
        """Handle the end of a rank; the agent repeats it until it is acknowledged."""
        status = message.status
        if not self.holds(agent, status.job, status.attempt, status.rank):
            self._refuse("an end", agent, status)
            acknowledge()
            return
        attempt = self.attempts.get(status.job)
        part = attempt.part_at(agent) if attempt else None
        if attempt is None or part is None or attempt.number != status.attempt:
            self._forget_strays(status.job, {(agent, status.attempt, status.rank)})
            self._ended_before(status, acknowledge)
            return
        if not status.plausible:
            self._refuse("progress", agent, status)
        attempt.ended(part, message)
        attempt.acknowledge.append(acknowledge)
        if attempt.crash is not None and not attempt.stopping:
            self._stop(attempt, at_once=True)  # a gang is whole or not at all
        elif message.ending is Ending.LEFT and not attempt.over:
            self._break_off(attempt, "one of its ranks left", at_once=False)  # no effect if it was asked to leave
        self._settle(attempt)

    def _ended_before(self, status: TaskStatus, acknowledge: Callable[[], None]) -> None:
        """Handle an end that was heard before, or of a stale attempt; acknowledge it once that is in the journal."""
        if status.job in self.unsettled:
            late = StepsCounted(self.clock(), {})
            self.post(late, lambda _: acknowledge())
        else:
            acknowledge()

    def typed(self, keys: TerminalKeys) -> bool:
        """Pass on what a user typed at a terminal; False if that cannot be done now."""
        attempt = self.attempts.get(keys.job)
        if attempt is None or attempt.number != keys.attempt or attempt.parts[0].sent_at is None:
            return False
        member = self.members.get(attempt.parts[0].agent)
        if member is None or member.link is None or member.link.unread() >= MOST_UNREAD_BY_TERMINAL:
            return False
        member.link.send(keys)
        return True

    def takes_log(self, agent: str, log: TaskLog) -> bool:
        """Whether an agent may add to a log."""
        if self.holds(agent, log.job, log.attempt, log.rank):
            attempt = self.attempts.get(log.job)
            if attempt is not None and attempt.number == log.attempt and log.data:
                attempt.active_at = self.clock()
            return True
        self._refuse("output", agent, log)
        return False

    def detached(self, agent: str, link: AgentConnection) -> None:
        """Handle a broken connection; the agent has `agent_timeout_seconds` to return."""
        member = self.members.get(agent)
        if member is not None and member.link is link:
            member.link = None

    def draining(self, agent: str) -> None:
        """Handle an agent that leaves by itself and has already asked its jobs to leave."""
        self.post(DrainAsked(self.clock(), agent, ITSELF, now=True))

    def handled(self, agent: str, message: CheckpointsHandled) -> None:
        """Note that an agent removed checkpoints; reported with other agents' answers at the next tick."""
        self.clearing.heard(agent, message)

    # ---- orders of the scheduler ----

    def launch(self, launch: Launch, holders: Mapping[str, str]) -> None:
        order = Order(launch, holders)
        if self._may_start(launch.job):
            self._begin(order)
        else:
            self.waiting[launch.job] = order

    def _may_start(self, job: str) -> bool:
        if job in self.attempts or job in self.unsettled or self.strays.get(job):
            return False
        return all(fenced != job for fenced, _ in self.fences)  # few: only those of lost agents

    def _begin(self, order: Order) -> None:
        launch = order.launch
        agent_of = {server: self._holder(server, order) for server in launch.accelerators}
        if not all(agent_of.values()):
            self._never_began(launch)  # a server is gone or another agent's; the scheduler knows, or is about to
            return
        record = self.jobs.get(launch.job)
        if record is not None and (fault := self.secrets.fault(launch.job, record.request.secrets)):
            self._never_began(launch, AttemptOutcome.CRASHED, fault)
            return
        if told := self._unfitness(launch.job, agent_of.values()):
            self._never_began(launch, AttemptOutcome.BLOCKED, told)
            return
        # It may have waited for its earlier attempt beyond the round of its launch.
        lease = self.clock() + self._lease_seconds(max(launch.until, self.renewed_until))
        attempt = Attempt(launch, self._parts(launch, agent_of), lease)
        attempt.saving_seconds = self.saving.pop(launch.job, None)
        self._enter(attempt)
        self._send_start(attempt, attempt.parts[0])

    def _parts(self, launch: Launch, agent_of: Mapping[str, str]) -> list[Part]:
        record = self.jobs.get(launch.job)
        return parts_of(launch, agent_of, per_server=record is not None and record.request.launcher == PER_SERVER)

    def _never_began(self, launch: Launch, outcome: AttemptOutcome = AttemptOutcome.LEFT, reason: str = "") -> None:
        """Close an attempt that had no processes; the next one waits until that is in the journal, too.

        One that crashed would do so the next time.
        """
        job = launch.job
        self.unsettled[job] = self.unsettled.get(job, 0) + 1
        ended = AttemptEnded(
            time=self.clock(),
            job=job,
            attempt=launch.attempt,
            outcome=outcome,
            reason=reason,
            hopeless=outcome is AttemptOutcome.CRASHED,
        )
        self.post(ended, lambda _: self._settled(job))

    def _unfitness(self, job: str, agents: Iterable[str]) -> str:
        """Why one of these agents must not start a job; empty if all may, as far as is known.

        What an agent that has not attached yet may be sent, and what it can do, is only known once it attaches.
        """
        record = self.jobs.get(job)
        if record is None:
            return ""
        members = [member for agent in agents if (member := self.members.get(agent)) is not None]
        open_at = [member.name for member in members if not member.confidential]
        if record.request.secrets and open_at:
            return f"it has secrets, and agent {open_at[0]} is connected without TLS; join it with a certificate"
        told = [inability(each.name, each.abilities, record.request) for each in members if each.abilities is not None]
        return next(filter(None, told), "")

    def _withdraw(self, job: str) -> bool:
        order = self.waiting.pop(job, None)
        if order is not None:
            self._never_began(order.launch)
        return order is not None

    def _enter(self, attempt: Attempt) -> None:
        self.attempts[attempt.job] = attempt
        for part in attempt.parts:
            self.by_agent.setdefault(part.agent, {})[attempt.job] = attempt

    def _at(self, agent: str) -> list[Attempt]:
        """The attempts that have a part at an agent."""
        return list(self.by_agent.get(agent, {}).values())

    def _agent_at(self, server: str) -> str:
        """The agent that has a server now; empty if none."""
        member = self.members.get(self.names.get(agent_name(server), ""))
        if member is None or all(server != own.name for own in member.servers.values()):
            return ""
        return member.agent

    def _holder(self, server: str, order: Order) -> str:
        """The agent at which to start; empty if the server is no longer with the agent of the order.

        A name may pass to another agent while a launch is written. A restarted scheduler would not expect it there.
        """
        agent = self._agent_at(server)
        return agent if order.holders.get(server, agent) == agent else ""

    def _send_start(self, attempt: Attempt, part: Part) -> None:
        member, launch = self.members[part.agent], attempt.launch
        if member.link is None or attempt.stopping:
            return
        if attempt.ports is None and part is not attempt.parts[0]:
            return  # it must first know where rank 0 is
        if told := self._unfitness(launch.job, [part.agent]):  # it was away when the attempt began
            attempt.crash, attempt.crashed = told, AttemptOutcome.BLOCKED
            self._stop(attempt, at_once=True)
            self._settle(attempt)
            return
        record = self.jobs[launch.job]
        start = StartAttempt(
            job=launch.job,
            attempt=attempt.number,
            first_rank=part.first_rank,
            ranks=part.ranks,
            workers=record.request.workers,
            type=launch.type,
            request=record.request,
            lease_seconds=max(attempt.lease_until - self.clock(), 0.0),
            beside=launch.beside or "",
            locality=launch.locality,
            steps_done=record.steps_done,
            secrets=self.secrets.of(launch.job, record.request.secrets),
            node=part.node or 0,
            nodes=0 if part.node is None else len(attempt.parts),
            plain_gang=not all(self._encrypts(other.agent) for other in attempt.parts),
        )
        if attempt.ports is not None:
            ports = attempt.ports
            start = replace(
                start,
                master_address=ports.master_address,
                master_port=ports.master_port,
                gang_port=ports.gang_port,
                gang_token=ports.gang_token,
                gang_certificate=ports.gang_certificate,
            )
        part.sent_at = self.clock()
        self.held.note(part.agent, launch.job, attempt.number, part.all_ranks)
        member.link.send(start)

    def _encrypts(self, agent: str) -> bool:
        """Whether ranks at an agent can meet others over TLS; one that is away comes back as it was."""
        member = self.members.get(agent)
        return member is None or member.encrypts_gangs

    def stop(self, job: str, cause: Cause) -> None:
        if not self._withdraw(job) and job in self.attempts:
            attempt = self.attempts[job]
            if self._reaches(attempt):
                attempt.stopped_at = self.clock()
            self._stop(attempt, at_once=False, reason=cause.text)
            self._settle(attempt)

    def withdraw(self, job: str) -> None:
        self._withdraw(job)

    def remove_checkpoints(self, outstanding: Outstanding) -> None:
        self.clearing.outstanding = outstanding
        for member in self.members.values():
            self._send_removals(member)

    def _send_removals(self, member: Member) -> None:
        if member.link is not None:
            order = self.clearing.order(member.agent, self.clock(), self._may_have_processes)
            if order is not None:
                member.link.send(order)

    def _may_have_processes(self, job: str) -> bool:
        return job in self.attempts or job in self.strays or job in self.unsettled

    def _reaches(self, attempt: Attempt) -> bool:
        """Whether every agent of an attempt can be reached now."""
        members = [self.members.get(part.agent) for part in attempt.parts]
        return all(member is not None and member.link is not None for member in members)

    def close(self, job: str, cause: Cause | None = None) -> None:
        self._withdraw(job)
        self.secrets.forget(job)
        self.saving.pop(job, None)
        if job in self.attempts:
            self._stop(self.attempts[job], at_once=cause is None, reason="" if cause is None else cause.text)
            self._settle(self.attempts[job])

    def _stop(self, attempt: Attempt, *, at_once: bool, reason: str = "") -> None:
        attempt.stopping = True
        for part in attempt.parts:
            if part.sent_at is None:
                part.give_up()
            elif not part.over:
                self._send_stop(attempt, part, at_once=at_once, reason=reason)

    def _send_stop(self, attempt: Attempt, part: Part, *, at_once: bool = False, reason: str = "") -> None:
        member = self.members.get(part.agent)
        if member is not None and member.link is not None:
            why = reason or "preempted"
            member.link.send(StopAttempt(job=attempt.job, attempt=attempt.number, reason=why, at_once=at_once))

    def renew(self, until: float) -> None:
        self.renewed_until = until
        lease = self.clock() + self._lease_seconds(until)
        for attempt in self.attempts.values():
            if not attempt.stopping:
                attempt.lease_until = max(attempt.lease_until, lease)
        for member in self.members.values():
            self._send_lease(member)

    def _send_lease(self, member: Member) -> None:
        if member.link is None:
            return
        running = [attempt for attempt in self._at(member.agent) if not attempt.stopping]
        if running:
            seconds = self._lease_seconds(self.renewed_until)
            for attempt in running:  # a fence must last as long as the lease that agents were given
                attempt.lease_until = max(attempt.lease_until, self.clock() + seconds)
            member.link.send(Lease(seconds=seconds, jobs=tuple([attempt.job for attempt in running])))

    def _lease_seconds(self, until: float) -> float:
        return max(until - self.clock(), 0.0) + self.settings.lease_slack_seconds

    # ---- consequences ----

    def _lose(self, attempt: Attempt, part: Part, reason: str) -> None:
        """Record that a part was lost through no fault of its job."""
        part.give_up()
        self._break_off(attempt, reason, at_once=True)
        self._settle(attempt)

    def _break_off(self, attempt: Attempt, reason: str, *, at_once: bool) -> None:
        if attempt.crash is None and not attempt.stopping:
            attempt.crash, attempt.crashed = reason, AttemptOutcome.LOST
            self._stop(attempt, at_once=at_once)

    def _settle(self, attempt: Attempt) -> None:
        """Once every rank has ended: report how the attempt ended, and start what waits for that."""
        if not attempt.over or self.attempts.get(attempt.job) is not attempt:
            return
        job, now = attempt.job, self.clock()
        del self.attempts[job]
        for part in attempt.parts:
            self.by_agent[part.agent].pop(job, None)
        self._measure(attempt)
        self._partner_runs_alone(attempt)
        outcome, reason = attempt.outcome()
        if outcome is AttemptOutcome.LEFT and attempt.stopped_at is not None and attempt.steps is not None:
            self.saving[job] = now - attempt.stopped_at
        self.unsettled[job] = self.unsettled.get(job, 0) + 1
        ended = AttemptEnded(
            time=now,
            job=job,
            attempt=attempt.number,
            outcome=outcome,
            reason=reason,
            hopeless=attempt.hopeless,
            steps=attempt.kept_steps(),
            exit_code=attempt.exit_code,
        )
        self.post(ended, lambda _: self._settled(job, attempt.acknowledge))

    def _settled(self, job: str, acknowledge: Iterable[Callable[[], None]] = ()) -> None:
        """The end of an attempt is in the journal: agents may forget it, and the next attempt may start."""
        self.unsettled[job] -= 1
        if not self.unsettled[job]:
            del self.unsettled[job]
        for tell in acknowledge:
            tell()
        self._start_waiting(job)

    def _start_waiting(self, job: str) -> None:
        if job in self.waiting and self._may_start(job):
            self._begin(self.waiting.pop(job))

    def _forget_strays(self, job: str, ended: set[tuple[str, int, int]]) -> None:
        if job in self.strays:
            self.strays[job] -= ended
            if not self.strays[job]:
                del self.strays[job]
                self._start_waiting(job)

    def _partner_runs_alone(self, attempt: Attempt) -> None:
        """Mark the partner of an ended attempt as running alone, so that its rate is not reported as the pair's."""
        other = self.attempts.get(attempt.launch.beside) if attempt.launch.beside else None
        if other is not None and other.launch.beside == attempt.job:
            other.launch = replace(other.launch, beside=None)
            other.measured_steps = other.measured_seconds = 0.0

    def report(self) -> None:
        counted = {attempt.job: attempt.steps for attempt in self.attempts.values() if attempt.steps is not None}
        if counted:
            self.post(StepsCounted(self.clock(), counted))
        for attempt in self.attempts.values():
            self._measure(attempt)

    def _measure(self, attempt: Attempt) -> None:
        """Report the rate of an attempt since the last report."""
        if attempt.crash is not None:
            return  # the rate before a crash means nothing
        if attempt.measured_seconds >= MEASURED_SECONDS and attempt.measured_steps > 0:
            rate = attempt.measured_steps / attempt.measured_seconds
            launch = attempt.launch
            self.post(RateMeasured(self.clock(), attempt.job, launch.type, rate, launch.locality, launch.beside))
            attempt.measured_steps = attempt.measured_seconds = 0.0

    def excuse(self, seconds: float) -> None:
        for member in self.members.values():
            member.heard_at += seconds
        for agent in self.expected:
            self.expected[agent] += seconds
        for attempt in self.attempts.values():
            if attempt.active_at is not None:
                attempt.active_at += seconds

    def tick(self) -> None:
        """Notice agents that have been silent for too long, and fences that have expired."""
        now = self.clock()
        for member in list(self.members.values()):
            if now - member.heard_at > self.settings.agent_timeout_seconds:
                self._lost(member, f"server {member.name} has stopped responding")
        for agent, deadline in list(self.expected.items()):
            if now > deadline and agent in self.members:
                name = self.members[agent].name
                self._lost(self.members[agent], f"server {name} did not return")
        self._lift_fences(lambda job, agent: self.fences[job, agent] <= now)
        cleared = self.clearing.report(now)
        if cleared is not None:
            self.post(cleared)
        if self.clearing.outstanding.jobs:
            for member in self.members.values():
                self._send_removals(member)

    def _lift_fences(self, wanted: Callable[[str, str], bool]) -> None:
        for job, agent in [key for key in self.fences if wanted(*key)]:
            del self.fences[job, agent]
            self._start_waiting(job)

    def _lost(self, member: Member, reason: str) -> None:
        """Drop a lost agent. What runs there may continue until its lease ends; none of it starts elsewhere before."""
        now, agent = self.clock(), member.agent
        if member.link is not None:
            member.link.close()
        del self.members[agent]
        del self.names[member.name]
        self.expected.pop(agent, None)
        for attempt in self._at(agent):
            part = attempt.part_at(agent)
            if part is not None and not part.over and part.sent_at is not None:
                self.fences[attempt.job, agent] = attempt.lease_until + self._ending_seconds(attempt.job)
        for job, strays in self.strays.items():
            if any(holder == agent for holder, _, _ in strays):
                until = now + self._lease_seconds(self.renewed_until) + self._ending_seconds(job)
                self.fences[job, agent] = max(self.fences.get((job, agent), 0.0), until)
        fenced = {job: until for (job, holder), until in self.fences.items() if holder == agent}
        self.post(AgentGone(now, agent, reason, fenced))
        for attempt in self._at(agent):
            part = attempt.part_at(agent)
            if part is not None and not part.over:
                self._lose(attempt, part, reason)
        for job, strays in list(self.strays.items()):
            self._forget_strays(job, {stray for stray in strays if stray[0] == agent})

    def _ending_seconds(self, job: str) -> float:
        """How long processes of a job may take to end after their lease."""
        record = self.jobs.get(job)
        return self.settings.ending_with(None if record is None else record.request.grace_seconds)

    def running(self) -> Iterable[str]:
        return self.attempts.keys()

    def attempt(self, job: str) -> AttemptStatus | None:
        found = self.attempts.get(job)
        return None if found is None else replace(_status(found), quiet_since=self._quiet_since(found))

    def _quiet_since(self, attempt: Attempt) -> float | None:
        """Since when an attempt has been silent; agents report what they see up to a heartbeat later."""
        if attempt.active_at is None or attempt.stopping or not self._reaches(attempt):
            return None
        return attempt.active_at + self.settings.heartbeat_seconds

    def at(self, agent: str) -> Iterable[AttemptStatus]:
        return [_status(attempt) for attempt in self._at(agent)]

    def presence(self, agent: str) -> Presence | None:
        member = self.members.get(agent)
        return None if member is None else Presence(member.link is not None, member.heard_at)

    # ---- after a restart of the scheduler ----

    def begin(
        self,
        agents: Iterable[AgentRecord],
        attempts: Iterable[tuple[str, Sequence[Launch]]],
        fences: Mapping[tuple[str, str], float],
        renewed_until: float,
        holders: Mapping[tuple[str, int], Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Begin with what the journal says may run; agents will return and report the truth."""
        now = self.clock()
        self.renewed_until = renewed_until
        self.fences.update(fences)
        self.held.note_all(holders)
        for record in agents:
            if not record.lost:
                servers = {server.type: server for server in record.servers}
                self._seat(Member(record.agent, record.name, "", servers, now, None))
                self.expected[record.agent] = now + self.settings.agent_timeout_seconds
        for job, launches in attempts:
            self._take_up(job, [Order(launch, holders.get((job, launch.attempt), {})) for launch in launches])

    def _take_up(self, job: str, orders: Sequence[Order]) -> None:
        """Resume a job: only its first open attempt may have processes; the last is the one that should run, if any."""
        record = self.jobs.get(job)
        wanted = record.attempts if record is not None and record.state is JobState.RUNNING else 0
        first, *later = orders
        self._resume(first, stopping=first.launch.attempt != wanted)
        for order in later:
            if order.launch.attempt == wanted:
                self.waiting[job] = order
            else:
                self._never_began(order.launch)

    def _resume(self, order: Order, *, stopping: bool) -> None:
        """Expect an attempt where it was launched: an agent that has taken the name since runs nothing of it."""
        launch = order.launch
        held = {server: order.holders.get(server) or self._agent_at(server) for server in launch.accelerators}
        agent_of = {server: agent if agent in self.members else "" for server, agent in held.items()}
        known = {server: agent for server, agent in agent_of.items() if agent}
        lease = self.clock() + self._lease_seconds(self.renewed_until)
        attempt = Attempt(launch, self._parts(launch, agent_of), lease, stopping=stopping or len(known) < len(agent_of))
        attempt.active_at, attempt.begun = self.clock(), True
        for part in attempt.parts:
            part.sent_at = self.clock()
            self.held.note(part.agent, launch.job, launch.attempt, part.all_ranks)
            if not part.agent:
                part.give_up()  # its agent was lost; what may run there is fenced
        self._enter(attempt)
        self._settle(attempt)


def _status(attempt: Attempt) -> AttemptStatus:
    return AttemptStatus(
        attempt.job,
        attempt.number,
        attempt.launch.accelerators,
        attempt.stopping,
        attempt.lease_until,
        attempt.steps,
        begun=attempt.begun,
    )


def agent_name(server: str) -> str:
    """The name of the agent that owns a server.

    >>> agent_name("lab3"), agent_name("lab3:v100")
    ('lab3', 'lab3')
    """
    return server.partition(":")[0]


def servers_of(hello: Hello) -> dict[str, Server]:
    """An agent's servers, one per type; named after the agent if it has only one type.

    The cores and RAM of a machine with several types are divided by the number of accelerators.
    """
    several, total = len(hello.accelerators) > 1, sum(hello.accelerators.values())
    return {
        type_name: Server(
            f"{hello.name}:{type_name}" if several else hello.name,
            type_name,
            count,
            math.floor(hello.cpus * 1000 * count / total) / 1000,
            hello.memory_bytes * count // total,
            hello.accelerator_memory.get(type_name, 0),
        )
        for type_name, count in hello.accelerators.items()
    }
