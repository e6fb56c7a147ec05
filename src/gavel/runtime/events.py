"""Outside events beyond the scheduler's own: attempts, agents, operators, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gavel.client.requests import Submission
from gavel.core import events as core
from gavel.core.cluster import Server
from gavel.runtime.prerequisites import Ends
from gavel.security.quotas import Limits, Subject


class AttemptOutcome(StrEnum):
    """How an attempt of a job ended, all of its ranks together."""

    DONE = "done"
    LEFT = "left"
    """It was asked to leave, or was lost while leaving."""
    CRASHED = "crashed"
    LOST = "lost"
    """It ended through no fault of the job: its server is gone, or its lease ended."""
    BLOCKED = "blocked"
    """It could not work where it was, through no fault of the job: for example, the checkpoint disk was full."""


@dataclass(frozen=True, slots=True)
class JobsSubmitted:
    """A submission: all jobs are accepted or none. A key that was used before adds no jobs."""

    time: float
    requests: tuple[Submission, ...]
    key: str
    learned: Mapping[str, Any] = field(default_factory=dict)
    """What the journal's table says about their templates, by template."""
    outcomes: Mapping[str, Ends] = field(default_factory=dict)
    """How jobs and arrays that they wait for have ended, as far as all of those jobs have."""
    by: str = ""
    """Who asks; empty: their user."""


@dataclass(frozen=True, slots=True)
class HoldAsked:
    """A request to keep jobs from running until they are released; those that run save and leave. All or none."""

    time: float
    jobs: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class ReleaseAsked:
    """A request to hold jobs no longer: all of them, or it is refused."""

    time: float
    jobs: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class RequeueAsked:
    """A request that running jobs save, leave and wait again, and that pausing jobs stop pausing. All or none."""

    time: float
    jobs: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class EditAsked:
    """A request to change unfinished jobs: all of them, or it is refused."""

    time: float
    jobs: tuple[str, ...]
    changes: Submission
    """The new values."""
    fields: tuple[str, ...]
    """Which of its fields count."""
    by: str
    outcomes: Mapping[str, Ends] = field(default_factory=dict)
    """How jobs have ended that are no longer in memory and that the jobs shall wait for."""


@dataclass(frozen=True, slots=True)
class LimitDue:
    """A job may have reached its time limit, or be about to."""

    time: float
    job: str


@dataclass(frozen=True, slots=True)
class AttemptBegan:
    """The first process of an attempt has begun: by then its accelerators were free."""

    time: float
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class IdleFound:
    """An attempt of a job has neither made a step nor printed anything since a time."""

    time: float
    job: str
    attempt: int
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """Every process of an attempt has ended, or can do no more harm."""

    time: float
    job: str
    attempt: int
    outcome: AttemptOutcome
    reason: str = ""
    hopeless: bool = False
    """The same would happen again."""
    steps: float | None = None
    """The work that survives: all steps if the job is done, else those in a checkpoint; None: unknown."""
    exit_code: int | None = None
    """Of the process that decided the outcome, negative for the signal that ended it; None: there was none."""


@dataclass(frozen=True, slots=True)
class StepsCounted:
    """How many steps running jobs have done in their lives."""

    time: float
    steps: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAttached:
    """An agent is connected."""

    time: float
    agent: str
    name: str
    servers: tuple[Server, ...]
    draining: bool = False
    """Whether it is leaving by itself."""


@dataclass(frozen=True, slots=True)
class AgentGone:
    """An agent was silent for too long, or another took its name."""

    time: float
    agent: str
    reason: str
    fences: Mapping[str, float] = field(default_factory=dict)
    """Jobs that may still run there, and until when."""


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """A request that an agent take no new work; `now`: its jobs leave at once, not at the end of the round."""

    time: float
    agent: str
    by: str
    now: bool = False


@dataclass(frozen=True, slots=True)
class UndrainAsked:
    """A request that an agent take work again."""

    time: float
    agent: str
    by: str


@dataclass(frozen=True, slots=True)
class ForgetAsked:
    """A request to remove a lost or empty agent from the list."""

    time: float
    agent: str
    by: str


@dataclass(frozen=True, slots=True)
class RemovalAsked:
    """A request to remove the checkpoints of finished jobs: all of them, or it is refused."""

    time: float
    jobs: tuple[str, ...]
    by: str
    through: tuple[float, int] | None = None
    """For retention: the end time and id of the last job it looked at."""


@dataclass(frozen=True, slots=True)
class CheckpointsCleared:
    """Agents have carried out removals."""

    time: float
    done: Mapping[str, int]
    """By agent: the number of the last removal it carried out."""
    removed: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    """By job: why its checkpoints were left alone."""


@dataclass(frozen=True, slots=True)
class SettingsGiven:
    """The settings of a scheduler that was started or reconfigured."""

    time: float
    by: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LimitsGiven:
    """New limits of a user, a team or every user; they replace the earlier ones."""

    time: float
    by: str
    subject: Subject
    limits: Limits


@dataclass(frozen=True, slots=True)
class NotificationsGiven:
    """The URLs that a user's notifications go to; they replace the earlier ones."""

    time: float
    by: str
    user: str
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Began:
    """A scheduler has opened the journal."""

    time: float
    version: str
    term: int
    holder: str


OwnEvent = (
    JobsSubmitted
    | HoldAsked
    | ReleaseAsked
    | RequeueAsked
    | EditAsked
    | LimitDue
    | AttemptBegan
    | IdleFound
    | AttemptEnded
    | StepsCounted
    | AgentAttached
    | AgentGone
    | DrainAsked
    | UndrainAsked
    | ForgetAsked
    | RemovalAsked
    | CheckpointsCleared
    | SettingsGiven
    | LimitsGiven
    | NotificationsGiven
    | Began
)
Event = OwnEvent | core.Event
