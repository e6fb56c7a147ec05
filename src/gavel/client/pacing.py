"""The rate of steps: measured, for the scheduler's estimate, and limited, where the hardware is emulated."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_BEHIND_SECONDS = 0.25


class StepTally:
    """Steps done and the time they took. Written by the training thread; others may read any field at any time."""

    def __init__(self) -> None:
        self.steps = 0
        """Steps in the job's whole life."""
        self.saved = 0
        """How many of them a checkpoint holds."""
        self.measured = (0, 0.0)
        """Steps and their seconds since the start; one tuple, so that a reader sees both or neither."""
        self._ended: float | None = None

    def step(self, now: float) -> None:
        """Count a step that ended now. The first step, with everything before it, is warm-up and not measured."""
        self.steps += 1
        if self._ended is not None:
            steps, seconds = self.measured
            self.measured = (steps + 1, seconds + now - self._ended)
        self._ended = now

    def leave_out(self, seconds: float) -> None:
        """Exclude time that was not spent on steps, such as saving."""
        if self._ended is not None:
            self._ended += seconds


@dataclass
class Pace:
    """A schedule of when steps may end: the n-th at `start` + n / `rate`, so that late wake-ups do not add up."""

    rate: float
    start: float
    steps: int = 0

    def seconds_left(self, now: float) -> float:
        """Return how much longer the current step must last."""
        due = self.start + (self.steps + 1) / self.rate
        if now > due + _MOST_BEHIND_SECONDS:  # the work itself is slower: do not catch up
            self.start, self.steps = now - 1 / self.rate, 0
        return max(0.0, due - now)

    def step(self) -> None:
        self.steps += 1
