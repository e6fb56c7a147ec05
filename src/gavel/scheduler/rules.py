"""The rules of the credit mechanism, each a function on a draft of the round; `draw_up` applies them in order.

The ledger says what each entry (a class combo on a type) is owed. A plan

1. keeps everything that runs,
2. gives jobs that have never run a *first turn*,
3. starts runs of the entries that are owed most, on free accelerators or where other runs *yield*: those whose standing
   is lower by more than the *patience* of the job that wants their place,
4. *seats* waiting jobs on accelerators that are still idle,
5. *moves* runs to idle accelerators where they finish much sooner,
6. lets jobs of the same class *trade* places when one is far ahead of the other.

A run that has started is left alone for a *turn*. During a round, only idle accelerators are handed out; rules that
stop a run in favour of another job apply only when a round begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from gavel.core.problem import Bools, Floats, Ints
from gavel.scheduler.entries import NO_CLASS
from gavel.scheduler.ledger import Ledger
from gavel.scheduler.patience import Patience
from gavel.scheduler.room import Room
from gavel.scheduler.round_draft import Draft
from gavel.scheduler.rounds import Members, RoundInput, Run, cheapest_types, offers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The parameters of the rules. Each rule can be switched off, to measure what it contributes."""

    patience: Patience = field(default_factory=Patience)
    first_turns: float = 0.5
    """The share of a type's accelerators that runs give up for first turns; 0: none."""
    first_wait: float = 1.0
    """Runs yield to a first turn once the new job has waited this many times as long as it would take alone.

    The wait is at most the job's patience; it is 0 if the job's length is unknown.
    """
    holding: bool = True
    """Whether free accelerators are kept idle, until the round ends, for a gang that waits for its first turn."""
    behind: float = 1.0
    """A run moves to a type where its class is owed more once its job's lag exceeds this many times its patience."""
    pairing: float = 2.0
    """A running job joins a pair whose standing is higher than its own by this many times its patience."""
    ending: float = 4.0
    """A run does not yield if it finishes within this many times the patience of the job that wants its place."""
    trading: float = 2.0
    """Jobs of a class trade places when their lags differ by this many times the patience of the one behind."""
    upgrading: float = 2.0
    """A run moves to an idle type where it finishes sooner by this many times the cost of a restart; 0: never."""
    faster: float = 1.5
    """A run moves to an idle type only if it is faster there by this factor."""
    knows_speeds: bool = True
    """False for policies that treat all types as equally fast: their runs do not move to faster types."""


def draw_up(ledger: Ledger, given: RoundInput, rules: Rules, prices: Floats | None = None) -> Draft:
    """Plan a round, or the rest of one: apply all rules in order."""
    draft = Draft.of(ledger, given, rules.patience)
    give_first_turns(draft, rules)
    held = hold_for_gangs(draft) if rules.holding else {}
    releases = [] if draft.room is None else [draft.room.hold(type_index) for type_index in held]
    while serve(draft, rules) and draft.waiting and any(draft.free):
        pass  # runs that moved have left room, perhaps for other entries
    seat_idle(draft, rules, prices)
    if rules.knows_speeds and rules.upgrading:
        upgrade(draft, rules, prices)
    for type_index, count in held.items():
        draft.free[type_index] += count
    for release in releases:
        release()
    if not given.mid_round:
        trade(draft, rules)
    return draft


# First turns

TOGETHER = 256
"""Jobs per batch: after each batch, jobs of kinds that found no place are dropped from the rest."""


def give_first_turns(draft: Draft, rules: Rules) -> None:
    """Start jobs that have never run, in order of arrival, regardless of what their class has received."""
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
    """Whether jobs that have never run have waited long enough for runs to yield to them."""
    given = draft.given
    alone = given.steps_of(slots) / np.maximum(given.rates[slots].max(axis=1), 1e-300)
    wait = np.minimum(np.where(np.isnan(alone), 0.0, rules.first_wait * alone), draft.patience[slots])
    return np.asarray(given.time - given.arrival[slots] >= wait)


def _first_turns_of(slots: Iterable[int], kinds: Iterable[int], room: list[int], draft: Draft) -> set[int]:
    """Start these jobs where possible; return the kinds (2 x class + has waited) that find no place."""
    hopeless: set[int] = set()
    for slot, kind in zip(slots, kinds, strict=True):
        has_waited = bool(kind % 2)
        if kind not in hopeless and not _begins(slot, has_waited, room, draft):
            hopeless |= {kind, kind - has_waited}
            if not any(draft.free) and max(room) <= 0:
                break
    return hopeless


