"""Record what the plots of a simulation need. Memory does not grow with the length of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gavel.core.events import (
    AllocationReady,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobsProgressed,
    JobSubmitted,
    RoundDue,
)
from gavel.core.problem import Floats
from gavel.core.serialization import read_items, to_plain
from gavel.sim.view import View

FINEST_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class Timeline:
    """The time average of some quantities in a fixed number of bins, which grow wider as time passes."""

    sums: Floats
    """Quantity x seconds in each bin; the last quantity is always 1, so its sum is the seconds seen."""
    width: float = FINEST_SECONDS
    start: float | None = None

    @classmethod
    def of(cls, quantities: int, *, bins: int) -> Timeline:
        """Create an empty timeline."""
        return cls(np.zeros((bins, quantities + 1)))

    def add(self, begin: float, end: float, values: Floats) -> None:
        """Add quantities that were constant over an interval."""
        if self.start is None:
            self.start = begin
        if end <= begin:
            return
        begin, end = begin - self.start, end - self.start
        bins = len(self.sums)
        while end > self.width * bins:
            merged = self.sums.reshape(bins // 2, 2, -1).sum(axis=1)
            self.sums = np.concatenate([merged, np.zeros_like(merged)])
            self.width *= 2
        first, last = int(begin // self.width), min(int(end // self.width), bins - 1)
        edges = np.clip(np.arange(first, last + 2) * self.width, begin, end)
        self.sums[first : last + 1] += np.diff(edges)[:, None] * np.append(values, 1.0)

    def averages(self, *, at_most: int) -> tuple[Floats, Floats]:
        """The edges, in seconds, of at most `at_most` bins, and the averages in each, shape (bins, quantities)."""
        used = int(np.count_nonzero(self.sums[:, -1]))
        together = max(-(-used // at_most), 1)
        rows = -(-used // together)
        padded = np.zeros((rows * together, self.sums.shape[1]))
        padded[:used] = self.sums[:used]
        sums = padded.reshape(rows, together, -1).sum(axis=1)
        edges = (self.start or 0.0) + np.append(0.0, np.cumsum(sums[:, -1]))
        return edges, sums[:, :-1] / np.maximum(sums[:, -1:], 1e-12)


@dataclass(frozen=True, slots=True)
class Segment:
    """An interval in which a job ran on one type."""

    job: str
    type_index: int
    begin: float
    end: float
    shared: bool
    """Whether the job shared its accelerators with another one."""


@dataclass(slots=True)
class Stretch:
    """Which jobs ran where over some rounds."""

    begin: float
    end: float
    rounds: int = 0
    job_rounds: int = 0
    """The number of active jobs, summed over the rounds."""
    segments: list[Segment] = field(default_factory=list)
    present: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By job: when it came and left, within the stretch."""
    finished: set[str] = field(default_factory=set)

    @property
    def crowd(self) -> float:
        """The average number of active jobs."""
        return self.job_rounds / max(self.rounds, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Dues:
    """A finished job: the shares of its time that it was allocated and that it received, by type."""

    target: Floats
    received: Floats
    rounds: float
    """The number of rounds from the job's first allocation to its end."""


MARKS = 24
STEPS = 400
"""The number of histogram bins for the deviation, which is between 0 and 2."""


@dataclass(slots=True, eq=False)
class Deviations:
    """How far received shares are from target shares, by the number of rounds since a job arrived: 1, 2, 4, 8 …"""

    counts: NDArray[np.int64]
    """By mark (the logarithm of the number of rounds) and histogram bin."""

    @classmethod
    def none(cls) -> Deviations:
        """Create empty counts."""
        return cls(np.zeros((MARKS, STEPS), dtype=np.int64))

    def add(self, mark: int, deviations: Floats) -> None:
        """Add the deviations of some jobs after 2 ** mark rounds."""
        steps = np.minimum((deviations * (STEPS / 2)).astype(np.intp), STEPS - 1)
        np.add.at(self.counts[min(mark, MARKS - 1)], steps, 1)

    def quantiles(self, *levels: float, at_least: int) -> tuple[Floats, Floats]:
        """Rounds, and the quantiles at each, shape (levels, marks), where at least `at_least` jobs were seen."""
        seen = self.counts.sum(axis=1)
        marks = np.flatnonzero(seen >= at_least)
        below = np.cumsum(self.counts[marks], axis=1) / seen[marks, None]
        found = [(below >= level).argmax(axis=1) * (2 / STEPS) for level in levels]
        return np.exp2(marks.astype(float)), np.array(found, dtype=float)


class Recorder:
    """Observes a simulation for its plots. Pass it to `run`; it becomes part of the report."""

    name = "plots"

    def __init__(
        self, *, bins: int = 2048, stretch_rounds: int = 96, stretch_jobs: int = 400, jobs: int = 3000, seed: int = 0
    ) -> None:
        self.types: tuple[str, ...] = ()
        self.capacity: Floats = np.zeros(0)
        """By type: the largest number of accelerators at any time."""
        self.timeline = Timeline.of(0, bins=bins)
        """Accelerators in use by type, then accelerators available by type, then running and waiting jobs."""
        self.deviations = Deviations.none()
        self.dues: list[Dues] = []
        """A random sample of finished jobs."""
        self.by_profile: dict[str, Floats] = {}
        """By profile number: accelerator-seconds of its finished jobs, (target, received) x type."""
        self.jobs_seen = 0
        self._bins, self._stretch_rounds, self._stretch_jobs, self._jobs = bins, stretch_rounds, stretch_jobs, jobs
        self._random = np.random.default_rng(seed)
        self._time = 0.0
        self._now: Floats = np.zeros(0)
        self._stretch: Stretch | None = None
        self._best: Stretch | None = None
        self._running: dict[str, tuple[int, bool, float]] = {}
        """By job: its type, whether it shares accelerators, and since when."""
        self._slots: dict[str, int] = {}
        self._shares_since = 0.0
        # By slot, as in the roster:
        self._share: Floats = np.zeros((0, 0))
        self._target: Floats = np.zeros((0, 0))
        self._received_before: Floats = np.zeros((0, 0))
        self._since: Floats = np.zeros(0)
        """When the job first had a target; NaN until then."""
        self._mark: Floats = np.zeros(0)
        """The logarithm of the number of rounds after which the job's deviation is recorded next."""

    def after(self, event: Event, view: View) -> None:
        """Record what an event changed."""
        if not self.types:
            self._begin(view.types)
        self.timeline.add(self._time, event.time, self._now)
        self._time = event.time
        match event:
            case JobsProgressed():
                return
            case JobSubmitted():
                self._arrived(event, view)
            case JobFinished() | JobCancelled():
                self._left(event, view, finished=isinstance(event, JobFinished))
            case JobFailed() if not event.retry:
                self._left(event, view, finished=False)
            case AllocationReady() if event.allocation is view.allocation:  # not the answer to an older question
                self._adopt(event, view)
            case RoundDue():
                self._look_at_deviations(event.time, view)
                self._count_round(event.time, view)
        self._look_at_runs(event.time, view)

    def dump(self) -> dict[str, Any]:
        """Everything that has been recorded, as plain data."""
        kept = {name: to_plain(getattr(self, name)) for name in KEPT}
        return kept | {"random": to_plain(self._random.bit_generator.state)}

    def restore(self, document: Any) -> None:
        """Continue from the dump of a recorder that was created with the same arguments."""
        kept = read_items(KEPT | {"random": Any}, document, "a recorder")
        self._random.bit_generator.state = kept.pop("random")
        for name, value in kept.items():
            setattr(self, name, value)

    def _begin(self, types: tuple[str, ...]) -> None:
        self.types = types
        type_count = len(types)
        self.capacity = np.zeros(type_count)
        self._now = np.zeros(2 * type_count + 2)
        self.timeline = Timeline.of(2 * type_count + 2, bins=self._bins)
        self._share, self._target, self._received_before = (np.zeros((0, type_count)) for _ in range(3))

    def _look_at_runs(self, time: float, view: View) -> None:
        running = {name: (type_index, shared, time) for name, type_index, shared in view.running()}
        available = view.available
        self.capacity = np.maximum(self.capacity, available)
        waiting = view.job_count - len(running)
        self._now = np.array([*view.busy, *available, len(running), waiting], dtype=float)
        for name, before in self._running.items():
            after = running.get(name)
            if after is not None and after[:2] == before[:2]:
                running[name] = before
            else:
                self._note(name, before, time)
        self._running = running

    # Which jobs ran where

    def _note(self, name: str, ran: tuple[int, bool, float], end: float) -> None:
        stretch = self._stretch
        if stretch is not None and name in stretch.present and end > max(ran[2], stretch.begin):
            stretch.segments.append(Segment(name, ran[0], max(ran[2], stretch.begin), end, ran[1]))

    def _count_round(self, time: float, view: View) -> None:
        stretch = self._stretch
        if stretch is None or time >= stretch.end:
            self._close_stretch(time)
            length = self._stretch_rounds * view.round_seconds
            self._stretch = stretch = Stretch(time, time + length)
            stretch.present = dict.fromkeys(islice(view.jobs, self._stretch_jobs), (time, np.inf))
        stretch.rounds += 1
        stretch.job_rounds += view.job_count

    def _close_stretch(self, time: float) -> None:
        """Keep the stretch with the most active jobs."""
        stretch = self._stretch
        if stretch is None:
            return
        for name, ran in self._running.items():
            self._note(name, ran, min(time, stretch.end))
        if self._best is None or stretch.crowd > self._best.crowd:
            self._best = stretch
        self._stretch = None

    def busiest_stretch(self) -> Stretch | None:
        """The rounds with the most active jobs; call it after the simulation has ended."""
        self._close_stretch(self._time)
        return self._best

    # Targets of jobs

    def _arrived(self, event: JobSubmitted, view: View) -> None:
        self._grow(view.slot_limit)
        slot = self._slots[event.job.id] = view.slot(event.job.id)
        self._share[slot] = self._target[slot] = 0.0
        self._since[slot], self._mark[slot] = np.nan, 0.0
        stretch = self._stretch
        if stretch is not None and len(stretch.present) < self._stretch_jobs:
            stretch.present[event.job.id] = (event.time, np.inf)

    def _grow(self, size: int) -> None:
        more = size - len(self._since)
        if more > 0:
            self._since, self._mark = (np.append(old, np.zeros(more)) for old in (self._since, self._mark))
            rows = np.zeros((more, len(self.types)))
            self._share, self._target, self._received_before = (
                np.concatenate([old, rows]) for old in (self._share, self._target, self._received_before)
            )

    def _settle(self, time: float) -> None:
        """Accumulate targets until now."""
        self._target += self._share * (time - self._shares_since)
        self._shares_since = time

    def _adopt(self, event: AllocationReady, view: View) -> None:
        allocation, shares = event.allocation, event.allocation.job_shares
        self._settle(event.time)
        slots = np.array([self._slots.get(name, -1) for name in allocation.problem.jobs.ids], dtype=np.intp)
        here = slots >= 0
        self._share[:] = 0.0
        self._share[slots[here]] = shares[here]
        fresh = slots[here][np.isnan(self._since[slots[here]])]
        self._since[fresh] = event.time
        self._target[fresh] = 0.0
        self._received_before[fresh] = view.received[fresh]

    def _left(self, event: JobFinished | JobCancelled | JobFailed, view: View, *, finished: bool) -> None:
        slot = self._slots.pop(event.job, None)
        if slot is None:
            return
        stretch = self._stretch
        if stretch is not None and event.job in stretch.present:
            stretch.present[event.job] = (stretch.present[event.job][0], event.time)
            if finished:
                stretch.finished.add(event.job)
        self._settle(event.time)
        age = event.time - float(self._since[slot])
        if finished and age > 0:
            self._keep(slot, view.received[slot] - self._received_before[slot], age, view)
        self._share[slot] = 0.0

    def _keep(self, slot: int, received: Floats, age: float, view: View) -> None:
        target = self._target[slot].copy()
        total = self.by_profile.setdefault(str(view.profile(slot)), np.zeros((2, len(self.types))))
        total += view.workers(slot) * np.stack([target, received])
        self.jobs_seen += 1
        at = len(self.dues) if len(self.dues) < self._jobs else int(self._random.integers(self.jobs_seen))
        if at < self._jobs:
            dues = Dues(target / age, received / age, age / view.round_seconds)
            self.dues[at : at + 1] = [dues]

    def _look_at_deviations(self, time: float, view: View) -> None:
        slots = view.slots
        with np.errstate(invalid="ignore"):
            ages = time - self._since[slots]
            due = ages >= 2.0 ** self._mark[slots] * view.round_seconds * (1 - 1e-9)
        if not due.any():
            return
        self._settle(time)
        slots, ages = slots[due], ages[due]
        received = view.received[slots] - self._received_before[slots]
        deviations = np.abs(received - self._target[slots]).sum(axis=1) / ages
        marks = np.floor(np.log2(ages / view.round_seconds) + 1e-9)
        for mark in np.unique(marks).tolist():
            self.deviations.add(int(mark), deviations[marks == mark])
        self._mark[slots] = marks + 1


KEPT: dict[str, Any] = {
    "types": tuple[str, ...],
    "capacity": Floats,
    "timeline": Timeline,
    "deviations": Deviations,
    "dues": list[Dues],
    "by_profile": dict[str, Floats],
    "jobs_seen": int,
    "_time": float,
    "_now": Floats,
    "_stretch": Stretch | None,
    "_best": Stretch | None,
    "_running": dict[str, tuple[int, bool, float]],
    "_slots": dict[str, int],
    "_shares_since": float,
    "_share": Floats,
    "_target": Floats,
    "_received_before": Floats,
    "_since": Floats,
    "_mark": Floats,
}
"""Attributes of a recorder that are dumped as they are, with their types."""
