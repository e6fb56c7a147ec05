"""Attempts that may have processes, as the journal tells: from their launch until their end was recorded.

Of several open attempts of a job only the first can have processes: the next one starts when the journal has its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gavel.core.events import Launch
from gavel.core.facts import RoundPlanned
from gavel.core.serialization import from_plain, plain_record
from gavel.runtime.facts import AttemptClosed, Fact


class OpenAttempts:
    """By job and attempt number: what was launched."""

    def __init__(self) -> None:
        self.by_job: dict[str, dict[int, Launch]] = {}

    def evolve(self, fact: Fact) -> None:
        """Take in a fact."""
        match fact:
            case RoundPlanned():
                for run in (*fact.moved, *fact.started):
                    for launch in run.launches(fact.until):
                        self.by_job.setdefault(launch.job, {})[launch.attempt] = launch
            case AttemptClosed():
                attempts = self.by_job.get(fact.job, {})
                attempts.pop(fact.attempt, None)
                if not attempts:
                    self.by_job.pop(fact.job, None)
            case _:
                pass

    def has(self, job: str, attempt: int) -> bool:
        return attempt in self.by_job.get(job, {})

    def __iter__(self) -> Iterator[tuple[str, list[Launch]]]:
        """Jobs with their open attempts, the earliest first."""
        for job, attempts in self.by_job.items():
            yield job, [attempts[number] for number in sorted(attempts)]

    def document(self) -> list[dict[str, Any]]:
        return [plain_record(launch) for _, launches in self for launch in launches]

    @classmethod
    def of(cls, document: list[Mapping[str, Any]]) -> OpenAttempts:
        attempts = cls()
        for entry in document:
            launch = from_plain(Launch, entry)
            attempts.by_job.setdefault(launch.job, {})[launch.attempt] = launch
        return attempts