def _room_for_first_turns(draft: Draft, rules: Rules) -> list[int]:
    """By type: accelerators that runs may still give up for first turns. The last gang may exceed this."""
    if draft.given.mid_round or not rules.first_turns:
        return [0] * len(draft.free)
    room = np.maximum((np.asarray(draft.given.capacity) * rules.first_turns).astype(int), 1)
    columns, had = draft.columns, draft.served >= draft.turns
    turning = ~(had[columns.first] & had[columns.last])
    np.subtract.at(room, columns.type_index[turning], draft.given.workers[columns.first[turning]])
    rooms: list[int] = room.tolist()
    return rooms


def _begins(slot: int, has_waited: bool, room: list[int], draft: Draft) -> bool:
    """Give a job its first turn if it does not run yet, perhaps as a partner; return whether it runs now."""
    return slot in draft.run_of or _first_turn(slot, has_waited, room, draft)


def _first_turn(slot: int, has_waited: bool, room: list[int], draft: Draft) -> bool:
    """Start a job on the type where its class is owed most, among the types with room for it."""
    workers = int(draft.given.workers[slot])
    for entry in sorted(draft.ledger.entries_of(draft.class_of(slot)), key=draft.standing, reverse=True):
        type_index = draft.ledger.entries.keys[entry][2]
        needed = workers - draft.free[type_index]
        if needed > 0 and (room[type_index] <= 0 or not has_waited):
            continue
        members = _with_partner(slot, entry, draft)
        if members is None:
            continue
        may_stop = room[type_index] > 0 and has_waited
        victims = _yielding_to_first_turn(members, slot, type_index, needed, draft, may_stop=may_stop)
        if _take(members, type_index, victims, draft):
            room[type_index] -= workers
            return True
    return False


def _with_partner(slot: int, entry: int, draft: Draft) -> Members | None:
    """The job, with a partner if the entry is for a pair; None if it needs a partner and none waits."""
    first, second, _ = draft.ledger.entries.keys[entry]
    if second == NO_CLASS:
        return (slot,)
    is_first = draft.class_of(slot) == first
    other = draft.next_in_queue(second if is_first else first, (slot,))
    if other is None:
        return None
    return (slot, other) if is_first else (other, slot)


def _yielding_to_first_turn(
    members: Members, slot: int, type_index: int, needed: int, draft: Draft, *, may_stop: bool
) -> Sequence[Run] | None:
    """Runs that yield to a first turn; None if they are not enough.

    They have had their turn and would not finish within another. The longest yield first: waiting costs them least.
    """
    if draft.fits(members, type_index):
        return ()
    if draft.room is not None and not may_stop:
        return None  # accelerators are idle, but their servers lack something else
    if draft.room is not None:
        return draft.fewest(_after_their_turns(slot, type_index, draft), members, type_index, needed)
    able: list[Run] = []
    for run in _after_their_turns(slot, type_index, draft):
        if run.workers == needed:
            return [run]
        able.append(run)
    return draft.fewest(able, members, type_index, needed)


def _after_their_turns(slot: int, type_index: int, draft: Draft) -> Iterator[Run]:
    """The runs on a type that may yield to a job's first turn, the longest first."""
    turn = float(draft.turns[slot])
    for run in draft.longest_left(type_index):
        if not draft.still_runs(run):
            continue
        if draft.seconds_left(run) <= turn:
            return
        if not draft.is_before(run, (slot,)):
            yield run


def hold_for_gangs(draft: Draft) -> dict[int, int]:
    """Reserve the free accelerators of a type for a gang that waits for its first turn; return how many, by type.

    Otherwise smaller jobs would take each accelerator as it becomes free, and the gang would wait for all their turns.
    """
    held: dict[int, int] = {}
    if not any(draft.free):
        return held
    new = draft.never_run
    for slot in new[draft.given.workers[new] > 1].tolist():
        if slot not in draft.run_of:
            workers = draft.given.workers[slot]
            type_indices = {
                draft.ledger.entries.keys[entry][2] for entry in draft.ledger.entries_of(draft.class_of(slot))
            }
            for type_index in type_indices:
                if draft.free[type_index] and workers <= draft.given.capacity[type_index]:
                    held[type_index], draft.free[type_index] = draft.free[type_index], 0
    return held


