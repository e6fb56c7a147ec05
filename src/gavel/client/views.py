"""What the scheduler tells of jobs and of the cluster: small immutable records that also know themselves as JSON.

One set: the scheduler makes them, `client.messages` carries them, the API, the command line and pages show them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from gavel.client.requests import JobRequest


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    PREEMPTED = "preempted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """A state of a newer scheduler than this client."""

    @property
    def finished(self) -> bool:
        """Whether it stays so."""
        return self in FINISHED


FINISHED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class _Record:
    """Known to JSON by the names of its fields."""

    __slots__ = ()

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return value.document()  # type: ignore[union-attr]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    return str(value) if isinstance(value, StrEnum) else value


@dataclass(frozen=True, slots=True)
class Place(_Record):
    """So many accelerators of a server."""

    server: str
    accelerators: int


@dataclass(frozen=True, slots=True)
class JobView(_Record):
    """A job as it stands."""

    id: str
    request: JobRequest
    state: JobState
    reason: str = ""
    submitted: float = 0.0
    """Times are seconds since 1970."""
    changed: float = 0.0
    """When it came into its state."""
    ended: float | None = None
    steps_done: float = 0.0
    type: str = ""
    places: tuple[Place, ...] = ()
    """Where it runs now."""
    beside: str = ""
    """The job that it shares accelerators with."""
    attempts: int = 0
    failures: int = 0
    restarts: int = 0
    received: Mapping[str, float] = field(default_factory=dict)
    """Seconds by type."""

    @property
    def finished(self) -> bool:
        return self.state.finished


@dataclass(frozen=True, slots=True)
class Transition(_Record):
    """A job's state from some time on, and why. The journal keeps it by the names of its fields."""

    time: float
    state: JobState
    reason: str
    code: str = ""
    """Of the cause, a word for programs: yielded, moved, lost …"""


@dataclass(frozen=True, slots=True)
class JobDetail(_Record):
    """Everything about one job."""

    job: JobView
    history: tuple[Transition, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of its time, by type, as the allocation in force gives them."""
    limit: str = ""
    """What keeps it from running faster."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Steps per second as now believed, by type."""


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """One thing seen by a watcher: a job as it now stands, or news of the watching itself."""

    job: JobView | None = None
    caught_up: bool = False
    """All that was there has been seen; changes follow."""
    away: str = ""
    """Why nothing comes for now; once the scheduler is back, everything is sent anew."""


@dataclass(frozen=True, slots=True)
class ServerView(_Record):
    """The accelerators of one type in one machine."""

    name: str
    agent: str
    type: str
    accelerators: int
    free: int
    state: str
    """connected, away, draining, drained or lost."""
    jobs: tuple[str, ...] = ()
    last_heard: float = 0.0
    since: float = 0.0
    """When its agent joined, was drained or lost."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TypeView(_Record):
    """All accelerators of one type."""

    name: str
    accelerators: int
    busy: int
    price: float = 0.0
    """What one more of it would add to the objective."""
    given_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterView(_Record):
    """The cluster as it stands."""

    servers: Sequence[ServerView]
    types: Sequence[TypeView]
    policy: str
    objective: float
    round_seconds: float
    round_ends: float
    queued: int
    running: int
    time: float
    """The scheduler's clock."""
    started: float
    version: str
    trouble: str = ""
    """Why the policy has no answer or a mechanism of your own no plan, if so."""
    ignored: Sequence[str] = ()
    """Measurements that were not believed, with the reason; the newest last."""
    cluster: str = ""
    """The id of the cluster, which never changes."""
    term: int = 0
    """Of the scheduler: each one that takes the journal over has a higher one."""
    alarms: Sequence[str] = ()
    """What an operator should look at now, a sentence each."""


@dataclass(frozen=True, slots=True)
class AgentView(_Record):
    """An agent after it was drained, undrained or removed."""

    agent: str
    state: str
    """As that of its servers; removed if the cluster no longer knows it."""
    jobs: tuple[str, ...] = ()
    """Those that still run there."""


@dataclass(frozen=True, slots=True)
class CheckpointsView(_Record):
    """The checkpoints of a job after their removal was asked for."""

    job: str
    state: str
    """removed; kept, by an agent with the reason; or waiting, for agents that have not answered."""
    reason: str = ""
    """Why they are kept, or the agents that they wait for."""


@dataclass(frozen=True, slots=True)
class EventView(_Record):
    """One thing that happened."""

    number: int
    """In the journal: later events have higher numbers."""
    time: float
    kind: str
    text: str
    """For people."""
    jobs: tuple[str, ...] = ()
    """The jobs that it is about."""
    server: str = ""
    """The server or agent that it is about."""
    fact: Mapping[str, Any] = field(default_factory=dict)
    """What the journal has of it."""
