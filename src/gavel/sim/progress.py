"""The steps that running jobs make, in arrays, so that counting them is cheap even for many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gavel.core.problem import Floats, Ints

ROUNDING_SECONDS = 1.0
"""Counting steps in different pieces moves a finish time by less than this."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgressState:
    """Running jobs in a dump. Positions are part of it, because steps are reported in their order."""

    places: Mapping[str, int]
    spare: tuple[int, ...]
    launches: int
    launch: Ints
    """The launch number of each running job; like all columns, in the order of `places`."""
    since: Floats
    rate: Floats
    left: Floats
    unheard: Floats


Names = npt.NDArray[np.object_]


class RunningJobs:
    """Running jobs: since when and at which rate they make steps, and how many are left."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        """The position of each job in the arrays."""
        self._names: Names = np.zeros(0, dtype=object)
        self._spare: list[int] = []
        self._launches = 0
        self._launch: Ints = np.zeros(0, dtype=np.intp)
        """The launch number of the job."""
        self._since: Floats = np.zeros(0)
        """The time up to which the job's steps are counted; infinite at unused positions."""
        self._rate: Floats = np.zeros(0)
        self._left: Floats = np.zeros(0)
        self._unheard: Floats = np.zeros(0)
        """Steps that are counted but not yet reported by `count`."""
        self._counted = -np.inf
        """The time up to which all steps are reported; jobs that begin later make no steps before it."""
        self._soonest: float | None = None
        """A lower bound, up to rounding, on the time at which a job finishes next; None if unknown."""

    def dump(self) -> ProgressState:
        """The complete state, for a dump."""
        at = list(self._place.values())
        columns = (column[at] for column in (self._launch, self._since, self._rate, self._left, self._unheard))
        return ProgressState(dict(self._place), tuple(self._spare), self._launches, *columns)  # type: ignore[arg-type]

    @classmethod
    def restored(cls, state: ProgressState) -> RunningJobs:
        """Restore the progress from a dump."""
        progress, at = cls(), list(state.places.values())
        while len(progress._names) < len(at) + len(state.spare):
            progress._grow()
        progress._place, progress._spare, progress._launches = dict(state.places), list(state.spare), state.launches
        for job, place in state.places.items():
            progress._names[place] = job
        progress._launch[at], progress._since[at], progress._rate[at] = state.launch, state.since, state.rate
        progress._left[at], progress._unheard[at] = state.left, state.unheard
        return progress

    def begin(self, job: str, since: float, rate: float, left: float) -> None:
        """Start a job at this rate."""
        if not self._spare:
            self._grow()
        self._soonest = None
        at = self._place[job] = self._spare.pop()
        self._names[at] = job
        self._launches += 1
        self._launch[at], self._since[at] = self._launches, since
        self._rate[at], self._left[at], self._unheard[at] = rate, left, 0.0

    def end(self, job: str) -> float:
        """Remove a job; return the steps left at the last `count`. Steps made since then are lost."""
        at = self._place.pop(job)
        self._since[at] = np.inf
        self._spare.append(at)
        return float(self._left[at] + self._unheard[at])

    def settle(self, job: str, time: float) -> float:
        """Count a job's steps until now; return those that `count` has not reported."""
        at = self._place[job]
        done = float(self._unheard[at])
        self._unheard[at] = 0.0
        if time > self._since[at]:
            made = min((time - self._since[at]) * self._rate[at], self._left[at])
            self._left[at] -= made
            self._since[at] = time
            done += float(made)
        return done

    def count(self, time: float) -> tuple[list[str], Floats]:
        """The jobs that have made steps since the last call, and how many."""
        if time == self._counted:
            return [], np.zeros(0)
        self._counted = time
        at = (self._since < time).nonzero()[0]
        done = np.minimum((time - self._since[at]) * self._rate[at], self._left[at])
        self._left[at] -= done
        self._since[at] = time
        steps = done + self._unheard[at]
        self._unheard[at] = 0.0
        jobs: list[str] = self._names[at].tolist()
        return jobs, steps

    def ends(self, until: float) -> list[tuple[float, str]]:
        """The jobs that will finish by then, and when, in order of launch."""
        if self._soonest is not None and self._soonest > until + ROUNDING_SECONDS:
            return []  # the finish time of a job that continues does not change as time passes
        with np.errstate(divide="ignore", invalid="ignore"):
            end = self._since + self._left / self._rate
        self._soonest = float(end.min(where=self._rate > 0, initial=np.inf))
        due = ((end <= until) & (self._rate > 0)).nonzero()[0]
        return [(float(end[at]), self._names[at]) for at in due[self._launch[due].argsort()].tolist()]

    def change_rate(self, job: str, time: float, rate: float) -> float:
        """Continue a job at another rate; return when it will finish."""
        self._soonest = None
        at = self._place[job]
        if time > self._since[at]:
            done = min((time - self._since[at]) * self._rate[at], self._left[at])
            self._left[at] -= done
            self._unheard[at] += done
            self._since[at] = time
        self._rate[at] = rate
        return float(self._since[at] + self._left[at] / rate) if rate > 0 else np.inf

    def _grow(self) -> None:
        size = len(self._names)
        more = max(size, 64)
        self._names = np.concatenate([self._names, np.full(more, "", dtype=object)])
        self._spare += range(size + more - 1, size - 1, -1)
        self._launch = np.concatenate([self._launch, np.zeros(more, dtype=np.intp)])
        self._since = np.concatenate([self._since, np.full(more, np.inf)])
        self._rate, self._left, self._unheard = (
            np.concatenate([old, np.zeros(more)]) for old in (self._rate, self._left, self._unheard)
        )
