"""The rules of the credit mechanism, each a function on a draft of the round; `draw_up` applies them in order.

Every entry (class combo, type) *earns* its target as time passes, which the ledger keeps. A plan then

1. keeps everything that runs,
2. gives jobs that have never run a *first turn*,
3. *ranks* entries by what they are owed and starts what is owed most, on free accelerators or where runs *yield*,
4. *seats* waiting jobs on accelerators that are still idle,
5. *moves* runs onto idle accelerators where they end much sooner,
6. lets equal jobs *trade* places when one is far ahead.

During a round only idle accelerators are given out: rules that stop a run for another job wait for the round's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from gavel.core.problem import Bools, Floats, Ints
from gavel.scheduler.draft import Draft
from gavel.scheduler.entries import NOBODY
from gavel.scheduler.ledger import Ledger
from gavel.scheduler.patience import Patience
from gavel.scheduler.rounds import Members, RoundInput, Run, cheapest_types, offers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the rules can be set to; each can be switched off, which shows what it contributes."""

    patience: Patience = field(default_factory=Patience)
    first_turns: float = 0.5
    """The share of a type's accelerators that others give up for first turns; 0: none."""
    first_wait: float = 1.0
    """Others give up accelerators for a first turn once a job has waited this many times as long as it takes alone.

    That is at most its patience, and at once where it is not known how long the job takes.
    """
    holding: bool = True
    """Whether accelerators are kept idle, until the end of a round, for a gang that waits for its first turn."""
    behind: float = 1.0
    """A run moves to where its class is owed more once its job is behind by this many times its patience."""
    pairing: float = 2.0
    """A run becomes part of a pair that is owed more than it by this many times its patience."""
    ending: float = 4.0
    """A run that ends within this many times the patience of the job that wants its place is left to end."""
    trading: float = 2.0
    """Equal jobs trade places when one is ahead of the other by this many times its patience."""
    upgrading: float = 2.0
    """A run moves to an idle type where it ends sooner by this many times what a restart costs; 0: never."""
    faster: float = 1.5
    """A run moves only where it is faster by this factor."""
    knows_speeds: bool = True
    """False for policies that treat all types alike: their runs do not look for faster ones."""


def draw_up(ledger: Ledger, given: RoundInput, rules: Rules, prices: Floats | None = None) -> Draft:
    """Everything that runs from now on."""
    draft = Draft.of(ledger, given, rules.patience)
    give_first_turns(draft, rules)
    held = hold_for_gangs(draft) if rules.holding else {}
    while serve(draft, rules) and draft.waiting and any(draft.free):
        pass  # runs that moved have left room, perhaps for jobs that are owed it
    seat_idle(draft, rules, prices)
    if rules.knows_speeds and rules.upgrading:
        upgrade(draft, rules, prices)
    for kind, count in held.items():
        draft.free[kind] += count
    if not given.mid_round:
        trade(draft, rules)
    return draft


# First turns

TOGETHER = 256
"""So many jobs are looked at before those of classes without a place are left out."""


def give_first_turns(draft: Draft, rules: Rules) -> None:
    """Start jobs that have never run, in order of arrival, whatever their class has received before."""
    new = draft.never_run
    if not len(new):
        return
    room = _room_for_first_turns(draft, rules)
    left = new[np.argsort(draft.given.arrival[new], kind="stable")]
    kinds = 2 * draft.ledger.class_of[left] + _has_waited(left, draft, rules)
    while len(left) and (any(draft.free) or max(room) > 0):
        hopeless = _first_turns_of(left[:TOGETHER].tolist(), kinds[:TOGETHER].tolist(), room, draft)
        left, kinds = left[TOGETHER:], kinds[TOGETHER:]
        if len(left):
            keep = ~np.isin(kinds, list(hopeless))
            left, kinds = left[keep], kinds[keep]


def _has_waited(slots: Ints, draft: Draft, rules: Rules) -> Bools:
    """Whether jobs that never ran have waited long enough for others to give up accelerators."""
    given = draft.given
    alone = given.steps_of(slots) / np.maximum(given.rates[slots].max(axis=1), 1e-300)
    wait = np.minimum(np.where(np.isnan(alone), 0.0, rules.first_wait * alone), draft.patience[slots])
    return np.asarray(given.time - given.arrival[slots] >= wait)