def _take(members: Members, type_index: int, victims: Iterable[Run] | None, draft: Draft) -> bool:
    """Stop the victims and start a combo; False if victims is None or an earlier job of a team should come first."""
    if victims is None or any(draft.jumps_the_queue(slot, type_index) for slot in members):
        return False
    for run in victims:
        draft.stop(run)
    draft.start(members, type_index)
    return True


# Entries that are owed time, and the runs that yield to them


def serve(draft: Draft, rules: Rules) -> int:
    """Start runs of entries that are owed them, largest credit first; return how many were started."""
    if draft.given.mid_round and not (any(draft.free) and draft.waiting):
        return 0
    began = len(draft.begun)
    for entry in challengers(draft, rules):
        while advance(entry, draft, rules):
            pass
    return len(draft.begun) - began


def challengers(draft: Draft, rules: Rules) -> list[int]:
    """Entries that are owed a run and may find a job for it, and room or a run that yields; largest credit first."""
    entries = draft.ledger.entries
    owed = entries.standing(np.array(draft.paid), draft.given.round_seconds)
    hopeful = (owed > 0) & (entries.target > 0)
    if not hopeful.any():
        return []
    waits, alone = draft.classes_that_wait(), entries.second == NO_CLASS
    has_jobs = waits[entries.first] & (alone | waits[entries.second])
    room = np.asarray(draft.free)[entries.type_index] > 0
    if not draft.given.mid_round:
        behind = (draft.excess_lag(rules.behind) > 0)[entries.first]
        hopeful &= has_jobs | behind | ~alone
        if not hopeful.any():
            return []
        patience = draft.least_patience
        room |= owed - weakest_on_type(draft, owed)[entries.type_index] > patience
        if (hopeful & room & ~has_jobs).any():
            lowest = lowest_of_class(draft, owed)
            moves = behind & (owed - lowest[entries.first] > patience)
            pairs = owed - np.minimum(lowest[entries.first], lowest[entries.second]) > rules.pairing * patience
            has_jobs |= np.where(alone, moves, pairs)
    chosen = (hopeful & room & has_jobs).nonzero()[0]
    ordered: list[int] = chosen[np.argsort(-entries.credit[chosen], kind="stable")].tolist()
    return ordered


def lowest_of_class(draft: Draft, owed: Floats) -> Floats:
    """By class: the lowest standing of a run with one of its jobs; infinite if none runs. Last: "no class"."""
    entries, class_of = draft.ledger.entries, draft.ledger.classes
    lowest = np.full(len(draft.ledger.members) + 1, np.inf)
    paying = np.array(draft.paid) > 0
    np.minimum.at(lowest, entries.first[paying], owed[paying])
    np.minimum.at(lowest, entries.second[paying], owed[paying])
    for run in draft.guests():
        standing = draft.standing_of(run)
        for slot in run.members:
            lowest[class_of[slot]] = min(lowest[class_of[slot]], standing)
    lowest[NO_CLASS] = np.inf
    return lowest


def weakest_on_type(draft: Draft, owed: Floats) -> Floats:
    """By type: the lowest standing of a run there that has had its turn; infinite if there is none."""
    types, paying = draft.ledger.entries.type_index, draft.entries_with_turns
    weakest = np.array(
        [
            next((rank[0] for rank in draft.guests_with_turns(type_index)), np.inf)
            for type_index in range(len(draft.free))
        ]
    )
    np.minimum.at(weakest, types[paying], owed[paying])
    return weakest


def advance(entry: int, draft: Draft, rules: Rules) -> bool:
    """Start one more run of an entry if it is owed one and there is room, or enough runs yield."""
    first, second, type_index = draft.ledger.entries.keys[entry]
    owed = draft.standing(entry)
    if owed <= 0 or (draft.given.mid_round and not draft.free[type_index]):
        return False
    members = _choose((first,) if second == NO_CLASS else (first, second), type_index, owed, draft, rules)
    if members is None:
        return False
    movers = dict.fromkeys(draft.run_of[slot] for slot in members if slot in draft.run_of)
    room = draft.free[type_index] + sum(run.workers for run in movers if run.type_index == type_index)
    needed = int(draft.given.workers[members[0]]) - room
    victims = yielding(type_index, needed, owed, members, draft, rules, movers=tuple(movers))
    return _take(members, type_index, None if victims is None else [*movers, *victims], draft)


