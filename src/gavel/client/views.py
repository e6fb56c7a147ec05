"""What the scheduler reports about jobs and the cluster: small immutable records with a JSON form.

One set for all: the scheduler makes them, `client.messages` carries them, the API, command line and pages show them.
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
    """A state that only a newer scheduler knows."""

    @property
    def finished(self) -> bool:
        """Whether this state is final."""
        return self in FINISHED


FINISHED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class _Record:
    """A record with a JSON form, by the names of its fields."""

    __slots__ = ()

    def document(self) -> dict[str, Any]:
        """The record as plain data."""
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
    """A number of accelerators on one server."""

    server: str
    accelerators: int


@dataclass(frozen=True, slots=True)
class JobView(_Record):
    """The current view of a job."""

    id: str
    request: JobRequest
    state: JobState
    reason: str = ""
    submitted: float = 0.0
    """All times are seconds since 1970."""
    changed: float = 0.0
    """When it entered its state."""
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
    """Seconds received, by type."""
    code: str = ""
    """A word for the reason, for programs."""
    exit_code: int | None = None
    """Of the process that ended last, negative for the signal that ended it; None: none has ended yet."""
    warning: str = ""
    """What its user should know now: for example, that its time limit is near."""

    @property
    def finished(self) -> bool:
        return self.state.finished


def by_id(job: JobView) -> tuple[int, str]:
    """The order of jobs by their numbers; also of what a hostile scheduler calls an id.

    >>> sorted([JobView(id, JobRequest(("true",)), JobState.QUEUED) for id in ("10", "9", "x")], key=by_id)[2].id
    '10'
    """
    return len(job.id), job.id


@dataclass(frozen=True, slots=True)
class Transition(_Record):
    """A job's state from a time on, and why. The journal stores it by the names of its fields."""

    time: float
    state: JobState
    reason: str
    code: str = ""
    """The cause in a word, for programs: yielded, moved, lost …"""


