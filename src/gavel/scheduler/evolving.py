"""The state of a scheduler, and how facts change it. Nothing is decided here.

The state changes only through `evolve`, which applies one fact. Applying the same facts to an equal state gives an
equal state, so recovery replays facts and needs no policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import LIST_PRICES, Server
from gavel.core.events import (
    JobEdited,
    JobsHeld,
    JobsProgressed,
    JobsReleased,
    PausesEnded,
    RateMeasured,
    RatesProfiled,
    RestartMeasured,
    Solve,
    SolveFailed,
    TypesAllowed,
)
from gavel.core.facts import (
    AllocationAdopted,
    Fact,
    JobEnded,
    JobQueued,
    JobRequeued,
    JobsStopped,
    RoundPlanned,
    ServerAdded,
    ServerClosed,
    ServerRemoved,
    ServerReopened,
    Slept,
    SolveAsked,
    Started,
    TimePassed,
    WakeSet,
)
from gavel.core.jobs import Entity, JobSpec
from gavel.core.locality import Locality
from gavel.core.problem import Floats, Ints, Problem, with_ancestors
from gavel.core.throughputs import Throughputs
from gavel.scheduler import posing
from gavel.scheduler.beliefs import Beliefs, Profile, profile_of
from gavel.scheduler.occupancy import Occupancy
from gavel.scheduler.placement import ServerPool, Where
from gavel.scheduler.room import Room
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import Mechanism, Run
from gavel.scheduler.settings import Settings

RESTART_MATTERS = 1.25
"""A restart cost that changed by more than this factor is reason to ask for a new allocation, which then uses it."""


class EvolvingState:
    """Everything that decisions depend on."""

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
        self.beliefs = Beliefs(table, lambda: self.server_pools)
        self.roster = Roster(len(self.types))
        self.occupancy = Occupancy(self.roster, [ServerPool() for _ in self.types])
        self.allocation: Allocation | None = None
        self.allocated_at: float | None = None
        """When the current allocation was adopted."""
        self.unanswered: Solve | None = None
        """The last question to the policy, until it is answered; after a restart it must be asked again."""
        self.wake: float | None = None
        """When the scheduler wants to be woken next."""
        self.accelerator_seconds: Floats = np.zeros(len(self.types))
        """By type: accelerator-seconds given to jobs so far."""
        self._tree = with_ancestors(entities or {})
        """The entities by path, including all ancestors."""
        self._problem_base: Problem | None = None
        """The problem without jobs; None after types, servers, profiles or entities have changed."""
        self._held: dict[int, float] = {}
        """By slot of a job that failed: until when it pauses."""
        self._on_hold: set[int] = set()
        """The slots of jobs that wait until they are released. None of them runs."""
        self._reclassed: dict[int, int] = {}
        """By slot of a job whose types changed: the last question to the policy that still assumed the old ones.

        For these jobs the allocation in force is wrong, so the mechanism does not know them.
        """
        self._edits = 0
        """How often a job was edited since this scheduler was made."""
        self._tight_room: tuple[Room | None] | None = None
        """The answer of `tight_room`; None if it must be found again."""
        self._changed = False
        """Whether something has changed that calls for a new allocation."""
        self._accounted_until = 0.0
        self._scattered = False
        """Whether a gang that is slower when spread out may be; then every round looks for a better placement."""
        self._begin_counting()

    def _begin_counting(self) -> None:
        """Reset the counters of questions and plans."""
        self._solved_at = -np.inf
        self._solve_number = 0
        self._solve_seconds = 0.0
        """How long the last answer took."""
        self._awaiting: int | None = None
        """The number of the solve that the next round waits for."""
        self._round_ends: float | None = None
        self._plans = 0
        """The number of plans so far."""
        self._waking: float | None = None
        """When to look for jobs that can start during the round; None if not needed."""

    @property
    def types(self) -> tuple[str, ...]:
        """The accelerator types; types that joined later come last."""
        return self.beliefs.types

    @property
    def server_pools(self) -> list[ServerPool]:
        """The servers, by type."""
        return self.occupancy.server_pools

    @property
    def placed(self) -> dict[Run, Where]:
        """Every run with its placement. No accelerator and no job occurs twice."""
        return self.occupancy.placed

    @property
    def run_of(self) -> dict[int, Run]:
        """The run of each running job, by slot."""
        return self.occupancy.run_of

    @property
    def round_ends(self) -> float | None:
        """When the scheduler next plans a round; None if nothing runs and nothing is awaited."""
        return self._round_ends

    @property
    def awaiting(self) -> int | None:
        """The number of the solve that the next round waits for."""
        return self._awaiting

    @property
    def templates(self) -> list[str]:
        """By profile: the template."""
        return self.beliefs.templates

    @property
    def entities(self) -> list[str]:
        """The paths of the entities; the roster refers to them by position."""
        return list(self._tree)

    def servers(self) -> Iterable[Server]:
        """Every server that has not been lost or removed."""
        return self.occupancy.servers(self.types)

    def paused_until(self, slot: int) -> float | None:
        """When a job that failed may run again; None if it does not pause."""
        return self._held.get(slot)

    def on_hold(self, job: str) -> bool:
        """Whether a job waits until it is released."""
        return self.roster.slot_of.get(job) in self._on_hold

    def awaits_class(self, job: str) -> bool:
        """Whether the types of a job changed since the policy was asked about the allocation in force."""
        return self.roster.slot_of.get(job) in self._reclassed

    def rates_of(self, job: str) -> dict[str, float]:
        """By type: the steps per second that a job is believed to make alone."""
        return dict(zip(self.types, self.roster.rates[self.roster.slot_of[job]].tolist(), strict=True))

    def restart_seconds(self, template: str) -> float:
        """The assumed cost of restarting a job of a template, in seconds."""
        return self.beliefs.restarts_in_use.get(template, self.settings.restart_seconds)

    def received_until(self, slot: int, time: float) -> Floats:
        """By type: seconds that a job has received by this time, including time not accounted for yet. Read-only."""
        received = self.roster.received[slot].copy()
        if self.roster.running_on[slot]:
            received[self.roster.running_on[slot] - 1] += max(time - self._accounted_until, 0.0)
        return np.asarray(received)

    def isolated_seconds(self, slot: int, steps: float) -> float:
        """Seconds that these steps of a job would take with 1/n of the cluster as it is now."""
        return posing.isolated_seconds(self._base, self.roster, slot, steps)

    def problem(self, time: float) -> Problem:
        """The problem that the current jobs and servers pose."""
        problem = posing.problem_at(time, self._base, self.roster, self._ready)
        posing.age_in_isolation(problem, self.roster, self._ready)
        return problem

    @property
    def _base(self) -> Problem:
        """The problem without jobs; cached until types, servers, profiles or entities change."""
        if self._problem_base is None:
            self._problem_base = posing.problem_without_jobs(
                self.beliefs, self.server_pools, self._tree, self.prices, sharing=self.settings.space_sharing
            )
        return self._problem_base

    @property
    def _ready(self) -> Ints:
        """The slots of all jobs except those that pause after a failure or are on hold."""
        return self._without_held(self.roster.active)

    def _without_held(self, slots: Ints) -> Ints:
        """The slots without those of jobs that pause after a failure or are on hold."""
        held = [*self._held, *self._on_hold]
        return slots[~np.isin(slots, held)] if held else slots

    @property
    def _any_ready(self) -> bool:
        """Whether there is a job that neither pauses nor is on hold."""
        return len(self.roster) > len(self._held.keys() | self._on_hold if self._on_hold else self._held)

    def room(self) -> Room:
        """What is free on every server, with the CPU cores and RAM that runs need; for trying changes."""
        return Room(self.server_pools, self.placed, lambda slot: self.beliefs.needs(self.roster, slot))

    def rooms(self) -> Callable[[], Room]:
        """Makes rooms as they are now, one for each draft; the servers are counted only once."""
        made: list[Room] = []

        def room() -> Room:
            if not made:
                made.append(self.room())
            return made[0].copy()

        return room

    def tight_room(self) -> Room | None:
        """The room as it is now, to look at only; None if nothing but accelerators may bind. The same between facts."""
        if self._tight_room is None:
            may_bind = bool(self.beliefs.stated) and self.beliefs.may_bind(self.roster)
            self._tight_room = (self.room() if may_bind else None,)
        return self._tight_room[0]

    def evolve(self, fact: Fact) -> None:
        """Apply a fact to the state."""
        self._tight_room = None
        self._EFFECTS[type(fact)](self, fact)
        if self.occupancy.untold:
            self.mechanism.account(self.occupancy.told(0.0))

    def account(self, time: float) -> None:
        """Account for the accelerator time that running jobs have received up to this time."""
        elapsed = time - self._accounted_until
        if elapsed > 0:
            self.mechanism.account(self.occupancy.told(elapsed))
        if elapsed > 0 and self.placed:
            self.roster.receive(elapsed)
            self.accelerator_seconds += [elapsed * pool.busy for pool in self.server_pools]
        self._accounted_until = max(time, self._accounted_until)

    def _queued(self, fact: JobQueued) -> None:
        job = fact.job
        entity = self._entity_number(job)
        number = self._profile_number(profile_of(job))
        slot = self.roster.add(job, fact.time, number, entity, self.beliefs.rates[number][:, Locality.SERVER])
        if fact.held is not None:
            self._on_hold.add(slot)
        else:
            self._changed = True

    def _put_on_hold(self, fact: JobsHeld) -> None:
        slots = {self.roster.slot_of[job] for job in fact.jobs}
        self._changed = self._changed or not slots <= self._on_hold
        self._on_hold |= slots

    def _released(self, fact: JobsReleased) -> None:
        self._on_hold.difference_update([self.roster.slot_of[job] for job in fact.jobs])
        self._changed = True

    def _end_pauses(self, fact: PausesEnded) -> None:
        for job in fact.jobs:
            del self._held[self.roster.slot_of[job]]
        self._changed = True

    def _edited(self, fact: JobEdited) -> None:
        slot = self.roster.slot_of[fact.job.id]
        self.roster.revise(slot, fact.job, fact.steps_left)
        self._edits += 1
        self._changed = self._changed or slot not in self._on_hold
        self._allow(fact.time, slot, fact.job.types)

    def _types_allowed(self, fact: TypesAllowed) -> None:
        slot = self.roster.slot_of[fact.job]
        self._changed = self._changed or slot not in self._on_hold
        self._allow(fact.time, slot, fact.types)

    def _allow(self, time: float, slot: int, types: tuple[str, ...] | None) -> None:
        """Let a job run on other types. Until the next allocation it is treated as one that has just arrived."""
        before = self.beliefs.profile_at(int(self.roster.profile[slot]))
        profile = (*before[:2], types, before[3])
        if profile == before:
            return
        self.account(time)
        number = self._profile_number(profile)
        self.roster.profile[slot] = number
        self.roster.set_rates(np.array([slot]), self.beliefs.rates[number][:, Locality.SERVER])
        if slot in self.run_of:
            self.occupancy.renew(slot)
        self.mechanism.leave(slot)
        self._reclassed[slot] = self._solve_number

    def _profile_number(self, profile: Profile) -> int:
        if profile not in self.beliefs.profiles:
            self.beliefs.add(profile, self.roster)
            self._problem_base = None
        return self.beliefs.profiles[profile]

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

    def _ended_job(self, fact: JobEnded) -> None:
        if fact.crashed:
            self._blame(fact)
        self._vacate(fact.time, fact.job)
        slot = self.roster.remove(fact.job)
        self._held.pop(slot, None)
        self._on_hold.discard(slot)
        self._reclassed.pop(slot, None)
        self.mechanism.leave(slot)
        self._changed = True

    def _requeued(self, fact: JobRequeued) -> None:
        if fact.crashed:
            self._blame(fact)
        self._vacate(fact.time, fact.job)
        if fact.not_before is not None:
            self._held[self.roster.slot_of[fact.job]] = fact.not_before
            self._changed = True

    def _blame(self, event: JobEnded | JobRequeued) -> None:
        """Tell the table under which condition a job failed, so that a pair that does not fit is not tried again."""
        slot = self.roster.slot_of[event.job]
        run = self.run_of.get(slot)
        if run is None:
            return
        others = [self.roster.name(member) for member in run.members if member != slot]
        condition = self.beliefs.condition(
            self.roster, event.job, self.types[run.type_index], others[0] if others else None
        )
        if self.table.fail(condition, event.reason):
            self._rates_changed(condition.template, alone=False)

    def _vacate(self, time: float, job: str) -> None:
        """Free the accelerators of a job, if it has any."""
        slot = self.roster.slot_of[job]
        if slot in self.run_of:
            self.account(time)
            self.occupancy.vacate(slot)

    def _stopped(self, fact: JobsStopped) -> None:
        for job in fact.jobs:
            self._vacate(fact.time, job)
        self._changed = True

    def _progressed(self, event: JobsProgressed) -> None:
        slots, steps = self.roster.slots_of(event.jobs), event.steps
        if slots.min(initial=0) < 0:  # some jobs have left in the meantime
            slots, steps = slots[slots >= 0], steps[slots >= 0]
        self.roster.steps[slots] -= steps
        self.roster.heard[slots] = event.time

    def _measured(self, event: RateMeasured) -> None:
        """Record a measured rate; if it changed by much, the next round asks for a new allocation."""
        condition = self.beliefs.learn(event, self.roster)
        if condition is not None:
            self._rates_changed(condition.template, alone=event.beside is None)

    def _profiled(self, event: RatesProfiled) -> None:
        """Record the profiled rates of a template and of the one beside it."""
        if self.beliefs.learn_profiled(event):
            self._rates_changed(event.template, alone=event.beside is None)

    def _rates_changed(self, template: str, *, alone: bool) -> None:
        """Invalidate cached rates: look up a template's own rates again, and those of pairs when next needed."""
        if alone:
            self.beliefs.look_up(template, self.roster)
        if alone or self.settings.space_sharing:
            self._problem_base, self._changed = None, True

    def _restart_measured(self, event: RestartMeasured) -> None:
        """Record a measured restart cost; if it changed by much, ask for a new allocation."""
        if event.job in self.roster and 0.0 <= event.seconds < np.inf:
            template = self.templates[self.roster.profile[self.roster.slot_of[event.job]]]
            now = self.beliefs.measure_restart(template, event.seconds)
            low, high = sorted((now, self.restart_seconds(template)))
            self._changed = self._changed or (self.settings.weigh_restarts and high > low * RESTART_MATTERS)

    def _added(self, fact: ServerAdded) -> None:
        self._admit(fact.server.type)
        self.server_pools[self.types.index(fact.server.type)].join(fact.server)
        self._servers_changed()

    def _admit(self, type_name: str) -> None:
        """Add a new type to the table, the roster and the server pools, if the table accepts new types."""
        self.table.admit(type_name)
        while len(self.types) < len(self.table.types):
            self.server_pools.append(ServerPool())
            self.accelerator_seconds = np.append(self.accelerator_seconds, 0.0)
            self.roster.add_type()
            self.beliefs.add_type(self.roster)

    def _removed(self, fact: ServerRemoved) -> None:
        self.account(fact.time)
        for job in fact.stopped:
            self._vacate(fact.time, job)
        self._pool_of(fact.server).lose(fact.server)
        self._servers_changed()

    def _servers_changed(self) -> None:
        """Invalidate what depends on the servers."""
        self.beliefs.fit_again(self.roster)
        self._problem_base = None
        self._changed = True

    def _closed(self, fact: ServerClosed) -> None:
        self._pool_of(fact.server).close(fact.server)

    def _reopened(self, fact: ServerReopened) -> None:
        self._pool_of(fact.server).reopen(fact.server)

    def _pool_of(self, server: str) -> ServerPool:
        pool = self.occupancy.pool_of(server)
        assert pool is not None  # noqa: S101 - it was there when the fact was decided
        return pool

    def _woken_for(self, fact: WakeSet) -> None:
        self.wake = fact.at
        if fact.why == "idle":
            self._round_ends = fact.at
        elif fact.why == "room":
            self._waking = fact.at

    def _time_passed(self, fact: TimePassed) -> None:
        self.account(fact.time)
        self._waking = self.wake = self._awaiting = None
        self._release(fact.time)

    def _release(self, time: float) -> None:
        """End the pauses that have lasted long enough."""
        for slot in [slot for slot, until in self._held.items() if until <= time]:
            del self._held[slot]
            self._changed = True

    def _asked(self, fact: SolveAsked) -> None:
        self._solve_number = self._awaiting = fact.number
        self._solved_at, self._changed = fact.time, False
        self._round_ends = self.wake = fact.until
        self.unanswered = Solve(fact.number, self.problem(fact.time))

    def _adopted(self, fact: AllocationAdopted) -> None:
        self.unanswered = None
        self._solve_seconds = fact.time - self._solved_at
        self.account(fact.time)
        self._reclassed = {slot: asked for slot, asked in self._reclassed.items() if asked >= fact.number}
        slots = self.slots_in(fact.allocation)
        self.allocation, self.allocated_at = fact.allocation, fact.time
        self.beliefs.restarts_in_use = dict(self.beliefs.restarts)
        self.mechanism.adopt(fact.allocation, slots)
        self._changed = self._changed or bool((slots < 0).any())  # a job has left or changed since

    def slots_in(self, allocation: Allocation) -> Ints:
        """The slots of an allocation's jobs, in order; -1 for jobs that have left or that it takes for others."""
        slots = self.roster.slots_of(allocation.problem.jobs.ids)
        return np.where(np.isin(slots, list(self._reclassed)), -1, slots) if self._reclassed else slots

    def _solve_failed(self, _fact: SolveFailed) -> None:
        self.unanswered = None
        self._changed = True  # so that the next round asks again

    def _slept(self, fact: Slept) -> None:
        self._awaiting = None
        self._round_ends = self.wake = fact.until

    def _planned(self, fact: RoundPlanned) -> None:
        self._awaiting = None
        self._plans, self._scattered = fact.number, fact.scattered
        self._round_ends, self._accounted_until, self.wake = fact.until, fact.time, fact.wake
        for stopped in fact.stopped:
            self.occupancy.stop(self._run_of(stopped.jobs[0]))
        if fact.moved:
            self.occupancy.move({self._run_of(moved.jobs[0]): moved.accelerators for moved in fact.moved})
        for started in fact.started:
            self._start(started)
        for launched in (*fact.moved, *fact.started):
            self._launched(launched, fact.time)

    def _run_of(self, job: str) -> Run:
        return self.run_of[self.roster.slot_of[job]]

    def _start(self, started: Started) -> None:
        slot_of = self.roster.slot_of
        members = tuple([slot_of[job] for job in started.jobs])
        type_index = self.types.index(started.type)
        self.occupancy.start(Run(members, type_index, int(self.roster.workers[members[0]])), started.accelerators)

    def _launched(self, started: Started, time: float) -> None:
        roster = self.roster
        for job, attempt in zip(started.jobs, started.attempts, strict=True):
            slot = roster.slot_of[job]
            roster.launched[slot] = roster.heard[slot] = time
            roster.restarts[slot] = attempt - 1
            roster.started[slot] = 1

    _EFFECTS: ClassVar[dict[type, Callable[..., None]]] = {
        JobQueued: _queued,
        JobEnded: _ended_job,
        JobRequeued: _requeued,
        JobsStopped: _stopped,
        JobsHeld: _put_on_hold,
        JobsReleased: _released,
        PausesEnded: _end_pauses,
        JobEdited: _edited,
        TypesAllowed: _types_allowed,
        JobsProgressed: _progressed,
        RateMeasured: _measured,
        RestartMeasured: _restart_measured,
        RatesProfiled: _profiled,
        ServerAdded: _added,
        ServerClosed: _closed,
        ServerReopened: _reopened,
        ServerRemoved: _removed,
        WakeSet: _woken_for,
        TimePassed: _time_passed,
        SolveAsked: _asked,
        SolveFailed: _solve_failed,
        AllocationAdopted: _adopted,
        RoundPlanned: _planned,
        Slept: _slept,
    }
    """The handler of each kind of fact."""
