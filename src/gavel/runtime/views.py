"""Views of jobs and servers for clients, assembled from records, scheduler and agents."""

from __future__ import annotations

from dataclasses import replace

from gavel.client.views import ClusterView, JobDetail, JobState, JobView, Place, ServerView
from gavel.core.cluster import Server
from gavel.core.jobs import Cause
from gavel.policies.mechanisms import trouble_of
from gavel.runtime.agents import AgentRecord
from gavel.runtime.engine import Engine
from gavel.runtime.executor import Executor
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.time_limits import warning
from gavel.scheduler import snapshot
from gavel.scheduler.machine import Scheduler
from gavel.scheduler.obstacles import never_fits, waits_for
from gavel.version import __version__

NEVER = "never"
"""The code of a job that waits for what can no longer happen."""


def job_view(engine: Engine, record: LiveJobRecord) -> JobView:
    """A job as its owner sees it."""
    scheduler = engine.scheduler
    received, restarts = record.received, record.restarts
    waits = waiting_cause(engine, record)
    if not record.finished and record.id in scheduler.roster:
        slot = scheduler.roster.slot_of[record.id]
        seconds = scheduler.received_until(slot, engine.clock()).tolist()
        received = {type_name: part for type_name, part in zip(scheduler.types, seconds, strict=True) if part}
        restarts = int(scheduler.roster.restarts[slot])
    return JobView(
        id=record.id,
        request=record.request.request().redacted(),
        state=record.state,
        reason=reason_of(engine, record),
        submitted=record.submitted,
        changed=record.changed,
        ended=record.changed if record.finished else None,
        steps_done=steps_done(engine, record),
        type=record.type,
        places=tuple(Place(name, count) for name, count in record.places.items()),
        beside=record.beside,
        attempts=record.attempts,
        failures=record.failures,
        restarts=restarts,
        received=received,
        code=record.history[-1].code if waits is None else waits.code,
        exit_code=record.exit_code,
        warning=warning_of(engine, record),
    )


def warning_of(engine: Engine, record: LiveJobRecord) -> str:
    """What the user of a job should know now; empty: nothing."""
    limit = record.request.time_limit_seconds
    if record.finished or not record.warned or limit is None:
        return ""
    return warning(limit, engine.state.time_used(record.id, engine.clock()))


def steps_done(engine: Engine, record: LiveJobRecord) -> float:
    """Steps as last reported: while a job runs, its agent knows more than the journal."""
    attempt = None if record.finished else engine.executor.attempt(record.id)
    return record.steps_done if attempt is None or attempt.steps is None else attempt.steps


def waiting_cause(engine: Engine, record: LiveJobRecord) -> Cause | None:
    """Why a job is on hold, as of now; None if it is not."""
    return None if record.finished else engine.state.gates.reason(record.id)


def reason_of(engine: Engine, record: LiveJobRecord) -> str:
    """Why a job is in its state; for a job that nothing can run yet, why not."""
    if (waits := waiting_cause(engine, record)) is not None:
        return waits.text
    if record.finished or record.state is JobState.RUNNING or record.failures:
        return record.history[-1].reason
    if misfit := _misfit(engine, record):
        return misfit
    if engine.state.trouble and engine.scheduler.allocation is None:
        return f"the policy has no answer: {engine.state.trouble}"
    reason = record.history[-1].reason
    if record.state is JobState.QUEUED and record.id in engine.scheduler.roster:
        reason = waits_for(engine.scheduler, record.id) or reason
    note = engine.state.preferences.note(record)
    return f"{reason}; {note}" if note else reason


def never_fault(engine: Engine, record: LiveJobRecord) -> str:
    """Why a waiting job can never run as things are; empty if it may."""
    view = job_view(engine, record)
    return view.reason if view.code == NEVER else _misfit(engine, record)


def _misfit(engine: Engine, record: LiveJobRecord) -> str:
    """Why no type in the cluster can run a job; empty if one can."""
    most = _largest(engine.scheduler, set(record.request.types))
    if not most:
        return "no accelerator that it may use has joined yet"
    if (workers := record.request.workers) > most:
        return f"it needs {workers} workers, but no type that it may use has more than {most} accelerators"
    if record.id not in engine.scheduler.roster:
        return ""
    return never_fits(engine.scheduler, record.id, record.request.types) or ""


