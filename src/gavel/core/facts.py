"""Facts: what the scheduler decided or accepted. They are enough to rebuild its state without deciding anything again.

Some events are facts as they are: what jobs did and what was measured is accepted as told.
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
    JobsProgressed,
    Launch,
    RateMeasured,
    RatesProfiled,
    Renew,
    RestartMeasured,
    SolveFailed,
    Stop,
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
    """Of the call that submitted it: a repeated call submits nothing."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has finished, failed for good or was cancelled."""

    time: float
    job: str
    outcome: Outcome
    reason: str
    received: Mapping[str, float] = field(default_factory=dict)
    """Seconds by type."""
    restarts: int = 0
    crashed: bool = False
    """Its own process ended with an error."""
    counts: bool = True
    """Whether it is a failure of the job, if it failed."""


@dataclass(frozen=True, slots=True)
class JobRequeued:
    """A run ended without finishing its job, which waits for another."""

    time: float
    job: str
    reason: str
    not_before: float | None = None
    """It does not run again before this time."""
    crashed: bool = False
    counts: bool = True
    """Whether it is a failure of the job: one that uses up a retry."""


@dataclass(frozen=True, slots=True)
class ServerAdded:
    """A server offers its accelerators."""

    time: float
    server: Server


@dataclass(frozen=True, slots=True)
class ServerClosed:
    """A server starts nothing new; what runs there may continue until the round ends."""

    time: float
    server: str


@dataclass(frozen=True, slots=True)
class ServerReopened:
    """A server that was closed takes work again."""

    time: float
    server: str


@dataclass(frozen=True, slots=True)
class ServerRemoved:
    """A server no longer counts; the runs that it had a part of were stopped."""

    time: float
    server: str
    cause: Cause
    stopped: tuple[str, ...] = ()
    """Jobs."""


@dataclass(frozen=True, slots=True)
class WakeSet:
    """The scheduler wants to be called at a time: for idle accelerators, for the first job, or when a pause ends."""

    time: float
    at: float
    why: Literal["room", "idle", "pause"]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The scheduler was called: everything that runs has received its time, and pauses that are due have ended."""

    time: float


@dataclass(frozen=True, slots=True)
class SolveAsked:
    """The policy was asked about the jobs and servers of this moment; the round waits for the answer for a while."""

    time: float
    number: int
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class AllocationAdopted:
    """The policy's answer is in force."""

    time: float
    number: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Stopped:
    """A run that was taken off its accelerators, and why."""

    jobs: tuple[str, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Started:
    """A run on its accelerators; of a run that moved within its type, the new ones."""

    jobs: tuple[str, ...]
    """One, or two that share the accelerators."""
    attempts: tuple[int, ...]
    """The attempt number of each."""
    type: str
    accelerators: Mapping[str, int]
    """How many on which server."""
    locality: Locality = field(metadata=stored_as("consolidated"))
    cause: Cause

    def launches(self, until: float) -> list[Launch]:
        """What an executor has to start."""
        beside = self.jobs[::-1] if len(self.jobs) == 2 else (None,)
        return [
            Launch(job, self.type, self.accelerators, until, self.locality, other, attempt)
            for job, attempt, other in zip(self.jobs, self.attempts, beside, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class RoundPlanned:
    """What runs until a time: everything that ran before, less what stopped, plus what started."""

    time: float
    number: int
    """Counts the plans."""
    until: float
    wake: float
    """When the scheduler wants to be called next."""
    stopped: tuple[Stopped, ...] = ()
    moved: tuple[Started, ...] = ()
    """Runs that continue elsewhere on servers of the same type."""
    started: tuple[Started, ...] = ()
    mid_round: bool = False
    """Whether it changes a round under way."""
    scattered: bool = False
    """Whether some gang may not sit together."""

    @property
    def jobs(self) -> tuple[str, ...]:
        """All jobs whose place changed, each once."""
        changed: list[Stopped | Started] = [*self.stopped, *self.moved, *self.started]
        return tuple(dict.fromkeys(job for run in changed for job in run.jobs))


@dataclass(frozen=True, slots=True)
class Slept:
    """Nothing can run: the scheduler waits for a change, or for the end of a pause."""

    time: float
    until: float | None


Fact = (
    JobQueued
    | JobEnded
    | JobRequeued
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
    """What a fact asks of the world. The question of a SolveAsked is the scheduler's to add."""
    match fact:
        case RoundPlanned():
            return _round_commands(fact)
        case WakeSet():
            return [WakeAt(fact.at)]
        case SolveAsked():
            return [WakeAt(fact.until)]
        case ServerRemoved():
            return [Stop(job, fact.cause) for job in fact.stopped]
        case Slept(until=float()):
            return [WakeAt(fact.until)]  # type: ignore[arg-type] # a float here
        case _:
            return []


def _round_commands(fact: RoundPlanned) -> list[Command]:
    """Stop everything that ran elsewhere or no longer runs, then launch what begins."""
    leaving: list[Stopped | Started] = [*fact.stopped, *fact.moved]
    commands: list[Command] = [Stop(job, run.cause) for run in leaving for job in run.jobs]
    for run in (*fact.moved, *fact.started):
        commands += run.launches(fact.until)
    if not fact.mid_round:
        commands.append(Renew(fact.until))
    commands.append(WakeAt(fact.wake))
    return commands
