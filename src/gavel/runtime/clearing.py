"""The fleet's part in removing checkpoints: which agent is asked for what and when, and what agents have answered.

It decides nothing about jobs: what is outstanding is in the journal before it comes here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from gavel.runtime.events import CheckpointsCleared
from gavel.runtime.messages import CheckpointsHandled, RemoveCheckpoints
from gavel.runtime.removals import Outstanding

MOST_AT_ONCE = 100
"""Removals in one message."""
REMIND_SECONDS = 60.0
"""An agent that has not answered, say because its disk is read-only, is asked again after this long."""


@dataclass(slots=True)
class Clearing:
    """Asks agents and collects what they answer, to be reported together."""

    outstanding: Outstanding = field(default_factory=Outstanding)
    _asked: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By agent: up to which number it was asked, and when."""
    _done: dict[str, int] = field(default_factory=dict)
    _removed: dict[str, None] = field(default_factory=dict)
    _kept: dict[str, str] = field(default_factory=dict)
    """Answers that have not been reported yet."""

    def order(self, agent: str, now: float, is_busy: Callable[[str], bool]) -> RemoveCheckpoints | None:
        """What to ask an agent now; None if there is nothing, or it was just asked. A busy job may have processes."""
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
        """A new connection begins: what was asked in the last one may not have arrived."""
        self._asked.pop(agent, None)

    def heard(self, agent: str, answer: CheckpointsHandled) -> None:
        """Take in what an agent has done."""
        self._done[agent] = max(answer.through, self._done.get(agent, 0))
        self._removed |= dict.fromkeys(answer.removed)
        self._kept |= answer.kept

    def report(self, now: float) -> CheckpointsCleared | None:
        """What agents have answered since the last report."""
        if not self._done:
            return None
        told = CheckpointsCleared(now, self._done, tuple(self._removed), self._kept)
        self._done, self._removed, self._kept = {}, {}, {}
        return told