def _choose(classes: Sequence[int], type_index: int, owed: float, draft: Draft, rules: Rules) -> Members | None:
    """Choose one job of each class: the next in its queue, else one that gains enough by moving."""
    chosen: list[int] = []
    for number in classes:
        slot = draft.next_in_queue(number, chosen)
        if slot is None and not draft.given.mid_round:
            slot = _mover(number, type_index, owed, chosen, draft, rules, paired=len(classes) > 1)
        if slot is None:
            return None
        chosen.append(slot)
    return tuple(chosen)


def _mover(
    number: int, type_index: int, owed: float, taken: Sequence[int], draft: Draft, rules: Rules, *, paired: bool
) -> int | None:
    """The running job of a class that gains most by moving to this type; None if no job gains enough."""
    found: tuple[float, int] | None = None
    margin = rules.pairing if paired else 1.0
    for group in draft.movable(number, -np.inf if paired else rules.behind):
        slot = next((slot for slot in group if slot not in taken and draft.still_runs_at(slot)), None)
        if slot is None:
            continue
        run = draft.run_of[slot]
        excess = owed - draft.standing_of(run)
        if excess > margin * float(draft.patience[slot]) and (paired or _is_faster(run, type_index, draft, rules)):
            found = min(found or (-excess, slot), (-excess, slot))
    return None if found is None else found[1]


def _is_faster(run: Run, type_index: int, draft: Draft, rules: Rules) -> bool:
    """Whether a job would run faster on the type; True for pairs and where speeds are unknown."""
    if len(run.members) > 1 or not rules.knows_speeds:
        return True
    rates = draft.given.rates[run.members[0]]
    return bool(rates[type_index] > rates[run.type_index])


def yielding(
    type_index: int,
    needed: int,
    owed: float,
    members: Members,
    draft: Draft,
    rules: Rules,
    *,
    movers: Sequence[Run] = (),
) -> Sequence[Run] | None:
    """The runs on a type that yield to jobs that are owed this much; None if they are not enough.

    A run that occupies more accelerators than needed loses more than the jobs gain, so it yields later. The `movers`
    are runs of the jobs themselves, which leave in any case.
    """
    if needed <= 0 and draft.fits(members, type_index, movers):
        return ()
    if draft.given.mid_round:
        return None
    patience = min(float(draft.patience[slot]) for slot in members)
    weaker = _weaker(type_index, needed, owed, patience, members, draft, rules)
    if draft.room is not None:
        return draft.fewest(weaker, members, type_index, needed, movers)
    able: list[Run] = []
    for run in weaker:
        if run.workers == needed:
            return [run]  # an exact fit, with the lowest standing of these
        able.append(run)
    return draft.fewest(able, members, type_index, needed, movers) if able else None


def _weaker(
    type_index: int, needed: int, owed: float, patience: float, members: Members, draft: Draft, rules: Rules
) -> Iterator[Run]:
    """The runs on a type whose standing is low enough for their size, lowest first."""
    for standing, group in draft.ranked(type_index):
        margin = owed - standing
        if margin <= patience:
            return
        for run in draft.lasting(group, rules.ending):
            if (
                margin > patience * max(run.workers / max(needed, 1), 1.0) ** 0.5
                and _may_yield(run, members, draft)
                and draft.seconds_left(run) > rules.ending * patience
            ):
                yield run


def _may_yield(run: Run, members: Members, draft: Draft) -> bool:
    if not draft.still_runs(run):
        return False
    return not any(slot in run.members for slot in members) and not draft.is_before(run, members)


# Idle accelerators


def seat_idle(draft: Draft, rules: Rules, prices: Floats | None) -> None:
    """Give idle accelerators to jobs that can use them, first to those that this plan stopped there."""
    for run in list(draft.stopped.values()):
        if draft.fits(run.members, run.type_index) and not any(slot in draft.run_of for slot in run.members):
            draft.start(run.members, run.type_index)
    again = True
    while again and any(draft.free) and draft.waiting:
        again = False
        for slot, type_index in offers(
            draft.given, draft.free, draft.jobs_to_seat(), prices, by_speed=rules.knows_speeds
        ):
            fits = slot not in draft.run_of and draft.fits((slot,), type_index)
            if fits and _take((slot,), type_index, (), draft):
                again = draft.has_teams  # a job that had to wait for an earlier one may start now
                if not any(draft.free):
                    return


