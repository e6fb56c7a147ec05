"""The paper's mechanism: priority is target share / share received so far; the highest priority is served first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.core.serialization import from_plain, plain_record
from gavel.scheduler.room import Room
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
from gavel.scheduler.tight_service import TightService

EQUAL = 4
"""Priorities are equal if their logarithms agree to this many decimals: solvers are no more precise."""


@dataclass(frozen=True, slots=True, eq=False)
class _PrioritiesState:
    """The state of the mechanism in a dump."""

    kind: Literal["priorities"]
    combos: tuple[Members, ...]
    target: Floats
    declined: tuple[int, ...]
    seconds: Floats
    prices: Floats | None


class Priorities:
    """Plan rounds to the letter of the paper: restarts are assumed to be free, so runs are not kept in place.

    Time received counts from the last allocation, and every job starts with half a round. Shares received are relative
    to the total of their type, so priorities compare only within a type, and types are served one after the other. The
    fastest type comes first, so that a job gets its slower types only if the faster ones are full. If the policy does
    not know speeds, the order is random in each round.
    """

    def __init__(self, *, knows_speeds: bool = True, price_aware: bool = False) -> None:
        self.knows_speeds = knows_speeds
        self.price_aware = price_aware
        self._combos: list[Members] = []
        self._target: Floats = np.empty((0, 0))
        self._declined: set[int] = set()
        """Jobs that the policy knows and gives no time: they do not get idle accelerators either.

        Under a price-aware policy this set is empty: there, a job may use idle accelerators of its cheapest types.
        """
        self._prices: Floats | None = None
        self._seconds: Floats = np.empty((0, 0))
        """By combo and type: seconds received since the last allocation."""
        self._index: dict[Members, int] | None = None
        """The position of each combo in the arrays; None if it must be computed again."""
        self._steady: list[Run] | None = None
        """All runs of the last round, if every job runs and would run in any order of service; else None."""

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
        if given.room is not None:
            self._steady = None
            return self._served_tightly(given, given.room())
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
        """The runs of the next round, and how many of them have a share."""
        free, workers_of = list(given.capacity), given.workers.tolist()
        ready = given.ready()  # excludes jobs that pause after a failure, although they have a share
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

    def _served_tightly(self, given: RoundInput, room: Room) -> Plan:
        """The same where CPU cores, RAM or accelerator memory may bind."""
        order = [(self._combos[combo], type_index) for combo, type_index in self._by_priority(given)]
        tight = TightService(given, room, order)
        if given.mid_round:
            tight.keep_all()
        for members, type_index in order:
            tight.serve(members, type_index)
        tight.stop_unserved()
        jobs = tight.ready - tight.taken - self._declined
        for slot, type_index in offers(given, tight.free, jobs, self._prices):
            tight.serve((slot,), type_index)
        return tight.plan()

    def _by_priority(self, given: RoundInput) -> list[tuple[int, int]]:
        if not len(self._combos):
            return []
        rounds = 0.5 + self._seconds / given.round_seconds
        received = rounds / rounds.sum(axis=0, keepdims=True)
        priority = self._target / received
        combo, type_index = np.nonzero(self._target > MEANT)
        # Break ties at random: otherwise the same job would always be first, above all if allocations change often.
        equals = np.round(np.log(priority[combo, type_index]), EQUAL)
        rng = np.random.default_rng(given.number)
        lot, places = rng.permutation(len(self._combos)), self._places_of_types(given, rng)
        order = np.lexsort((lot[combo], -equals, places[type_index]))
        return list(zip(combo[order].tolist(), type_index[order].tolist(), strict=True))

    def _places_of_types(self, given: RoundInput, rng: np.random.Generator) -> Ints:
        """By type: its position in the order of service."""
        types = self._target.shape[1]
        if not self.knows_speeds:
            return rng.permutation(types)
        slots = sorted({slot for members in self._combos for slot in members})
        rates = given.rates[slots, :types]  # types that joined later have no share
        speed = (rates / np.maximum(rates.max(axis=1, keepdims=True), 1e-300)).mean(axis=0)
        places = np.empty(types, dtype=np.intp)
        places[np.argsort(-speed, kind="stable")] = np.arange(types)
        return places
