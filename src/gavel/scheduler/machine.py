"""The scheduler: a state machine from events to commands. It reads no clock, does no I/O and solves nothing itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import LIST_PRICES, AcceleratorType, Server
from gavel.core.errors import InputError
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobsProgressed,
    JobSubmitted,
    Launch,
    RateMeasured,
    RatesProfiled,
    Renew,
    RestartMeasured,
    RoundDue,
    ServerJoined,
    ServerLost,
    Solve,
    SolveFailed,
    Stop,
    WakeAt,
)
from gavel.core.jobs import Entity, JobSpec
from gavel.core.problem import Bools, Floats, Ints, Jobs, Problem, with_ancestors
from gavel.core.throughputs import Condition, Throughputs
from gavel.scheduler.placement import Floor, Where
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import NO_TEAM, Elapsed, Mechanism, Plan, RoundInput, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the scheduler works; the same in every world."""

    round_seconds: float = 360.0
    space_sharing: bool = False
    min_seconds_between_allocations: float = 0.0
    recompute_every_seconds: float = np.inf
    """Ask for a new allocation this long after the last one even if nothing changed."""
    solve_patience_seconds: float = 1.0
    """How long a round waits for a new allocation before it goes on with the old one."""
    start_mid_round: bool = True
    """Start jobs on accelerators that are idle during a round, instead of when the next one begins."""
    restart_seconds: float = 10.0
    """What a restart costs a job, saving and loading a checkpoint together, where it has not been measured."""
    open_entities: bool = False
    """Take in jobs of entities that nobody described: they get the defaults."""


Profile = tuple[str, int, tuple[str, ...] | None]
"""What jobs that run alike have in common: template, workers, and the types they may run on (None: all)."""


RESTART_WEIGHT = 0.25
"""How much the newest restart counts in what restarts of its template are taken to cost."""
RESTART_MATTERS = 1.25
"""A cost of restarts that changed by more than this factor is worth a new allocation, with which it is taken up."""

SPARE_PROFILES = 64
"""Profiles without jobs are forgotten once there are more than these and twice as many as jobs."""

PLACEMENT_MATTERS = 1.05
"""A gang that gains less than this by sitting together is not worth moving others for."""


