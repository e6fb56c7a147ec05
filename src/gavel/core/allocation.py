"""An Allocation: the share of time of every combo on every type, with the certificate that says how good it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, overload

import numpy as np

from gavel.core.locality import Locality
from gavel.core.problem import Classes, Floats, Ints, Problem

SATURATED = 1.0 - 1e-6

LimitKind = Literal["saturated", "bottlenecked", "gangs", "not_runnable", "declined"]


def gang_row(type_name: str, workers: int) -> str:
    """The name of the row that limits gangs of this size or larger on one server each.

    >>> gang_row("v100", 4)
    'v100: gangs of 4'
    """
    return f"{type_name}: gangs of {workers}"


@dataclass(frozen=True, slots=True)
class Limit:
    """Why a job does not get more."""

    kind: LimitKind
    type: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case "saturated":
                return "has all of its time"
            case "bottlenecked":
                return f"limited by {self.type}"
            case "gangs":
                return f"limited by room for gangs on one {self.type} server"
            case "not_runnable":
                return f"cannot run: {self.reason}"
            case "declined":
                return "the policy gains nothing by running it more"


StageKind = Literal["level", "total", "ratio", "charge"]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One optimum on the way to an allocation, and the duals that prove it by weak duality.

    For every job of w workers alone on a type: worth x rate <= time + w x price of the type (plus that of any
    limit that it counts towards), with equality where it has a share. Hence, in every valid allocation, throughputs,
    each times its worth, add up to at most all resources at their prices.
    """

    kind: StageKind
    """What was optimised: a level that all classes reach, a total, a ratio of total to charge, or the least charge."""
    value: float
    bound: float
    prices: Mapping[str, float]
    """By coupling row: the price of one more accelerator of a type, or of room for one more consolidated gang."""
    worth: Floats
    """By class: the worth of one step per second of a member."""
    time: Floats
    """By class: the price of all the time of a member."""
    stopped: Ints
    """The classes that stop in this stage: they gain nothing more after it."""

    @property
    def gap(self) -> float:
        """Relative distance between value and bound."""
        return abs(self.bound - self.value) / max(abs(self.value), abs(self.bound), 1e-300)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stage):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in Stage.__slots__)

    __hash__ = None  # type: ignore[assignment] # arrays have no hash


