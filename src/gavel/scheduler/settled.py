"""A cache of plans: a *settled* plan changes nothing, and the rules are certain to repeat it until a known time.

While the same jobs run and wait, standings and lags change at constant rates, so the earliest time at which a rule
could fire can be computed. Without this cache, the rules give the same plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from gavel.core.problem import Floats, Ints
from gavel.scheduler.entries import GUEST, NO_CLASS
from gavel.scheduler.round_draft import Draft
from gavel.scheduler.rounds import RoundInput, Run
from gavel.scheduler.rules import Rules

SURE = 1.0 - 1e-6
"""Computed durations are shortened by this factor, as a margin for rounding errors."""


ENOUGH_ROUNDS = 8
"""Finding out that a plan holds for more rounds than this is not worth the time."""


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """The inputs of a settled plan, and the time until which it holds."""

    runs: list[Run]
    capacity: tuple[int, ...]
    waiting: Ints
    rates: float
    """The sum of all rates, to notice when one of them changes."""
    edits: int
    until: float

    @classmethod
    def of(cls, draft: Draft, rules: Rules) -> Self | None:
        """Settle a plan that starts and stops nothing; None if a rule may fire before another round has passed."""
        given = draft.given
        if draft.begun or draft.stopped:
            return None
        seconds = _quiet_seconds(draft, rules)
        if seconds <= given.round_seconds:
            return None
        runs, rates = list(given.running), float(given.rates.sum())
        return cls(runs, tuple(given.capacity), given.waiting, rates, given.edits, given.time + seconds * SURE)

    def holds(self, given: RoundInput) -> bool:
        """Whether the rules would still give the same plan."""
        same = given.time < self.until and given.edits == self.edits
        same = same and list(given.running) == self.runs and tuple(given.capacity) == self.capacity
        return same and np.array_equal(given.waiting, self.waiting) and float(given.rates.sum()) == self.rates


def _quiet_seconds(draft: Draft, rules: Rules) -> float:
    """A lower bound on the seconds until a rule fires; 0 if that is less than a round."""
    if len(draft.never_run) or _grows_with_time(draft, rules):
        return 0.0
    trade = _until_trade(draft, rules)  # cheap to compute, and usually within a round if jobs wait
    return 0.0 if trade <= draft.given.round_seconds else min(trade, _until_served(draft, rules))


def _grows_with_time(draft: Draft, rules: Rules) -> bool:
    """Whether a job of unknown length runs while accelerators are idle: the longer it runs, the more a move gains."""
    if not (rules.knows_speeds and rules.upgrading and any(draft.free)):
        return False
    return bool(np.isnan(draft.given.steps[list(draft.run_of)]).any())


def _until_served(draft: Draft, rules: Rules) -> float:
    """Seconds until an entry may be owed enough to get one more run."""
    entries, seconds = draft.ledger.entries, draft.given.round_seconds
    behind = _until_behind(draft, rules)
    soonest = float(behind.min(initial=np.inf))
    if soonest > ENOUGH_ROUNDS * seconds and not draft.waiting and (entries.second == NO_CLASS).all():
        return soonest  # every job runs alone, and only a job that is behind may move
    meant = (entries.target > 0).nonzero()[0]
    if not len(meant):
        return np.inf
    paid = np.array(draft.paid)
    drift = np.clip(entries.target - paid, -1.0, 1.0)
    owed = entries.standing(paid, seconds)
    lowest = _Lowest.of(draft, owed, drift)
    type_index, first, second = entries.type_index[meant], entries.first[meant], entries.second[meant]
    owed, drift, patience = owed[meant], drift[meant], draft.least_patience[meant]
    on_type = _until_above(owed, drift, lowest.on_type[:, type_index], patience)
    of_class = np.minimum(
        _until_above(owed, drift, lowest.of_class[:, first], patience),
        np.where(second == NO_CLASS, np.inf, _until_above(owed, drift, lowest.of_class[:, second], patience)),
    )
    at_all = _until_above(owed, drift, np.zeros((2, len(owed))), np.zeros(len(owed)))
    free = np.asarray(draft.free)[type_index] > 0
    waits = draft.classes_that_wait()
    waiting = waits[first] | waits[second]
    of_class = np.where(second == NO_CLASS, np.maximum(of_class, behind[first]), of_class)
    until = np.where(free, np.where(waiting, at_all, of_class), np.maximum(on_type, np.where(waiting, 0.0, of_class)))
    return float(until.min())


@dataclass(frozen=True, slots=True, eq=False)
class _Lowest:
    """The lowest standing of any run, and the fastest that a standing falls: (2, types) and (2, classes + 1)."""

    on_type: Floats
    of_class: Floats

    @classmethod
    def of(cls, draft: Draft, owed: Floats, drift: Floats) -> Self:
        columns, given = draft.columns, draft.given
        since_launch = given.launched[columns.first] - given.time - given.round_seconds
        standing = np.where(columns.entry == GUEST, since_launch, np.append(owed, 0.0)[columns.entry])
        sinking = np.where(columns.entry == GUEST, -1.0, np.append(drift, 0.0)[columns.entry])
        at, class_of = np.array([standing, sinking]), draft.ledger.class_of
        return cls(
            _least_by(len(draft.free), [(columns.type_index, at)]),
            _least_by(len(draft.ledger.members) + 1, [(class_of[columns.first], at), (class_of[columns.last], at)]),
        )


def _least_by(groups: int, parts: list[tuple[Ints, Floats]]) -> Floats:
    """(2, groups): the minimum of each of the two rows of values by group; infinite for empty groups."""
    least = np.full((2, groups), np.inf)
    for group, values in parts:
        for row in (0, 1):
            np.minimum.at(least[row], group, values[row])
    return least


def _until_above(owed: Floats, drift: Floats, lowest: Floats, margin: Floats) -> Floats:
    """Seconds until what is owed may exceed the lowest standing by more than the margin."""
    with np.errstate(invalid="ignore", divide="ignore"):
        missing, closing = margin - (owed - lowest[0]), drift - lowest[1]
        until = np.where(closing > 0, missing / closing, np.inf)
    return np.where(np.isinf(lowest[0]), np.inf, np.where(missing < 0, 0.0, until))


def _until_behind(draft: Draft, rules: Rules) -> Floats:
    """By class: seconds until one of its jobs may be far enough behind to move."""
    ledger, excess = draft.ledger, draft.excess_lag(rules.behind)
    fastest = np.full(len(excess), -np.inf)
    slots = ledger.present
    np.maximum.at(fastest, ledger.class_of[slots], ledger.drift.pace[slots])
    with np.errstate(divide="ignore", invalid="ignore"):
        until = np.where(fastest > 0, -excess / fastest, np.inf)
    return np.where(excess > 0, 0.0, until)


def _until_trade(draft: Draft, rules: Rules) -> float:
    """Seconds until two jobs of a class may be far enough apart to trade places."""
    ledger = draft.ledger
    if not len(ledger.members):
        return np.inf
    apart, parting = ledger.spread(ledger.lag), ledger.spread(ledger.drift.pace)
    missing = rules.trading * float(draft.patience.min()) - apart
    if (missing < 0).any():
        return 0.0
    return float((missing[parting > 0] / parting[parting > 0]).min(initial=np.inf))