class Scheduler:
    """Decides who runs where. Feed it events in order of time; perform the commands it returns."""

    def __init__(
        self,
        table: Throughputs,
        mechanism: Mechanism,
        settings: Settings,
        *,
        entities: Mapping[str, Entity] | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> None:
        self.table = table
        self.mechanism = mechanism
        self.settings = settings
        self.prices = LIST_PRICES | dict(prices or {})
        self.types: tuple[str, ...] = table.types
        self.roster = Roster(len(self.types))
        self.floors = [Floor() for _ in self.types]
        self.placed: dict[Run, Where] = {}
        """What runs, and where: no accelerator twice, no job twice."""
        self.run_of: dict[int, Run] = {}
        """The same by slot."""
        self._begun: dict[Run, None] = {}
        self._ended: dict[Run, None] = {}
        """Runs of which the mechanism has not been told yet; none are left when an event has been handled."""
        self.allocation: Allocation | None = None
        self.allocated_at: float | None = None
        """When the allocation came."""
        self.unanswered: Solve | None = None
        """The last question, while nobody has answered it: whoever takes over has to ask it again."""
        self._tree = with_ancestors(entities or {})
        """The entities by path, those on the way to the root included."""
        self._profiles: dict[Profile, int] = {}
        self._problem_base: Problem | None = None
        self._rates: list[Floats] = []
        """By profile: (types, 2), consolidated and unconsolidated."""
        self._held: dict[int, float] = {}
        """Slots of jobs that failed, and until when they do not run."""
        self._restarts: dict[str, float] = {}
        """By template: what its restarts cost, in seconds, averaged over those that were measured."""
        self._restarts_in_use: dict[str, float] = {}
        """The same, as the mechanism is told: it changes only with an allocation, because settled plans rest on it."""
        self._changed = False
        self._solved_at = -np.inf
        self._solve_number = 0
        self._awaiting: int | None = None
        """The number of the solve that the next round waits for."""
        self._accounted_until = 0.0
        self._scattered = False
        """Whether some gang that cares may not sit together: then every round looks for room."""
        self._round_ends: float | None = None
        self._plans = 0
        """How many plans were asked for."""
        self._waking: float | None = None
        """When to look for jobs that can start during the round; None if there is no need."""
        self.accelerator_seconds: Floats = np.zeros(len(self.types))
        """Given out so far, by type."""

    @property
    def round_ends(self) -> float | None:
        """When the scheduler plans next; None if nothing runs and no job waits for anything."""
        return self._round_ends

    @property
    def templates(self) -> list[str]:
        """What jobs run, by profile."""
        return [template for template, _, _ in self._profiles]

    @property
    def awaiting(self) -> int | None:
        """The number of the solve that the next round waits for."""
        return self._awaiting

    def paused_until(self, slot: int) -> float | None:
        """When a job that failed may run again; None if it may now."""
        return self._held.get(slot)

    def rates_of(self, job: str) -> dict[str, float]:
        """Steps per second of a job alone, as now believed, by type."""
        return dict(zip(self.types, self.roster.rates[self.roster.slot_of[job]].tolist(), strict=True))

    @property
    def entities(self) -> list[str]:
        """The paths of the entities, by the number that the roster has."""
        return list(self._tree)

    def handle(self, event: Event) -> list[Command]:
        """Take in one event."""
        commands = self._answer(event)
        if self._begun or self._ended:
            self._tell_mechanism(0.0)
        return commands

    def _answer(self, event: Event) -> list[Command]:  # noqa: C901, PLR0911 - one answer for each kind of event
        match event:
            case RoundDue():
                return self._round_due(event.time)
            case JobsProgressed():
                return self._progressed(event)
            case JobFinished() | JobCancelled():
                return self._job_gone(event.time, event.job)
            case JobSubmitted():
                return self._submitted(event)
            case AllocationReady():
                return self._allocation_ready(event)
            case SolveFailed():
                return self._go_on_without(event)
            case JobFailed():
                return self._failed(event)
            case RateMeasured():
                return self._measured(event)
            case RestartMeasured():
                return self._restart_measured(event)
            case RatesProfiled():
                return self._profiled(event)
            case ServerJoined():
                return self._joined(event.time, event.server)
            case ServerLost():
                return self._lost(event.time, event.server)

    def _progressed(self, event: JobsProgressed) -> list[Command]:
        slots, steps = self._slots_of(event.jobs), event.steps
        if slots.min(initial=0) < 0:  # some have left meanwhile
            slots, steps = slots[slots >= 0], steps[slots >= 0]
        self.roster.steps[slots] -= steps
        self.roster.heard[slots] = event.time
        return []

    def _slots_of(self, jobs: Sequence[str]) -> Ints:
        """The slots of jobs; -1 for those that have left."""
        return np.fromiter(map(self.roster.slot_of.get, jobs, repeat(-1)), dtype=np.intp, count=len(jobs))

    def _measured(self, event: RateMeasured) -> list[Command]:
        """Believe what was measured; a rate that changed by much makes the next round ask for a new allocation."""
        missing = next((job for job in (event.job, event.beside) if job and job not in self.roster), None)
        if missing is not None:
            self.table.ignore(
                f"job {event.job} on {event.type}: {event.rate:g} steps a second, but job {missing} is gone"
            )
        elif self.table.learn(self._condition(event.job, event.type, event.beside, event.consolidated), event.rate):
            self._rates_changed(alone=event.beside is None)
        return []

    def _restart_measured(self, event: RestartMeasured) -> list[Command]:
        """Let what a restart of a template is taken to cost follow what was measured."""
        if event.job in self.roster and 0.0 <= event.seconds < np.inf:
            template = self.templates[self.roster.profile[self.roster.slot_of[event.job]]]
            before = self._restarts.get(template, event.seconds)
            now = self._restarts[template] = before + RESTART_WEIGHT * (event.seconds - before)
            low, high = sorted((now, self.restart_seconds(template)))
            self._changed = self._changed or high > low * RESTART_MATTERS
        return []

    def restart_seconds(self, template: str) -> float:
        """What a restart of a template is taken to cost."""
        return self._restarts_in_use.get(template, self.settings.restart_seconds)

    def _restart_costs(self) -> Floats:
        """By slot."""
        if not self._restarts_in_use:
            return _alike(self.settings.restart_seconds, len(self.roster.workers))
        costs = np.array([self.restart_seconds(template) for template in self.templates])
        return np.asarray(costs[self.roster.profile])

    def _profiled(self, event: RatesProfiled) -> list[Command]:
        """Believe what was found out about a template, and about the one beside it."""
        own = Condition(event.template, 1, event.type, beside=event.beside)
        if event.beside is None:
            changed = self.table.learn(own, event.rate)
        elif event.rate == 0 and event.rate_beside == 0:
            changed = self.table.fail(own, "they do not fit together")
        else:
            other = Condition(event.beside, 1, event.type, beside=event.template)
            changed = self.table.learn(own, event.rate)
            changed = self.table.learn(other, event.rate_beside or 0.0) or changed
        if changed:
            self._rates_changed(alone=event.beside is None)
        return []

    def _rates_changed(self, *, alone: bool) -> None:
        """Rates alone, or of pairs, are others now."""
        if alone:
            self._look_up_rates()
        elif self.settings.space_sharing:
            self._problem_base, self._changed = None, True

    def _condition(self, job: str, kind: str, beside: str | None, close: bool = True) -> Condition:
        profiles = list(self._profiles)
        template, workers, _ = profiles[self.roster.profile[self.roster.slot_of[job]]]
        other = None if beside is None else profiles[self.roster.profile[self.roster.slot_of[beside]]][0]
        return Condition(template, workers, kind, close, other)

    def _rates_of(self, profiles: Sequence[Profile]) -> Floats:
        """By profile: (types, 2), 0 where it may not run."""
        rates = self.table.rates([(template, workers) for template, workers, _ in profiles], self.types)
        return np.where(self._allowed(profiles)[:, :, None], rates, 0.0)

    def _allowed(self, profiles: Iterable[Profile]) -> Bools:
        allowed = [[types is None or kind in types for kind in self.types] for _, _, types in profiles]
        return np.array(allowed, dtype=bool).reshape(len(allowed), len(self.types))

    def _look_up_rates(self) -> None:
        """Rates or types have changed: ask the table for everything anew."""
        self._rates = list(self._rates_of(list(self._profiles)))
        active = self.roster.active
        if len(active):
            self.roster.set_rates(active, np.array(self._rates)[self.roster.profile[active], :, 0])
        self._problem_base = None
        self._changed = True

    def _submitted(self, event: JobSubmitted) -> list[Command]:
        job = event.job
        if job.id in self.roster:
            raise InputError(f"job {job.id!r} is known already")
        profile = (job.template, job.workers, job.types)
        entity = self._entity_number(job)
        if profile not in self._profiles:
            rates = self._rates_of([profile])  # refuses an unknown template before anything changes
            if len(self._profiles) > SPARE_PROFILES + 2 * len(self.roster):
                self._forget_profiles()
            self._rates += list(rates)
            self._profiles[profile] = len(self._profiles)
            self._problem_base = None
        number = self._profiles[profile]
        slot = self.roster.add(job, event.time, number, entity, self._rates[number][:, 0])
        self._changed = True
        return self._look_for_work(event.time, slot)

    def _forget_profiles(self) -> None:
        """Drop the profiles that no job has any more; what was learned about their templates stays in the table."""
        active = self.roster.active
        used = np.unique(self.roster.profile[active])
        profiles = list(self._profiles)
        self._profiles = {profiles[old]: new for new, old in enumerate(used.tolist())}
        self._rates = [self._rates[old] for old in used.tolist()]
        now = np.searchsorted(used, self.roster.profile[active])
        self.roster.profile[:] = 0  # of slots that are not in use, too
        self.roster.profile[active] = now
        self._problem_base = None

    def _entity_number(self, job: JobSpec) -> int:
        if job.entity is None:
            return -1
        known = self.entities
        if job.entity not in known:
            if not self.settings.open_entities:
                names = ", ".join(known) or "none"
                raise InputError(f"job {job.id!r}: there is no entity {job.entity!r}; known: {names}")
            self._tree = with_ancestors(self._tree | {job.entity: Entity()})
            self._problem_base = None
            renumbered = np.array([*(self.entities.index(path) for path in known), -1])
            self.roster.entity = renumbered[self.roster.entity]
            known = self.entities
        return known.index(job.entity)

    def _job_gone(self, time: float, job: str) -> list[Command]:
        if job not in self.roster:
            return []
        self._vacate(time, job)
        slot = self.roster.remove(job)
        self._held.pop(slot, None)
        self.mechanism.leave(slot)
        self._changed = True
        return self._look_for_work(time)

    def _failed(self, event: JobFailed) -> list[Command]:
        if event.crashed and event.job in self.roster:
            self._blame(event)
        if not event.retry:
            return self._job_gone(event.time, event.job)
        if event.job not in self.roster:
            return []
        self._vacate(event.time, event.job)
        if event.not_before is not None:
            self._held[self.roster.slot_of[event.job]] = event.not_before
            self._changed = True
        return self._look_for_work(event.time) or self._wake_after_pauses(event.time)

    def _blame(self, event: JobFailed) -> None:
        """Tell the table under which condition a job failed: a pair that does not fit is not to be tried again."""
        slot = self.roster.slot_of[event.job]
        run = self.run_of.get(slot)
        if run is None:
            return
        others = [self._name(member) for member in run.members if member != slot]
        condition = self._condition(event.job, self.types[run.type_index], others[0] if others else None)
        if self.table.fail(condition, event.reason):
            self._rates_changed(alone=False)

    def _vacate(self, time: float, job: str) -> None:
        """Take a job off its accelerators; whoever shared them goes on alone until the round ends."""
        slot = self.roster.slot_of[job]
        run = self.run_of.get(slot)
        if run is None:
            return
        self.account(time)
        where = self._clear(run)
        rest = tuple(member for member in run.members if member != slot)
        if rest:
            self._seat(Run(rest, run.type_index, run.workers), where)
        else:
            self.floors[run.type_index].give_back(where)

    def _joined(self, time: float, server: Server) -> list[Command]:
        if any(server.name in floor for floor in self.floors):
            raise InputError(f"server {server.name!r} is here already")
        self._admit(server.type)
        self.floors[self.types.index(server.type)].join(server)
        self._problem_base = None
        self._changed = True
        return self._look_for_work(time)

    def _admit(self, kind: str) -> None:
        """Make room for a type that is new, if the table will have it."""
        self.table.admit(kind)
        while len(self.types) < len(self.table.types):
            self.types = self.table.types[: len(self.types) + 1]
            self.floors.append(Floor())
            self.accelerator_seconds = np.append(self.accelerator_seconds, 0.0)
            self.roster.add_type()
            self._look_up_rates()

    def _lost(self, time: float, name: str) -> list[Command]:
        commands: list[Command] = []
        for kind, floor in enumerate(self.floors):
            if name not in floor:
                continue
            self.account(time)
            for run in [run for run, where in self.placed.items() if run.type_index == kind and name in where]:
                floor.give_back({server: n for server, n in self._clear(run).items() if server != name})
                commands += [Stop(self._name(slot)) for slot in run.members]
            floor.lose(name)
            self._problem_base = None
            self._changed = True
        return commands + self._look_for_work(time)

    def _look_for_work(self, time: float, newcomer: int | None = None) -> list[Command]:
        """Plan at once where nothing runs, or where idle accelerators could be used, after a job came or room was made.

        All that happens at one moment is looked at together, when the world wakes the scheduler at that time.
        """
        if not len(self.roster) or self._awaiting is not None or not any(floor.capacity for floor in self.floors):
            return []  # an answer, a job or a server will wake us
        if self._round_ends is not None and self._round_ends <= time:
            return []
        if not self.placed:
            self._round_ends = time
            return [WakeAt(time)]
        if not self.settings.start_mid_round or self._waking is not None or not self._has_room(newcomer):
            return []
        self._waking = time
        return [WakeAt(time)]

    def _wake_after_pauses(self, time: float) -> list[Command]:
        """Wake up during the round for a job that has paused long enough by then."""
        if not self.settings.start_mid_round or self._waking is not None or not self._is_mid_round(time):
            return []  # the next plan will see to it
        return [WakeAt(self._next_wake())]

    def _next_wake(self) -> float:
        """When the round ends, or earlier the first pause after a failure."""
        assert self._round_ends is not None  # noqa: S101 - a round has begun
        pauses = list(self._held.values()) if self.settings.start_mid_round else []
        return min(self._round_ends, min(pauses, default=np.inf))

    def _has_room(self, newcomer: int | None) -> bool:
        """Whether idle accelerators could be used: by the newcomer or, if there is none, by any job.

        That is a job that waits, or one that would run faster there.
        """
        roster = self.roster
        who = slice(None) if newcomer is None else slice(newcomer, newcomer + 1)
        for kind, floor in enumerate(self.floors):
            if floor.free:
                wanted = (roster.rates[who, kind] > roster.rate_here[who]) & (roster.workers[who] <= floor.free)
                if newcomer is None and self._held:
                    wanted[list(self._held)] = False
                if wanted.any():
                    return True
        return False

    def _round_due(self, time: float) -> list[Command]:
        self.account(time)
        self._waking = None
        if self._is_mid_round(time):
            self._release(time)
            return self._plan(time)
        late = self._awaiting is not None
        self._awaiting = None
        self._release(time)
        if len(self.roster) == len(self._held) and not self.placed:
            return self._sleep()
        if not late and self._wants_allocation(time):
            self._solve_number += 1
            self._awaiting = self._solve_number
            self._solved_at, self._changed = time, False
            self._round_ends = time + self.settings.solve_patience_seconds
            self.unanswered = Solve(self._solve_number, self.problem(time))
            return [self.unanswered, WakeAt(self._round_ends)]
        return self._begin_round(time)

    def _is_mid_round(self, time: float) -> bool:
        """Whether leases run until later and no answer is awaited that a round begins with."""
        return bool(self.placed) and self._awaiting is None and self._round_ends is not None and time < self._round_ends

    def _release(self, time: float) -> None:
        """Let go of jobs that have paused long enough after a failure."""
        for slot in [slot for slot, until in self._held.items() if until <= time]:
            del self._held[slot]
            self._changed = True

    def _sleep(self) -> list[Command]:
        """Nobody can run: only a change can help, or the end of a pause."""
        self._round_ends = min(self._held.values(), default=None)
        return [] if self._round_ends is None else [WakeAt(self._round_ends)]

    def _wants_allocation(self, time: float) -> bool:
        since = time - self._solved_at
        if self._changed or self.allocation is None:
            return since >= self.settings.min_seconds_between_allocations or self.allocation is None
        return since >= self.settings.recompute_every_seconds

    def _allocation_ready(self, event: AllocationReady) -> list[Command]:
        if event.number != self._solve_number:
            return []  # the answer to a question that has been asked anew
        self.unanswered = None
        self.account(event.time)
        slots = self._slots_of(event.allocation.problem.jobs.ids)
        self.allocation, self.allocated_at = event.allocation, event.time
        self._restarts_in_use = dict(self._restarts)
        self.mechanism.adopt(event.allocation, slots)
        self._changed = self._changed or bool((slots < 0).any())  # somebody left while the solver worked
        if self._awaiting != event.number:
            return []
        return self._begin_round(event.time)

    def _go_on_without(self, event: SolveFailed) -> list[Command]:
        if event.number != self._solve_number:
            return []
        self.unanswered = None
        self._changed = True  # so that the next round asks again
        if self._awaiting != event.number:
            return []
        return self._begin_round(event.time)

    def _begin_round(self, time: float) -> list[Command]:
        """Plan a round from now on."""
        self._awaiting = None
        self._round_ends = time
        return self._plan(time)

    def _plan(self, time: float) -> list[Command]:
        """Decide what runs until the round ends, and where."""
        self._plans += 1
        mid_round = self._is_mid_round(time)
        plan = self.mechanism.decide(self.round_input(time, mid_round=mid_round))
        if not plan.started and not self.placed:
            return self._sleep()
        if not mid_round or self._round_ends is None:
            self._round_ends = time + self.settings.round_seconds
        until, self._accounted_until = self._round_ends, time
        wake = WakeAt(self._next_wake())
        lease: list[Command] = [wake] if mid_round else [Renew(until), wake]
        if not plan.started and not plan.stopped and (mid_round or not self._scattered):
            return lease
        return [*self._moves(self._rearrange(plan, gather=not mid_round), time, until), *lease]

    def _rearrange(self, plan: Plan, *, gather: bool) -> dict[Run, Where | None]:
        """Give every run its accelerators; to `gather` scattered gangs, others are moved within a type.

        Returns where everything that starts, stops or moves was before.
        """
        before: dict[Run, Where | None] = {}
        for run in plan.stopped:
            before[run] = where = self._clear(run)
            self.floors[run.type_index].give_back(where)
        gangs_start = any(run.workers > 1 for run in plan.started)
        if gather:
            scattered = [run for run, where in self.placed.items() if len(where) > 1 and self._cares(run)]
            self._scattered = bool(scattered) or gangs_start
            for run in sorted(scattered, key=lambda run: -run.workers):
                self._gather(run, before)
        else:
            self._scattered = self._scattered or gangs_start
        for run in sorted(plan.started, key=lambda run: -run.workers):
            if gather:
                self._make_room(run, before)
            before[run] = None
            self._seat(run, self.floors[run.type_index].take(run.workers))
        return before

    def _moves(self, before: Mapping[Run, Where | None], time: float, until: float) -> list[Command]:
        """Stop all that ran elsewhere or is not to run any more, then launch what begins; each once."""
        placed = self.placed
        changed = [run for run, where in before.items() if placed.get(run) != where]
        commands: list[Command] = [Stop(self._name(slot)) for run in changed if before[run] for slot in run.members]
        for run in changed:
            if run in placed:
                commands += self._launches(run, placed[run], time, until)
        return commands

    def _seat(self, run: Run, where: Where) -> None:
        self.placed[run] = where
        for slot in run.members:
            self.run_of[slot] = run
        self._begun[run] = None
        self.roster.starts(run.members, run.type_index)

    def _clear(self, run: Run) -> Where:
        """Take a run off its accelerators, and say which they were."""
        for slot in run.members:
            del self.run_of[slot]
        if run in self._begun:
            del self._begun[run]
        else:
            self._ended[run] = None
        self.roster.stops(run.members)
        return self.placed.pop(run)

    def _gather(self, run: Run, before: dict[Run, Where | None]) -> None:
        """Bring a scattered gang together if that is possible now."""
        floor, where = self.floors[run.type_index], self.placed[run]
        if floor.is_consolidated(where):
            return
        floor.give_back(where)
        self._make_room(run, before)
        gathered = floor.take(run.workers)
        if floor.is_consolidated(gathered):
            before.setdefault(run, where)
            self.placed[run] = gathered
        else:
            floor.give_back(gathered)
            floor.take_exactly(where)

    def _make_room(self, run: Run, before: dict[Run, Where | None]) -> None:
        """Move smaller runs within a type, each to one server, so that a gang that cares can sit together."""
        floor = self.floors[run.type_index]
        if run.workers == 1 or floor.holds(run.workers) or not self._cares(run):
            return
        movable: defaultdict[str, list[Run]] = defaultdict(list)
        for other, where in self.placed.items():
            if other.type_index == run.type_index and other.workers < run.workers and len(where) == 1:
                movable[next(iter(where))].append(other)
        sizes = {name: [other.workers for other in runs] for name, runs in movable.items()}
        clearing = floor.cheapest_clearing(run.workers, sizes)
        leaving = [movable[name][at] for name, positions in clearing.items() for at in positions]
        for other in sorted(leaving, key=lambda other: -other.workers):
            where = floor.take_elsewhere(other.workers, clearing)
            floor.give_back(self.placed[other])
            before.setdefault(other, self.placed[other])
            self.placed[other] = where

    def _cares(self, run: Run) -> bool:
        """Whether a gang runs faster when it sits together."""
        profile = int(self.roster.profile[run.members[0]])
        together, apart = self._rates[profile][run.type_index]
        return bool(together > apart * PLACEMENT_MATTERS)

    def _launches(self, run: Run, where: Where, time: float, until: float) -> list[Command]:
        names = [self._name(slot) for slot in run.members]
        for slot in run.members:
            self.roster.launched[slot] = self.roster.heard[slot] = time
            self.roster.restarts[slot] += self.roster.started[slot]
            self.roster.started[slot] = 1
        kind = self.types[run.type_index]
        beside = names[::-1] if len(names) == 2 else [None]
        close = self.floors[run.type_index].is_consolidated(where)
        return [Launch(name, kind, where, until, close, other) for name, other in zip(names, beside, strict=True)]

    def _name(self, slot: int) -> str:
        name = self.roster.ids[slot]
        assert name is not None  # noqa: S101 - a run's jobs are active
        return name

    def round_input(self, time: float, *, mid_round: bool = False) -> RoundInput:
        """What the mechanism may look at now."""
        roster, ready = self.roster, self._ready
        return RoundInput(
            number=self._plans,
            time=time,
            capacity=[floor.capacity for floor in self.floors],
            free=[floor.free for floor in self.floors],
            running=self.placed.keys(),
            waiting=ready[roster.running_on.take(ready) == 0],
            workers=roster.workers,
            rates=roster.rates,
            rate_here=roster.rate_here,
            started=roster.started,
            steps=roster.steps_at(time),
            received=roster.received,
            launched=roster.launched,
            arrival=roster.arrival,
            restart=self._restart_costs(),
            team=self._teams_of_jobs(),
            round_seconds=self.settings.round_seconds,
            mid_round=mid_round,
        )

    def _teams_of_jobs(self) -> Ints:
        """By slot: the number of its entity if that serves its jobs in order, else NO_TEAM."""
        ordered = [number if entity.policy == "fifo" else NO_TEAM for number, entity in enumerate(self._tree.values())]
        if all(number == NO_TEAM for number in ordered):
            return _nobody(len(self.roster.entity))
        return np.array([*ordered, NO_TEAM], dtype=np.intp)[self.roster.entity]

    @property
    def _ready(self) -> Ints:
        """The slots of the jobs that run or may."""
        active = self.roster.active
        return active[~np.isin(active, list(self._held))] if self._held else active

    def received_until(self, slot: int, time: float) -> Floats:
        """Seconds that a job has received on each type, what is not yet written down included; changes nothing."""
        received = self.roster.received[slot].copy()
        if self.roster.running_on[slot]:
            received[self.roster.running_on[slot] - 1] += max(time - self._accounted_until, 0.0)
        return np.asarray(received)

    def account(self, time: float) -> None:
        """Write down the accelerator time that everyone who runs has received."""
        elapsed = time - self._accounted_until
        if elapsed > 0:
            self._tell_mechanism(elapsed)
        if elapsed > 0 and self.placed:
            self.roster.receive(elapsed)
            self.accelerator_seconds += [elapsed * floor.busy for floor in self.floors]
        self._accounted_until = max(time, self._accounted_until)

    def _tell_mechanism(self, seconds: float) -> None:
        """Let the mechanism account for what runs."""
        elapsed = Elapsed(seconds, self.placed.keys(), tuple(self._begun), tuple(self._ended))
        self._begun.clear()
        self._ended.clear()
        self.mechanism.account(elapsed)

    @property
    def _base(self) -> Problem:
        """The problem of the current types and profiles, without jobs; made anew only when those change."""
        if self._problem_base is None:
            types = [
                AcceleratorType(name, floor.capacity, self.prices.get(name), floor.sizes())
                for name, floor in zip(self.types, self.floors, strict=True)
            ]
            nobody = Jobs((), *(np.empty(0) for _ in range(8)))  # type: ignore[arg-type]
            profiles = [(template, workers) for template, workers, _ in self._profiles]
            self._problem_base = Problem.from_table(
                types,
                self.table,
                profiles,
                nobody,
                entities=self._tree,
                allowed=self._allowed(self._profiles),
                sharing=self.settings.space_sharing,
            )
        return self._problem_base

    def problem(self, time: float) -> Problem:
        """The question that the jobs and servers of this moment pose."""
        roster, slots = self.roster, self._ready
        problem = self._base.with_jobs(
            Jobs(
                roster.names(slots),
                roster.profile[slots],
                roster.weight[slots],
                np.maximum(roster.steps[slots], 1e-9),
                roster.arrival[slots],
                time - roster.arrival[slots],
                roster.isolated_age[slots],
                np.maximum(roster.deadline[slots] - time, 1e-3),
                roster.entity[slots],
            )
        )
        self._age_in_isolation(problem, slots)
        return problem

    def isolated_seconds(self, slot: int, steps: float) -> float:
        """How long so many steps of a job would take with 1/n of the cluster as it is now."""
        problem = self._base
        n = max(len(self.roster), 1)
        share = problem.counts / (n * int(self.roster.workers[slot])) * (self.roster.rates[slot] > 0)
        rate = float(share / max(float(share.sum()), 1.0) @ self.roster.rates[slot])
        return steps / rate if rate > 0 else 0.0

    def _age_in_isolation(self, problem: Problem, slots: Ints) -> None:
        """Convert the steps done since the last problem into seconds with 1/n of the cluster."""
        done = self.roster.counted[slots] - self.roster.steps[slots]
        rate = problem.isolated_rates[problem.jobs.profile]
        self.roster.isolated_age[slots] += np.divide(done, rate, out=np.zeros(len(slots)), where=rate > 0)
        self.roster.counted[slots] = self.roster.steps[slots]


@lru_cache(maxsize=8)
def _alike(value: float, size: int) -> Floats:
    """The same value by slot; nothing may be written there."""
    values = np.full(size, value)
    values.flags.writeable = False
    return values


@lru_cache(maxsize=8)
def _nobody(size: int) -> Ints:
    """NO_TEAM by slot; nothing may be written there."""
    teams = np.full(size, NO_TEAM, dtype=np.intp)
    teams.flags.writeable = False
    return teams


def check_invariants(scheduler: Scheduler) -> None:
    """Raise AssertionError unless the scheduler's state is consistent."""
    seen: set[int] = set()
    used: dict[str, int] = {}
    for run, where in scheduler.placed.items():
        assert seen.isdisjoint(run.members), "a job runs twice"  # noqa: S101
        seen.update(run.members)
        assert sum(where.values()) == run.workers, "a gang is not whole"  # noqa: S101
        for name, count in where.items():
            used[name] = used.get(name, 0) + count
    active = set(scheduler.roster.active.tolist())
    assert seen <= active, "somebody runs who is not there"  # noqa: S101
    assert scheduler.run_of == {slot: run for run in scheduler.placed for slot in run.members}, "slots and runs differ"  # noqa: S101
    kinds = {slot: run.type_index + 1 for slot, run in scheduler.run_of.items()}
    running_on = scheduler.roster.running_on
    assert {slot: running_on[slot] for slot in running_on.nonzero()[0].tolist()} == kinds, "roster and floors differ"  # noqa: S101
    for floor in scheduler.floors:
        for name, size in floor._size.items():  # noqa: SLF001 - one package
            assert floor._free[name] == size - used.get(name, 0) >= 0, f"server {name} does not add up"  # noqa: S101, SLF001