@dataclass(frozen=True, slots=True)
class JobDetail(_Record):
    """Everything about one job."""

    job: JobView
    history: tuple[Transition, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    """Shares of its time, by type, from the current allocation."""
    limit: str = ""
    """What keeps it from running faster."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Current estimate of steps per second, by type."""


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """One update for a watcher: the current view of a job, or the state of the stream itself."""

    job: JobView | None = None
    caught_up: bool = False
    """All existing jobs have been sent; changes follow."""
    away: str = ""
    """Why updates have stopped for now; once the scheduler is back, everything is sent again."""


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
    """When its agent joined, was drained or was lost."""
    reason: str = ""
    cpus: float = 0.0
    """CPU cores that jobs may use; 0: unknown."""
    free_cpus: float = 0.0
    memory_bytes: int = 0
    """RAM that jobs may use; 0: unknown."""
    free_memory_bytes: int = 0
    accelerator_memory_bytes: int = 0
    """Of one accelerator; 0: unknown."""


@dataclass(frozen=True, slots=True)
class TypeView(_Record):
    """All accelerators of one type."""

    name: str
    accelerators: int
    busy: int
    price: float = 0.0
    """How much one more accelerator of this type would add to the objective."""
    given_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterView(_Record):
    """The current view of the cluster."""

    servers: Sequence[ServerView]
    types: Sequence[TypeView]
    policy: str
    objective: float
    round_seconds: float
    round_ends: float
    queued: int
    running: int
    time: float
    """The time by the scheduler's clock."""
    started: float
    version: str
    trouble: str = ""
    """Why the policy has no answer, or a mechanism of your own has no plan; empty if all is well."""
    ignored: Sequence[str] = ()
    """Measurements that were rejected, with the reason; newest last."""
    cluster: str = ""
    """The id of the cluster, which never changes."""
    term: int = 0
    """The scheduler's term; each scheduler that takes over the journal has a higher one."""
    alarms: Sequence[str] = ()
    """What an operator should look at now, one sentence each."""


@dataclass(frozen=True, slots=True)
class AgentView(_Record):
    """An agent after it was drained, undrained or removed."""

    agent: str
    state: str
    """The state of its servers; `removed` if the cluster no longer knows it."""
    jobs: tuple[str, ...] = ()
    """Jobs that still run there."""


@dataclass(frozen=True, slots=True)
class CheckpointsView(_Record):
    """The checkpoints of a job after their removal was requested."""

    job: str
    state: str
    """`removed`; `kept` by an agent, with the reason; or `waiting` for agents that have not answered."""
    reason: str = ""
    """Why they are kept, or which agents they wait for."""


@dataclass(frozen=True, slots=True)
class EventView(_Record):
    """One event."""

    number: int
    """Position in the journal: later events have higher numbers."""
    time: float
    kind: str
    text: str
    """For people."""
    jobs: tuple[str, ...] = ()
    """The jobs it is about."""
    server: str = ""
    """The server or agent it is about."""
    fact: Mapping[str, Any] = field(default_factory=dict)
    """The fact in the journal."""


# ---- people, agents, limits ----


@dataclass(frozen=True, slots=True)
class IdentityView(_Record):
    """Who the scheduler takes a caller for."""

    user: str
    role: str
    teams: tuple[str, ...] = ()
    leads: tuple[str, ...] = ()
    by: str = ""
    """Who acts for that user; empty: the user."""
    expires: float | None = None
    """When the token expires."""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class UserView(_Record):
    """A person or a program that may call."""

    name: str
    role: str
    teams: tuple[str, ...] = ()
    """The first is the default of the user's jobs."""
    leads: tuple[str, ...] = ()
    disabled: bool = False
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenView(_Record):
    """What is known about a token, without the token."""

    id: str
    name: str
    user: str
    role: str
    created: float = 0.0
    expires: float | None = None
    last_used: float | None = None
    last_address: str = ""
    revoked: bool = False
    uses_left: int = 0
    """For join tokens."""


@dataclass(frozen=True, slots=True)
class NewTokenView(_Record):
    """A token that was just created; it is not shown again."""

    token: str = field(repr=False)
    view: TokenView
    address: str = ""
    """The scheduler's address as its operator configured it."""
    fingerprint: str = ""
    """Of the scheduler's authority."""


@dataclass(frozen=True, slots=True)
class EnrolledAgentView(_Record):
    """An agent with a certificate."""

    agent: str
    """Its identity; names are labels for people."""
    name: str
    enrolled: float = 0.0
    expires: float = 0.0
    revoked: bool = False
    state: str = ""
    """As in ServerView; empty: it is not part of the cluster."""
    by: str = ""
    """The user whose join token it used."""


@dataclass(frozen=True, slots=True)
class UsageLimits(_Record):
    """How much a user or team may use; 0: no such limit."""

    unfinished_jobs: int = 0
    running_accelerators: int = 0
    submissions_per_minute: float = 0.0


@dataclass(frozen=True, slots=True)
class LimitsView(_Record):
    """The limits of one user or team, and how much of each is used now."""

    kind: str
    """user, team, or default: of every user for whom none is set."""
    name: str
    limits: UsageLimits = field(default_factory=UsageLimits)
    used: UsageLimits = field(default_factory=UsageLimits)


@dataclass(frozen=True, slots=True)
class NotificationsView(_Record):
    """Where a user is notified, and how that goes."""

    user: str
    urls: tuple[str, ...] = ()
    """Told about every job of the user."""
    signing_key: str = ""
    """By which receivers check that notifications come from this scheduler."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that may be called, as the operator lists them."""
    pending: int = 0
    """Notifications that have not been delivered."""
    trouble: str = ""
    """Why the last attempt to deliver one failed; empty: it did not."""


@dataclass(frozen=True, slots=True)
class NotificationTestView(_Record):
    """How the test of one URL went."""

    url: str
    status: int = 0
    """Of the answer; 0: there was none."""
    trouble: str = ""
    """Why it was not delivered; empty: it was."""


@dataclass(frozen=True, slots=True)
class AuditView(_Record):
    """One thing that was done or refused."""

    number: int
    time: float
    user: str
    acting_for: str
    """The user that it was done for; empty: the caller."""
    role: str
    address: str
    method: str
    object: str
    """The job, agent, user or token that it was about."""
    what: str
    """What changed, as a sentence."""
    outcome: str
    """`done`, or why it was refused."""
