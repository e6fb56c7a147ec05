"""The seam between the scheduler and what really runs jobs. Nothing above it knows agents, gRPC or processes.

An executor makes attempts start and stop as it is told and reports what happened. It has no opinion about jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from gavel.core.errors import InputError
from gavel.core.events import Launch
from gavel.core.jobs import Cause
from gavel.runtime.agents import AgentRecord
from gavel.runtime.events import Event
from gavel.runtime.removals import Outstanding

Done = Callable[[InputError | None], None]


class EventSink(Protocol):
    """The way of an event to the scheduler."""

    def __call__(self, event: Event, done: Done | None = None) -> None:
        """Have an event taken in; `done` is called when it is in the journal and has taken effect, or was refused."""


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """What is known of an attempt that may have processes."""

    job: str
    attempt: int
    accelerators: Mapping[str, int]
    """How many on which server."""
    stopping: bool
    lease_until: float
    steps: float | None
    """Done in the job's life, as last heard; None if it does not count."""


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether an agent can be told anything now, and when it was last heard."""

    attached: bool
    heard_at: float


class Executor(Protocol):
    """Runs attempts. Calls return at once; what comes of them is reported as events."""

    def begin(
        self,
        agents: Iterable[AgentRecord],
        attempts: Iterable[tuple[str, Sequence[Launch]]],
        fences: Mapping[tuple[str, str], float],
        renewed_until: float,
        holders: Mapping[tuple[str, int], Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Take up what the journal says may run: agents, open attempts by job, fences, and how long leases last.

        `holders` has, by job and attempt, the agents of its servers when it was launched.
        """

    def launch(self, launch: Launch) -> None:
        """Start an attempt as soon as no earlier attempt of its job can still run."""

    def stop(self, job: str, cause: Cause) -> None:
        """Have a job save a checkpoint and leave; a launch that has not begun is withdrawn."""

    def withdraw(self, job: str) -> None:
        """A job waits again: forget a launch that has not begun."""

    def close(self, job: str) -> None:
        """A job has finished: end what still runs of it, without a checkpoint."""

    def renew(self, until: float) -> None:
        """Everything that runs and is not being stopped may run until that time."""

    def remove_checkpoints(self, outstanding: Outstanding) -> None:
        """Have checkpoints removed wherever they are, also at agents that come back later; replaces what was said."""

    def report(self) -> None:
        """Report the steps of running jobs, and how fast they were."""

    def tick(self) -> None:
        """Look at the clock."""

    def excuse(self, seconds: float) -> None:
        """The scheduler stood still this long: silence meanwhile is not held against anyone."""

    def running(self) -> Iterable[str]:
        """The jobs that may have processes."""
        ...

    def attempt(self, job: str) -> AttemptStatus | None:
        """The attempt of a job that may have processes."""
        ...

    def at(self, agent: str) -> Iterable[AttemptStatus]:
        """The attempts that may have processes at an agent."""
        ...

    def presence(self, agent: str) -> Presence | None:
        """Whether an agent is there; None if it is not counted on."""
        ...