def _largest(scheduler: Scheduler, allowed: set[str]) -> int:
    """The accelerator count of the largest type that a job may use."""
    type_names = zip(scheduler.types, scheduler.server_pools, strict=True)
    return max((pool.capacity for type_name, pool in type_names if not allowed or type_name in allowed), default=0)


def job_detail(engine: Engine, record: LiveJobRecord, *, environment: bool = False) -> JobDetail:
    """Everything about a job, without the values of its environment unless they are asked for."""
    view = job_view(engine, record)
    view = replace(view, request=record.request.request()) if environment else view
    if record.finished or record.id not in engine.scheduler.roster:
        return JobDetail(view, record.history)
    shares, limit = snapshot.meant_for(engine.scheduler, record.id)
    return JobDetail(view, record.history, shares or {}, limit or "", engine.scheduler.rates_of(record.id))


def cluster_view(engine: Engine, *, started: float = 0.0, cluster: str = "", term: int = 0) -> ClusterView:
    """Servers, types and the current activity; the caller knows the start time, cluster id and term."""
    scheduler, now = engine.scheduler, engine.clock()
    allocation = scheduler.allocation
    running = sum(len(run.members) for run in scheduler.placed)
    return ClusterView(
        servers=server_views(engine),
        types=tuple(each for each in snapshot.type_views(scheduler, now) if each.accelerators),
        policy=allocation.policy if allocation else str(engine.state.settings.get("policy", "max_min_fairness")),
        objective=allocation.certificate.objective if allocation else 0.0,
        round_seconds=scheduler.settings.round_seconds,
        round_ends=scheduler.round_ends or 0.0,
        queued=len(scheduler.roster) - running,
        running=running,
        time=now,
        started=started,
        version=__version__,
        trouble=engine.state.trouble or trouble_of(scheduler.mechanism),
        alarms=tuple(engine.alarms.values()),
        ignored=tuple(scheduler.table.ignored),
        cluster=cluster,
        term=term,
    )


def server_views(engine: Engine) -> tuple[ServerView, ...]:
    """The servers of every known agent, including agents whose servers take no work."""
    at_work = {server.name: server for server in snapshot.server_snapshots(engine.scheduler)}
    return tuple(
        _server(engine.executor, record, at_work.get(server.name), server)
        for record in engine.state.agents
        for server in record.servers
    )


def agent_state(engine: Engine, agent: str) -> str:
    """The state of one agent, as `gavel cluster` shows it; empty if the cluster does not know it."""
    record, executor = engine.state.agents.get(agent), engine.executor
    if record is None:
        return ""
    presence = executor.presence(agent)
    return _state(record, attached=presence is not None and presence.attached, empty=not list(executor.at(agent)))


def _server(
    executor: Executor, record: AgentRecord, here: snapshot.ServerSnapshot | None, server: Server
) -> ServerView:
    name = server.name
    presence = executor.presence(record.agent)
    attempts = [attempt for attempt in executor.at(record.agent) if name in attempt.accelerators]
    running = {attempt.job for attempt in attempts}
    used = sum(attempt.accelerators[name] for attempt in attempts)
    jobs = here.jobs if here else tuple(sorted(running, key=int))
    return ServerView(
        name=name,
        agent=record.name,
        type=server.type,
        accelerators=server.accelerators,
        free=here.free if here and not record.draining else max(server.accelerators - used, 0),
        state=_state(record, attached=presence is not None and presence.attached, empty=not jobs and not running),
        since=record.since,
        reason=record.reason,
        jobs=jobs,
        last_heard=presence.heard_at if presence else record.since,
        cpus=server.cpus,
        free_cpus=here.free_cpus if here else 0.0,
        memory_bytes=server.memory_bytes,
        free_memory_bytes=here.free_memory if here else 0,
        accelerator_memory_bytes=server.accelerator_memory,
    )


def _state(record: AgentRecord, *, attached: bool, empty: bool) -> str:
    if record.lost:
        return "lost"
    if record.draining:
        return "drained" if empty else "draining"
    return "connected" if attached else "away"
