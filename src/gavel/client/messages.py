"""The codec between the records that users and the scheduler exchange and protobuf: the only place that knows both.

`to_…` turns records into messages, `from_…` messages into records. Only this module knows what 0 or "" stand for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from gavel.client.request_rules import PER_DEVICE
from gavel.client.requests import JobRequest, Submission
from gavel.client.views import (
    AgentView,
    AuditView,
    CheckpointsView,
    ClusterView,
    EnrolledAgentView,
    EventView,
    IdentityView,
    JobDetail,
    JobState,
    JobUpdate,
    JobView,
    LimitsView,
    NewTokenView,
    NotificationsView,
    NotificationTestView,
    Place,
    ServerView,
    TokenView,
    Transition,
    TypeView,
    UsageLimits,
    UserView,
)
from gavel.errors import InputError
from gavel.wire import gavel_pb2 as pb

_STATES = {
    pb.QUEUED: JobState.QUEUED,
    pb.RUNNING: JobState.RUNNING,
    pb.PREEMPTED: JobState.PREEMPTED,
    pb.COMPLETED: JobState.COMPLETED,
    pb.FAILED: JobState.FAILED,
    pb.CANCELLED: JobState.CANCELLED,
}
_NUMBERS = {state: number for number, state in _STATES.items()}


# ---- requests ----


def to_submission(submission: Submission) -> pb.JobRequest:
    """A job as it is sent to the scheduler, and by it to agents."""
    return pb.JobRequest(
        name=submission.name,
        template=submission.template,
        command=submission.command,
        steps=submission.steps or 0.0,
        workers=submission.workers,
        weight=submission.weight,
        entity=submission.entity or "",
        deadline_seconds=submission.deadline_seconds or 0.0,
        types=submission.types,
        environment=submission.environment,
        retries=submission.retries,
        working_directory=submission.working_directory,
        private=submission.private,
        user=submission.user,
        secrets=submission.secrets,
        prefer=submission.prefer,
        launcher="" if submission.launcher == PER_DEVICE else submission.launcher,
        grace_seconds=submission.grace_seconds or 0.0,
        time_limit_seconds=submission.time_limit_seconds or 0.0,
        idle_timeout_seconds=submission.idle_timeout_seconds or 0.0,
        hold=submission.hold,
        after=submission.after,
        tags=submission.tags,
        gpu_memory_bytes=submission.gpu_memory_bytes,
        cpus=submission.cpus or 0.0,
        memory_bytes=submission.memory_bytes,
        notify=submission.notify,
        venv=submission.venv,
        modules=submission.modules,
        container=submission.container,
        terminal=submission.terminal,
        array=submission.array,
        grid=[pb.GridAxis(name=name, values=values) for name, values in submission.grid.items()],
        at_once=submission.at_once,
        array_id=submission.array_id,
        index=submission.index,
        parameters=submission.parameters,
    )


def from_submission(message: pb.JobRequest) -> Submission:
    """A job as it arrives."""
    return Submission(
        command=tuple(message.command),
        name=message.name,
        template=message.template,
        steps=message.steps or None,
        workers=message.workers,
        weight=message.weight,
        entity=message.entity or None,
        deadline_seconds=message.deadline_seconds or None,
        types=tuple(message.types),
        environment=dict(message.environment),
        retries=message.retries,
        working_directory=message.working_directory,
        private=message.private,
        user=message.user,
        secrets=tuple(message.secrets),
        prefer=tuple(message.prefer),
        launcher=message.launcher or PER_DEVICE,
        grace_seconds=message.grace_seconds or None,
        time_limit_seconds=message.time_limit_seconds or None,
        idle_timeout_seconds=message.idle_timeout_seconds or None,
        hold=message.hold,
        after=tuple(message.after),
        tags=dict(message.tags),
        gpu_memory_bytes=message.gpu_memory_bytes,
        cpus=message.cpus or None,
        memory_bytes=message.memory_bytes,
        notify=tuple(message.notify),
        venv=message.venv,
        modules=tuple(message.modules),
        container=message.container,
        terminal=message.terminal,
        array=message.array,
        grid={axis.name: tuple(axis.values) for axis in message.grid},
        at_once=message.at_once,
        array_id=message.array_id,
        index=message.index if message.HasField("index") else None,
        parameters=dict(message.parameters),
    )


def to_request(request: JobRequest) -> pb.JobRequest:
    """A checked request as it is sent."""
    return to_submission(request.submission())


def from_request(message: pb.JobRequest) -> JobRequest:
    """A request as the scheduler knows it."""
    return from_submission(message).request()


# ---- queries ----


def to_query(
    ids: Iterable[str] = (),
    states: Iterable[JobState | str] = (),
    limit: int = 0,
    ended_after: float = 0.0,
    *,
    names: Iterable[str] = (),
    entity: str = "",
    most_finished: int = 0,
    user: str = "",
    name_patterns: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    arrays: Iterable[str] = (),
    ranges: Iterable[tuple[int, int]] = (),
) -> pb.JobQuery:
    """A query for jobs."""
    return pb.JobQuery(
        ids=list(ids),
        states=[_state_number(state) for state in states],
        limit=min(limit, _MOST),
        ended_after=ended_after,
        names=list(names),
        entity=entity,
        most_finished=most_finished,
        user=user,
        name_patterns=list(name_patterns),
        tags=dict(tags or {}),
        arrays=list(arrays),
        ranges=[pb.IdRange(first=first, last=last) for first, last in ranges],
    )


_MOST = 2**32 - 1
"""The largest number in a query: a larger limit is none."""


def _number(state: JobState) -> pb.JobState:
    return _NUMBERS.get(state, pb.JOB_STATE_UNSPECIFIED)


def _state_number(state: JobState | str) -> pb.JobState:
    try:
        return _NUMBERS[JobState(state)]
    except (ValueError, KeyError):
        raise InputError(f"there is no state {str(state)!r}; the states are: {', '.join(_NUMBERS)}") from None


def from_states(numbers: Collection[int]) -> frozenset[JobState]:
    """The states that a query names, without those that only a newer client knows."""
    return frozenset(state for number, state in _STATES.items() if number in numbers)


# ---- jobs ----


def to_job(job: JobView) -> pb.JobView:
    """The current view of a job."""
    return pb.JobView(
        id=job.id,
        request=to_request(job.request),
        state=_number(job.state),
        reason=job.reason,
        submitted=job.submitted,
        changed=job.changed,
        ended=job.ended or 0.0,
        steps_done=job.steps_done,
        type=job.type,
        places=[pb.Place(server=place.server, accelerators=place.accelerators) for place in job.places],
        beside=job.beside,
        attempts=job.attempts,
        failures=job.failures,
        restarts=job.restarts,
        received=job.received,
        code=job.code,
        exit_code=job.exit_code,
        warning=job.warning,
    )


def from_job(message: pb.JobView) -> JobView:
    """The current view of a job."""
    return JobView(
        id=message.id,
        request=from_request(message.request),
        state=_STATES.get(message.state, JobState.UNKNOWN),
        reason=message.reason,
        submitted=message.submitted,
        changed=message.changed,
        ended=message.ended or None,
        steps_done=message.steps_done,
        type=message.type,
        places=tuple(Place(place.server, place.accelerators) for place in message.places),
        beside=message.beside,
        attempts=message.attempts,
        failures=message.failures,
        restarts=message.restarts,
        received=dict(message.received),
        code=message.code,
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        warning=message.warning,
    )


def from_update(message: pb.JobUpdate, ended_after: float = 0.0) -> Iterator[JobUpdate]:
    """Updates for a watcher: jobs one by one or in batches, and that it has caught up.

    An older scheduler sends more jobs than were asked for.
    """
    jobs = [message.job, *message.jobs] if message.HasField("job") else message.jobs
    for job in jobs:
        if not 0 < job.ended < ended_after:
            yield JobUpdate(from_job(job))
    if message.caught_up:
        yield JobUpdate(caught_up=True)


def to_detail(detail: JobDetail) -> pb.JobDetail:
    """Everything about a job."""
    return pb.JobDetail(
        job=to_job(detail.job),
        history=[
            pb.Transition(time=each.time, state=_number(each.state), reason=each.reason, code=each.code)
            for each in detail.history
        ],
        shares=detail.shares,
        limit=detail.limit,
        rates=detail.rates,
    )


def from_detail(message: pb.JobDetail) -> JobDetail:
    """Everything about a job."""
    return JobDetail(
        job=from_job(message.job),
        history=tuple(
            Transition(each.time, _STATES.get(each.state, JobState.UNKNOWN), each.reason, each.code)
            for each in message.history
        ),
        shares=dict(message.shares),
        limit=message.limit,
        rates=dict(message.rates),
    )


# ---- the cluster ----


def to_cluster(view: ClusterView) -> pb.ClusterView:
    """The current view of the cluster."""
    alike = {name: value for name, value in _fields(view).items() if name not in {"servers", "types"}}
    return pb.ClusterView(
        servers=[pb.ServerView(**_fields(server)) for server in view.servers],
        types=[pb.TypeView(**_fields(kind)) for kind in view.types],
        **alike,
    )


def _fields(record: ServerView | TypeView | ClusterView | UsageLimits) -> dict[str, Any]:
    """Copy by name: for records whose fields have the same names in the protocol."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


