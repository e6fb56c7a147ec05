"""Which gangs sit together, where a policy has only decided how much time jobs get on each type."""

from __future__ import annotations

import numpy as np

from gavel.core.problem import Floats, Ints, Problem


def seated(problem: Problem, workers: Ints, rates: Floats, instances: Floats) -> Floats:
    """The same time on every type, with as many gangs together as servers have room for and the others apart.

    By combo: `workers`, and `rates` and `instances` by column; pairs have no rate together. Gangs that only run
    together come first, and lose the time for which there is no room; then come the largest. Gangs of one size sit
    together for the same part of their time.
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
    """The part of these gangs that can sit together; takes it from `left`, the room for gangs of a size or larger."""
    rows = [least for least in left if least <= size]
    seats = min(min((left[least] for least in rows), default=gangs), gangs)
    for least in rows:
        left[least] -= seats
    return seats / gangs if gangs > 0 else 1.0
