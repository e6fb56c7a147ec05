"""What a world tells the scheduler (events) and what the scheduler tells a world (commands).

Every event carries its time; the scheduler reads no clock. The scheduler is deterministic: the same events give
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
    """A job was submitted."""

    time: float
    job: JobSpec
    request: Submission | None = None
    """What the user asked for; None in simulations."""
    key: str = ""
    """The key of the submitting call: repeating the call with the same key submits nothing."""
    held: Cause | None = None
    """Why it must wait until it is released; None: it need not."""
    met: tuple[str, ...] = ()
    """Those of its dependencies that are met already."""


@dataclass(frozen=True, slots=True)
class JobsHeld:
    """These jobs do not run until they are released, or wait for another reason now; jobs that run are not held."""

    time: float
    jobs: tuple[str, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class JobsReleased:
    """These jobs need wait for nothing but accelerators any more."""

    time: float
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PausesEnded:
    """These jobs pause no longer after a failure."""

    time: float
    jobs: tuple[str, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class StopAsked:
    """These jobs are to save, leave their accelerators and wait again; those that do not run are left alone."""

    time: float
    jobs: tuple[str, ...]
    cause: Cause


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of a job's request that was changed, and its values as people write them; empty: it had none."""

    name: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class JobEdited:
    """What is asked of an unfinished job changed. Its id, template, workers and entity stay as they are."""

    time: float
    job: JobSpec
    steps_left: float
    """NaN if unknown."""
    request: Submission | None = None
    """What the user asks for now; None in simulations."""
    by: str = ""
    """Who changed it."""
    changes: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class TypesAllowed:
    """On which types a job may run from now on, while its request stays as it is."""

    time: float
    job: str
    types: tuple[str, ...] | None
    """None: all."""
    cause: Cause


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A job was cancelled."""

    time: float
    job: str
    by: str = ""
    """The user who did; empty: not known."""


@dataclass(frozen=True, slots=True, eq=False)
class JobsProgressed:
    """The steps that running jobs have made since their last report."""

    time: float
    jobs: Sequence[str]
    steps: Floats


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job has made all of its steps."""

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
    """The job does not run again before this time."""
    crashed: bool = False
    """Whether the job's own process ended with an error; a job that shared its accelerators may be the reason."""
    counts: bool = True
    """Whether this counts as a failure of the job itself."""
    code: str = ""
    """A word for the reason of an end, if it has its own."""
    saves: bool = False
    """Whether its processes may save before they end."""


@dataclass(frozen=True, slots=True)
class RateMeasured:
    """The measured rate of a job on its accelerators, in steps per second."""

    time: float
    job: str
    type: str
    rate: float
    locality: Locality = field(default=Locality.SERVER, metadata=stored_as("consolidated"))
    beside: str | None = None
    """The job that shares its accelerators."""


@dataclass(frozen=True, slots=True)
class RestartMeasured:
    """The cost of a restart, in seconds: saving and leaving, and from the next start to the first step."""

    time: float
    job: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RatesProfiled:
    """The rate of a template with one worker, alone or beside another, measured on profiling accelerators."""

    time: float
    template: str
    type: str
    rate: float
    beside: str | None = None
    """The other template; None if alone."""
    rate_beside: float | None = None
    """The rate of the other template; if both are 0, the two do not fit together."""


@dataclass(frozen=True, slots=True)
class ServerJoined:
    """A server offers its accelerators."""

    time: float
    server: Server


@dataclass(frozen=True, slots=True)
class ServerLost:
    """A server is lost, and with it everything that ran there since the last checkpoint."""

    time: float
    server: str
    cause: Cause = LOST


@dataclass(frozen=True, slots=True)
class ServerLeaving:
    """A server accepts no new runs, and must be empty when the round ends."""

    time: float
    server: str


@dataclass(frozen=True, slots=True)
class ServerStays:
    """A server that was leaving accepts runs again."""

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
    """The Solve of that number has no answer; the old allocation stays in force."""

    time: float
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class RoundDue:
    """The time of the last WakeAt has come."""

    time: float


Event = (
    JobSubmitted
    | JobCancelled
    | StopAsked
    | JobsHeld
    | JobsReleased
    | PausesEnded
    | JobEdited
    | TypesAllowed
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
    """By server: the number of accelerators."""
    until: float
    locality: Locality = field(default=Locality.SERVER, metadata=stored_as("consolidated"))
    """How close together they sit."""
    beside: str | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Renew:
    """All runs that are not stopped continue until this time."""

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
