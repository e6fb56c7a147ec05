"""Views for clients as protobuf: the only codec between the scheduler's answers and the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gavel.runtime.agent_wire import pack_request
from gavel.runtime.jobs import JobState
from gavel.runtime.views import ClusterView, JobDetail, JobView, ServerView
from gavel.wire import gavel_pb2 as pb

STATES: dict[JobState, Any] = {state: pb.JobState.Value(state.name) for state in JobState}
_NAMES: dict[int, JobState] = {number: state for state, number in STATES.items()}


def unpack_states(numbers: Iterable[int]) -> frozenset[JobState]:
    """The states that a query names; those of a newer client are left out."""
    return frozenset(_NAMES[number] for number in numbers if number in _NAMES)


def pack_job(view: JobView) -> pb.JobView:
    record = view.record
    return pb.JobView(
        id=record.id,
        request=pack_request(record.request),
        state=STATES[record.state],
        reason=view.reason,
        submitted=record.submitted,
        changed=record.changed,
        ended=record.changed if record.finished else 0.0,
        steps_done=view.steps_done,
        type=record.type,
        places=[pb.Place(server=name, accelerators=count) for name, count in record.places.items()],
        beside=record.beside,
        attempts=record.attempts,
        failures=record.failures,
        restarts=view.restarts,
        received=view.received,
    )


def pack_detail(detail: JobDetail) -> pb.JobDetail:
    return pb.JobDetail(
        job=pack_job(detail.job),
        history=[
            pb.Transition(time=each.time, state=STATES[each.state], reason=each.reason)
            for each in detail.job.record.history
        ],
        shares=detail.shares,
        limit=detail.limit,
        rates=detail.rates,
    )


def pack_cluster(view: ClusterView, *, started: float, cluster: str, term: int) -> pb.ClusterView:
    return pb.ClusterView(
        servers=[_pack_server(server) for server in view.servers],
        types=[
            pb.TypeView(
                name=accelerator_type.name,
                accelerators=accelerator_type.accelerators,
                busy=accelerator_type.busy,
                price=accelerator_type.price or 0.0,
                given_seconds=accelerator_type.given_seconds,
            )
            for accelerator_type in view.types
        ],
        policy=view.policy,
        objective=view.objective,
        round_seconds=view.round_seconds,
        round_ends=view.round_ends,
        queued=view.queued,
        running=view.running,
        time=view.time,
        started=started,
        version=view.version,
        trouble=view.trouble,
        ignored=view.ignored,
        cluster=cluster,
        term=term,
        alarms=view.alarms,
    )


def _pack_server(server: ServerView) -> pb.ServerView:
    return pb.ServerView(
        name=server.name,
        agent=server.agent,
        type=server.type,
        accelerators=server.accelerators,
        free=server.free,
        state=server.state,
        jobs=server.jobs,
        last_heard=server.last_heard,
        since=server.since,
        reason=server.reason,
    )
