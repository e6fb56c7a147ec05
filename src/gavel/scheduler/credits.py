"""The default, restart-aware mechanism: combos earn credit while they wait and spend it while they run.

A run continues until a waiting job is owed so much more that a restart is worth its cost. `ledger` keeps the credit,
`rules` decides what runs, and `settled` tells when the last plan still holds, so that the rules need not be evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints
from gavel.core.serialization import from_plain, plain_record
from gavel.scheduler.entries import NO_CLASS, LedgerEntries
from gavel.scheduler.ledger import Ledger
from gavel.scheduler.rounds import Elapsed, Plan, RoundInput, Run, RunNumbers, prices
from gavel.scheduler.rules import Rules, draw_up
from gavel.scheduler.settled import Settled


@dataclass(frozen=True, slots=True, eq=False)
class _CreditsState:
    """The state of the mechanism in a dump."""

    kind: Literal["credits"]
    entries: LedgerEntries
    lag: Floats
    members: tuple[tuple[int, ...], ...]
    class_rate: Floats
    alone: Floats
    entry_of: tuple[tuple[int, int], ...]
    """(number of the run, its entry) for every run."""
    prices: Floats | None


class Credits:
    """Plan rounds by credit, as described in the module's docstring."""

    def __init__(self, rules: Rules | None = None, *, knows_speeds: bool = True, price_aware: bool = False) -> None:
        self.rules = replace(rules or Rules(), knows_speeds=knows_speeds)
        self.price_aware = price_aware
        """Whether a job is offered idle accelerators only of the types on which a step costs least."""
        self.ledger = Ledger()
        self._prices: Floats | None = None
        self._settled: Settled | None = None

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        self._settled = None
        self._prices = prices(allocation.problem) if self.price_aware else None
        self.ledger.adopt(allocation, slots)

    def decide(self, given: RoundInput) -> Plan:
        if self._settled is not None and given.room is None and self._settled.holds(given):
            return Plan()
        draft = draw_up(self.ledger, given, self.rules, self._prices)
        if given.room is not None:
            self._settled = None
        elif not given.mid_round:
            self._settled = Settled.of(draft, self.rules)
        return draft.plan()

    def account(self, elapsed: Elapsed) -> None:
        self.ledger.account(elapsed)

    def leave(self, slot: int) -> None:
        self._settled = None
        self.ledger.leave(slot)

    def dump(self, numbers: RunNumbers) -> dict[str, Any]:
        ledger = self.ledger
        return plain_record(
            _CreditsState(
                "credits",
                ledger.entries,
                ledger.lag[: _used(ledger)],
                tuple(map(tuple, ledger.members)),
                ledger.class_rate,
                ledger.alone,
                tuple((numbers.of(run), entry) for run, entry in ledger.entry_of.items()),
                self._prices,
            )
        )

    def restore(self, document: Any, runs: Sequence[Run]) -> None:
        state = from_plain(_CreditsState, document)
        class_of = np.full(len(state.lag), NO_CLASS)
        members = list(map(list, state.members))
        for number, slots in enumerate(members):
            class_of[slots] = number
        entry_of = {runs[number]: entry for number, entry in state.entry_of}
        run_of = {slot: run for run in entry_of for slot in run.members}
        self.ledger = Ledger(
            state.entries, state.lag, members, state.class_rate, state.alone, entry_of, run_of, class_of
        )
        self._prices = state.prices


def _used(ledger: Ledger) -> int:
    """The number of slots to dump; `lag` may be longer, because planning a round grows it."""
    lagging = np.flatnonzero(ledger.lag)
    known = max((slot for slots in ledger.members for slot in slots), default=-1)
    running = max((slot for run in ledger.entry_of for slot in run.members), default=-1)
    return max(known, running, int(lagging[-1]) if len(lagging) else -1) + 1
