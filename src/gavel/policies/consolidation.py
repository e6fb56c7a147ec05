"""Which gangs are consolidated, for policies that decide only how much time jobs get on each type."""

from __future__ import annotations

import numpy as np

from gavel.core.problem import Floats, Ints, Problem


def seated(problem: Problem, workers: Ints, rates: Floats, instances: Floats) -> Floats:
    """The same time on every type, with as many gangs consolidated as servers have room for.

    `workers` is by combo, `rates` and `instances` by combo and column; pairs have no consolidated rate. Gangs that run
    only consolidated come first, and lose the time for which there is no room; then come the largest. Gangs of one size
    are consolidated for the same part of their time.
    """
    placed = instances.copy()
    for column in problem.closer_columns:
        index, wider = column.index, column.wider
        close, apart = rates[:, index], rates[:, wider]
        room = {size: column.most_gangs(size) for size in np.unique(workers).tolist()}
        left = {size: float(limit) for size, limit in room.items() if limit is not None}
        for who in ((close > 0) & (apart == 0), (close > apart) & (apart > 0)):
            for size in np.unique(workers[who])[::-1].tolist():
                here = who & (workers == size)
                total = placed[here, wider] + placed[here, index]
                placed[here, index] = together = total * _part_with_room(left, size, float(total.sum()))
                placed[here, wider] = np.where(apart[here] > 0, total - together, 0.0)
    return placed


def _part_with_room(left: dict[int, float], size: int, gangs: float) -> float:
    """The part of these gangs that can be consolidated; subtract it from `left`, the room for gangs by minimum size."""
    rows = [least for least in left if least <= size]
    seats = min(min((left[least] for least in rows), default=gangs), gangs)
    for least in rows:
        left[least] -= seats
    return seats / gangs if gangs > 0 else 1.0
