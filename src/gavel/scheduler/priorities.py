"""The paper's mechanism: priority = target share / share received so far, greedy, highest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.plain import from_plain, plain_record
from gavel.core.problem import Floats, Ints
from gavel.scheduler.rounds import Members, Question, Run, RunNumbers, offers


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """What the mechanism writes down."""

    kind: Literal["priorities"]
    combos: tuple[Members, ...]
    target: Floats
    turn: int
    rounds: Floats


class Priorities:
    """Plans rounds to the letter of the paper: restarts cost nothing, so nobody is kept where it is on purpose.

    Time received counts from the last allocation, beginning with half a round for everyone.
    """

    def __init__(self) -> None:
        self._combos: list[Members] = []
        self._target: Floats = np.empty((0, 0))
        self._turn = 0
        self._rounds: Floats = np.empty((0, 0))
        """Rounds received by combo and type since the last allocation; starts at one half."""

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        problem = allocation.problem
        by_type: list[Floats] = []
        self._combos = []
        number = {name: int(slot) for name, slot in zip(problem.jobs.ids, slots.tolist(), strict=True)}
        for row in allocation.rows():
            shares = np.fromiter(row.shares.values(), dtype=float, count=len(row.shares))
            members = tuple(number[name] for name in row.jobs)
            if shares.any() and min(members) >= 0:  # others left while the solver worked
                self._combos.append(members)
                by_type.append(shares)
        self._target = np.array(by_type).reshape(len(by_type), len(problem.types))
        self._rounds = np.full(self._target.shape, 0.5)

    def leave(self, slot: int) -> None:
        keep = [index for index, members in enumerate(self._combos) if slot not in members]
        self._combos = [self._combos[index] for index in keep]
        self._target, self._rounds = self._target[keep], self._rounds[keep]

    def dump(self, numbers: RunNumbers) -> dict[str, Any]:  # noqa: ARG002 - it keeps no runs
        return plain_record(_State("priorities", tuple(self._combos), self._target, self._turn, self._rounds))

    def restore(self, document: Any, runs: Sequence[Run]) -> None:  # noqa: ARG002 - it keeps no runs
        state = from_plain(_State, document)
        self._combos, self._target = list(state.combos), state.target
        self._turn, self._rounds = state.turn, state.rounds

    def plan(self, question: Question) -> list[Run]:
        free = list(question.capacity)
        taken: set[int] = set()
        known = {(run.members, run.type_index): run for run in question.running}
        chosen: list[Run] = []

        def start(members: Members, kind: int) -> bool:
            workers = int(question.workers[members[0]])
            if workers > free[kind] or not taken.isdisjoint(members):
                return False
            free[kind] -= workers
            taken.update(members)
            chosen.append(known.get((members, kind)) or Run(members, kind, workers))
            return True

        for combo, kind in self._by_priority():
            if start(self._combos[combo], kind):
                self._rounds[combo, kind] += 1.0
        for slot, kind in offers(question, free, taken):
            start((slot,), kind)
        return chosen

    def _by_priority(self) -> list[tuple[int, int]]:
        if not len(self._combos):
            return []
        received = self._rounds / self._rounds.sum(axis=0, keepdims=True)
        priority = self._target / received
        combo, kind = np.nonzero(self._target > 1e-9)
        # Shares received are relative to a type's own total, so priorities compare within a type only. Types take
        # turns in being served first.
        self._turn += 1
        turn = (kind + self._turn) % self._target.shape[1]
        order = np.lexsort((-priority[combo, kind], turn))
        return list(zip(combo[order].tolist(), kind[order].tolist(), strict=True))