def _first_turns_of(slots: Iterable[int], kinds: Iterable[int], room: list[int], draft: Draft) -> set[int]:
    """Start these jobs; returns the kinds of job, of class and whether they have waited, that find no place."""
    hopeless: set[int] = set()
    for slot, kind in zip(slots, kinds, strict=True):
        has_waited = bool(kind % 2)
        if kind not in hopeless and not _begins(slot, has_waited, room, draft):
            hopeless |= {kind, kind - has_waited}
            if not any(draft.free) and max(room) <= 0:
                break
    return hopeless


def _room_for_first_turns(draft: Draft, rules: Rules) -> list[int]:
    """By type: accelerators that others may still give up for first turns; the last gang may take more."""
    if draft.given.mid_round or not rules.first_turns:
        return [0] * len(draft.free)
    room = np.maximum((np.asarray(draft.given.capacity) * rules.first_turns).astype(int), 1)
    columns, had = draft.columns, draft.served >= draft.turns
    turning = ~(had[columns.first] & had[columns.last])
    np.subtract.at(room, columns.kind[turning], draft.given.workers[columns.first[turning]])
    rooms: list[int] = room.tolist()
    return rooms


def _begins(slot: int, has_waited: bool, room: list[int], draft: Draft) -> bool:
    """Whether a job runs now, as another's partner or because it gets its first turn."""
    return slot in draft.run_of or _first_turn(slot, has_waited, room, draft)


def _first_turn(slot: int, has_waited: bool, room: list[int], draft: Draft) -> bool:
    """Start a job on the type where its class is owed most of those that have room for it."""
    workers = int(draft.given.workers[slot])
    for entry in sorted(draft.ledger.entries_of(draft.class_of(slot)), key=draft.standing, reverse=True):
        kind = draft.ledger.entries.keys[entry][2]
        needed = workers - draft.free[kind]
        if needed > 0 and (room[kind] <= 0 or not has_waited):
            continue
        members = _with_partner(slot, entry, draft)
        if members is not None and _take(members, kind, _yielding_to_first_turn(slot, kind, needed, draft), draft):
            room[kind] -= workers
            return True
    return False


def _with_partner(slot: int, entry: int, draft: Draft) -> Members | None:
    """The members of a run of an entry, one of which is this job; None if it needs another and none waits."""
    first, second, _ = draft.ledger.entries.keys[entry]
    if second == NOBODY:
        return (slot,)
    is_first = draft.class_of(slot) == first
    other = draft.next_in_queue(second if is_first else first, (slot,))
    if other is None:
        return None
    return (slot, other) if is_first else (other, slot)


def _yielding_to_first_turn(slot: int, kind: int, needed: int, draft: Draft) -> Sequence[Run] | None:
    """Runs that have had their turn and would not end within another; the longest lose least by waiting."""
    able: list[Run] = []
    for run in draft.longest_left(kind) if needed > 0 else ():
        if draft.seconds_left(run) <= draft.turns[slot]:
            break
        if draft.still_runs(run) and not draft.is_before(run, (slot,)):
            if run.workers == needed:
                return [run]
            able.append(run)
    return () if needed <= 0 else fewest(able, needed)


def hold_for_gangs(draft: Draft) -> dict[int, int]:
    """Keep what is free on a type for a gang that waits there for its first turn; returns how much is held.

    Otherwise smaller jobs would take each accelerator that becomes free, and the gang would wait for all their turns.
    """
    held: dict[int, int] = {}
    if not any(draft.free):
        return held
    new = draft.never_run
    for slot in new[draft.given.workers[new] > 1].tolist():
        if slot not in draft.run_of:
            workers = draft.given.workers[slot]
            kinds = {draft.ledger.entries.keys[entry][2] for entry in draft.ledger.entries_of(draft.class_of(slot))}
            for kind in kinds:
                if draft.free[kind] and workers <= draft.given.capacity[kind]:
                    held[kind], draft.free[kind] = draft.free[kind], 0
    return held


def _take(members: Members, kind: int, victims: Iterable[Run] | None, draft: Draft) -> bool:
    """Start a combo in place of runs that yield; False if they are not enough or an earlier job should come first."""
    if victims is None or any(draft.jumps_the_queue(slot, kind) for slot in members):
        return False
    for run in victims:
        draft.stop(run)
    draft.start(members, kind)
    return True


# Rank, and who yields


