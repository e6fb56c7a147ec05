"""Facts: what the scheduler decided or accepted. They are enough to rebuild its state without deciding anything again.

Some events are facts as they are: what jobs did and what was measured is accepted as reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gavel.client.requests import Submission
from gavel.core.allocation import Allocation
from gavel.core.cluster import Server
from gavel.core.events import (
    Command,
    JobEdited,
    JobsHeld,
    JobsProgressed,
    JobsReleased,
    Launch,
    PausesEnded,
    RateMeasured,
    RatesProfiled,
    Renew,
    RestartMeasured,
    SolveFailed,
    Stop,
    TypesAllowed,
    WakeAt,
)
from gavel.core.jobs import Cause, JobSpec
from gavel.core.locality import Locality
from gavel.core.serialization import stored_as

Outcome = Literal["completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobQueued:
    """A job was accepted."""

    time: float
    job: JobSpec
    request: Submission | None = None
    """What the user asked for; None in simulations."""
    key: str = ""
    """The key of the submitting call: repeating the call with the same key submits nothing."""
    held: Cause | None = None
    """Why the job waits until it is released; None: it need not."""
    met: tuple[str, ...] = ()
    """Those of its dependencies that were met already."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has finished, failed for good or was cancelled."""

    time: float
    job: str
    outcome: Outcome
    reason: str
    received: Mapping[str, float] = field(default_factory=dict)
    """By type: seconds received."""
    restarts: int = 0
    crashed: bool = False
    """Whether the job's own process ended with an error."""
    counts: bool = True
    """Whether a failure counts as one of the job itself."""
    code: str = ""
    """A word for the reason, if it has one beyond the outcome."""
    saves: bool = False
    """Whether its processes may save before they end; otherwise they are ended at once."""
    by: str = ""
    """The user who cancelled it; empty: no one did, or it is not known."""


@dataclass(frozen=True, slots=True)
class JobRequeued:
    """A run ended without finishing its job, which waits for another run."""

    time: float
    job: str
    reason: str
    not_before: float | None = None
    """The job does not run again before this time."""
    crashed: bool = False
    counts: bool = True
    """Whether this counts as a failure of the job itself, which uses up a retry."""


@dataclass(frozen=True, slots=True)
class JobsStopped:
    """Runs of these jobs were stopped outside any plan; a job that shared their accelerators continues alone."""

    time: float
    jobs: tuple[str, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class ServerAdded:
    """A server offers its accelerators."""

    time: float
    server: Server


@dataclass(frozen=True, slots=True)
class ServerClosed:
    """A server accepts no new runs; what runs there may continue until the round ends."""

    time: float
    server: str


@dataclass(frozen=True, slots=True)
class ServerReopened:
    """A server that was closed accepts runs again."""

    time: float
    server: str


@dataclass(frozen=True, slots=True)
class ServerRemoved:
    """A server was removed, and all runs that used it were stopped."""

    time: float
    server: str
    cause: Cause
    stopped: tuple[str, ...] = ()
    """The jobs that were stopped."""


@dataclass(frozen=True, slots=True)
class WakeSet:
    """The scheduler wants to be woken at a time: for idle accelerators, for the first job, or when a pause ends."""

    time: float
    at: float
    why: Literal["room", "idle", "pause"]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The scheduler was woken: running jobs have received their time, and pauses that are due have ended."""

    time: float


@dataclass(frozen=True, slots=True)
class SolveAsked:
    """The policy was asked about the current jobs and servers; the round waits for the answer up to a time."""

    time: float
    number: int
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class AllocationAdopted:
    """The policy's answer was adopted."""

    time: float
    number: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Stopped:
    """A run that was stopped, and why."""

    jobs: tuple[str, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Started:
    """A run and its accelerators; for a run that moved within its type, the new ones."""

    jobs: tuple[str, ...]
    """One job, or two that share the accelerators."""
    attempts: tuple[int, ...]
    """The attempt number of each job."""
    type: str
    accelerators: Mapping[str, int]
    """By server: the number of accelerators."""
    locality: Locality = field(metadata=stored_as("consolidated"))
    cause: Cause

    def launches(self, until: float) -> list[Launch]:
        """The launch commands for an executor."""
        beside = self.jobs[::-1] if len(self.jobs) == 2 else (None,)
        return [
            Launch(job, self.type, self.accelerators, until, self.locality, other, attempt)
            for job, attempt, other in zip(self.jobs, self.attempts, beside, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class RoundPlanned:
    """A plan of what runs until a time: everything that ran before, minus what stopped, plus what started."""

    time: float
    number: int
    """The number of the plan."""
    until: float
    wake: float
    """When the scheduler wants to be woken next."""
    stopped: tuple[Stopped, ...] = ()
    moved: tuple[Started, ...] = ()
    """Runs that move to other servers of the same type."""
    started: tuple[Started, ...] = ()
    mid_round: bool = False
    """Whether it changes a round in progress."""
    scattered: bool = False
    """Whether some gang may be spread out."""

    @property
    def jobs(self) -> tuple[str, ...]:
        """All jobs whose placement changed, each once."""
        changed: list[Stopped | Started] = [*self.stopped, *self.moved, *self.started]
        return tuple(dict.fromkeys(job for run in changed for job in run.jobs))


@dataclass(frozen=True, slots=True)
class Slept:
    """Nothing can run; the scheduler waits for a change or for the end of a pause."""

    time: float
    until: float | None


Fact = (
    JobQueued
    | JobEnded
    | JobRequeued
    | JobsStopped
    | JobsHeld
    | JobsReleased
    | PausesEnded
    | JobEdited
    | TypesAllowed
    | JobsProgressed
    | RateMeasured
    | RestartMeasured
    | RatesProfiled
    | ServerAdded
    | ServerClosed
    | ServerReopened
    | ServerRemoved
    | WakeSet
    | TimePassed
    | SolveAsked
    | SolveFailed
    | AllocationAdopted
    | RoundPlanned
    | Slept
)


def commands_of(fact: Fact) -> Iterable[Command]:
    """The commands that follow from a fact. For SolveAsked, the scheduler adds the Solve command itself."""
    match fact:
        case RoundPlanned():
            return _round_commands(fact)
        case WakeSet():
            return [WakeAt(fact.at)]
        case SolveAsked():
            return [WakeAt(fact.until)]
        case ServerRemoved(stopped=jobs, cause=cause) | JobsStopped(jobs=jobs, cause=cause):
            return [Stop(job, cause) for job in jobs]
        case Slept(until=float()):
            return [WakeAt(fact.until)]  # type: ignore[arg-type] # a float here
        case _:
            return []


def _round_commands(fact: RoundPlanned) -> list[Command]:
    """Stop all runs that move or end, then launch all that move or start."""
    leaving: list[Stopped | Started] = [*fact.stopped, *fact.moved]
    commands: list[Command] = [Stop(job, run.cause) for run in leaving for job in run.jobs]
    for run in (*fact.moved, *fact.started):
        commands += run.launches(fact.until)
    if not fact.mid_round:
        commands.append(Renew(fact.until))
    commands.append(WakeAt(fact.wake))
    return commands