def upgrade(draft: Draft, rules: Rules, prices: Floats | None) -> None:
    """Move runs to idle accelerators where they finish much sooner, largest gain first."""
    sooner: dict[int, tuple[Ints, Floats]] = {}
    while any(draft.free):
        found = []
        for type_index in (type_index for type_index, count in enumerate(draft.free) if count > 0):
            if type_index not in sooner:
                sooner[type_index] = _sooner_elsewhere(type_index, draft, rules, prices)
            best = _best_upgrade(type_index, *sooner[type_index], draft)
            if best is not None:
                found.append((type_index, *best))
        if not found:
            return
        type_index, run, _ = max(found, key=itemgetter(2))  # of equals the first
        draft.stop(run)
        draft.start(run.members, type_index)


def _best_upgrade(type_index: int, slots: Ints, sooner: Floats, draft: Draft) -> tuple[Run, float] | None:
    """The run that gains most by moving to an idle type, and the seconds that it gains; None if no run may move."""
    if not len(slots):
        return None
    gain = np.where(draft.given.workers[slots] <= draft.free[type_index], sooner, 0.0)
    while (best := float(gain[at := int(gain.argmax())])) > 0:  # of equals the first
        run = draft.run_of.get(int(slots[at]))
        if (
            run is not None
            and run not in draft.begun
            and len(run.members) == 1
            and not _overtakes(run, type_index, draft)
            and draft.fits(run.members, type_index)
        ):
            return run, best
        gain[at] = 0.0
    return None


def _sooner_elsewhere(type_index: int, draft: Draft, rules: Rules, prices: Floats | None) -> tuple[Ints, Floats]:
    """Running jobs that would finish much sooner alone on a type: their slots, and the seconds that each would gain."""
    given = draft.given
    faster = (given.rates[:, type_index] >= rules.faster * given.rate_here) & (given.rate_here > 0)
    slots = faster.nonzero()[0]
    if not len(slots):
        return slots, np.empty(0)
    here = given.rate_here[slots]
    left = _steps_left(slots, here, draft)
    sooner = left / here - left / given.rates[slots, type_index]
    good = sooner > rules.upgrading * draft.restart_seconds[slots]
    if prices is not None:
        good &= cheapest_types(given.rates[slots], prices)[:, type_index]
    return slots[good], sooner[good]


def _steps_left(slots: Ints, here: Floats, draft: Draft) -> Floats:
    """Steps left; a job of unknown length is assumed to need as long again as it has run, and at least a turn."""
    left = draft.given.steps_of(slots)
    unknown = np.isnan(left)
    if not unknown.any():
        return left
    return np.where(unknown, np.maximum(draft.served[slots], draft.turns[slots]) * here, left)


def _overtakes(run: Run, type_index: int, draft: Draft) -> bool:
    """Whether an earlier job of the same team would also gain by moving there."""
    rates = draft.given.rates
    for other in draft.earlier(run.members[0]):
        place = draft.run_of.get(other)
        if rates[other, type_index] > (0.0 if place is None else rates[other, place.type_index]):
            return True
    return False


# Trade


def trade(draft: Draft, rules: Rules) -> None:
    """Let jobs of a class swap places when one is far ahead of the other."""
    for ahead, behind in uneven(draft.ledger, draft.patience, rules):
        if _may_swap(ahead, behind, draft, rules):
            _swap(ahead, behind, draft)


def uneven(ledger: Ledger, patience: Floats, rules: Rules) -> list[tuple[int, int]]:
    """By class: the jobs furthest ahead and furthest behind, if their lags differ by more than the threshold."""
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
    """Whether two jobs may swap: the one ahead has the faster place, and those that run do so alone, after a turn."""
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
    if draft.room is not None and not _fit_swapped(ahead, behind, better, worse, draft.room):
        return False
    return not draft.is_before(better, (behind,)) and not draft.jumps_the_queue(behind, better.type_index)


def _fit_swapped(ahead: int, behind: int, better: Run, worse: Run | None, room: Room) -> bool:
    """Whether both jobs fit on the type that the other leaves."""
    if room.clearing((behind,), better.type_index, better.workers, (), (better,)) is None:
        return False
    return worse is None or room.clearing((ahead,), worse.type_index, worse.workers, (), (worse,)) is not None


def _swap(ahead: int, behind: int, draft: Draft) -> None:
    better, worse = draft.run_of[ahead], draft.run_of.get(behind)
    draft.stop(better)
    if worse is not None:
        draft.stop(worse)
        draft.start((ahead,), worse.type_index)
    draft.start((behind,), better.type_index)
