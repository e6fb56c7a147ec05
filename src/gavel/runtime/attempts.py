"""One launch of one job: which processes run at which agent, their progress, and how they ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gavel.core.events import Launch
from gavel.runtime.events import AttemptOutcome
from gavel.runtime.messages import Ending, TaskEnded, TaskStarted, TaskStatus, process_ranks


class Order(NamedTuple):
    """A launch to perform."""

    launch: Launch
    holders: Mapping[str, str]
    """By server: the agent that the journal expects to run it. Empty in journals of earlier versions."""


@dataclass(slots=True)
class Part:
    """The ranks of an attempt at one agent."""

    agent: str
    """Its identity."""
    first_rank: int
    ranks: int
    """How many of the job's ranks, each on an accelerator."""
    node: int | None = None
    """Its number among the parts of a job with one process for each server, which is known by it; None: each rank
    is a process."""
    sent_at: float | None = None
    """When the agent was told to start it."""
    ended: set[int] = field(default_factory=set)

    @property
    def over(self) -> bool:
        return len(self.ended) == len(self.all_ranks)

    @property
    def all_ranks(self) -> range:
        """By what its processes are known."""
        return process_ranks(self.first_rank, self.ranks, self.node)

    def give_up(self) -> None:
        """Count every rank as ended."""
        self.ended.update(self.all_ranks)


@dataclass(slots=True)
class Attempt:
    """A job on its accelerators, from the launch until every rank has ended."""

    launch: Launch
    parts: list[Part]
    lease_until: float
    """Nothing runs beyond this time, apart from the grace that agents allow for saving and ending."""
    stopping: bool = False
    crash: str | None = None
    """Why the first rank to fail failed."""
    hopeless: bool = False
    done: bool = False
    crashed: AttemptOutcome = AttemptOutcome.CRASHED
    """How a crash is classified: whose fault it is."""
    ports: TaskStarted | None = None
    acknowledge: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks for when the end of this attempt is in the journal."""
    steps: float | None = None
    """Steps done in the job's life, as last reported; None if the job does not count."""
    saved_steps: float = 0.0
    measured_steps: float = 0.0
    measured_seconds: float = 0.0
    stopped_at: float | None = None
    """When it was asked to save and leave."""
    started_at: float | None = None
    """When its first rank began: by then the accelerators were free and earlier attempts had ended."""
    begun: bool = False
    """Whether one of its processes began, as far as is known; one from before a restart of the scheduler may have."""
    active_at: float | None = None
    """When one of its ranks last began, made a step or printed something, as far as was heard; None: not begun."""
    exit_code: int | None = None
    """Of the rank that decided how the attempt ended: the first to crash, else the last to end."""
    saving_seconds: float | None = None
    """How long the previous attempt took to save and leave; None if not observed, or once a restart is measured."""

    @property
    def job(self) -> str:
        return self.launch.job

    @property
    def number(self) -> int:
        return self.launch.attempt

    @property
    def over(self) -> bool:
        return all(part.over for part in self.parts)

    def part_at(self, agent: str) -> Part | None:
        return next((part for part in self.parts if part.agent == agent), None)

    def held_by(self, agent: str, rank: int) -> bool:
        """Whether a rank is at an agent."""
        part = self.part_at(agent)
        return part is not None and rank in part.all_ranks

    def heard(self, status: TaskStatus) -> None:
        """Apply an agent's report on a rank; the first rank speaks for the job."""
        if status.rank == 0 and status.counts and status.plausible:
            self.steps, self.saved_steps = status.steps, status.saved_steps
            self.measured_steps += status.measured_steps
            self.measured_seconds += status.measured_seconds

    def restart_seconds(self, now: float) -> float | None:
        """The cost of the restart that began this attempt; None if unknown so far.

        The first step ended when the measured ones began. It is a step like the others, so it is not part of the cost.
        """
        if self.saving_seconds is None or self.started_at is None or self.measured_steps <= 0:
            return None
        steps_seconds = self.measured_seconds * (1 + 1 / self.measured_steps)
        return self.saving_seconds + max(now - self.started_at - steps_seconds, 0.0)

    def ended(self, part: Part, message: TaskEnded) -> None:
        """Record the end of a rank."""
        self.heard(message.status)
        part.ended.add(message.status.rank)
        if self.crash is None and message.exit_code is not None:
            self.exit_code = message.exit_code
        if message.ending is Ending.CRASHED and (self.crash is None or message.blameless):
            # When one rank is blocked, the others fail because of it.
            self.crash, self.hopeless = message.reason, message.hopeless
            self.crashed = AttemptOutcome.BLOCKED if message.blameless else AttemptOutcome.CRASHED
        self.done = self.done or message.ending is Ending.DONE

    def outcome(self) -> tuple[AttemptOutcome, str]:
        """How the attempt ended, once every rank has, and why."""
        if self.crash is not None:
            return self.crashed, self.crash
        if self.done:
            return AttemptOutcome.DONE, ""
        if self.stopping:
            return AttemptOutcome.LEFT, ""
        return AttemptOutcome.LOST, "its lease ended before the scheduler renewed it"

    def kept_steps(self) -> float | None:
        """The steps that survive the attempt: work that no checkpoint holds is lost with the process."""
        return self.saved_steps if self.steps is not None and not self.done else self.steps


def parts_of(launch: Launch, agent_of: Mapping[str, str], *, per_server: bool = False) -> list[Part]:
    """The ranks of a launch by agent, in the order of its servers; one agent may have several servers.

    With `per_server`, one process at each starts them.
    """
    parts: dict[str, Part] = {}
    rank = 0
    for server, count in launch.accelerators.items():
        agent = agent_of[server]
        parts[agent] = Part(agent, rank, count, len(parts) if per_server else None)
        rank += count
    return list(parts.values())