def from_cluster(message: pb.ClusterView) -> ClusterView:
    """The current view of the cluster."""
    return ClusterView(
        servers=tuple(_from_server(server) for server in message.servers),
        types=tuple(
            TypeView(kind.name, kind.accelerators, kind.busy, kind.price, kind.given_seconds) for kind in message.types
        ),
        policy=message.policy,
        objective=message.objective,
        round_seconds=message.round_seconds,
        round_ends=message.round_ends,
        queued=message.queued,
        running=message.running,
        time=message.time,
        started=message.started,
        version=message.version,
        trouble=message.trouble,
        ignored=tuple(message.ignored),
        cluster=message.cluster,
        term=message.term,
        alarms=tuple(message.alarms),
    )


def from_drain(agent: str, message: pb.DrainReply) -> AgentView:
    """An agent after an operator's request."""
    return AgentView(agent, message.state, tuple(message.jobs))


def from_checkpoints(message: pb.CheckpointsView) -> CheckpointsView:
    """The state of a job's checkpoints."""
    return CheckpointsView(message.job, message.state, message.reason)


def from_event(message: pb.EventLine) -> EventView:
    """One event."""
    document = json.loads(message.document) if message.document else {}
    return EventView(
        number=message.number,
        time=message.time,
        kind=message.kind,
        text=message.text,
        jobs=tuple(document.get("jobs", ())),
        server=document.get("server", ""),
        fact=document.get("fact", {}),
    )