def serve(draft: Draft, rules: Rules) -> int:
    """Start what is owed, the most urgent first; returns how many runs were started."""
    if draft.given.mid_round and not (any(draft.free) and draft.waiting):
        return 0
    began = len(draft.begun)
    for entry in challengers(draft, rules):
        while advance(entry, draft, rules):
            pass
    return len(draft.begun) - began


def challengers(draft: Draft, rules: Rules) -> list[int]:
    """Entries that are owed something and may find a job and room, or a run that yields; the most urgent first."""
    entries = draft.ledger.entries
    owed = entries.standing(np.array(draft.paid), draft.given.round_seconds)
    hopeful = (owed > 0) & (entries.target > 0)
    if not hopeful.any():
        return []
    waits, alone = draft.classes_that_wait(), entries.second == NOBODY
    has_jobs = waits[entries.first] & (alone | waits[entries.second])
    room = np.asarray(draft.free)[entries.kind] > 0
    if not draft.given.mid_round:
        behind = (draft.excess_lag(rules.behind) > 0)[entries.first]
        hopeful &= has_jobs | behind | ~alone
        if not hopeful.any():
            return []
        patience = draft.least_patience
        room |= owed - weakest_on_type(draft, owed)[entries.kind] > patience
        if (hopeful & room & ~has_jobs).any():
            lowest = lowest_of_class(draft, owed)
            moves = behind & (owed - lowest[entries.first] > patience)
            pairs = owed - np.minimum(lowest[entries.first], lowest[entries.second]) > rules.pairing * patience
            has_jobs |= np.where(alone, moves, pairs)
    chosen = (hopeful & room & has_jobs).nonzero()[0]
    ordered: list[int] = chosen[np.argsort(-entries.credit[chosen], kind="stable")].tolist()
    return ordered


def lowest_of_class(draft: Draft, owed: Floats) -> Floats:
    """By class, the last for "no class": the least that a run with one of its jobs stands at; infinite if none runs."""
    entries, class_of = draft.ledger.entries, draft.ledger.classes
    lowest = np.full(len(draft.ledger.members) + 1, np.inf)
    paying = np.array(draft.paid) > 0
    np.minimum.at(lowest, entries.first[paying], owed[paying])
    np.minimum.at(lowest, entries.second[paying], owed[paying])
    for run in draft.guests():
        standing = draft.standing_of(run)
        for slot in run.members:
            lowest[class_of[slot]] = min(lowest[class_of[slot]], standing)
    lowest[NOBODY] = np.inf
    return lowest


def weakest_on_type(draft: Draft, owed: Floats) -> Floats:
    """By type: the least that a run there stands at which has had its turn; infinite where there is none."""
    kinds, paying = draft.ledger.entries.kind, draft.entries_with_turns
    weakest = np.array(
        [next((rank[0] for rank in draft.guests_with_turns(kind)), np.inf) for kind in range(len(draft.free))]
    )
    np.minimum.at(weakest, kinds[paying], owed[paying])
    return weakest


def advance(entry: int, draft: Draft, rules: Rules) -> bool:
    """Start one more run of an entry if it is owed one and there is room, or runs that must yield."""
    first, second, kind = draft.ledger.entries.keys[entry]
    owed = draft.standing(entry)
    if owed <= 0 or (draft.given.mid_round and not draft.free[kind]):
        return False
    members = _choose((first,) if second == NOBODY else (first, second), kind, owed, draft, rules)
    if members is None:
        return False
    movers = dict.fromkeys(draft.run_of[slot] for slot in members if slot in draft.run_of)
    room = draft.free[kind] + sum(run.workers for run in movers if run.type_index == kind)
    victims = yielding(kind, int(draft.given.workers[members[0]]) - room, owed, members, draft, rules)
    return _take(members, kind, None if victims is None else [*movers, *victims], draft)


def _choose(classes: Sequence[int], kind: int, owed: float, draft: Draft, rules: Rules) -> Members | None:
    """One job of each class: the one furthest behind of those that wait, else one that gains enough by moving."""
    chosen: list[int] = []
    for number in classes:
        slot = draft.next_in_queue(number, chosen)
        if slot is None and not draft.given.mid_round:
            slot = _mover(number, kind, owed, chosen, draft, rules, paired=len(classes) > 1)
        if slot is None:
            return None
        chosen.append(slot)
    return tuple(chosen)


