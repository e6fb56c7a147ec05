"""Groups: classes with the same profile, solved as one, and how a group's answer is divided among its classes.

Classes of one profile differ only in what they are owed (their steps, their weight). Merged into a *group*, they ask
for the sum of what they need. This is a relaxation, so its bound also holds for the classes. If a group's throughput is
divided in proportion to need, all members run at the group's average rate, which is enough for every class that needs
no more than that. Classes that need more are set apart and solved as groups by themselves, so the answer is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.problem import Bools, Floats, Ints, Problem
from gavel.program.polytope import Polytope
from gavel.program.structure import Combos, Cuts

ROUNDING = 2e-10
"""A member that needs more than its group's average rate by less than this, relatively, is served at that rate."""


NEARLY = 0.98
"""If some members need more than the average rate, those that need at least this part of it leave the group, too:
once the first have left, the average is lower."""


@dataclass(frozen=True, slots=True, eq=False)
class ComboTimes:
    """The time that classes spend in combos; `second` is -1 where a class runs alone."""

    first: Ints
    second: Ints
    column: Ints
    instances: Floats
    rate: Floats
    second_rate: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """A partition of classes into groups, with the polytope of the groups."""

    polytope: Polytope
    of_class: Ints
    count: Floats
    """By class: the number of its members (jobs)."""
    merged: bool
    """Whether any group has several classes."""

    @classmethod
    def of(cls, problem: Problem, profile: Ints, count: Floats, label: Ints, cuts: Cuts) -> Grouping:
        """Merge the classes with the same label; labels are 0, 1, 2 … Cuts refer to classes."""
        groups = int(label.max(initial=-1)) + 1
        if groups == len(label):
            return cls(Polytope(problem, profile, count, cuts), np.arange(len(label)), count, merged=False)
        of_group = np.zeros(groups, dtype=np.intp)
        of_group[label] = profile
        total = np.asarray(np.bincount(label, weights=count, minlength=groups), dtype=np.float64)
        single = np.bincount(label) == 1
        cuts = frozenset((column, int(label[one])) for column, one in cuts if single[label[one]])
        return cls(Polytope(problem, of_group, total, cuts), label, count, merged=True)

    def mean(self, values: Floats) -> Floats:
        """By group: the mean over all members of its classes."""
        if not self.merged:
            return values
        return np.asarray(
            np.bincount(self.of_class, weights=values * self.count, minlength=len(self.polytope)) / self._size
        )

    def each(self, values: Floats) -> Floats:
        """By class: the value of its group."""
        return values[self.of_class] if self.merged else values

    def parts(self, values: Floats) -> Floats:
        """By class: its part of a value of its group, in proportion to its members."""
        return self.each(values / self._size) * self.count if self.merged else values

    @property
    def _size(self) -> Floats:
        return self.polytope.count

    def dealt(self, amounts: Floats, least: Floats) -> Floats:
        """By class: the steps per second of a member, at least `least` where the group's average rate allows it.

        What is left moves all members towards the average rate, by the same fraction of their distance to it.
        """
        throughput = self.polytope.throughput(amounts)
        if not self.merged:
            return throughput
        rate = self._rate(amounts, throughput)
        needed = self.mean(least)
        way = rate - needed
        gone = np.divide(throughput - needed, way, out=np.zeros(len(way)), where=way > 0)
        dealt = least + self.each(np.clip(gone, 0.0, 1.0)) * (self.each(rate) - least)
        dealt = np.where(self._alone, self.each(throughput), np.minimum(dealt, self.each(rate)))
        # Against rounding errors: no group gives out more than it has.
        given = self.mean(dealt)
        return np.asarray(dealt * self.each(np.divide(throughput, given, out=np.ones(len(given)), where=given > 0)))

    @property
    def _alone(self) -> Bools:
        """By class: whether it is a group by itself."""
        return np.asarray((np.bincount(self.of_class, minlength=len(self.polytope)) == 1)[self.of_class])

    def _rate(self, amounts: Floats, throughput: Floats) -> Floats:
        time = self.polytope.time(amounts)
        return np.divide(throughput, time, out=np.zeros(len(time)), where=time > 0)

    def needing_more(self, amounts: Floats, least: Floats) -> Bools:
        """By class: whether it needs more than its group's average rate, or a single job would share with itself."""
        if not self.merged:
            return np.zeros(len(self.of_class), dtype=bool)
        throughput = self.polytope.throughput(amounts)
        rate = self.each(self._rate(amounts, throughput))
        merged = ~self._alone
        late = merged & (least > rate * (1 + ROUNDING))
        if late.any():
            late = merged & (least > rate * NEARLY)
        c = self.polytope.combos
        used = (amounts > 0) & ((c.first == c.second) | ((c.pool >= 0) & (c.side == 0)))
        if used.any():
            inward = np.zeros(len(self.polytope), dtype=bool)
            inward[c.first[used]] = True
            total = self.dealt(amounts, least) * self.count
            group = np.bincount(self.of_class, weights=total, minlength=len(self.polytope))[self.of_class]
            late |= merged & inward[self.of_class] & (self.count == 1) & (total > 0.5 * group * (1 + ROUNDING))
        return np.asarray(late)

    def cuts(self, amounts: Floats) -> Cuts:
        """(Column, group) of groups of one job with more than half of the time in a pool of their own profile."""
        c, found = self.polytope.combos, set()
        inward = ((c.pool >= 0) & (c.side == 0)).nonzero()[0]
        if len(inward):
            time = (amounts * self.polytope.unit)[inward]
            total = np.bincount(c.pool[inward], weights=time)[c.pool[inward]]
            single = self.polytope.count[c.first[inward]] == 1
            for combo in inward[single & (time > 0.5 * total * (1 + 1e-9))].tolist():
                found.add((int(c.column[combo]), int(c.first[combo])))
        return frozenset(found)

    def spelled(self, amounts: Floats, throughput: Floats) -> ComboTimes:
        """The answer by class, with few entries, in which every class gets this throughput."""
        c, polytope = self.polytope.combos, self.polytope
        used = (amounts > 0).nonzero()[0]
        instances = (amounts * polytope.unit)[used]
        ends = [(c.first[used], c.rate[used], used, instances)]
        paired = c.second[used] >= 0
        ends.append((c.second[used][paired], c.second_rate[used][paired], used[paired], instances[paired]))
        group, rate, combo, time = (np.concatenate(part) for part in zip(*ends, strict=True))
        end = np.repeat([0, 1], [len(used), int(paired.sum())])
        owner, source, taken = self._shared_out(group, rate, time, throughput, inward=self._inward(combo))
        return _paired_off(c, owner, combo[source], end[source], taken, self.count == 1)

    def _inward(self, combo: Ints) -> Bools:
        """Which of these combos pair members of the same group with each other."""
        c = self.polytope.combos
        return np.asarray((c.first[combo] == c.second[combo]) | ((c.pool[combo] >= 0) & (c.side[combo] == 0)))

    def _shared_out(
        self, group: Ints, rate: Floats, time: Floats, throughput: Floats, inward: Bools
    ) -> tuple[Ints, Ints, Floats]:
        """Divide each group's time in each entry among its classes; return (class, entry, time) as columns."""
        if not self.merged:
            return group, np.arange(len(group)), time
        single = (np.bincount(self.of_class, minlength=len(self.polytope)) == 1)[group]
        class_of = np.zeros(len(self.polytope), dtype=np.intp)
        class_of[self.of_class] = np.arange(len(self.of_class))
        parts = [(class_of[group[single]], single.nonzero()[0], time[single])]
        members = np.argsort(self.of_class, kind="stable")
        begin = np.searchsorted(self.of_class[members], np.arange(len(self.polytope) + 1))
        for number in np.unique(group[~single]).tolist():
            entries = (group == number).nonzero()[0]
            classes = members[begin[number] : begin[number + 1]]
            due = throughput[classes] * self.count[classes]
            parts += [
                (classes[who], entries[what], much)
                for who, what, much in _one_after_another(
                    due, throughput[classes], rate[entries], time[entries], inward[entries]
                )
            ]
        owner, source, taken = (np.concatenate(part) for part in zip(*parts, strict=True))
        return owner, source, taken


