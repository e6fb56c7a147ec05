"""What a world tells the scheduler (events) and what the scheduler tells a world (commands).

Every event carries its time; the scheduler reads no clock. The stream of events is the journal: the same events give
the same commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gavel.client.requests import Submission
from gavel.core.allocation import Allocation
from gavel.core.cluster import Server
from gavel.core.jobs import Cause, JobSpec
from gavel.core.locality import Locality
from gavel.core.problem import Floats, Problem
from gavel.core.serialization import stored_as

LOST = Cause("lost", "its server is lost")


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job wants to run."""

    time: float
    job: JobSpec
    request: Submission | None = None
    """What the user asked for; None in simulations."""
    key: str = ""
    """Of the call that submits it: a repeated call submits nothing."""


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """Its owner no longer wants a job."""

    time: float
    job: str


@dataclass(frozen=True, slots=True, eq=False)
class JobsProgressed:
    """Steps that running jobs have done since they last said so."""

    time: float
    jobs: Sequence[str]
    steps: Floats


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job has done all of its steps."""

    time: float
    job: str
    reason: str = "all steps done"


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job ended without finishing; it is queued again from its last checkpoint unless `retry` is False."""

    time: float
    job: str
    reason: str
    retry: bool = True
    not_before: float | None = None
    """It does not run again before this time."""
    crashed: bool = False
    """Whether its own process ended with an error: then whom it shared accelerators with may be the reason."""
    counts: bool = True
    """Whether it is a failure of the job itself."""


@dataclass(frozen=True, slots=True)
class RateMeasured:
    """How fast a job really is where it runs: steps per second."""

    time: float
    job: str
    type: str
    rate: float
    locality: Locality = field(default=Locality.SERVER, metadata=stored_as("consolidated"))
    beside: str | None = None
    """The job that it shares its accelerators with."""


@dataclass(frozen=True, slots=True)
class RestartMeasured:
    """What a restart has cost a job: seconds for saving and leaving, and from its next start to its first step."""

    time: float
    job: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RatesProfiled:
    """How fast a template with one worker is, alone or beside another, on accelerators set aside to find that out."""

    time: float
    template: str
    type: str
    rate: float
    beside: str | None = None
    """The other template."""
    rate_beside: float | None = None
    """How fast that one is meanwhile; if both are 0 they do not fit together."""


@dataclass(frozen=True, slots=True)
class ServerJoined:
    """A server offers its accelerators."""

    time: float
    server: Server


@dataclass(frozen=True, slots=True)
class ServerLost:
    """A server is gone, and with it whatever ran there since the last checkpoint."""

    time: float
    server: str
    cause: Cause = LOST


@dataclass(frozen=True, slots=True)
class ServerLeaving:
    """A server is to start nothing new, and to be empty when the round ends."""

    time: float
    server: str


@dataclass(frozen=True, slots=True)
class ServerStays:
    """A server that was leaving takes work again."""

    time: float
    server: str


@dataclass(frozen=True, slots=True, eq=False)
class AllocationReady:
    """The answer to the Solve of that number."""

    time: float
    number: int
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class SolveFailed:
    """The Solve of that number has no answer; the old allocation goes on."""

    time: float
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class RoundDue:
    """The time that a WakeAt asked for has come."""

    time: float


Event = (
    JobSubmitted
    | JobCancelled
    | JobsProgressed
    | JobFinished
    | JobFailed
    | RateMeasured
    | RestartMeasured
    | RatesProfiled
    | ServerJoined
    | ServerLost
    | ServerLeaving
    | ServerStays
    | AllocationReady
    | SolveFailed
    | RoundDue
)


@dataclass(frozen=True, slots=True, eq=False)
class Solve:
    """Ask the policy; answer with AllocationReady or SolveFailed of the same number."""

    number: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a job, alone or beside another, on these accelerators, from its checkpoint, until the lease ends."""

    job: str
    type: str
    accelerators: Mapping[str, int]
    """How many on which server."""
    until: float
    locality: Locality = field(default=Locality.SERVER, metadata=stored_as("consolidated"))
    """How close together they sit."""
    beside: str | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Renew:
    """Everyone who runs and is not stopped goes on until this time."""

    until: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Save a checkpoint and leave the accelerators."""

    job: str
    cause: Cause = field(default=LOST, compare=False)


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send RoundDue at this time; a later WakeAt replaces an earlier one."""

    time: float


Command = Solve | Launch | Renew | Stop | WakeAt
