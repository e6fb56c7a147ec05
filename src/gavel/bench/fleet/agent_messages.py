"""The messages of a modelled agent: the only module of the fleet benchmark that knows the agent protocol.

It builds messages and decides nothing. Adapt it when the agent protocol changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gavel.version import __version__
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb

MASTER_PORT, GANG_PORT = 29_500, 29_501
"""Where the first rank of a gang claims to listen; nothing connects."""


@dataclass(frozen=True, slots=True)
class ModelledIdentity:
    """An agent as it introduces itself."""

    name: str
    incarnation: str
    type: str
    accelerators: int


@dataclass(frozen=True, slots=True)
class ModelledProgress:
    """Progress of the ranks of one attempt at one agent."""

    job: str
    attempt: int
    first_rank: int
    ranks: int
    steps: float
    saved_steps: float
    measured_steps: float = 0.0
    measured_seconds: float = 0.0


def hello(identity: ModelledIdentity, running: Iterable[ModelledProgress]) -> pb.FromAgent:
    """The first message of a stream."""
    return pb.FromAgent(
        hello=pb.Hello(
            protocol=PROTOCOL,
            version=__version__,
            name=identity.name,
            agent=identity.name,
            incarnation=identity.incarnation,
            accelerators=[pb.Accelerators(type=identity.type, count=identity.accelerators)],
            address="127.0.0.1",
            tasks=_statuses(running),
        )
    )


def heartbeat(running: Iterable[ModelledProgress]) -> pb.FromAgent:
    """A heartbeat that lists the running tasks."""
    return pb.FromAgent(heartbeat=pb.Heartbeat(tasks=_statuses(running)))


def started(start: pb.Start) -> list[pb.FromAgent]:
    """One message for each rank; the first rank of a gang says where the others reach it."""
    messages = []
    for rank in range(start.first_rank, start.first_rank + start.ranks):
        message = pb.TaskStarted(job=start.job, attempt=start.attempt, rank=rank)
        if rank == 0 and start.workers > 1:
            message.master_address, message.master_port, message.gang_port = "127.0.0.1", MASTER_PORT, GANG_PORT
        messages.append(pb.FromAgent(started=message))
    return messages


def ended(progress: ModelledProgress, *, done: bool, reason: str) -> list[pb.FromAgent]:
    """One message for each rank: it finished its steps, or left when asked to."""
    how = pb.TaskEnded.DONE if done else pb.TaskEnded.LEFT
    return [pb.FromAgent(ended=pb.TaskEnded(status=status, how=how, reason=reason)) for status in _statuses([progress])]


def _statuses(running: Iterable[ModelledProgress]) -> list[pb.TaskStatus]:
    return [_status(each, rank) for each in running for rank in range(each.first_rank, each.first_rank + each.ranks)]


def _status(progress: ModelledProgress, rank: int) -> pb.TaskStatus:
    status = pb.TaskStatus(job=progress.job, attempt=progress.attempt, rank=rank, counts=True)
    if rank == 0:  # it speaks for the gang
        status.steps, status.saved_steps = progress.steps, progress.saved_steps
        status.measured_steps, status.measured_seconds = progress.measured_steps, progress.measured_seconds
    return status