def _one_after_another(
    due: Floats, pace: Floats, rate: Floats, time: Floats, inward: Bools
) -> list[tuple[Ints, Ints, Floats]]:
    """Divide the entries of one group among its classes: (class, entry, time) in parts.

    Classes take entries one after another, the highest pace taking the fastest entries, so that each class has few.
    A class that would need more time than it has takes a proportional part of every entry instead. If other classes
    are then still short, all classes do so except those that the slowest entry is fast enough for. Entries that pair
    members of the group with each other are always divided in proportion: no job may have more than half of them.
    """
    total = float(due.sum())
    if total <= 0:
        return []
    part = due / total
    everyone = np.arange(len(due))
    parts = [_outer(everyone, part, inward.nonzero()[0], time[inward])]
    apart = (~inward).nonzero()[0]
    if not len(apart):
        return parts
    late = np.zeros(len(due), dtype=bool)
    for _ in range(2):
        queue = _queued(everyone[~late], due, pace, rate, time, part, apart)
        spent = np.bincount(queue[0], weights=queue[2], minlength=len(due)) + part * float(time[inward].sum())
        short = spent * pace > due * (1 + 1e-9)  # it would need more time than all of its members have
        if not short.any():
            break
        late |= short
    else:
        late = pace > rate.min() * (1 - 1e-9)
        queue = _queued(everyone[~late], due, pace, rate, time, part, apart)
    return [*parts, _outer(everyone[late], part[late], apart, time[apart]), queue]


