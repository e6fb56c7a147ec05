"""Facts of the live system beyond those of the scheduler: settings, starts, agents. All facts as journal documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from gavel.core import facts as core
from gavel.core.cluster import Server
from gavel.core.codec import decode_fact, encode_event, kind_of
from gavel.core.errors import InputError
from gavel.core.events import (
    JobEdited,
    JobsHeld,
    JobsReleased,
    PausesEnded,
    RateMeasured,
    RestartMeasured,
    TypesAllowed,
)
from gavel.core.problem import Problem
from gavel.core.serialization import MisfitError, from_plain, plain_record
from gavel.security.quotas import Limits, Subject


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The settings in force from now on; the first start has no settings before them."""

    time: float
    by: str
    after: Mapping[str, Any]
    before: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """The limits of a user, a team or every user in force from now on; no limit: those of the default apply."""

    time: float
    by: str
    subject: Subject
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class HoldsChanged:
    """A user holds these jobs from now on or, if not `held`, no longer does."""

    time: float
    jobs: tuple[str, ...]
    by: str
    held: bool


@dataclass(frozen=True, slots=True)
class DependenciesChanged:
    """What a job waits for was replaced."""

    time: float
    job: str
    after: tuple[str, ...]
    by: str
    met: tuple[str, ...] = ()
    """Those of its dependencies that are met already."""


@dataclass(frozen=True, slots=True)
class NotificationsChanged:
    """The URLs that are told about every job of a user from now on; none: no URL."""

    time: float
    by: str
    user: str
    urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerStarted:
    """A scheduler opened the journal."""

    time: float
    version: str
    term: int
    holder: str


@dataclass(frozen=True, slots=True)
class AttemptClosed:
    """No process of an attempt is left, or any that is left is fenced: the next attempt may start."""

    time: float
    job: str
    attempt: int
    outcome: str
    reason: str = ""
    exit_code: int | None = None
    """Of the process that decided the outcome; None: there was none, or it is not known."""


@dataclass(frozen=True, slots=True)
class TimeLimitNear:
    """The user of a running job is warned that it reaches its time limit soon."""

    time: float
    job: str
    limit_seconds: float
    left_seconds: float


@dataclass(frozen=True, slots=True)
class StartDelayed:
    """A job had accelerators for so long before its first process began; that counts against no time limit."""

    time: float
    job: str
    seconds: float


@dataclass(frozen=True, slots=True)
class AgentJoined:
    """An agent is part of the cluster: for the first time, again, or with different accelerators."""

    time: float
    agent: str
    """Its identity."""
    name: str
    servers: tuple[Server, ...]


@dataclass(frozen=True, slots=True)
class AgentLost:
    """An agent was silent for too long, or another one took its name."""

    time: float
    agent: str
    reason: str
    fences: Mapping[str, float] = field(default_factory=dict)
    """Jobs that may still run there, and until when."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class AgentDraining:
    """An agent takes no new work; `now`: its jobs leave at once."""

    time: float
    agent: str
    by: str
    now: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class AgentUndrained:
    """An agent takes work again."""

    time: float
    agent: str
    by: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class AgentForgotten:
    """An operator removed a lost or drained agent from the list."""

    time: float
    agent: str
    by: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointsUnwanted:
    """The checkpoints of these finished jobs are to be removed."""

    time: float
    jobs: tuple[str, ...]
    by: str
    through: tuple[float, int] | None = None
    """For retention: the end time and id of the last job it looked at."""


@dataclass(frozen=True, slots=True)
class CheckpointsRemoved:
    """Agents have carried out removals: no checkpoint of those jobs is left there, except of those that are kept."""

    time: float
    done: Mapping[str, int]
    """By agent: the number of the last removal it carried out."""
    removed: tuple[str, ...] = ()
    """Jobs that had checkpoints there."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """By job: why its checkpoints were left alone."""


@dataclass(frozen=True, slots=True)
class TemplatesForgotten:
    """Templates without jobs left memory; what was learned about them goes to the journal's table."""

    time: float
    templates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TemplateRecalled:
    """A job of a forgotten template arrived: what was learned about it counts again."""

    time: float
    learned: Mapping[str, Any]


OwnFact = (
    SettingsChanged
    | LimitsChanged
    | HoldsChanged
    | DependenciesChanged
    | NotificationsChanged
    | SchedulerStarted
    | AttemptClosed
    | TimeLimitNear
    | StartDelayed
    | AgentJoined
    | AgentLost
    | AgentDraining
    | AgentUndrained
    | AgentForgotten
    | CheckpointsUnwanted
    | CheckpointsRemoved
    | TemplatesForgotten
    | TemplateRecalled
)
Fact = OwnFact | core.Fact
_OWN: dict[str, type[Any]] = {kind_of(fact): fact for fact in get_args(OwnFact)}
KINDS = frozenset(map(kind_of, get_args(Fact)))
"""Kinds of all facts."""


def document_of(fact: Fact) -> dict[str, Any]:
    """A fact as the journal stores it: its kind, time, subject, and the fact itself."""
    kind = kind_of(type(fact))
    content = {"kind": kind, **plain_record(fact)} if kind in _OWN else encode_event(fact)  # type: ignore[arg-type]
    document: dict[str, Any] = {"kind": content.pop("kind"), "time": content.pop("time"), "fact": content}
    if jobs := jobs_of(fact):
        document["jobs"] = list(jobs)
    if server := server_of(fact):
        document["server"] = server
    return document


def fact_of(document: Mapping[str, Any], problem_of: Callable[[int], Problem]) -> Fact:
    """Read a fact back."""
    kind, content = document["kind"], {**document["fact"], "time": document["time"]}
    if kind in _OWN:
        try:
            own: Fact = from_plain(_OWN[kind], content)
        except MisfitError as misfit:
            raise InputError(f"fact {kind}: {misfit}") from None
        return own
    return decode_fact({"kind": kind, **content}, problem_of)


def jobs_of(fact: Fact) -> tuple[str, ...]:
    """The jobs that a fact is about. Progress concerns all running jobs, and is listed under none."""
    jobs: tuple[str, ...] = ()
    match fact:
        case core.JobQueued() | JobEdited():
            jobs = (fact.job.id,)
        case (
            core.JobEnded()
            | core.JobRequeued()
            | TypesAllowed()
            | AttemptClosed()
            | TimeLimitNear()
            | StartDelayed()
            | RateMeasured()
            | RestartMeasured()
        ):
            jobs = (fact.job,)
        case DependenciesChanged():
            jobs = (fact.job,)
        case core.RoundPlanned() | core.JobsStopped() | JobsHeld() | JobsReleased() | PausesEnded() | HoldsChanged():
            jobs = fact.jobs
        case core.ServerRemoved():
            jobs = fact.stopped
        case AgentLost():
            jobs = tuple(fact.fences)
        case CheckpointsUnwanted():
            jobs = fact.jobs
        case CheckpointsRemoved():
            jobs = (*fact.removed, *fact.kept)
        case _:
            pass
    return jobs


def server_of(fact: Fact) -> str:
    """The server or agent that a fact is about; empty if none."""
    match fact:
        case core.ServerAdded():
            return fact.server.name
        case core.ServerRemoved() | core.ServerClosed() | core.ServerReopened():
            return fact.server
        case AgentJoined() | AgentLost() | AgentDraining() | AgentUndrained() | AgentForgotten():
            return fact.name
        case _:
            return ""