class Stages(Sequence[Stage]):
    """Stages that are computed on first access: most allocations are never explained."""

    def __init__(self, work_out: Callable[[], tuple[Stage, ...]]) -> None:
        self._work_out = work_out

    @cached_property
    def _stages(self) -> tuple[Stage, ...]:
        return self._work_out()

    def __len__(self) -> int:
        return len(self._stages)

    @overload
    def __getitem__(self, index: int) -> Stage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Stage, ...]: ...
    def __getitem__(self, index: int | slice) -> Stage | tuple[Stage, ...]:
        return self._stages[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._stages == tuple(other)

    __hash__ = None  # type: ignore[assignment] # arrays have no hash

    def __repr__(self) -> str:
        return repr(self._stages)


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good an allocation is: by weak duality, no allocation is better than `bound`."""

    objective: float
    bound: float
    prices: Mapping[str, float]
    """By type: how much the objective would improve with one more accelerator."""
    minimised: bool = False
    unmet: tuple[str, ...] = ()
    """Jobs whose deadline cannot be met."""
    notes: tuple[str, ...] = field(default=())
    stages: Sequence[Stage] = field(default=())
    """One stage for each successive optimum; together they prove the bound."""

    @property
    def gap(self) -> float:
        """Relative distance between objective and bound; 0 is optimal."""
        if self.objective == self.bound:
            return 0.0
        distance = self.objective - self.bound if self.minimised else self.bound - self.objective
        return max(distance, 0.0) / max(abs(self.objective), abs(self.bound))


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """The shares of one combo: one job, or two that share accelerators."""

    jobs: tuple[str, ...]
    shares: Mapping[str, float]
    consolidated: Mapping[str, float]
    """By type: the part of the share that assumes a consolidated placement; empty if placement does not matter."""


@dataclass(frozen=True, eq=False)
class Allocation:
    """Shares by combo and type, stored by class; `rows`, `throughput` and `limits` give them by job."""

    problem: Problem
    policy: str
    classes: Classes
    combos: Ints
    """Shape (combos, 2): the one or two classes that run; -1 if there is no second."""
    instances: Floats
    """Shape (combos, columns): how many jobs or pairs of this combo run there at once, on average."""
    rates: Floats
    """Shape (combos, 2, columns): true steps per second of each member."""
    certificate: Certificate

    def __post_init__(self) -> None:
        # The last bit of a sum depends on the memory layout of arrays. With a fixed layout, an allocation that is
        # stored and read again gives exactly the same sums.
        for name in ("combos", "instances", "rates"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name)))

    def with_certificate(self, certificate: Certificate) -> Allocation:
        """The same allocation with another certificate; cached throughputs are kept."""
        other = replace(self, certificate=certificate)
        vars(other)["class_throughput"] = self.class_throughput
        return other

    @cached_property
    def class_throughput(self) -> Floats:
        """By class: steps per second of a member."""
        done = (self.instances * self.rates[:, 0]).sum(axis=1)
        total = np.bincount(self.combos[:, 0], weights=done, minlength=len(self.classes))
        paired = self.combos[:, 1] >= 0
        if paired.any():
            done = (self.instances * self.rates[:, 1])[paired].sum(axis=1)
            np.add.at(total, self.combos[paired, 1], done)
        return total / self.classes.count

    @cached_property
    def class_time(self) -> Floats:
        """By class: the share of its time that a member runs, on any type."""
        total = np.zeros(len(self.classes))
        for member in (0, 1):
            present = self.combos[:, member] >= 0
            np.add.at(total, self.combos[present, member], self.instances[present].sum(axis=1))
        return total / self.classes.count

    @cached_property
    def class_shares(self) -> Floats:
        """By class and type: the share of its time that a member runs there, alone or in a pair."""
        total = np.zeros((len(self.classes), len(self.problem.types)))
        for member in (0, 1):
            present = self.combos[:, member] >= 0
            for column, type_index in enumerate(self.problem.column_type.tolist()):
                np.add.at(total[:, type_index], self.combos[present, member], self.instances[present, column])
        return total / self.classes.count[:, None]

    @cached_property
    def busy(self) -> Floats:
        """By type: accelerators in use, on average."""
        workers = self.problem.profiles.workers[self._class_profile[self.combos[:, 0]]]
        by_column = (self.instances * workers[:, None]).sum(axis=0)
        busy = np.zeros(len(self.problem.types))
        np.add.at(busy, self.problem.column_type, by_column)
        return busy

    @property
    def job_throughput(self) -> Floats:
        """Steps per second of every job, in the problem's order."""
        return self.class_throughput[self.classes.of_job]

    @property
    def job_shares(self) -> Floats:
        """By job and type, in the problem's order: the share of its time there, alone or in a pair."""
        return self.class_shares[self.classes.of_job]

    @property
    def throughput(self) -> dict[str, float]:
        """Steps per second of every job."""
        return dict(zip(self.problem.jobs.ids, self.job_throughput.tolist(), strict=True))

    @cached_property
    def stage_of(self) -> Ints:
        """By class: the stage in which it stops, counted from 0; -1 for classes that stop in none."""
        found = np.full(len(self.classes), -1, dtype=np.intp)
        for number, stage in enumerate(self.certificate.stages):
            found[stage.stopped] = number
        return found

    def limits(self) -> dict[str, Limit]:
        """What limits every job."""
        limits = self.class_limits
        return {
            name: limits[index] for name, index in zip(self.problem.jobs.ids, self.classes.of_job.tolist(), strict=True)
        }

    @cached_property
    def class_limits(self) -> list[Limit]:
        """What limits the members of each class."""
        full = self.busy >= self.problem.counts * SATURATED
        return [self._limit(index, full) for index in range(len(self.classes))]

    def _limit(self, index: int, full: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Limit:
        profile = int(self._class_profile[index])
        if not self.problem.runnable[profile]:
            return Limit("not_runnable", reason=self.problem.why_not_runnable(profile))
        if self.class_time[index] >= SATURATED:
            return Limit("saturated")
        if (crowded := self._crowded(index)) is not None:
            return Limit("gangs", type=crowded)
        rates = np.where(full, self.problem.type_rates[profile], 0.0)
        if rates.any():
            return Limit("bottlenecked", type=self.problem.types[int(rates.argmax())].name)
        return Limit("declined")

    def _crowded(self, index: int) -> str | None:
        """The type on which a class pays more for being consolidated than for its accelerators, if there is one."""
        workers = int(self.problem.profiles.workers[self._class_profile[index]])
        stage = int(self.stage_of[index])
        if workers == 1 or stage < 0:
            return None
        prices = self.certificate.stages[stage].prices
        for accelerator_type in self.problem.types:
            rows = (
                (gang_row(accelerator_type.name, size) for size in range(2, workers + 1))
                if accelerator_type.servers
                else ()
            )
            if sum(prices.get(row, 0.0) for row in rows) > workers * prices.get(accelerator_type.name, 0.0):
                return accelerator_type.name
        return None

    @property
    def _class_profile(self) -> Ints:
        return self.problem.jobs.profile[self.classes.first]

    def rows(self) -> Iterator[AllocationRow]:
        """Every combo of jobs with its shares; single jobs are always listed, pairs only if they have a share."""
        combos, shares = self.job_combos()
        for jobs, each in zip(combos, shares, strict=True):
            yield self._row(jobs, each)

    def job_combos(self) -> tuple[list[tuple[int, ...]], Floats]:
        """The combos as job numbers in the problem's order, first all single jobs and then pairs, and shares by column.

        The members of a class are equal. Where two classes share accelerators, members are paired in order, so
        that each gets its share with as few pairs as possible.
        """
        alone = np.zeros((len(self.classes), len(self.problem.columns)))
        single = self.combos[:, 1] < 0
        np.add.at(alone, self.combos[single, 0], self.instances[single])
        alone /= self.classes.count[:, None]
        jobs: list[tuple[int, ...]] = [(job,) for job in range(len(self.classes.of_job))]
        shares = [alone[self.classes.of_job]]
        sharing = (~single & self.instances.any(axis=1)).nonzero()[0]
        if len(sharing):
            members = np.split(np.argsort(self.classes.of_job, kind="stable"), np.cumsum(self.classes.count)[:-1])
            for (a, b), amounts in zip(self.combos[sharing].tolist(), self.instances[sharing], strict=True):
                pairs = list(pair_off(members[a], members[b]))
                jobs += [(min(one, other), max(one, other)) for one, other, _ in pairs]
                shares.append(amounts * np.array([[part] for _, _, part in pairs]))
        return jobs, np.concatenate(shares)

    def _row(self, jobs: tuple[int, ...], shares: Floats) -> AllocationRow:
        names = [t.name for t in self.problem.types]
        totals = dict.fromkeys(names, 0.0)
        together: dict[str, float] = {}
        for column, share in zip(self.problem.columns, shares.tolist(), strict=True):
            totals[names[column.type_index]] += share
            if column.locality is Locality.SERVER and share > 0:
                together[names[column.type_index]] = share
        return AllocationRow(tuple(self.problem.jobs.ids[job] for job in jobs), totals, together)


def pair_off(first: Ints, second: Ints) -> Iterator[tuple[int, int, float]]:
    """Split one unit of shared time into pairs of members so that all members of a side get the same time.

    >>> list(pair_off(np.array([1]), np.array([2, 3])))
    [(1, 2, 0.5), (1, 3, 0.5)]
    >>> [pair[:2] for pair in pair_off(np.array([1, 2, 3]), np.array([1, 2, 3]))]
    [(1, 2), (2, 3), (1, 3)]
    """
    if len(first) == len(second) and (first == second).all():
        n = len(first)
        links = [(i, (i + 1) % n) for i in range(n)] if n > 2 else [(0, 1)]
        for i, j in links:
            yield int(first[min(i, j)]), int(first[max(i, j)]), 1.0 / len(links)
        return
    marks = np.union1d(np.arange(len(first) + 1) / len(first), np.arange(len(second) + 1) / len(second))
    for begin, end in pairwise(marks.tolist()):
        if end - begin > 1e-12:
            middle = (begin + end) / 2
            yield int(first[int(middle * len(first))]), int(second[int(middle * len(second))]), end - begin
