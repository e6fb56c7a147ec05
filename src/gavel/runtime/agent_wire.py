"""The codec between `runtime.messages` and protobuf, both directions: the only place that knows both.

A message of an unknown kind is unpacked as None, so that newer peers do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from gavel.client.messages import from_submission, to_submission
from gavel.client.secret_values import SecretValues
from gavel.core.locality import Locality
from gavel.limits import LONGEST_REASON
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
    TaskLog,
    TaskStarted,
    TaskStatus,
    TerminalKeys,
    ToAgent,
    ToAgentFrame,
    Welcome,
)
from gavel.wire import gavel_pb2 as pb

_HOW = {
    Ending.DONE: pb.TaskEnded.DONE,
    Ending.LEFT: pb.TaskEnded.LEFT,
    Ending.CRASHED: pb.TaskEnded.CRASHED,
}
_ENDINGS = {number: ending for ending, number in _HOW.items()}


# ---- from an agent ----


def pack_from_agent(frame: FromAgentFrame) -> pb.FromAgent:
    """Encode a message of an agent."""
    packed = _pack_from_agent(frame.message)
    packed.number = frame.number
    return packed


def _pack_from_agent(message: FromAgent) -> pb.FromAgent:  # noqa: PLR0911 - one for each kind
    match message:
        case Hello():
            return pb.FromAgent(hello=_pack_hello(message))
        case Heartbeat():
            return pb.FromAgent(heartbeat=pb.Heartbeat(tasks=_pack_statuses(message.tasks)))
        case TaskStarted():
            return pb.FromAgent(started=_pack_started(message))
        case TaskEnded():
            return pb.FromAgent(ended=_pack_ended(message))
        case TaskLog():
            return pb.FromAgent(log=_pack_log(message))
        case Draining():
            return pb.FromAgent(draining=pb.Draining())
        case CheckpointsHandled():
            return pb.FromAgent(checkpoints=_pack_handled(message))


def unpack_from_agent(packed: pb.FromAgent) -> FromAgentFrame | None:
    """Decode a message of an agent."""
    message = _unpack_from_agent(packed)
    return None if message is None else FromAgentFrame(packed.number, message)


def _unpack_from_agent(packed: pb.FromAgent) -> FromAgent | None:  # noqa: PLR0911 - one for each kind
    match packed.WhichOneof("message"):
        case "hello":
            return _unpack_hello(packed.hello)
        case "heartbeat":
            return Heartbeat(_unpack_statuses(packed.heartbeat.tasks))
        case "started":
            return _unpack_started(packed.started)
        case "ended":
            return _unpack_ended(packed.ended)
        case "log":
            return _unpack_log(packed.log)
        case "draining":
            return Draining()
        case "checkpoints":
            return _unpack_handled(packed.checkpoints)
    return None


def _pack_hello(hello: Hello) -> pb.Hello:
    return pb.Hello(
        protocol=hello.protocol,
        version=hello.version,
        name=hello.name,
        agent=hello.agent,
        incarnation=hello.incarnation,
        accelerators=[
            pb.Accelerators(type=type_name, count=count, memory_bytes=hello.accelerator_memory.get(type_name, 0))
            for type_name, count in hello.accelerators.items()
        ],
        address=hello.address,
        tasks=_pack_statuses(hello.tasks),
        draining=hello.draining,
        cluster=hello.cluster,
        term=hello.term,
        encrypts_gangs=hello.encrypts_gangs,
        cpus=hello.cpus,
        memory_bytes=hello.memory_bytes,
        abilities=hello.abilities,
    )


def _unpack_hello(hello: pb.Hello) -> Hello:
    return Hello(
        protocol=hello.protocol,
        version=hello.version,
        name=hello.name,
        agent=hello.agent,
        incarnation=hello.incarnation,
        accelerators={group.type: group.count for group in hello.accelerators},
        address=hello.address,
        tasks=_unpack_statuses(hello.tasks),
        draining=hello.draining,
        cluster=hello.cluster,
        term=hello.term,
        encrypts_gangs=hello.encrypts_gangs,
        accelerator_memory={group.type: group.memory_bytes for group in hello.accelerators if group.memory_bytes},
        cpus=hello.cpus,
        memory_bytes=hello.memory_bytes,
        abilities=tuple(hello.abilities),
    )


def _pack_statuses(statuses: Iterable[TaskStatus]) -> list[pb.TaskStatus]:
    return [_pack_status(status) for status in statuses]


def _unpack_statuses(statuses: Iterable[pb.TaskStatus]) -> tuple[TaskStatus, ...]:
    return tuple(_unpack_status(status) for status in statuses)


def _pack_status(status: TaskStatus) -> pb.TaskStatus:
    return pb.TaskStatus(
        job=status.job,
        attempt=status.attempt,
        rank=status.rank,
        counts=status.counts,
        steps=status.steps,
        saved_steps=status.saved_steps,
        measured_steps=status.measured_steps,
        measured_seconds=status.measured_seconds,
    )


def _unpack_status(status: pb.TaskStatus) -> TaskStatus:
    return TaskStatus(
        job=status.job,
        attempt=status.attempt,
        rank=status.rank,
        counts=status.counts,
        steps=status.steps,
        saved_steps=status.saved_steps,
        measured_steps=status.measured_steps,
        measured_seconds=status.measured_seconds,
    )


def _pack_started(started: TaskStarted) -> pb.TaskStarted:
    return pb.TaskStarted(
        job=started.job,
        attempt=started.attempt,
        rank=started.rank,
        master_address=started.master_address,
        master_port=started.master_port,
        gang_port=started.gang_port,
        gang_token=started.gang_token,
        gang_certificate=started.gang_certificate,
    )


def _unpack_started(started: pb.TaskStarted) -> TaskStarted:
    return TaskStarted(
        job=started.job,
        attempt=started.attempt,
        rank=started.rank,
        master_address=started.master_address,
        master_port=started.master_port,
        gang_port=started.gang_port,
        gang_token=started.gang_token,
        gang_certificate=started.gang_certificate,
    )


def _pack_ended(ended: TaskEnded) -> pb.TaskEnded:
    return pb.TaskEnded(
        status=_pack_status(ended.status),
        how=_HOW[ended.ending],
        reason=ended.reason,
        log_tail=ended.log_tail,
        hopeless=ended.hopeless,
        blameless=ended.blameless,
        exit_code=ended.exit_code,
    )


def _unpack_ended(ended: pb.TaskEnded) -> TaskEnded:
    return TaskEnded(
        status=_unpack_status(ended.status),
        # An unknown kind of ending is no reason to believe that the job is done.
        ending=_ENDINGS.get(ended.how, Ending.CRASHED),
        reason=ended.reason[:LONGEST_REASON],
        log_tail=ended.log_tail,
        hopeless=ended.hopeless,
        blameless=ended.blameless,
        exit_code=ended.exit_code if ended.HasField("exit_code") else None,
    )


def _pack_log(log: TaskLog) -> pb.TaskLog:
    return pb.TaskLog(job=log.job, attempt=log.attempt, rank=log.rank, data=log.data, begin=log.begin)


def _unpack_log(log: pb.TaskLog) -> TaskLog:
    return TaskLog(job=log.job, attempt=log.attempt, rank=log.rank, data=log.data, begin=log.begin)


def _pack_handled(handled: CheckpointsHandled) -> pb.CheckpointsHandled:
    return pb.CheckpointsHandled(through=handled.through, removed=handled.removed, kept=handled.kept)


def _unpack_handled(handled: pb.CheckpointsHandled) -> CheckpointsHandled:
    kept = {job: reason[:LONGEST_REASON] for job, reason in handled.kept.items()}
    return CheckpointsHandled(through=handled.through, removed=tuple(handled.removed), kept=kept)


# ---- to an agent ----


def pack_to_agent(frame: ToAgentFrame) -> pb.ToAgent:
    """Encode a message of the scheduler."""
    packed = _pack_to_agent(frame.message)
    packed.term, packed.heard = frame.term, frame.heard
    return packed


def _pack_to_agent(message: ToAgent) -> pb.ToAgent:  # noqa: PLR0911 - one for each kind
    match message:
        case Welcome():
            return pb.ToAgent(welcome=_pack_welcome(message))
        case AttachRefused():
            return pb.ToAgent(refused=pb.Refused(reason=message.reason, retry=message.retry))
        case StartAttempt():
            return pb.ToAgent(start=_pack_start(message))
        case Lease():
            return pb.ToAgent(lease=pb.Lease(seconds=message.seconds, jobs=message.jobs))
        case StopAttempt():
            return pb.ToAgent(stop=_pack_stop(message))
        case Ack():
            return pb.ToAgent(ack=pb.Ack(number=message.number))
        case RemoveCheckpoints():
            return pb.ToAgent(remove_checkpoints=_pack_removals(message))
        case TerminalKeys():
            return pb.ToAgent(input=_pack_keys(message))


def unpack_to_agent(packed: pb.ToAgent) -> ToAgentFrame | None:
    """Decode a message of the scheduler."""
    message = _unpack_to_agent(packed)
    return None if message is None else ToAgentFrame(message, packed.term, packed.heard)


def _unpack_to_agent(packed: pb.ToAgent) -> ToAgent | None:  # noqa: PLR0911 - one for each kind
    match packed.WhichOneof("message"):
        case "welcome":
            return _unpack_welcome(packed.welcome)
        case "refused":
            return AttachRefused(reason=packed.refused.reason, retry=packed.refused.retry)
        case "start":
            return _unpack_start(packed.start)
        case "lease":
            return Lease(seconds=packed.lease.seconds, jobs=tuple(packed.lease.jobs))
        case "stop":
            return _unpack_stop(packed.stop)
        case "ack":
            return Ack(packed.ack.number)
        case "remove_checkpoints":
            return _unpack_removals(packed.remove_checkpoints)
        case "input":
            return _unpack_keys(packed.input)
    return None


def _pack_welcome(welcome: Welcome) -> pb.Welcome:
    return pb.Welcome(
        cluster=welcome.cluster,
        heartbeat_seconds=welcome.heartbeat_seconds,
        checkpoint_grace_seconds=welcome.checkpoint_grace_seconds,
        terminate_grace_seconds=welcome.terminate_grace_seconds,
    )


def _unpack_welcome(welcome: pb.Welcome) -> Welcome:
    return Welcome(
        cluster=welcome.cluster,
        heartbeat_seconds=welcome.heartbeat_seconds,
        checkpoint_grace_seconds=welcome.checkpoint_grace_seconds,
        terminate_grace_seconds=welcome.terminate_grace_seconds,
    )


def _pack_start(start: StartAttempt) -> pb.Start:
    return pb.Start(
        job=start.job,
        attempt=start.attempt,
        first_rank=start.first_rank,
        ranks=start.ranks,
        workers=start.workers,
        type=start.type,
        request=to_submission(start.request),
        lease_seconds=start.lease_seconds,
        beside=start.beside,
        consolidated=start.locality.consolidated,
        master_address=start.master_address,
        master_port=start.master_port,
        gang_port=start.gang_port,
        gang_token=start.gang_token,
        gang_certificate=start.gang_certificate,
        plain_gang=start.plain_gang,
        steps_done=start.steps_done,
        secrets=dict(start.secrets),
        node=start.node,
        nodes=start.nodes,
    )


def _unpack_start(start: pb.Start) -> StartAttempt:
    return StartAttempt(
        job=start.job,
        attempt=start.attempt,
        first_rank=start.first_rank,
        ranks=start.ranks,
        workers=start.workers,
        type=start.type,
        request=from_submission(start.request),
        lease_seconds=start.lease_seconds,
        beside=start.beside,
        locality=Locality.of(start.consolidated),
        master_address=start.master_address,
        master_port=start.master_port,
        gang_port=start.gang_port,
        gang_token=start.gang_token,
        gang_certificate=start.gang_certificate,
        plain_gang=start.plain_gang,
        steps_done=start.steps_done,
        secrets=SecretValues(dict(start.secrets)),
        node=start.node,
        nodes=start.nodes,
    )


def _pack_stop(stop: StopAttempt) -> pb.Stop:
    return pb.Stop(job=stop.job, attempt=stop.attempt, reason=stop.reason, at_once=stop.at_once)


def _unpack_stop(stop: pb.Stop) -> StopAttempt:
    return StopAttempt(job=stop.job, attempt=stop.attempt, reason=stop.reason, at_once=stop.at_once)


def _pack_removals(order: RemoveCheckpoints) -> pb.RemoveCheckpoints:
    removal = pb.RemoveCheckpoints.Removal
    return pb.RemoveCheckpoints(removals=[removal(number=number, job=job) for number, job in order.removals])


def _unpack_removals(order: pb.RemoveCheckpoints) -> RemoveCheckpoints:
    return RemoveCheckpoints(tuple((removal.number, removal.job) for removal in order.removals))


def _pack_keys(keys: TerminalKeys) -> pb.Input:
    return pb.Input(
        job=keys.job,
        attempt=keys.attempt,
        data=keys.data,
        rows=keys.rows,
        columns=keys.columns,
        linger_seconds=keys.linger_seconds,
        notice=keys.notice,
    )


def _unpack_keys(keys: pb.Input) -> TerminalKeys:
    return TerminalKeys(
        job=keys.job,
        attempt=keys.attempt,
        data=keys.data,
        rows=keys.rows,
        columns=keys.columns,
        linger_seconds=keys.linger_seconds,
        notice=keys.notice,
    )
