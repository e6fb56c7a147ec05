"""Which agents were given parts of which attempts, and words about attempts that were refused.

It decides nothing about attempts: it only tells who may speak about one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

REMEMBERED = 20_000
"""Parts of attempts that are remembered, so that the last lines of a log are accepted after the end."""
LOG_SECONDS = 10.0
"""Refused words are logged at most this often."""
ANY_RANK = range(2**32)

Key = tuple[str, str, int]
"""Agent, job and attempt."""


class Holding:
    """The newest parts of attempts that agents were told to start."""

    def __init__(self) -> None:
        self._ranks: dict[Key, range] = {}

    def note(self, agent: str, job: str, attempt: int, ranks: range = ANY_RANK) -> None:
        """An agent is told to start these ranks."""
        self._ranks[agent, job, attempt] = ranks
        if len(self._ranks) > REMEMBERED:
            del self._ranks[next(iter(self._ranks))]

    def note_all(self, holders: Mapping[tuple[str, int], Mapping[str, str]]) -> None:
        """What the journal knows of attempts: the agent of each server, without ranks."""
        for (job, attempt), agents in holders.items():
            for agent in agents.values():
                self.note(agent, job, attempt)

    def has(self, agent: str, job: str, attempt: int, rank: int) -> bool:
        return rank in self._ranks.get((agent, job, attempt), ())


class RefusedWords:
    """Counts what agents said about attempts that are not theirs, and logs some of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        """By kind of message."""
        self._clock = clock
        self._logged_at: float | None = None

    def note(self, kind: str, agent: str, job: str, attempt: int) -> None:
        self.counts[kind] += 1
        now = self._clock()
        if self._logged_at is not None and 0.0 <= now - self._logged_at < LOG_SECONDS:
            return
        self._logged_at = now
        logger.warning(
            "refused: agent %.200s sent %s for job %.20s, attempt %d, which it may not; %d such messages so far",
            agent,
            kind,
            job,
            attempt,
            self.counts.total(),
        )
