"""What the service tells of jobs and servers: the book, the scheduler and the agents' latest words put together."""

from __future__ import annotations

from collections.abc import Iterable

from gavel.policies.mechanisms import trouble_of
from gavel.runtime.book import Record
from gavel.runtime.engine import Engine
from gavel.scheduler import snapshot
from gavel.version import __version__
from gavel.wire import gavel_pb2 as pb


def job_view(engine: Engine, record: Record) -> pb.JobView:
    """A job in a few figures."""
    roster = engine.scheduler.roster
    received, restarts = record.received, record.restarts
    if record.id in roster:
        slot = roster.slot_of[record.id]
        seconds = engine.scheduler.received_until(slot, engine.clock()).tolist()
        received = {kind: part for kind, part in zip(engine.scheduler.types, seconds, strict=True) if part}
        restarts = int(roster.restarts[slot])
    last = record.history[-1]
    return pb.JobView(
        id=record.id,
        request=record.request,
        state=last.state,  # type: ignore[arg-type] # an enum is a number here
        reason=_reason(engine, record),
        submitted=record.submitted,
        changed=last.time,
        ended=last.time if record.over else 0.0,
        steps_done=steps_done(engine, record),
        type=record.type,
        places=[pb.Place(server=name, accelerators=count) for name, count in record.places.items()],
        beside=record.beside,
        attempts=record.attempts,
        failures=record.failures,
        restarts=restarts,
        received=received,
    )


def steps_done(engine: Engine, record: Record) -> float:
    """As last heard: while a job runs, its agent knows more than the book."""
    attempt = engine.fleet.attempts.get(record.id)
    return attempt.steps if attempt is not None and attempt.steps is not None else record.steps_done


def _reason(engine: Engine, record: Record) -> str:
    """Why a job is in its state; a job that nobody can run yet is told why."""
    if record.over or record.state == pb.RUNNING or record.failures:
        return record.history[-1].reason
    allowed = set(record.request.types)
    sizes = [
        floor.capacity
        for kind, floor in zip(engine.scheduler.types, engine.scheduler.floors, strict=True)
        if not allowed or kind in allowed
    ]
    workers = record.request.workers
    if not any(sizes):
        return "there is no accelerator that it may use yet"
    if workers > max(sizes):
        return f"it wants {workers} workers, and no type that it may use has more than {max(sizes)} accelerators"
    if engine.trouble and engine.scheduler.allocation is None:
        return f"the policy has no answer: {engine.trouble}"
    return record.history[-1].reason


def job_detail(engine: Engine, record: Record) -> pb.JobDetail:
    """Everything about a job."""
    detail = pb.JobDetail(
        job=job_view(engine, record),
        history=[pb.Transition(time=t.time, state=t.state, reason=t.reason) for t in record.history],  # type: ignore[arg-type]
    )
    if record.id in engine.scheduler.roster:
        detail.rates.update(engine.scheduler.rates_of(record.id))
        view = next(job for job in snapshot.take(engine.scheduler, engine.clock()).jobs if job.id == record.id)
        detail.shares.update(view.shares or {})
        detail.limit = view.limit or ""
    return detail


def cluster_view(engine: Engine, started: float) -> pb.ClusterView:
    """Servers, types and what is going on."""
    now = engine.clock()
    seen = snapshot.take(engine.scheduler, now)
    allocation = seen.allocation
    return pb.ClusterView(
        servers=_servers(engine, seen.servers),
        types=[
            pb.TypeView(
                name=kind.name,
                accelerators=kind.accelerators,
                busy=kind.busy,
                price=kind.price or 0.0,
                given_seconds=kind.given_seconds,
            )
            for kind in seen.types
            if kind.accelerators
        ],
        policy=allocation.policy if allocation else "",
        objective=allocation.objective if allocation else 0.0,
        round_seconds=seen.round_seconds,
        round_ends=seen.round_ends or 0.0,
        queued=seen.waiting,
        running=seen.running,
        time=now,
        started=started,
        version=__version__,
        trouble=engine.trouble or trouble_of(engine.scheduler.mechanism),
        ignored=seen.learned.get("ignored", ()),
    )


def _servers(engine: Engine, seen: Iterable[snapshot.ServerView]) -> list[pb.ServerView]:
    """Those of every agent that is known, also of agents whose servers take no work."""
    at_work = {server.name: server for server in seen}
    views = []
    for member in engine.fleet.members.values():
        for server in member.servers.values():
            here = at_work.get(server.name)
            views.append(
                pb.ServerView(
                    name=server.name,
                    agent=member.name,
                    type=server.type,
                    accelerators=server.accelerators,
                    free=here.free if here else 0,
                    state=member.state,
                    jobs=here.jobs if here else _jobs_at(engine, member.name),
                    last_heard=member.heard_at,
                )
            )
    return views


def _jobs_at(engine: Engine, agent: str) -> list[str]:
    return [attempt.job for attempt in engine.fleet.attempts.values() if attempt.part_at(agent)]
