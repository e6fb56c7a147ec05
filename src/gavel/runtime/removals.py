"""Pending removals of checkpoints of finished jobs, and each agent's progress: a fold over facts.

Removals are numbered in the order of requests, and agents carry them out in that order, so one number says what an
agent has done. A removal is remembered until every agent that the cluster knows has done it, including absent ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gavel.runtime.facts import AgentForgotten, CheckpointsRemoved, CheckpointsUnwanted, Fact

EndKey = tuple[float, int]
"""End time and id of a job: the order of finished jobs."""


@dataclass(frozen=True, slots=True)
class Outstanding:
    """Removals that some agent has not carried out yet, as the journal has them."""

    jobs: Mapping[int, str] = field(default_factory=dict)
    """Jobs by number, in order."""
    done: Mapping[str, int] = field(default_factory=dict)
    """By agent: the number of the last removal it carried out."""

    def of(self, agent: str) -> list[tuple[int, str]]:
        """What an agent still has to do: numbers and jobs, in order."""
        done = self.done.get(agent, 0)
        return [(number, job) for number, job in self.jobs.items() if number > done]


class Removals:
    """Removals that are not done everywhere, and how far retention has come."""

    def __init__(self) -> None:
        self.jobs: dict[int, str] = {}
        """By number, in order; each job at most once."""
        self.last = 0
        """The highest number so far."""
        self.done: dict[str, int] = {}
        """By agent: the number of the last removal it carried out. An agent that is not listed has done none."""
        self.expired: EndKey | None = None
        """Retention has requested removal for all jobs that ended up to here."""

    def outstanding(self) -> Outstanding:
        """The current state, for an executor to keep."""
        return Outstanding(dict(self.jobs), dict(self.done))

    def numbers(self) -> dict[str, int]:
        """Jobs with outstanding removals, and their numbers."""
        return {job: number for number, job in self.jobs.items()}

    def evolve(self, fact: Fact, agents: Collection[str]) -> None:
        """Apply a fact; `agents` are those that the cluster knows after it."""
        match fact:
            case CheckpointsUnwanted():
                for job in fact.jobs:
                    self.last += 1
                    self.jobs[self.last] = job
                self.expired = fact.through or self.expired
            case CheckpointsRemoved():
                self.done |= fact.done
            case AgentForgotten():
                self.done.pop(fact.agent, None)
            case _:
                return
        self._drop_followed(agents)

    def _drop_followed(self, agents: Collection[str]) -> None:
        """Forget what every agent has done; without agents, nothing has been removed."""
        followed = min((self.done.get(agent, 0) for agent in agents), default=0)
        self.jobs = {number: job for number, job in self.jobs.items() if number > followed}

    def document(self) -> dict[str, Any]:
        return {
            "jobs": list(self.jobs.items()),
            "last": self.last,
            "done": dict(self.done),
            "expired": None if self.expired is None else list(self.expired),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Removals:
        removals = cls()
        removals.jobs = dict(document["jobs"])
        removals.last, removals.done = document["last"], dict(document["done"])
        if document["expired"] is not None:
            ended, job = document["expired"]
            removals.expired = ended, job
        return removals