def _mover(
    number: int, kind: int, owed: float, taken: Sequence[int], draft: Draft, rules: Rules, *, paired: bool
) -> int | None:
    """The job of a class that gains most by moving here from where it runs; None if none gains enough."""
    found: tuple[float, int] | None = None
    margin = rules.pairing if paired else 1.0
    for group in draft.movable(number, -np.inf if paired else rules.behind):
        slot = next((slot for slot in group if slot not in taken and draft.still_runs_at(slot)), None)
        if slot is None:
            continue
        run = draft.run_of[slot]
        excess = owed - draft.standing_of(run)
        if excess > margin * float(draft.patience[slot]) and (paired or _is_faster(run, kind, draft, rules)):
            found = min(found or (-excess, slot), (-excess, slot))
    return None if found is None else found[1]


def _is_faster(run: Run, kind: int, draft: Draft, rules: Rules) -> bool:
    """Whether a run is faster on the other type, if that is known and matters."""
    if len(run.members) > 1 or not rules.knows_speeds:
        return True
    rates = draft.given.rates[run.members[0]]
    return bool(rates[kind] > rates[run.type_index])


def yielding(kind: int, needed: int, owed: float, members: Members, draft: Draft, rules: Rules) -> Sequence[Run] | None:
    """Runs on a type that yield to jobs that are owed this much; None if they are not enough.

    A run that occupies more accelerators than needed loses more than the others gain, so it yields later.
    """
    if needed <= 0:
        return ()
    if draft.given.mid_round:
        return None
    patience = min(float(draft.patience[slot]) for slot in members)
    able: list[Run] = []
    for standing, group in draft.ranked(kind):
        if owed - standing <= patience:
            break
        for run in draft.lasting(group, rules.ending):
            if _may_yield(run, members, draft) and draft.seconds_left(run) > rules.ending * patience:
                if run.workers == needed:
                    return [run]  # no fewer would do, and none before it fits as well
                if owed - standing > patience * max(run.workers / needed, 1.0) ** 0.5:
                    able.append(run)
    return fewest(able, needed) if able else None


def _may_yield(run: Run, members: Members, draft: Draft) -> bool:
    if not draft.still_runs(run):
        return False
    return not any(slot in run.members for slot in members) and not draft.is_before(run, members)


def fewest(runs: list[Run], needed: int) -> list[Run] | None:
    """As few runs as possible with this many workers, of equals those that come first; None if all are too few."""
    chosen: list[Run] = []
    for run in sorted(runs, key=lambda run: -run.workers):
        if run.workers <= needed:
            chosen.append(run)
            needed -= run.workers
        if not needed:
            return chosen
    left = [run for run in runs if run.workers > needed and run not in chosen]
    if not left:
        return None
    last = min(left, key=lambda run: run.workers)
    while chosen and chosen[-1].workers <= last.workers - needed:
        needed += chosen.pop().workers  # the last one makes room for both
    return [*chosen, last]


# Idle accelerators


def seat_idle(draft: Draft, rules: Rules, prices: Floats | None) -> None:
    """Give idle accelerators to jobs that can use them; first to those that ran there a moment ago."""
    for run in list(draft.stopped.values()):
        if run.workers <= draft.free[run.type_index] and not any(slot in draft.run_of for slot in run.members):
            draft.start(run.members, run.type_index)
    again = True
    while again and any(draft.free) and draft.waiting:
        again = False
        for slot, kind in offers(draft.given, draft.free, draft.jobs_to_seat(), prices, by_speed=rules.knows_speeds):
            fits = slot not in draft.run_of and int(draft.given.workers[slot]) <= draft.free[kind]
            if fits and _take((slot,), kind, (), draft):
                again = draft.has_teams  # a job that had to let an earlier one pass may start now
                if not any(draft.free):
                    return


def upgrade(draft: Draft, rules: Rules, prices: Floats | None) -> None:
    """Move runs onto idle accelerators where they end much sooner, the largest gain first."""
    sooner: dict[int, tuple[Ints, Floats]] = {}
    while any(draft.free):
        found = []
        for kind in (kind for kind, count in enumerate(draft.free) if count > 0):
            if kind not in sooner:
                sooner[kind] = _sooner_elsewhere(kind, draft, rules, prices)
            best = _best_upgrade(kind, *sooner[kind], draft)
            if best is not None:
                found.append((kind, *best))
        if not found:
            return
        kind, run, _ = max(found, key=itemgetter(2))  # of equals the first
        draft.stop(run)
        draft.start(run.members, kind)


