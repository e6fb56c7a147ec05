"""What the live system hears from outside beside the scheduler's own events: attempts, agents, operators, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gavel.client.requests import Submission
from gavel.core import events as core
from gavel.core.cluster import Server


class AttemptOutcome(StrEnum):
    """How an attempt of a job ended, all of its ranks together."""

    DONE = "done"
    LEFT = "left"
    """It was asked to leave, or lost while leaving."""
    CRASHED = "crashed"
    LOST = "lost"
    """It ended through no fault of the job: its server is gone, or its lease ended."""
    BLOCKED = "blocked"
    """It could not work where it was, through no fault of the job: say, the checkpoint disk was full."""


@dataclass(frozen=True, slots=True)
class JobsSubmitted:
    """Jobs want to run: all of them are accepted, or none; none again if a call with this key was."""

    time: float
    requests: tuple[Submission, ...]
    key: str
    learned: Mapping[str, Any] = field(default_factory=dict)
    """What the journal's table has of their templates, by template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """Every process of an attempt has ended, or can no longer do any harm."""

    time: float
    job: str
    attempt: int
    outcome: AttemptOutcome
    reason: str = ""
    hopeless: bool = False
    """The same would happen again."""
    steps: float | None = None
    """What is left of its work: all of its steps if it is done, else those that a checkpoint holds; None: unknown."""


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
    """An agent was not heard of for too long, or another took its name."""

    time: float
    agent: str
    reason: str
    fences: Mapping[str, float] = field(default_factory=dict)
    """Jobs that may still run there, and until when."""


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """An agent is to take no new work; `now`: its jobs leave at once instead of at the end of the round."""

    time: float
    agent: str
    by: str
    now: bool = False


@dataclass(frozen=True, slots=True)
class UndrainAsked:
    """An agent is to take work again."""

    time: float
    agent: str
    by: str


@dataclass(frozen=True, slots=True)
class ForgetAsked:
    """An agent that is lost or empty is to be removed from the list."""

    time: float
    agent: str
    by: str


@dataclass(frozen=True, slots=True)
class RemovalAsked:
    """The checkpoints of finished jobs are to be removed: all of them, or it is refused."""

    time: float
    jobs: tuple[str, ...]
    by: str
    through: tuple[float, int] | None = None
    """For retention: the end and id of the last job that it looked at."""


@dataclass(frozen=True, slots=True)
class CheckpointsCleared:
    """Agents have followed removals."""

    time: float
    done: Mapping[str, int]
    """By agent: the number of the last removal that it has followed."""
    removed: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    """By job: why its checkpoints were left alone."""


@dataclass(frozen=True, slots=True)
class SettingsGiven:
    """A scheduler was started with these settings, or told them."""

    time: float
    by: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Began:
    """A scheduler has taken the journal up."""

    time: float
    version: str
    term: int
    holder: str


OwnEvent = (
    JobsSubmitted
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
    | Began
)
Event = OwnEvent | core.Event
