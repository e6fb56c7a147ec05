"""The scheduler: a state machine from events to facts and commands. It reads no clock, does no I/O and solves nothing.

`take` decides what follows from an event. Each decision is a fact, applied to the state (`evolving`) before the next
decision is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from gavel.core.cluster import Server
from gavel.core.errors import InputError
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobCancelled,
    JobEdited,
    JobFailed,
    JobFinished,
    JobsHeld,
    JobsProgressed,
    JobsReleased,
    JobSubmitted,
    PausesEnded,
    RateMeasured,
    RatesProfiled,
    RestartMeasured,
    RoundDue,
    ServerJoined,
    ServerLeaving,
    ServerLost,
    ServerStays,
    SolveFailed,
    StopAsked,
    TypesAllowed,
)
from gavel.core.facts import (
    AllocationAdopted,
    Fact,
    JobEnded,
    JobQueued,
    JobRequeued,
    JobsStopped,
    Outcome,
    RoundPlanned,
    ServerAdded,
    ServerClosed,
    ServerRemoved,
    ServerReopened,
    Slept,
    SolveAsked,
    TimePassed,
    WakeSet,
    commands_of,
)
from gavel.core.jobs import Cause, Entity, JobSpec
from gavel.core.throughputs import Throughputs
from gavel.scheduler import posing
from gavel.scheduler.beliefs import PLACEMENT_MATTERS, SPARE_PROFILES, profile_of
from gavel.scheduler.evolving import EvolvingState
from gavel.scheduler.invariants import check_invariants
from gavel.scheduler.plan_facts import PlanRecorder
from gavel.scheduler.rounds import Mechanism, RoundInput
from gavel.scheduler.seating import fitted
from gavel.scheduler.settings import Settings

__all__ = ["DRAINED", "PLACEMENT_MATTERS", "SPARE_PROFILES", "Scheduler", "Settings", "check_invariants"]

DRAINED = Cause("drained", "its server is drained")
EDITED = Cause("edited", "it may no longer run on this type")


class Scheduler(EvolvingState):
    """Decides which jobs run where. Feed it events in order of time; record its facts and carry out its commands."""

    def __init__(
        self,
        table: Throughputs,
        mechanism: Mechanism,
        settings: Settings,
        *,
        entities: Mapping[str, Entity] | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(table, mechanism, settings, entities=entities, prices=prices)
        self._facts: list[Fact] = []
        """The facts decided so far for the current event."""

    def handle(self, event: Event) -> list[Command]:
        """Handle one event and return the commands that follow."""
        return [command for fact in self.take(event) for command in self.commands(fact)]

    def commands(self, fact: Fact) -> Iterable[Command]:
        """The commands to the world that follow from a fact that was just applied."""
        if isinstance(fact, SolveAsked) and self.unanswered is not None:
            return [self.unanswered, *commands_of(fact)]
        return commands_of(fact)

    def take(self, event: Event) -> list[Fact]:
        """Decide what follows from an event: apply each decision as a fact, and return the facts in order."""
        facts: list[Fact] = []
        self._facts = facts
        self._decide(event)
        return facts

    def _note(self, fact: Fact) -> None:
        """Apply a decision and remember it as a fact of the current event."""
        self.evolve(fact)
        self._facts.append(fact)

    def _decide(self, event: Event) -> None:  # noqa: C901, PLR0912 - one answer for each kind of event
        match event:
            case RoundDue():
                self._round_due(event.time)
            case JobsProgressed() | RateMeasured() | RestartMeasured() | RatesProfiled():
                self._note(event)
            case JobFinished():
                self._end_job(event.time, event.job, "completed", event.reason)
            case JobCancelled():
                self._end_job(event.time, event.job, "cancelled", "cancelled", by=event.by)
            case JobSubmitted():
                self._submitted(event)
            case StopAsked():
                self._stop_jobs(event)
            case JobsHeld():
                self._hold(event)
            case JobsReleased():
                self._release_jobs(event)
            case PausesEnded():
                self._end_pauses(event)
            case JobEdited():
                self._edit(event)
            case TypesAllowed():
                if event.job in self.roster:
                    self._retype(event, event.job, event.types)
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
                if event.server in self.occupancy.closed():
                    self._note(ServerReopened(event.time, event.server))
                    self._look_for_work(event.time)

    def check(self, job: JobSpec) -> None:
        """Raise InputError if a job cannot be accepted; the state does not change."""
        if job.id in self.roster:
            raise InputError(f"job {job.id!r} already exists")
        self._check_entity(job)
        self.beliefs.check(profile_of(job))

    def templates_in_use(self) -> set[str]:
        """The templates of the active jobs."""
        templates = self.templates
        return {templates[number] for number in np.unique(self.roster.profile[self.roster.active]).tolist()}

    def measured_restarts(self) -> Mapping[str, float]:
        """By template: the measured restart cost, in seconds."""
        return self.beliefs.restarts

    def forget_templates(self, templates: Iterable[str]) -> dict[str, float]:
        """Forget templates without jobs; return their measured restart costs."""
        self._problem_base = None
        return self.beliefs.forget(templates, self.roster)

    def recall_template(self, template: str, restart_seconds: float | None) -> None:
        """Use the rates that the table has recalled for a template, and its restart cost."""
        if restart_seconds is not None:
            self.beliefs.restarts.setdefault(template, restart_seconds)
        if template in self.templates:
            self._rates_changed(template, alone=True)

    def _check_entity(self, job: JobSpec) -> None:
        if job.entity is not None and job.entity not in self._tree and not self.settings.open_entities:
            names = ", ".join(self._tree) or "none"
            raise InputError(f"job {job.id!r}: there is no entity {job.entity!r}; known: {names}")

    def _submitted(self, event: JobSubmitted) -> None:
        job = event.job
        self.check(job)
        self._note(JobQueued(event.time, job, event.request, event.key, event.held, event.met))
        if event.held is None:
            self._look_for_work(event.time, self.roster.slot_of[job.id])

    def _stop_jobs(self, event: StopAsked) -> None:
        slots = {job: self.roster.slot_of[job] for job in event.jobs if job in self.roster}
        jobs = tuple(job for job, slot in slots.items() if slot in self.run_of)
        if jobs:
            self._note(JobsStopped(event.time, jobs, event.cause))
            self._look_for_work(event.time)

    def _hold(self, event: JobsHeld) -> None:
        """Hold the jobs that do not run; for those on hold, the cause is another one now."""
        slots = {job: self.roster.slot_of[job] for job in event.jobs if job in self.roster}
        jobs = tuple(job for job, slot in slots.items() if slot not in self.run_of)
        if jobs:
            self._note(JobsHeld(event.time, jobs, event.cause))

    def _release_jobs(self, event: JobsReleased) -> None:
        jobs = tuple(job for job in event.jobs if self.on_hold(job))
        if jobs:
            self._note(JobsReleased(event.time, jobs))
            self._look_for_work(event.time)

    def _end_pauses(self, event: PausesEnded) -> None:
        slots = {job: self.roster.slot_of[job] for job in event.jobs if job in self.roster}
        jobs = tuple(job for job, slot in slots.items() if slot in self._held)
        if jobs:
            self._note(PausesEnded(event.time, jobs, event.cause))
            self._look_for_work(event.time)

    def _edit(self, event: JobEdited) -> None:
        if event.job.id in self.roster:
            self.beliefs.check(profile_of(event.job))
            self._retype(event, event.job.id, event.job.types)

    def _retype(self, event: JobEdited | TypesAllowed, job: str, types: tuple[str, ...] | None) -> None:
        """Accept what a job may run on now; it first leaves a type on which it may not."""
        slot = self.roster.slot_of[job]
        run = self.run_of.get(slot)
        leaves = run is not None and types is not None and self.types[run.type_index] not in types
        if leaves:
            self._note(JobsStopped(event.time, (job,), EDITED))
        self._note(event)
        if leaves or (slot not in self._held and slot not in self._on_hold):
            self._look_for_work(event.time, None if leaves else slot)

    def _end_job(
        self,
        time: float,
        job: str,
        outcome: Outcome,
        reason: str,
        *,
        by: str = "",
        failure: JobFailed | None = None,
    ) -> None:
        """Remove a job for good."""
        if job not in self.roster:
            return
        slot = self.roster.slot_of[job]
        seconds = zip(self.types, self.received_until(slot, time).tolist(), strict=True)
        received = {type_name: part for type_name, part in seconds if part}
        restarts = int(self.roster.restarts[slot])
        ended = JobEnded(time, job, outcome, reason, received, restarts, by=by)
        if failure is not None:
            told = {name: getattr(failure, name) for name in ("crashed", "counts", "code", "saves")}
            ended = replace(ended, **told)
        self._note(ended)
        self._look_for_work(time)

    def _job_failed(self, event: JobFailed) -> None:
        if not event.retry:
            self._end_job(event.time, event.job, "failed", event.reason, failure=event)
        elif event.job in self.roster:
            requeued = JobRequeued(
                event.time, event.job, event.reason, event.not_before, event.crashed, counts=event.counts
            )
            self._note(requeued)
            if not self._look_for_work(event.time):
                self._wake_after_pauses(event.time)

    def _joined(self, time: float, server: Server) -> None:
        if self.occupancy.pool_of(server.name) is not None:
            raise InputError(f"server {server.name!r} has already joined")
        self._note(ServerAdded(time, server))
        self._look_for_work(time)

    def _lost(self, event: ServerLost) -> None:
        self._remove_server(event.time, event.server, event.cause)
        self._look_for_work(event.time)

    def _leaving(self, time: float, name: str) -> None:
        """Drain a server: close it now and remove it when the round ends, or at once if nothing runs there."""
        pool = self.occupancy.pool_of(name)
        if pool is None or name in pool.closed:
            return
        if self.occupancy.runs_on(name):
            self._note(ServerClosed(time, name))
        else:
            self._remove_server(time, name, DRAINED)
            self._look_for_work(time)

    def _remove_closed(self, time: float) -> None:
        """Remove drained servers before a round begins, including those drained while the policy was solving."""
        for name in self.occupancy.closed():
            self._remove_server(time, name, DRAINED)

    def _remove_server(self, time: float, name: str, cause: Cause) -> None:
        if self.occupancy.pool_of(name) is not None:
            jobs = tuple(self.roster.name(slot) for run in self.occupancy.runs_on(name) for slot in run.members)
            self._note(ServerRemoved(time, name, cause, jobs))

    def _look_for_work(self, time: float, newcomer: int | None = None) -> bool:
        """Ask to be woken now if nothing runs, or if idle accelerators could be used after a job came or room was made.

        The wake comes after all events of the same moment, so that one plan covers them. Returns whether it was asked
        for.
        """
        if len(self.roster) == len(self._on_hold) or self._awaiting is not None or not any(self.occupancy.capacity):
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

    def _has_room(self, newcomer: int | None) -> bool:
        """Whether the newcomer could use idle accelerators or, if there is none, any job could.

        A job can use them if it waits, or if it would run faster there.
        """
        roster = self.roster
        who = slice(None) if newcomer is None else slice(newcomer, newcomer + 1)
        for type_index, pool in enumerate(self.server_pools):
            if pool.free:
                wanted = (roster.rates[who, type_index] > roster.rate_here[who]) & (roster.workers[who] <= pool.free)
                if newcomer is None and (self._held or self._on_hold):
                    wanted[[*self._held, *self._on_hold]] = False
                if wanted.any():
                    return True
        return False

    def _wake_after_pauses(self, time: float) -> None:
        """Ask to be woken during the round when the first pause after a failure ends."""
        if self.settings.start_mid_round and self._waking is None and self._is_mid_round(time):
            self._note(WakeSet(time, self._next_wake(self._round_ends), "pause"))

    def _next_wake(self, round_ends: float | None) -> float:
        """When the round ends or the first pause after a failure does, whichever is earlier."""
        assert round_ends is not None  # noqa: S101 - a round has begun
        pauses = list(self._held.values()) if self.settings.start_mid_round else []
        return min(round_ends, min(pauses, default=np.inf))

    def _round_due(self, time: float) -> None:
        mid_round, late = self._is_mid_round(time), self._awaiting is not None
        self._note(TimePassed(time))
        if mid_round:
            self._plan(time, mid_round=True)
            return
        self._remove_closed(time)
        if not self._any_ready and not self.placed:
            self._sleep(time)
        elif not late and self._wants_allocation(time):
            patience = self._solve_patience()
            self._note(SolveAsked(time, self._solve_number + 1, time + patience))
            if not patience:
                self._plan(time)
        else:
            self._plan(time)

    def _is_mid_round(self, time: float) -> bool:
        """Whether the current leases have not ended and no round is waiting for the policy's answer."""
        return bool(self.placed) and self._awaiting is None and self._round_ends is not None and time < self._round_ends

    def _wants_allocation(self, time: float) -> bool:
        since = time - self._solved_at
        if self._changed or self.allocation is None:
            return since >= self.settings.min_seconds_between_allocations or self.allocation is None
        return since >= self.settings.recompute_every_seconds

    def _solve_patience(self) -> float:
        """How long a round waits for the policy; 0 if the last answer took longer than the allowed wait."""
        slow = self.allocation is not None and self._solve_seconds > self.settings.solve_patience_seconds
        return 0.0 if slow else self.settings.solve_patience_seconds

    def _answered(self, time: float, fact: AllocationAdopted | SolveFailed) -> None:
        """Take in the policy's answer, and begin the round that waited for it."""
        if fact.number != self._solve_number or self.unanswered is None:
            return  # a later question has been asked, or this one was answered before
        awaited = self._awaiting == fact.number
        self._note(fact)
        if awaited:
            self._plan(time)
        elif not self.placed and isinstance(fact, AllocationAdopted):
            self._look_for_work(time)  # the round began without the answer and nothing could run
        elif not self.placed and self._round_ends is None:
            self._sleep(time)

    def _sleep(self, time: float) -> None:
        """Sleep until something changes or a pause ends, because nothing can run now.

        If the policy has not seen the latest change, try again after the length of a round.
        """
        ends = list(self._held.values())
        if self._changed and self._any_ready and any(self.occupancy.capacity):
            ends.append(time + self.settings.round_seconds)
        self._note(Slept(time, min(ends, default=None)))

    def _plan(self, time: float, *, mid_round: bool = False) -> None:
        """Decide what runs until the round ends, and where."""
        if not mid_round:
            self._remove_closed(time)
        given = self.round_input(time, mid_round=mid_round)
        plan = self.mechanism.decide(given)
        if given.room is not None:
            plan = fitted(plan, given)
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
            room = None if given.room is None else given.room()
            planned = PlanRecorder(self.roster, self.beliefs, self.occupancy).with_places(planned, plan, room)
        self._note(planned)

    def round_input(self, time: float, *, mid_round: bool = False) -> RoundInput:
        """The input of the mechanism at this time."""
        roster = self.roster
        return RoundInput(
            number=self._plans + 1,
            time=time,
            capacity=self.occupancy.capacity,
            free=[pool.free for pool in self.server_pools],
            running=self.placed.keys(),
            waiting=self._without_held(roster.waiting),
            workers=roster.workers,
            rates=roster.rates,
            rate_here=roster.rate_here,
            started=roster.started,
            steps_heard=roster.steps,
            heard=roster.heard,
            received=roster.received,
            launched=roster.launched,
            arrival=roster.arrival,
            restart=self.beliefs.restart_costs(roster, self.settings.restart_seconds),
            team=posing.teams_of_jobs(self._tree, roster),
            round_seconds=self.settings.round_seconds,
            edits=self._edits,
            mid_round=mid_round,
            room=self.rooms() if self.beliefs.stated and self.beliefs.may_bind(roster) else None,
        )
