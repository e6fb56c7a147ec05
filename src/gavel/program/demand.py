"""Demands: the throughput that every class must receive at a given level. They define an egalitarian objective.

A demand rises with the level. Max-min fairness, makespan, finish-time fairness and water filling differ only here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gavel.program.lp import Floats


class Demand(Protocol):
    """The throughput that each class needs, as a non-decreasing function of the level."""

    def at(self, level: float) -> Floats:
        """The throughput that each class needs at this level."""

    def slope(self, level: float) -> Floats:
        """The derivative of those throughputs by the level."""

    def reached(self, throughput: Floats) -> float:
        """The highest level at which these throughputs are enough."""

    def ceiling(self, reach: Floats) -> float:
        """The highest level at which no class needs more than its reach."""


@dataclass(frozen=True, slots=True, eq=False)
class Proportional:
    """Throughput in proportion to the level: max-min fairness, and makespan with the level 1/seconds."""

    per_level: Floats

    def at(self, level: float) -> Floats:
        return self.per_level * level

    def slope(self, level: float) -> Floats:  # noqa: ARG002 - the same at every level
        return self.per_level

    def reached(self, throughput: Floats) -> float:
        asked = self.per_level > 0
        return float((throughput[asked] / self.per_level[asked]).min(initial=np.inf))

    def ceiling(self, reach: Floats) -> float:
        return self.reached(reach)


@dataclass(frozen=True, slots=True, eq=False)
class FinishTime:
    """Finish-time fairness: the level is minus rho, the worst ratio of (age + time left) to the same if isolated."""

    steps: Floats
    age: Floats
    isolated_seconds: Floats

    def at(self, level: float) -> Floats:
        left = -level * self.isolated_seconds - self.age
        return np.asarray(np.divide(self.steps, left, out=np.full(len(left), np.inf), where=left > 0))

    def slope(self, level: float) -> Floats:
        left = -level * self.isolated_seconds - self.age
        return np.asarray(self.steps * self.isolated_seconds / left**2)

    def reached(self, throughput: Floats) -> float:
        with np.errstate(divide="ignore"):
            rho = (self.age + self.steps / throughput) / self.isolated_seconds
        return -float(np.max(rho, initial=-np.inf))

    def ceiling(self, reach: Floats) -> float:
        return self.reached(reach)


@dataclass(frozen=True, slots=True, eq=False)
class Capped:
    """Each class rises from `start` at its own speed until it reaches `cap`: one stage of flat water filling."""

    start: Floats
    speed: Floats
    cap: Floats

    def at(self, level: float) -> Floats:
        return np.minimum(self.start + self.speed * level, np.maximum(self.cap, self.start))

    def slope(self, level: float) -> Floats:
        return np.where(self.start + self.speed * level < self.cap, self.speed, 0.0)

    def reached(self, throughput: Floats) -> float:
        rising = (self.speed > 0) & (throughput < self.cap)
        headroom = np.maximum(throughput - self.start, 0.0)[rising] / self.speed[rising]
        return float(np.min(headroom, initial=self.top))

    @property
    def top(self) -> float:
        """The level at which the last class reaches its cap."""
        rising = self.speed > 0
        return float(np.max((self.cap - self.start)[rising] / self.speed[rising], initial=0.0))

    def ceiling(self, reach: Floats) -> float:  # noqa: ARG002 - the caps are the reach
        return self.top


Speeds = Callable[[NDArray[np.bool_]], Floats]
"""From the classes that can still rise to the speed of each class."""


@dataclass(frozen=True, eq=False)
class Path:
    """Classes rise at speeds that are redealt whenever one reaches its cap: one stage of hierarchical water filling.

    A piecewise-linear path, followed until `affordable` says that the cluster cannot go further.
    """

    start: Floats
    active: NDArray[np.bool_]
    speeds: Speeds
    cap: Floats
    affordable: Callable[[Floats], bool]

    @cached_property
    def segments(self) -> list[tuple[float, Floats, Floats]]:
        """(level, position, speed) at the beginning of each segment; the last one has speed 0."""
        level, position, active = 0.0, self.start, self.active.copy()
        segments: list[tuple[float, Floats, Floats]] = []
        while True:
            speed = self.speeds(active)
            rising = speed > 0
            segments.append((level, position, speed))
            if not rising.any() or not self.affordable(position):
                segments.append((level, position, np.zeros_like(position)))
                return segments
            room = np.where(rising, (self.cap - position) / np.where(rising, speed, 1.0), np.inf)
            length = max(float(room.min()), 0.0)
            position = np.where(room <= length * (1 + 1e-12), self.cap, position + speed * length)
            level += length
            active = active & (position < self.cap)

    def at(self, level: float) -> Floats:
        begin, position, speed = self._segment(level)
        return position + speed * max(level - begin, 0.0)

    def slope(self, level: float) -> Floats:
        return self._segment(level)[2]

    def _segment(self, level: float) -> tuple[float, Floats, Floats]:
        index = int(np.searchsorted([begin for begin, _, _ in self.segments], level, side="left"))
        return self.segments[max(index - 1, 0)]

    def reached(self, throughput: Floats) -> float:
        have = np.maximum(throughput, self.start)  # every class has at least where it began
        for begin, position, speed in reversed(self.segments):
            if (position <= have).all():
                rising = speed > 0
                further = (have - position)[rising] / speed[rising]
                return begin + max(float(np.min(further, initial=np.inf)), 0.0) if rising.any() else begin
        return 0.0

    def ceiling(self, reach: Floats) -> float:  # noqa: ARG002 - the caps are the reach
        return self.segments[-1][0]
