"""Attempts that may have processes, according to the journal: from launch until their end is recorded.

Of several open attempts of a job only the first can have processes: the next starts once the journal has its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gavel.core.events import Launch
from gavel.core.facts import RoundPlanned
from gavel.core.serialization import from_plain, plain_record
from gavel.runtime.facts import AttemptClosed, Fact

CLOSED = 1_000
"""Ended attempts whose agents are remembered."""


class OpenAttempts:
    """By job and attempt number: the launch."""

    def __init__(self) -> None:
        self.by_job: dict[str, dict[int, Launch]] = {}
        self.holders: dict[tuple[str, int], Mapping[str, str]] = {}
        """By job and attempt: the agent of each of its servers at launch. Another agent may have the name since."""
        self.closed: dict[tuple[str, int], Mapping[str, str]] = {}
        """The same of attempts that ended last: their agents may still send the rest of a log."""

    def evolve(self, fact: Fact, agent_of: Mapping[str, str]) -> None:
        """Apply a fact; `agent_of` maps servers to their agents."""
        match fact:
            case RoundPlanned():
                for run in (*fact.moved, *fact.started):
                    for launch in run.launches(fact.until):
                        self.by_job.setdefault(launch.job, {})[launch.attempt] = launch
                        held = {server: agent_of[server] for server in launch.accelerators if server in agent_of}
                        self.holders[launch.job, launch.attempt] = held
            case AttemptClosed():
                self._close(fact.job, fact.attempt)
                attempts = self.by_job.get(fact.job, {})
                attempts.pop(fact.attempt, None)
                if not attempts:
                    self.by_job.pop(fact.job, None)
            case _:
                pass

    def _close(self, job: str, attempt: int) -> None:
        held = self.holders.pop((job, attempt), None)
        if held:
            self.closed[job, attempt] = held
            if len(self.closed) > CLOSED:
                del self.closed[next(iter(self.closed))]

    def holders_of(self, job: str, attempt: int) -> Mapping[str, str]:
        """The agent of each server of an open attempt."""
        return self.holders.get((job, attempt), {})

    def has(self, job: str, attempt: int) -> bool:
        return attempt in self.by_job.get(job, {})

    def __iter__(self) -> Iterator[tuple[str, list[Launch]]]:
        """Jobs with their open attempts, earliest first."""
        for job, attempts in self.by_job.items():
            yield job, [attempts[number] for number in sorted(attempts)]

    def document(self) -> list[dict[str, Any]]:
        opened = [
            {**plain_record(launch), "agents": dict(self.holders_of(job, launch.attempt))}
            for job, launches in self
            for launch in launches
        ]
        ended = [
            {"closed": True, "job": job, "attempt": attempt, "agents": dict(held)}
            for (job, attempt), held in self.closed.items()
        ]
        return [*opened, *ended]

    @classmethod
    def of(cls, document: Sequence[Mapping[str, Any]]) -> OpenAttempts:
        attempts = cls()
        for entry in document:
            if entry.get("closed"):
                attempts.closed[entry["job"], entry["attempt"]] = entry["agents"]
                continue
            launch = from_plain(Launch, {name: part for name, part in entry.items() if name != "agents"})
            attempts.by_job.setdefault(launch.job, {})[launch.attempt] = launch
            attempts.holders[launch.job, launch.attempt] = entry.get("agents", {})  # earlier versions stored only names
        return attempts