def _from_server(message: pb.ServerView) -> ServerView:
    return ServerView(
        name=message.name,
        agent=message.agent,
        type=message.type,
        accelerators=message.accelerators,
        free=message.free,
        state=message.state,
        jobs=tuple(message.jobs),
        last_heard=message.last_heard,
        since=message.since,
        reason=message.reason,
        cpus=message.cpus,
        free_cpus=message.free_cpus,
        memory_bytes=message.memory_bytes,
        free_memory_bytes=message.free_memory_bytes,
        accelerator_memory_bytes=message.accelerator_memory_bytes,
    )


# ---- people, agents, limits ----


def from_identity(message: pb.WhoAmIReply) -> IdentityView:
    """Who the scheduler takes a caller for."""
    return IdentityView(
        user=message.user,
        role=message.role,
        teams=tuple(message.teams),
        leads=tuple(message.leads),
        by=message.by,
        expires=message.expires or None,
        cluster=message.cluster,
    )


def from_user(message: pb.User) -> UserView:
    """A user."""
    return UserView(
        name=message.name,
        role=message.role,
        teams=tuple(message.teams),
        leads=tuple(message.leads),
        disabled=message.disabled,
        created=message.created,
    )


def from_token(message: pb.TokenView) -> TokenView:
    """What is known about a token."""
    return TokenView(
        id=message.id,
        name=message.name,
        user=message.user,
        role=message.role,
        created=message.created,
        expires=message.expires or None,
        last_used=message.last_used or None,
        last_address=message.last_address,
        revoked=message.revoked,
        uses_left=message.uses_left,
    )


def from_new_token(message: pb.NewToken) -> NewTokenView:
    """A token that was just created."""
    return NewTokenView(message.token, from_token(message.view), message.address, message.fingerprint)


def from_enrolled(message: pb.EnrolledAgent) -> EnrolledAgentView:
    """An agent with a certificate."""
    return EnrolledAgentView(
        agent=message.agent,
        name=message.name,
        enrolled=message.enrolled,
        expires=message.expires,
        revoked=message.revoked,
        state=message.state,
        by=message.by,
    )


def to_limits(kind: str, name: str, limits: UsageLimits) -> pb.LimitsOf:
    """Limits to be set."""
    return pb.LimitsOf(kind=kind, name=name, limits=pb.Limits(**_fields(limits)))


def from_limits(message: pb.LimitsOf) -> LimitsView:
    """Limits and their use."""
    return LimitsView(message.kind, message.name, _from_limits(message.limits), _from_limits(message.used))


def _from_limits(message: pb.Limits) -> UsageLimits:
    return UsageLimits(message.unfinished_jobs, message.running_accelerators, message.submissions_per_minute)


def from_notifications(message: pb.Notifications) -> NotificationsView:
    """Where a user is notified."""
    return NotificationsView(
        user=message.user,
        urls=tuple(message.urls),
        signing_key=message.signing_key,
        allowed_hosts=tuple(message.allowed_hosts),
        pending=message.pending,
        trouble=message.trouble,
    )


def from_notification_test(message: pb.NotificationTest) -> NotificationTestView:
    """How the test of one URL went."""
    return NotificationTestView(message.url, message.status, message.trouble)


def from_audit(message: pb.AuditLine) -> AuditView:
    """One line of the audit."""
    return AuditView(
        number=message.number,
        time=message.time,
        user=message.user,
        acting_for=getattr(message, "as"),
        role=message.role,
        address=message.address,
        method=message.method,
        object=message.object,
        what=message.what,
        outcome=message.outcome,
    )
