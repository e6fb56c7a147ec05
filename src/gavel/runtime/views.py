"""What the live system tells of jobs and servers: records, scheduler and agents put together, as plain values.

One set of views for the command line, the API and pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gavel.policies.mechanisms import trouble_of
from gavel.runtime.agents import AgentRecord
from gavel.runtime.engine import Engine
from gavel.runtime.executor import Executor
from gavel.runtime.jobs import JobState, LiveJobRecord
from gavel.scheduler import snapshot
from gavel.scheduler.machine import Scheduler
from gavel.version import __version__


@dataclass(frozen=True, slots=True)
class JobView:
    """A job in a few figures."""

    record: LiveJobRecord
    reason: str
    """Why it is in its state."""
    steps_done: float
    restarts: int
    received: Mapping[str, float]
    """Seconds by type."""


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Everything about a job."""

    job: JobView
    rates: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    limit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """A server, also one that takes no work."""

    name: str
    agent: str
    type: str
    accelerators: int
    free: int
    state: str
    """connected, away, draining, drained or lost."""
    since: float
    reason: str
    jobs: tuple[str, ...]
    last_heard: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Servers, types and what is going on."""

    servers: tuple[ServerView, ...]
    types: tuple[snapshot.TypeSnapshot, ...]
    policy: str
    objective: float
    round_seconds: float
    round_ends: float
    queued: int
    running: int
    time: float
    version: str
    trouble: str
    alarms: tuple[str, ...]
    ignored: tuple[str, ...]


def job_view(engine: Engine, record: LiveJobRecord) -> JobView:
    """A job as its owner sees it."""
    scheduler = engine.scheduler
    received, restarts = record.received, record.restarts
    if not record.finished and record.id in scheduler.roster:
        slot = scheduler.roster.slot_of[record.id]
        seconds = scheduler.received_until(slot, engine.clock()).tolist()
        received = {type_name: part for type_name, part in zip(scheduler.types, seconds, strict=True) if part}
        restarts = int(scheduler.roster.restarts[slot])
    return JobView(record, reason_of(engine, record), steps_done(engine, record), restarts, received)


def steps_done(engine: Engine, record: LiveJobRecord) -> float:
    """As last heard: while a job runs, its agent knows more than the journal."""
    attempt = None if record.finished else engine.executor.attempt(record.id)
    return record.steps_done if attempt is None or attempt.steps is None else attempt.steps


def reason_of(engine: Engine, record: LiveJobRecord) -> str:
    """Why a job is in its state; a job that nothing can run yet is told why."""
    if record.finished or record.state is JobState.RUNNING or record.failures:
        return record.history[-1].reason
    allowed, workers = set(record.request.types), record.request.workers
    most = _largest(engine.scheduler, allowed)
    if not most:
        return "there is no accelerator that it may use yet"
    if workers > most:
        return f"it wants {workers} workers, and no type that it may use has more than {most} accelerators"
    if engine.state.trouble and engine.scheduler.allocation is None:
        return f"the policy has no answer: {engine.state.trouble}"
    return record.history[-1].reason


def _largest(scheduler: Scheduler, allowed: set[str]) -> int:
    """The accelerators of the largest type that a job may use."""
    type_names = zip(scheduler.types, scheduler.server_pools, strict=True)
    return max((pool.capacity for type_name, pool in type_names if not allowed or type_name in allowed), default=0)


def job_detail(engine: Engine, record: LiveJobRecord) -> JobDetail:
    """Everything about a job."""
    view = job_view(engine, record)
    if record.finished or record.id not in engine.scheduler.roster:
        return JobDetail(view)
    shares, limit = snapshot.meant_for(engine.scheduler, record.id)
    return JobDetail(view, engine.scheduler.rates_of(record.id), shares or {}, limit or "")


def cluster_view(engine: Engine) -> ClusterView:
    """Servers, types and what is going on."""
    scheduler, now = engine.scheduler, engine.clock()
    allocation = snapshot.allocation_snapshot(scheduler)
    running = sum(len(run.members) for run in scheduler.placed)
    return ClusterView(
        servers=_servers(engine),
        types=tuple(each for each in snapshot.type_snapshots(scheduler, now) if each.accelerators),
        policy=allocation.policy if allocation else str(engine.state.settings.get("policy", "max_min_fairness")),
        objective=allocation.objective if allocation else 0.0,
        round_seconds=scheduler.settings.round_seconds,
        round_ends=scheduler.round_ends or 0.0,
        queued=len(scheduler.roster) - running,
        running=running,
        time=now,
        version=__version__,
        trouble=engine.state.trouble or trouble_of(scheduler.mechanism),
        alarms=tuple(engine.alarms.values()),
        ignored=tuple(scheduler.table.ignored),
    )


def _servers(engine: Engine) -> tuple[ServerView, ...]:
    """Those of every agent that is known, also of agents whose servers take no work."""
    at_work = {server.name: server for server in snapshot.server_snapshots(engine.scheduler)}
    return tuple(
        _server(engine.executor, record, at_work.get(server.name), server.name, server.type, server.accelerators)
        for record in engine.state.agents
        for server in record.servers
    )


def _server(
    executor: Executor, record: AgentRecord, here: snapshot.ServerSnapshot | None, name: str, type_name: str, size: int
) -> ServerView:
    presence = executor.presence(record.agent)
    attempts = [attempt for attempt in executor.at(record.agent) if name in attempt.accelerators]
    running = {attempt.job for attempt in attempts}
    used = sum(attempt.accelerators[name] for attempt in attempts)
    jobs = here.jobs if here else tuple(sorted(running, key=int))
    return ServerView(
        name=name,
        agent=record.name,
        type=type_name,
        accelerators=size,
        free=here.free if here and not record.draining else max(size - used, 0),
        state=_state(record, attached=presence is not None and presence.attached, empty=not jobs and not running),
        since=record.since,
        reason=record.reason,
        jobs=jobs,
        last_heard=presence.heard_at if presence else record.since,
    )


def _state(record: AgentRecord, *, attached: bool, empty: bool) -> str:
    if record.lost:
        return "lost"
    if record.draining:
        return "drained" if empty else "draining"
    return "connected" if attached else "away"
