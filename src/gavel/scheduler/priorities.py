"""The paper's mechanism: priority = target share / share received so far, greedy, highest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.core.serialization import from_plain, plain_record
from gavel.scheduler.rounds import (
    MEANT,
    Elapsed,
    Members,
    Plan,
    RoundInput,
    Run,
    RunNumbers,
    offers,
    prices,
    shares_by_type,
)

EQUAL = 4
"""Priorities whose logarithms agree to so many decimals are equal: solvers say no more."""


@dataclass(frozen=True, slots=True, eq=False)
class _PrioritiesState:
    """What the mechanism writes down."""

    kind: Literal["priorities"]
    combos: tuple[Members, ...]
    target: Floats
    declined: tuple[int, ...]
    seconds: Floats
    prices: Floats | None


class Priorities:
    """Plans rounds to the letter of the paper: restarts cost nothing, so nobody is kept where it is on purpose.

    Time received counts from the last allocation, beginning with half a round for everyone. Shares received are
    relative to a type's own total, so priorities compare within a type only, and types are served one after the other:
    the fastest first, so that nobody misses it for a slower one; or, where the policy does not know speeds, in an order
    drawn anew each round.
    """

    def __init__(self, *, knows_speeds: bool = True, price_aware: bool = False) -> None:
        self.knows_speeds = knows_speeds
        self.price_aware = price_aware
        self._combos: list[Members] = []
        self._target: Floats = np.empty((0, 0))
        self._declined: set[int] = set()
        """Jobs that the policy gives nothing, though it knows of them: idle accelerators are not for them either.

        A price-aware policy leaves all but the cheapest idle, so that there whoever loses nothing by it may run.
        """
        self._prices: Floats | None = None
        self._seconds: Floats = np.empty((0, 0))
        """Seconds received by combo and type since the last allocation."""
        self._index: dict[Members, int] | None = None
        """Where a combo is in the arrays; None if that has to be worked out."""
        self._steady: list[Run] | None = None
        """All runs of the last round, if everyone runs, and would in whatever order they were served."""

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        self._combos, self._target = shares_by_type(allocation, slots)
        self._prices = prices(allocation.problem) if self.price_aware else None
        known = () if self.price_aware else slots.tolist()
        self._declined = {slot for slot in known if slot >= 0}.difference(*self._combos)
        self._seconds = np.zeros(self._target.shape)
        self._steady = self._index = None

    def leave(self, slot: int) -> None:
        self._steady = self._index = None
        self._declined.discard(slot)
        keep = [index for index, members in enumerate(self._combos) if slot not in members]
        self._combos = [self._combos[index] for index in keep]
        self._target, self._seconds = self._target[keep], self._seconds[keep]

    def dump(self, numbers: RunNumbers) -> dict[str, Any]:  # noqa: ARG002 - it keeps no runs
        declined = tuple(sorted(self._declined))
        combos = tuple(self._combos)
        return plain_record(_PrioritiesState("priorities", combos, self._target, declined, self._seconds, self._prices))

    def restore(self, document: Any, runs: Sequence[Run]) -> None:  # noqa: ARG002 - it keeps no runs
        state = from_plain(_PrioritiesState, document)
        self._combos, self._target, self._prices = list(state.combos), state.target, state.prices
        self._declined, self._seconds, self._index = set(state.declined), state.seconds, None

    def decide(self, given: RoundInput) -> Plan:
        if self._steady is not None and list(given.running) == self._steady and not len(given.waiting):
            return Plan()
        runs, served = self._served(given)
        plan = Plan.of(given, runs)
        once = int((self._target > MEANT).sum()) == served == len(self._combos)  # no job has a choice of types
        self._steady = list(given.running) if once and not plan.started and not plan.stopped else None
        return plan

    def account(self, elapsed: Elapsed) -> None:
        if self._index is None:
            self._index = {combo: index for index, combo in enumerate(self._combos)}
        for run in elapsed.runs if elapsed.seconds else ():
            at = self._index.get(run.members)
            if at is not None and run.type_index < self._target.shape[1] and self._target[at, run.type_index] > MEANT:
                self._seconds[at, run.type_index] += elapsed.seconds

    def _served(self, given: RoundInput) -> tuple[list[Run], int]:
        """What runs in the next round, and how many of the runs have a share."""
        free, workers_of = list(given.capacity), given.workers.tolist()
        ready = given.ready()  # a job that failed pauses, though the allocation has a share for it
        taken: set[int] = set()
        chosen: list[Run] = []

        def start(members: Members, type_index: int) -> bool:
            workers = workers_of[members[0]]
            if workers > free[type_index] or not taken.isdisjoint(members) or not ready.issuperset(members):
                return False
            free[type_index] -= workers
            taken.update(members)
            chosen.append(Run(members, type_index, workers))
            return True

        if given.mid_round:
            for run in given.running:
                start(run.members, run.type_index)
        for combo, type_index in self._by_priority(given):
            if free[type_index]:
                start(self._combos[combo], type_index)
        by_share = len(chosen)
        for slot, type_index in offers(given, free, ready - taken - self._declined, self._prices):
            start((slot,), type_index)
        return chosen, by_share

    def _by_priority(self, given: RoundInput) -> list[tuple[int, int]]:
        if not len(self._combos):
            return []
        rounds = 0.5 + self._seconds / given.round_seconds
        received = rounds / rounds.sum(axis=0, keepdims=True)
        priority = self._target / received
        combo, type_index = np.nonzero(self._target > MEANT)
        # Nobody may always come first among equals, least of all where a new allocation comes after a few rounds.
        equals = np.round(np.log(priority[combo, type_index]), EQUAL)
        rng = np.random.default_rng(given.number)
        lot, places = rng.permutation(len(self._combos)), self._places_of_types(given, rng)
        order = np.lexsort((lot[combo], -equals, places[type_index]))
        return list(zip(combo[order].tolist(), type_index[order].tolist(), strict=True))

    def _places_of_types(self, given: RoundInput, rng: np.random.Generator) -> Ints:
        """By type: when it is served."""
        types = self._target.shape[1]
        if not self.knows_speeds:
            return rng.permutation(types)
        slots = sorted({slot for members in self._combos for slot in members})
        rates = given.rates[slots, :types]  # types that came since have no share
        speed = (rates / np.maximum(rates.max(axis=1, keepdims=True), 1e-300)).mean(axis=0)
        places = np.empty(types, dtype=np.intp)
        places[np.argsort(-speed, kind="stable")] = np.arange(types)
        return places
