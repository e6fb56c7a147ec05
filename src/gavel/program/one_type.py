"""Programs in which each class has one column and all share one row, as in a cluster of one type. Solved by sorting.

    maximise  c.x or L,   t x <= T,   g x >= f + d L,   a.x <= b,   by class, 0 <= L <= 1.

The level can rise until the row is full, or until a class has all of its time. Without a level, classes are served in
the order of gain per unit of the row (a fractional knapsack).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.program.lp import Floats, Lp, LpSolution, SolverFailed
from gavel.program.rows import Rows

SLIGHTLY = 1e-9
"""Floors that exceed the capacity by at most this exceed it by rounding."""
EQUALLY = 1e-9
"""Classes whose gains differ by less than this, relatively, are equals."""


def fits(lp: Lp) -> bool:
    """Whether a program has this form."""
    raises_and_fills = lp.has_level and lp.cost[:-1].any()
    one_way_each = lp.grid is not None and lp.matrix.shape[1] == lp.classes + 1
    return one_way_each and len(lp.rows.names) == 1 and not raises_and_fills


def solve(lp: Lp) -> LpSolution:
    """Solve a program that fits."""
    line = _Line.of(lp)
    if (line.least > line.most + SLIGHTLY).any() or line.room < -SLIGHTLY:
        raise SolverFailed("the floors ask for more than the capacity")
    return line.raised() if lp.has_level else line.filled(lp.cost[:-1])


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """The program as arrays, by class unless stated otherwise."""

    time: Floats
    """The time of the class that one unit of its amount takes."""
    gain: Floats
    taken: Floats
    """The part of the shared row that one unit takes."""
    floor: Floats
    rise: Floats
    """The slope of the floor by the level."""
    most: Floats
    """The amount at which a class has all of its time."""
    capacity: float
    """The capacity of the shared row."""

    @classmethod
    def of(cls, lp: Lp) -> _Line:
        rows, rhs, data, begin = lp.rows, lp.rhs, lp.matrix.data, lp.matrix.places.indptr[: lp.classes + 1]
        time, gain, taken = (data[at] for at in rows.own(begin[:-1]))
        most, capacity = rhs[rows.times] / time, float(rhs[rows.types.start])
        return cls(time, -gain, taken, -rhs[rows.floors], data[begin[-1] :], most, capacity)

    @property
    def least(self) -> Floats:
        return self.floor / self.gain

    @property
    def room(self) -> float:
        """The capacity that the floors leave."""
        return float(self.capacity - self.taken @ self.least)

    def raised(self) -> LpSolution:
        """The highest level."""
        per_level = self.rise / self.gain
        rising = per_level > 0
        headroom = np.full(len(rising), np.inf)
        headroom[rising] = (self.most - self.least)[rising] / per_level[rising]
        taken = float(self.taken @ per_level)
        affordable = self.room / taken if taken > 0 else np.inf
        first = int(headroom.argmin())
        level = max(min(1.0, affordable, float(headroom[first])), 0.0)
        price, time_price, floor_price = 0.0, np.zeros(len(rising)), np.zeros(len(rising))
        if affordable <= min(headroom[first], 1.0):
            price = 1.0 / taken
            floor_price = price * self.taken / self.gain
        elif headroom[first] <= 1.0:
            floor_price[first] = 1.0 / self.rise[first]
            time_price[first] = self.gain[first] * floor_price[first] / self.time[first]
        return _solution(self.least + per_level * level, level, time_price, floor_price, price)

    def filled(self, cost: Floats) -> LpSolution:
        """The largest total gain: classes in the order of gain per unit of the row; equals share."""
        amount, worth = np.minimum(self.least, self.most), cost / self.taken
        wanted, room = np.where(worth > 0, self.taken * (self.most - amount), 0.0), max(self.room, 0.0)
        ranked = np.argsort(-worth, kind="stable")
        short = (wanted[ranked].cumsum() > room).nonzero()[0]
        price = float(worth[ranked[short[0]]]) if len(short) else 0.0
        first, equal = worth > price * (1 + EQUALLY), np.abs(worth - price) <= price * EQUALLY
        left = max(room - float(wanted[first].sum()), 0.0)
        share = min(left / max(float(wanted[equal].sum()), 1e-300), 1.0)
        amount += (first + equal * share) * wanted / self.taken
        excess = cost - price * self.taken
        floor_price = np.where((excess < 0) & (self.floor > 0), -excess / self.gain, 0.0)
        return _solution(amount, 0.0, np.maximum(excess, 0.0) / self.time, floor_price, price)


def _solution(amount: Floats, level: float, times: Floats, floors: Floats, price: float) -> LpSolution:
    return LpSolution(np.append(amount, level), Rows.joined(times, floors, np.array([price])))