def _best_upgrade(kind: int, slots: Ints, sooner: Floats, draft: Draft) -> tuple[Run, float] | None:
    """The run that gains most by moving to an idle type, and the seconds that it gains; None if none may move."""
    if not len(slots):
        return None
    gain = np.where(draft.given.workers[slots] <= draft.free[kind], sooner, 0.0)
    while (best := float(gain[at := int(gain.argmax())])) > 0:  # of equals the first
        run = draft.run_of.get(int(slots[at]))
        if run is not None and run not in draft.begun and len(run.members) == 1 and not _overtakes(run, kind, draft):
            return run, best
        gain[at] = 0.0
    return None


def _sooner_elsewhere(kind: int, draft: Draft, rules: Rules, prices: Floats | None) -> tuple[Ints, Floats]:
    """The slots of jobs that run and would end much sooner alone on a type, and the seconds that each would gain."""
    given = draft.given
    faster = (given.rates[:, kind] >= rules.faster * given.rate_here) & (given.rate_here > 0)
    slots = faster.nonzero()[0]
    if not len(slots):
        return slots, np.empty(0)
    here = given.rate_here[slots]
    left = _steps_left(slots, here, draft)
    sooner = left / here - left / given.rates[slots, kind]
    good = sooner > rules.upgrading * draft.restart_seconds[slots]
    if prices is not None:
        good &= cheapest_types(given.rates[slots], prices)[:, kind]
    return slots[good], sooner[good]


def _steps_left(slots: Ints, here: Floats, draft: Draft) -> Floats:
    """Steps left; a job of unknown length is taken to need as long again as it has had, and at least a turn."""
    left = draft.given.steps_of(slots)
    unknown = np.isnan(left)
    if not unknown.any():
        return left
    return np.where(unknown, np.maximum(draft.served[slots], draft.turns[slots]) * here, left)


def _overtakes(run: Run, kind: int, draft: Draft) -> bool:
    """Whether an earlier job of the same team would gain by moving there, too."""
    rates = draft.given.rates
    for other in draft.earlier(run.members[0]):
        place = draft.run_of.get(other)
        if rates[other, kind] > (0.0 if place is None else rates[other, place.type_index]):
            return True
    return False


# Trade


def trade(draft: Draft, rules: Rules) -> None:
    """Let jobs of a class swap places when one is far ahead of another."""
    for ahead, behind in uneven(draft.ledger, draft.patience, rules):
        if _may_swap(ahead, behind, draft, rules):
            _swap(ahead, behind, draft)


def uneven(ledger: Ledger, patience: Floats, rules: Rules) -> list[tuple[int, int]]:
    """By class: the job furthest ahead and the one furthest behind, where too much time lies between them."""
    lag = ledger.lag
    threshold = rules.trading * patience[: len(lag)]
    if not len(lag) or float(lag.max() - lag.min()) <= float(threshold.min()):
        return []
    found = []
    for number in np.flatnonzero(ledger.spread(lag) > threshold.min()).tolist():
        members = ledger.members[number]
        lags = lag[members]
        ahead, behind = members[int(lags.argmin())], members[len(members) - 1 - int(lags[::-1].argmax())]
        if lag[behind] - lag[ahead] > threshold[behind]:
            found.append((ahead, behind))
    return found


def _may_swap(ahead: int, behind: int, draft: Draft, rules: Rules) -> bool:
    """Whether the job that is ahead has the faster place, and both run alone or not at all and have had their turn."""
    better, worse = draft.run_of.get(ahead), draft.run_of.get(behind)
    if better is None:
        return False
    for run in (better, worse):
        if run is not None and (len(run.members) > 1 or not draft.still_runs(run) or not draft.has_had_its_turn(run)):
            return False
    rates = draft.given.rates[ahead]
    if worse is not None and not rates[better.type_index] > rates[worse.type_index]:
        return False
    if draft.seconds_left(better) <= rules.ending * draft.patience[behind]:
        return False
    return not draft.is_before(better, (behind,)) and not draft.jumps_the_queue(behind, better.type_index)


def _swap(ahead: int, behind: int, draft: Draft) -> None:
    better, worse = draft.run_of[ahead], draft.run_of.get(behind)
    draft.stop(better)
    if worse is not None:
        draft.stop(worse)
        draft.start((ahead,), worse.type_index)
    draft.start((behind,), better.type_index)
