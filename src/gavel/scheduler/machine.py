"""The scheduler: a state machine from events to facts and commands. It reads no clock, does no I/O and solves nothing.

`take` decides what follows from an event; `evolve` lets a fact take effect and is the only way its state changes.
Applying the facts to another scheduler gives the same state, without any decision being taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import Any

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
    RateMeasured,
    RatesProfiled,
    RestartMeasured,
    RoundDue,
    ServerJoined,
    ServerLeaving,
    ServerLost,
    ServerStays,
    Solve,
    SolveFailed,
)
from gavel.core.facts import (
    AllocationAdopted,
    Fact,
    JobEnded,
    JobQueued,
    JobRequeued,
    Outcome,
    RoundPlanned,
    ServerAdded,
    ServerClosed,
    ServerRemoved,
    ServerReopened,
    Slept,
    SolveAsked,
    Started,
    Stopped,
    TimePassed,
    WakeSet,
    commands_of,
)
from gavel.core.jobs import Cause, Entity, JobSpec
from gavel.core.problem import Bools, Floats, Ints, Jobs, Problem, with_ancestors
from gavel.core.throughputs import Condition, Throughputs
from gavel.scheduler.placement import Floor, Where
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import NO_TEAM, Elapsed, Mechanism, Plan, RoundInput, Run
from gavel.scheduler.seating import Seating


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
    weigh_restarts: bool = True
    """Ask for a new allocation when measured restarts cost much more or less than believed.

    Needless where the mechanism does not look at the cost, and harmful where each allocation starts its accounts again.
    """
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

DRAINED = Cause("drained", "its server is drained")
SEATED = Cause("seated", "moves so that a gang can sit together")
REPAIRED = Cause("repaired", "shares its accelerators differently")
FIRST = Cause("first", "its first turn")
TURN = Cause("turn", "its turn has come")
TAKERS = 8
"""Of the jobs that a run yields to, this many are recorded."""


class Scheduler:
    """Decides who runs where. Feed it events in order of time; record its facts and perform what they ask for."""

    def __init__(  # noqa: PLR0915 - its state, item by item
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
        self._solve_seconds = 0.0
        """How long the last answer took."""
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
        self.wake: float | None = None
        """When the scheduler wants to be called next."""
        self._facts: list[Fact] = []
        """What follows from the event that is being decided."""
        self.accelerator_seconds: Floats = np.zeros(len(self.types))
        """Given out so far, by type."""

    @property
    def round_ends(self) -> float | None:
        """When the scheduler plans next; None if nothing runs and no job waits for anything."""
        return self._round_ends

    def servers(self) -> Iterable[Server]:
        """Every server that is counted on."""
        for kind, floor in zip(self.types, self.floors, strict=True):
            for name, size, _ in floor.servers():
                yield Server(name, kind, size)

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
        """Take in one event and say what to do."""
        return [command for fact in self.take(event) for command in self.commands(fact)]

    def commands(self, fact: Fact) -> Iterable[Command]:
        """What a fact that has just taken effect asks of the world."""
        if isinstance(fact, SolveAsked) and self.unanswered is not None:
            return [self.unanswered, *commands_of(fact)]
        return commands_of(fact)

    def take(self, event: Event) -> list[Fact]:
        """Decide what follows from an event. Each decision takes effect as a fact; they are returned in order."""
        facts: list[Fact] = []
        self._facts = facts
        self._decide(event)
        return facts

    def _note(self, fact: Fact) -> None:
        """Let a decision take effect."""
        self.evolve(fact)
        self._facts.append(fact)

    def evolve(self, fact: Fact) -> None:
        """Let a fact take effect."""
        _EFFECTS[type(fact)](self, fact)
        if self._begun or self._ended:
            self._tell_mechanism(0.0)

    def _decide(self, event: Event) -> None:  # noqa: C901, PLR0912 - one answer for each kind of event
        match event:
            case RoundDue():
                self._round_due(event.time)
            case JobsProgressed() | RateMeasured() | RestartMeasured() | RatesProfiled():
                self._note(event)
            case JobFinished():
                self._end_job(event.time, event.job, "completed", event.reason)
            case JobCancelled():
                self._end_job(event.time, event.job, "cancelled", "cancelled")
            case JobSubmitted():
                self._submitted(event)
            case AllocationReady():
                self._answered(event.time, AllocationAdopted(event.time, event.number, event.allocation))
            case SolveFailed():
                self._answered(event.time, event)
            case JobFailed():
                self._job_failed(event)
            case ServerJoined():
                self._joined(event.time, event.server)
            case ServerLost():
                self._lost(event)
            case ServerLeaving():
                self._leaving(event.time, event.server)
            case ServerStays():
                if any(event.server in floor.closed for floor in self.floors):
                    self._note(ServerReopened(event.time, event.server))
                    self._look_for_work(event.time)

    def _progressed(self, event: JobsProgressed) -> None:
        slots, steps = self._slots_of(event.jobs), event.steps
        if slots.min(initial=0) < 0:  # some have left meanwhile
            slots, steps = slots[slots >= 0], steps[slots >= 0]
        self.roster.steps[slots] -= steps
        self.roster.heard[slots] = event.time

    def _slots_of(self, jobs: Sequence[str]) -> Ints:
        """The slots of jobs; -1 for those that have left."""
        return np.fromiter(map(self.roster.slot_of.get, jobs, repeat(-1)), dtype=np.intp, count=len(jobs))

    def _measured(self, event: RateMeasured) -> None:
        """Believe what was measured; a rate that changed by much makes the next round ask for a new allocation."""
        missing = next((job for job in (event.job, event.beside) if job and job not in self.roster), None)
        if missing is not None:
            self.table.ignore(
                f"job {event.job} on {event.type}: {event.rate:g} steps a second, but job {missing} is gone"
            )
            return
        condition = self._condition(event.job, event.type, event.beside, event.consolidated)
        if self.table.learn(condition, event.rate):
            self._rates_changed(condition.template, alone=event.beside is None)

    def _restart_measured(self, event: RestartMeasured) -> None:
        """Let what a restart of a template is taken to cost follow what was measured."""
        if event.job in self.roster and 0.0 <= event.seconds < np.inf:
            template = self.templates[self.roster.profile[self.roster.slot_of[event.job]]]
            before = self._restarts.get(template, event.seconds)
            now = self._restarts[template] = before + RESTART_WEIGHT * (event.seconds - before)
            low, high = sorted((now, self.restart_seconds(template)))
            self._changed = self._changed or (self.settings.weigh_restarts and high > low * RESTART_MATTERS)

    def restart_seconds(self, template: str) -> float:
        """What a restart of a template is taken to cost."""
        return self._restarts_in_use.get(template, self.settings.restart_seconds)

    def _restart_costs(self) -> Floats:
        """By slot."""
        if not self._restarts_in_use:
            return _alike(self.settings.restart_seconds, len(self.roster.workers))
        costs = np.array([self.restart_seconds(template) for template in self.templates])
        return np.asarray(costs[self.roster.profile])

    def _profiled(self, event: RatesProfiled) -> None:
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
            self._rates_changed(event.template, alone=event.beside is None)

    def _rates_changed(self, template: str, *, alone: bool) -> None:
        """Look a template's rates up again, or those of pairs when they are next needed."""
        if alone:
            self._look_up_rates([number for profile, number in self._profiles.items() if profile[0] == template])
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

    def _look_up_rates(self, numbers: Sequence[int] | None = None) -> None:
        """Ask the table for the rates of these profiles again; by default for those of all, when types changed."""
        profiles = list(self._profiles)
        changed = range(len(profiles)) if numbers is None else numbers
        if numbers is None:
            self._rates = [np.empty(0)] * len(profiles)
        for number, rates in zip(changed, self._rates_of([profiles[number] for number in changed]), strict=True):
            self._rates[number] = rates
        active = self.roster.active
        theirs = active if numbers is None else active[np.isin(self.roster.profile[active], numbers)]
        if len(theirs):
            rates_now = np.array([self._rates[number][:, 0] for number in self.roster.profile[theirs].tolist()])
            self.roster.set_rates(theirs, rates_now)
        self._problem_base = None
        self._changed = True

    def check(self, job: JobSpec) -> None:
        """Refuse a job that cannot be accepted; changes nothing."""
        if job.id in self.roster:
            raise InputError(f"job {job.id!r} is known already")
        self._check_entity(job)
        profile = (job.template, job.workers, job.types)
        if profile not in self._profiles:
            self._rates_of([profile])  # refuses an unknown template

    def _submitted(self, event: JobSubmitted) -> None:
        job = event.job
        self.check(job)
        self._note(JobQueued(event.time, job, event.request, event.key))
        self._look_for_work(event.time, self.roster.slot_of[job.id])

    def _queued(self, fact: JobQueued) -> None:
        job = fact.job
        profile = (job.template, job.workers, job.types)
        entity = self._entity_number(job)
        if profile not in self._profiles:
            rates = self._rates_of([profile])
            if len(self._profiles) > SPARE_PROFILES + 2 * len(self.roster):
                self._forget_profiles()
            self._rates += list(rates)
            self._profiles[profile] = len(self._profiles)
            self._problem_base = None
        number = self._profiles[profile]
        self.roster.add(job, fact.time, number, entity, self._rates[number][:, 0])
        self._changed = True

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

    def templates_in_use(self) -> set[str]:
        """The templates that jobs have."""
        templates = self.templates
        return {templates[number] for number in np.unique(self.roster.profile[self.roster.active]).tolist()}

    def measured_restarts(self) -> Mapping[str, float]:
        """What restarts cost, by template, where that was measured."""
        return self._restarts

    def forget_templates(self, templates: Iterable[str]) -> dict[str, float]:
        """Forget templates without jobs; returns what their restarts cost, where that was measured."""
        costs = {name: self._restarts.pop(name) for name in templates if name in self._restarts}
        for name in costs:
            self._restarts_in_use.pop(name, None)
        self._forget_profiles()
        return costs

    def recall_template(self, template: str, restart_seconds: float | None) -> None:
        """Use what the table has recalled of a template, and what its restarts cost."""
        if restart_seconds is not None:
            self._restarts.setdefault(template, restart_seconds)
        if template in self.templates:
            self._rates_changed(template, alone=True)

    def _check_entity(self, job: JobSpec) -> None:
        if job.entity is not None and job.entity not in self._tree and not self.settings.open_entities:
            names = ", ".join(self._tree) or "none"
            raise InputError(f"job {job.id!r}: there is no entity {job.entity!r}; known: {names}")

    def _entity_number(self, job: JobSpec) -> int:
        if job.entity is None:
            return -1
        known = self.entities
        if job.entity not in known:
            self._tree = with_ancestors(self._tree | {job.entity: Entity()})
            self._problem_base = None
            renumbered = np.array([*(self.entities.index(path) for path in known), -1])
            self.roster.entity = renumbered[self.roster.entity]
            known = self.entities
        return known.index(job.entity)

    def _end_job(self, time: float, job: str, outcome: Outcome, reason: str, *, crashed: bool = False) -> None:
        """A job leaves for good."""
        if job not in self.roster:
            return
        slot = self.roster.slot_of[job]
        seconds = zip(self.types, self.received_until(slot, time).tolist(), strict=True)
        received = {kind: part for kind, part in seconds if part}
        restarts = int(self.roster.restarts[slot])
        self._note(JobEnded(time, job, outcome, reason, received, restarts, crashed))
        self._look_for_work(time)

    def _ended_job(self, fact: JobEnded) -> None:
        if fact.crashed:
            self._blame(fact)
        self._vacate(fact.time, fact.job)
        slot = self.roster.remove(fact.job)
        self._held.pop(slot, None)
        self.mechanism.leave(slot)
        self._changed = True

    def _job_failed(self, event: JobFailed) -> None:
        if not event.retry:
            self._end_job(event.time, event.job, "failed", event.reason, crashed=event.crashed)
        elif event.job in self.roster:
            requeued = JobRequeued(
                event.time, event.job, event.reason, event.not_before, event.crashed, counts=event.counts
            )
            self._note(requeued)
            if not self._look_for_work(event.time):
                self._wake_after_pauses(event.time)

    def _requeued(self, fact: JobRequeued) -> None:
        if fact.crashed:
            self._blame(fact)
        self._vacate(fact.time, fact.job)
        if fact.not_before is not None:
            self._held[self.roster.slot_of[fact.job]] = fact.not_before
            self._changed = True

    def _blame(self, event: JobEnded | JobRequeued) -> None:
        """Tell the table under which condition a job failed: a pair that does not fit is not to be tried again."""
        slot = self.roster.slot_of[event.job]
        run = self.run_of.get(slot)
        if run is None:
            return
        others = [self._name(member) for member in run.members if member != slot]
        condition = self._condition(event.job, self.types[run.type_index], others[0] if others else None)
        if self.table.fail(condition, event.reason):
            self._rates_changed(condition.template, alone=False)

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

    def _joined(self, time: float, server: Server) -> None:
        if any(server.name in floor for floor in self.floors):
            raise InputError(f"server {server.name!r} is here already")
        self._note(ServerAdded(time, server))
        self._look_for_work(time)

    def _added(self, fact: ServerAdded) -> None:
        self._admit(fact.server.type)
        self.floors[self.types.index(fact.server.type)].join(fact.server)
        self._problem_base = None
        self._changed = True

    def _admit(self, kind: str) -> None:
        """Make room for a type that is new, if the table will have it."""
        self.table.admit(kind)
        while len(self.types) < len(self.table.types):
            self.types = self.table.types[: len(self.types) + 1]
            self.floors.append(Floor())
            self.accelerator_seconds = np.append(self.accelerator_seconds, 0.0)
            self.roster.add_type()
            self._look_up_rates()

    def _lost(self, event: ServerLost) -> None:
        self._remove_server(event.time, event.server, event.cause)
        self._look_for_work(event.time)

    def _remove_server(self, time: float, name: str, cause: Cause) -> None:
        kind = self._kind_of_server(name)
        if kind is not None:
            runs = [run for run, where in self.placed.items() if run.type_index == kind and name in where]
            jobs = tuple(self._name(slot) for run in runs for slot in run.members)
            self._note(ServerRemoved(time, name, cause, jobs))

    def _remove_closed(self, time: float) -> None:
        """A round begins without the servers that are drained, also those drained while the policy was asked."""
        for name in sorted(name for floor in self.floors for name in floor.closed):
            self._remove_server(time, name, DRAINED)

    def _removed(self, fact: ServerRemoved) -> None:
        self.account(fact.time)
        for job in fact.stopped:
            self._vacate(fact.time, job)
        kind = self._kind_of_server(fact.server)
        assert kind is not None  # noqa: S101 - it was there when this was decided
        self.floors[kind].lose(fact.server)
        self._problem_base = None
        self._changed = True

    def _kind_of_server(self, name: str) -> int | None:
        """The index of a server's type; None if there is no such server."""
        return next((kind for kind, floor in enumerate(self.floors) if name in floor), None)

    def _leaving(self, time: float, name: str) -> None:
        """Have a server empty by the end of the round; at once if nothing runs there."""
        kind = self._kind_of_server(name)
        if kind is None or name in self.floors[kind].closed:
            return
        if any(run.type_index == kind and name in where for run, where in self.placed.items()):
            self._note(ServerClosed(time, name))
        else:
            self._remove_server(time, name, DRAINED)
            self._look_for_work(time)

    def _closed(self, fact: ServerClosed) -> None:
        kind = self._kind_of_server(fact.server)
        assert kind is not None  # noqa: S101 - it was there when this was decided
        self.floors[kind].close(fact.server)

    def _reopened(self, fact: ServerReopened) -> None:
        kind = self._kind_of_server(fact.server)
        assert kind is not None  # noqa: S101 - it was there when this was decided
        self.floors[kind].reopen(fact.server)

    def _look_for_work(self, time: float, newcomer: int | None = None) -> bool:
        """Plan at once where nothing runs, or where idle accelerators could be used, after a job came or room was made.

        All that happens at one moment is looked at together, when the world wakes the scheduler at that time. Returns
        whether it will.
        """
        if not len(self.roster) or self._awaiting is not None or not any(floor.capacity for floor in self.floors):
            return False  # an answer, a job or a server will wake us
        if self._round_ends is not None and self._round_ends <= time:
            return False
        if not self.placed:
            self._note(WakeSet(time, time, "idle"))
            return True
        if not self.settings.start_mid_round or self._waking is not None or not self._has_room(newcomer):
            return False
        self._note(WakeSet(time, time, "room"))
        return True

    def _wake_after_pauses(self, time: float) -> None:
        """Wake up during the round for a job that has paused long enough by then."""
        if self.settings.start_mid_round and self._waking is None and self._is_mid_round(time):
            self._note(WakeSet(time, self._next_wake(self._round_ends), "pause"))

    def _woken_for(self, fact: WakeSet) -> None:
        self.wake = fact.at
        if fact.why == "idle":
            self._round_ends = fact.at
        elif fact.why == "room":
            self._waking = fact.at

    def _next_wake(self, round_ends: float | None) -> float:
        """When the round ends, or earlier the first pause after a failure."""
        assert round_ends is not None  # noqa: S101 - a round has begun
        pauses = list(self._held.values()) if self.settings.start_mid_round else []
        return min(round_ends, min(pauses, default=np.inf))

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

    def _round_due(self, time: float) -> None:
        mid_round, late = self._is_mid_round(time), self._awaiting is not None
        self._note(TimePassed(time))
        if mid_round:
            self._plan(time, mid_round=True)
            return
        self._remove_closed(time)
        if len(self.roster) == len(self._held) and not self.placed:
            self._sleep(time)
        elif not late and self._wants_allocation(time):
            patience = self._solve_patience()
            self._note(SolveAsked(time, self._solve_number + 1, time + patience))
            if not patience:
                self._plan(time)
        else:
            self._plan(time)

    def _solve_patience(self) -> float:
        """How long a round waits for the policy; not at all if the last answer came too late for its round."""
        slow = self.allocation is not None and self._solve_seconds > self.settings.solve_patience_seconds
        return 0.0 if slow else self.settings.solve_patience_seconds

    def _time_passed(self, fact: TimePassed) -> None:
        self.account(fact.time)
        self._waking = self.wake = self._awaiting = None
        self._release(fact.time)

    def _asked(self, fact: SolveAsked) -> None:
        self._solve_number = self._awaiting = fact.number
        self._solved_at, self._changed = fact.time, False
        self._round_ends = self.wake = fact.until
        self.unanswered = Solve(fact.number, self.problem(fact.time))

    def _is_mid_round(self, time: float) -> bool:
        """Whether leases run until later and no answer is awaited that a round begins with."""
        return bool(self.placed) and self._awaiting is None and self._round_ends is not None and time < self._round_ends

    def _release(self, time: float) -> None:
        """Let go of jobs that have paused long enough after a failure."""
        for slot in [slot for slot, until in self._held.items() if until <= time]:
            del self._held[slot]
            self._changed = True

    def _sleep(self, time: float) -> None:
        """Nothing can run: only a change can help, or the end of a pause. One that the policy has not seen is tried."""
        ends = list(self._held.values())
        if self._changed and len(self.roster) > len(self._held) and any(floor.capacity for floor in self.floors):
            ends.append(time + self.settings.round_seconds)
        self._note(Slept(time, min(ends, default=None)))

    def _slept(self, fact: Slept) -> None:
        self._awaiting = None
        self._round_ends = self.wake = fact.until

    def _wants_allocation(self, time: float) -> bool:
        since = time - self._solved_at
        if self._changed or self.allocation is None:
            return since >= self.settings.min_seconds_between_allocations or self.allocation is None
        return since >= self.settings.recompute_every_seconds

    def _answered(self, time: float, fact: AllocationAdopted | SolveFailed) -> None:
        """The policy has answered; the round that waits for it begins."""
        if fact.number != self._solve_number or self.unanswered is None:
            return  # a later question has been asked, or it was answered before
        awaited = self._awaiting == fact.number
        self._note(fact)
        if awaited:
            self._plan(time)
        elif not self.placed and isinstance(fact, AllocationAdopted):
            self._look_for_work(time)  # the round did without it, and nothing could run
        elif not self.placed and self._round_ends is None:
            self._sleep(time)

    def _adopted(self, fact: AllocationAdopted) -> None:
        self.unanswered = None
        self._solve_seconds = fact.time - self._solved_at
        self.account(fact.time)
        slots = self._slots_of(fact.allocation.problem.jobs.ids)
        self.allocation, self.allocated_at = fact.allocation, fact.time
        self._restarts_in_use = dict(self._restarts)
        self.mechanism.adopt(fact.allocation, slots)
        self._changed = self._changed or bool((slots < 0).any())  # a job left while the solver worked

    def _solve_failed(self, _fact: SolveFailed) -> None:
        self.unanswered = None
        self._changed = True  # so that the next round asks again

    def _plan(self, time: float, *, mid_round: bool = False) -> None:
        """Decide what runs until the round ends, and where."""
        if not mid_round:
            self._remove_closed(time)
        plan = self.mechanism.decide(self.round_input(time, mid_round=mid_round))
        if not plan.started and not self.placed:
            self._sleep(time)
            return
        until = self._round_ends if mid_round else time + self.settings.round_seconds
        assert until is not None  # noqa: S101 - a round has begun
        planned = RoundPlanned(
            time,
            self._plans + 1,
            until,
            self._next_wake(until),
            mid_round=mid_round,
            scattered=self._scattered,
        )
        if plan.started or plan.stopped or (self._scattered and not mid_round):
            planned = self._with_places(planned, plan)
        self._note(planned)

    def _with_places(self, planned: RoundPlanned, plan: Plan) -> RoundPlanned:
        """Give every run its accelerators; when a round begins, scattered gangs are gathered where possible."""
        gather = not planned.mid_round
        seating = Seating(self.floors, self.placed, self._cares)
        for run in plan.stopped:
            seating.stop(run)
        scattered = self._scattered or any(run.workers > 1 for run in plan.started)
        if gather and scattered:
            stopped = set(plan.stopped)
            apart = [run for run, where in self.placed.items() if len(where) > 1 and run not in stopped]
            apart = [run for run in apart if self._cares(run)]
            scattered = bool(apart) or any(run.workers > 1 for run in plan.started)
            seating.gather(apart)
        places = {
            run: seating.seat(run, make_room=gather) for run in sorted(plan.started, key=lambda run: -run.workers)
        }
        return replace(
            planned,
            stopped=tuple(Stopped(self._names(run), self._why_stopped(run, plan)) for run in plan.stopped),
            moved=tuple(self._started(run, where, SEATED) for run, where in seating.moves().items()),
            started=tuple(self._started(run, where, self._why_started(run)) for run, where in places.items()),
            scattered=scattered,
        )

    def _started(self, run: Run, where: Where, cause: Cause) -> Started:
        roster = self.roster
        attempts = tuple(int(roster.restarts[slot] + roster.started[slot]) + 1 for slot in run.members)
        close = self.floors[run.type_index].is_consolidated(where)
        return Started(self._names(run), attempts, self.types[run.type_index], where, close, cause)

    def _why_stopped(self, run: Run, plan: Plan) -> Cause:
        """Where its jobs run instead, or the jobs that take its accelerators."""
        for other in plan.started:
            if not set(other.members).isdisjoint(run.members):
                if other.type_index != run.type_index:
                    return Cause("moved", f"moves to {self.types[other.type_index]}")
                return REPAIRED
        takers = tuple(
            self._name(slot) for other in plan.started if other.type_index == run.type_index for slot in other.members
        )
        if not takers:
            return Cause("yielded", "others are owed more time")
        shown = ", ".join(takers[:3]) + (" and others" if len(takers) > 3 else "")
        return Cause("yielded", f"yields to job {shown}", takers[:TAKERS])

    def _why_started(self, run: Run) -> Cause:
        return FIRST if not any(self.roster.started[slot] for slot in run.members) else TURN

    def _planned(self, fact: RoundPlanned) -> None:
        self._awaiting = None
        self._plans, self._scattered = fact.number, fact.scattered
        self._round_ends, self._accounted_until, self.wake = fact.until, fact.time, fact.wake
        for stopped in fact.stopped:
            run = self.run_of[self.roster.slot_of[stopped.jobs[0]]]
            self.floors[run.type_index].give_back(self._clear(run))
        if fact.moved:
            self._move(fact)
        for started in fact.started:
            self._start(started, fact.time)

    def _move(self, fact: RoundPlanned) -> None:
        """Runs that move within a type stay the same runs; all leave before any sits down."""
        runs = [self.run_of[self.roster.slot_of[moved.jobs[0]]] for moved in fact.moved]
        for run in runs:
            self.floors[run.type_index].give_back(self.placed[run])
        for run, moved in zip(runs, fact.moved, strict=True):
            self.placed[run] = self.floors[run.type_index].take_exactly(moved.accelerators)
            self._launched(moved, fact.time)

    def _start(self, started: Started, time: float) -> None:
        slot_of = self.roster.slot_of
        members = tuple([slot_of[job] for job in started.jobs])
        kind = self.types.index(started.type)
        run = Run(members, kind, int(self.roster.workers[members[0]]))
        self._seat(run, self.floors[kind].take_exactly(started.accelerators))
        self._launched(started, time)

    def _launched(self, started: Started, time: float) -> None:
        roster = self.roster
        for job, attempt in zip(started.jobs, started.attempts, strict=True):
            slot = roster.slot_of[job]
            roster.launched[slot] = roster.heard[slot] = time
            roster.restarts[slot] = attempt - 1
            roster.started[slot] = 1

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

    def _cares(self, run: Run) -> bool:
        """Whether a gang runs faster when it sits together."""
        profile = int(self.roster.profile[run.members[0]])
        together, apart = self._rates[profile][run.type_index]
        return bool(together > apart * PLACEMENT_MATTERS)

    def _names(self, run: Run) -> tuple[str, ...]:
        return tuple([self._name(slot) for slot in run.members])

    def _name(self, slot: int) -> str:
        name = self.roster.ids[slot]
        assert name is not None  # noqa: S101 - a run's jobs are active
        return name

    def round_input(self, time: float, *, mid_round: bool = False) -> RoundInput:
        """What the mechanism may look at now."""
        roster, ready = self.roster, self._ready
        return RoundInput(
            number=self._plans + 1,
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


_EFFECTS: dict[type, Callable[[Scheduler, Any], None]] = {
    JobQueued: Scheduler._queued,  # noqa: SLF001 - the scheduler's own table
    JobEnded: Scheduler._ended_job,  # noqa: SLF001
    JobRequeued: Scheduler._requeued,  # noqa: SLF001
    JobsProgressed: Scheduler._progressed,  # noqa: SLF001
    RateMeasured: Scheduler._measured,  # noqa: SLF001
    RestartMeasured: Scheduler._restart_measured,  # noqa: SLF001
    RatesProfiled: Scheduler._profiled,  # noqa: SLF001
    ServerAdded: Scheduler._added,  # noqa: SLF001
    ServerClosed: Scheduler._closed,  # noqa: SLF001
    ServerReopened: Scheduler._reopened,  # noqa: SLF001
    ServerRemoved: Scheduler._removed,  # noqa: SLF001
    WakeSet: Scheduler._woken_for,  # noqa: SLF001
    TimePassed: Scheduler._time_passed,  # noqa: SLF001
    SolveAsked: Scheduler._asked,  # noqa: SLF001
    SolveFailed: Scheduler._solve_failed,  # noqa: SLF001
    AllocationAdopted: Scheduler._adopted,  # noqa: SLF001
    RoundPlanned: Scheduler._planned,  # noqa: SLF001
    Slept: Scheduler._slept,  # noqa: SLF001
}
"""What each kind of fact changes."""


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
