"""The fleet's part in removing checkpoints: what to ask each agent and when, and what agents have answered.

It decides nothing about jobs: outstanding removals are in the journal before they come here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from gavel.runtime.events import CheckpointsCleared
from gavel.runtime.messages import CheckpointsHandled, RemoveCheckpoints
from gavel.runtime.removals import Outstanding

MOST_AT_ONCE = 100
"""Most removals in one message."""
REMIND_SECONDS = 60.0
"""An agent that has not answered, for example because its disk is read-only, is asked again after this long."""


@dataclass(slots=True)
class Clearing:
    """Asks agents and collects their answers, to be reported together."""

    outstanding: Outstanding = field(default_factory=Outstanding)
    _asked: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By agent: the last removal it was asked for, and when."""
    _done: dict[str, int] = field(default_factory=dict)
    _removed: dict[str, None] = field(default_factory=dict)
    _kept: dict[str, str] = field(default_factory=dict)
    """Answers that have not been reported yet."""

    def order(self, agent: str, now: float, is_busy: Callable[[str], bool]) -> RemoveCheckpoints | None:
        """What to ask an agent now; None if nothing, or if it was just asked. Busy jobs may still have processes."""
        if not self.outstanding.jobs or agent in self._done:
            return None
        due = self.outstanding.of(agent)[:MOST_AT_ONCE]
        due = list(takewhile(lambda removal: not is_busy(removal[1]), due))
        if not due:
            return None
        last = due[-1][0]
        asked, when = self._asked.get(agent, (0, 0.0))
        if last <= asked and now - when < REMIND_SECONDS:
            return None
        self._asked[agent] = last, now
        return RemoveCheckpoints(tuple(due))

    def forget(self, agent: str) -> None:
        """Start over for a new connection: what was asked in the last one may not have arrived."""
        self._asked.pop(agent, None)

    def heard(self, agent: str, answer: CheckpointsHandled) -> None:
        """Record an agent's answer; what it says about jobs that are not its to remove does not count."""
        asked = {job for number, job in self.outstanding.of(agent) if number <= answer.through}
        self._done[agent] = max(answer.through, self._done.get(agent, 0))
        self._removed |= dict.fromkeys(job for job in answer.removed if job in asked)
        self._kept |= {job: reason for job, reason in answer.kept.items() if job in asked}

    def report(self, now: float) -> CheckpointsCleared | None:
        """The answers of agents since the last report."""
        if not self._done:
            return None
        told = CheckpointsCleared(now, self._done, tuple(self._removed), self._kept)
        self._done, self._removed, self._kept = {}, {}, {}
        return told