def _queued(
    who: Ints, due: Floats, pace: Floats, rate: Floats, time: Floats, part: Floats, apart: Ints
) -> tuple[Ints, Ints, Floats]:
    """Let some classes take their part of some entries one after another; return (class, entry, time) as columns."""
    who = who[np.argsort(-pace[who], kind="stable")]
    entry = apart[np.argsort(-rate[apart], kind="stable")]
    work = time[entry] * rate[entry] * float(part[who].sum())
    wanted, all_work = float(due[who].sum()), float(work.sum())
    if wanted <= 0 or all_work <= 0:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0)
    one, other, much = _overlaps(due[who] / wanted, work / all_work)
    return who[one], entry[other], much * all_work / rate[entry[other]]


def _outer(who: Ints, part: Floats, what: Ints, time: Floats) -> tuple[Ints, Ints, Floats]:
    return np.repeat(who, len(what)), np.tile(what, len(who)), np.outer(part, time).ravel()


def _overlaps(one: Floats, other: Floats) -> tuple[Ints, Ints, Floats]:
    """Lay two partitions of the same interval side by side: which parts overlap, and by how much.

    >>> [part.tolist() for part in _overlaps(np.array([0.5, 0.5]), np.array([0.25, 0.75]))]
    [[0, 0, 1], [0, 1, 1], [0.25, 0.25, 0.5]]
    """
    ends = np.cumsum(one), np.cumsum(other)
    marks = np.unique(np.concatenate([[0.0], *ends]))
    length, middle = np.diff(marks), (marks[1:] + marks[:-1]) / 2
    long = length > 1e-12 * marks[-1]
    which = (np.minimum(np.searchsorted(end, middle[long]), len(end) - 1) for end in ends)
    first, second = which
    return first, second, length[long]


def _paired_off(c: Combos, owner: Ints, combo: Ints, end: Ints, time: Floats, single: Bools) -> ComboTimes:
    """Turn the time of classes in combos into entries of one class alone or of two that share accelerators.

    `single` classes have one member.
    """
    pooled = c.pool[combo] >= 0
    shared = (c.second[combo] >= 0) | pooled
    alone, nothing = combo[~shared], np.zeros(int((~shared).sum()))
    parts = [
        ComboTimes(owner[~shared], np.full(len(alone), -1), c.column[alone], time[~shared], c.rate[alone], nothing)
    ]
    # Classes can share if they are the two ends of a pair, or in the same pool.
    meeting = np.where(pooled, len(c) + c.pool[combo], combo)
    order = shared.nonzero()[0][np.argsort(meeting[shared], kind="stable")]
    for here in np.split(order, np.flatnonzero(np.diff(meeting[order])) + 1) if len(order) else ():
        some = int(combo[here[0]])
        if c.first[some] == c.second[some] or (c.pool[some] >= 0 and c.side[some] == 0):
            who, beside, much = _ring(owner[here], time[here], single)
            rates = c.rate[some], c.rate[some]
        else:
            left = c.side[combo[here]] > 0 if c.pool[some] >= 0 else end[here] == 0
            one, other = here[left], here[~left]
            who, beside, much = _overlaps(time[one], time[other])
            who, beside = owner[one[who]], owner[other[beside]]
            rates = c.rate[combo[one[0]]], c.second_rate[some] if c.pool[some] < 0 else c.rate[combo[other[0]]]
        column, rate, second_rate = (np.full(len(who), value) for value in (c.column[some], *rates))
        parts.append(ComboTimes(who, beside, column, much, rate, second_rate))
    return ComboTimes(*(np.concatenate([getattr(part, name) for part in parts]) for name in ComboTimes.__slots__))


def _ring(owner: Ints, time: Floats, single: Bools) -> tuple[Ints, Ints, Floats]:
    """Pair classes of one profile: lay their times out around a ring; opposite points share accelerators.

    A class with more than half of the ring meets itself, which takes two of its members. What rounding gives a single
    job beyond half of the ring is dropped.
    """
    order = np.argsort(owner, kind="stable")
    owner, time = owner[order], time[order]
    half = float(time.sum()) / 2
    ends = np.cumsum(time)
    marks = np.unique(np.clip(np.concatenate([[0.0], ends, ends - half, [half]]), 0.0, half))
    length, middle = np.diff(marks), (marks[1:] + marks[:-1]) / 2
    long = length > 1e-12 * half
    here, opposite = (np.minimum(np.searchsorted(ends, middle[long] + by), len(ends) - 1) for by in (0.0, half))
    one, other = np.minimum(owner[here], owner[opposite]), np.maximum(owner[here], owner[opposite])
    two = (one != other) | ~single[one]
    return one[two], other[two], length[long][two]
