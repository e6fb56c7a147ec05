"""The seam between the scheduler and what really runs jobs. Nothing above it knows agents, gRPC or processes.

An executor starts and stops attempts as told and reports what happened. It has no opinion about jobs.
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
    """The way for events to reach the scheduler."""

    def __call__(self, event: Event, done: Done | None = None) -> None:
        """Post an event; `done` is called when it is in the journal and in effect, or was refused."""


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """What is known about an attempt that may have processes."""

    job: str
    attempt: int
    accelerators: Mapping[str, int]
    """The number of accelerators on each server."""
    stopping: bool
    lease_until: float
    steps: float | None
    """Steps done in the job's life, as last reported; None if it does not count."""
    begun: bool = True
    """Whether its processes may have begun; until then it may wait for earlier ones to leave its accelerators."""
    quiet_since: float | None = None
    """Since when it has certainly neither made a step nor printed anything; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether an agent can be reached now, and when it was last heard."""

    attached: bool
    heard_at: float


class Executor(Protocol):
    """Runs attempts. Calls return at once; results are reported as events."""

    def begin(
        self,
        agents: Iterable[AgentRecord],
        attempts: Iterable[tuple[str, Sequence[Launch]]],
        fences: Mapping[tuple[str, str], float],
        renewed_until: float,
        holders: Mapping[tuple[str, int], Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Resume what the journal says may run: agents, open attempts by job, fences, and how long leases last.

        `holders` gives, by job and attempt, the agents of its servers at launch.
        """

    def launch(self, launch: Launch, holders: Mapping[str, str]) -> None:
        """Start an attempt as soon as no earlier attempt of its job can still run.

        `holders` gives the agent of each server at launch, as the journal has it; no other agent may run the attempt.
        """

    def stop(self, job: str, cause: Cause) -> None:
        """Let a job save a checkpoint and leave; a launch that has not begun is withdrawn."""

    def withdraw(self, job: str) -> None:
        """Forget a launch that has not begun: its job waits again."""

    def close(self, job: str, cause: Cause | None = None) -> None:
        """End what still runs of a finished job: at once or, if there is a cause, after it has saved."""

    def renew(self, until: float) -> None:
        """Let everything that runs and is not being stopped run until that time."""

    def remove_checkpoints(self, outstanding: Outstanding) -> None:
        """Remove checkpoints wherever they are, also at agents that return later; replaces the previous order."""

    def report(self) -> None:
        """Report the steps and rates of running jobs."""

    def tick(self) -> None:
        """Handle what is due by the clock."""

    def excuse(self, seconds: float) -> None:
        """Forgive silence of agents during the time in which the scheduler itself was suspended."""

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
        """Whether an agent is connected; None if it is not a member."""
        ...
