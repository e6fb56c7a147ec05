"""The scheduler: a state machine from events to facts and commands. It reads no clock, does no I/O and solves nothing.

`take` decides what follows from an event; each decision takes effect as a fact (`evolving`) before the next is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gavel.core.cluster import Server
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
from gavel.scheduler.settings import Settings

__all__ = ["DRAINED", "PLACEMENT_MATTERS", "SPARE_PROFILES", "Scheduler", "Settings", "check_invariants"]

DRAINED = Cause("drained", "its server is drained")


class Scheduler(EvolvingState):
    """Decides who runs where. Feed it events in order of time; record its facts and perform what they ask for."""

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
        """What follows from the event that is being decided."""

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
                if event.server in self.occupancy.closed():
                    self._note(ServerReopened(event.time, event.server))
                    self._look_for_work(event.time)

    def check(self, job: JobSpec) -> None:
        """Refuse a job that cannot be accepted; changes nothing."""
        if job.id in self.roster:
            raise InputError(f"job {job.id!r} is known already")
        self._check_entity(job)
        self.beliefs.check(profile_of(job))

    def templates_in_use(self) -> set[str]:
        """The templates that jobs have."""
        templates = self.templates
        return {templates[number] for number in np.unique(self.roster.profile[self.roster.active]).tolist()}

    def measured_restarts(self) -> Mapping[str, float]:
        """What restarts cost, by template, where that was measured."""
        return self.beliefs.restarts

    def forget_templates(self, templates: Iterable[str]) -> dict[str, float]:
        """Forget templates without jobs; returns what their restarts cost, where that was measured."""
        self._problem_base = None
        return self.beliefs.forget(templates, self.roster)

    def recall_template(self, template: str, restart_seconds: float | None) -> None:
        """Use what the table has recalled of a template, and what its restarts cost."""
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
        self._note(JobQueued(event.time, job, event.request, event.key))
        self._look_for_work(event.time, self.roster.slot_of[job.id])

    def _end_job(self, time: float, job: str, outcome: Outcome, reason: str, *, crashed: bool = False) -> None:
        """A job leaves for good."""
        if job not in self.roster:
            return
        slot = self.roster.slot_of[job]
        seconds = zip(self.types, self.received_until(slot, time).tolist(), strict=True)
        received = {type_name: part for type_name, part in seconds if part}
        restarts = int(self.roster.restarts[slot])
        self._note(JobEnded(time, job, outcome, reason, received, restarts, crashed))
        self._look_for_work(time)

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

    def _joined(self, time: float, server: Server) -> None:
        if self.occupancy.pool_of(server.name) is not None:
            raise InputError(f"server {server.name!r} is here already")
        self._note(ServerAdded(time, server))
        self._look_for_work(time)

    def _lost(self, event: ServerLost) -> None:
        self._remove_server(event.time, event.server, event.cause)
        self._look_for_work(event.time)

    def _leaving(self, time: float, name: str) -> None:
        """Have a server empty by the end of the round; at once if nothing runs there."""
        pool = self.occupancy.pool_of(name)
        if pool is None or name in pool.closed:
            return
        if self.occupancy.runs_on(name):
            self._note(ServerClosed(time, name))
        else:
            self._remove_server(time, name, DRAINED)
            self._look_for_work(time)

    def _remove_closed(self, time: float) -> None:
        """A round begins without the servers that are drained, also those drained while the policy was asked."""
        for name in self.occupancy.closed():
            self._remove_server(time, name, DRAINED)

    def _remove_server(self, time: float, name: str, cause: Cause) -> None:
        if self.occupancy.pool_of(name) is not None:
            jobs = tuple(self.roster.name(slot) for run in self.occupancy.runs_on(name) for slot in run.members)
            self._note(ServerRemoved(time, name, cause, jobs))

    def _look_for_work(self, time: float, newcomer: int | None = None) -> bool:
        """Plan at once where nothing runs, or where idle accelerators could be used, after a job came or room was made.

        All that happens at one moment is looked at together, when the world wakes the scheduler at that time. Returns
        whether it will.
        """
        if not len(self.roster) or self._awaiting is not None or not any(self.occupancy.capacity):
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
        """Whether idle accelerators could be used: by the newcomer or, if there is none, by any job.

        That is a job that waits, or one that would run faster there.
        """
        roster = self.roster
        who = slice(None) if newcomer is None else slice(newcomer, newcomer + 1)
        for type_index, pool in enumerate(self.server_pools):
            if pool.free:
                wanted = (roster.rates[who, type_index] > roster.rate_here[who]) & (roster.workers[who] <= pool.free)
                if newcomer is None and self._held:
                    wanted[list(self._held)] = False
                if wanted.any():
                    return True
        return False

    def _wake_after_pauses(self, time: float) -> None:
        """Wake up during the round for a job that has paused long enough by then."""
        if self.settings.start_mid_round and self._waking is None and self._is_mid_round(time):
            self._note(WakeSet(time, self._next_wake(self._round_ends), "pause"))

    def _next_wake(self, round_ends: float | None) -> float:
        """When the round ends, or earlier the first pause after a failure."""
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
        if len(self.roster) == len(self._held) and not self.placed:
            self._sleep(time)
        elif not late and self._wants_allocation(time):
            patience = self._solve_patience()
            self._note(SolveAsked(time, self._solve_number + 1, time + patience))
            if not patience:
                self._plan(time)
        else:
            self._plan(time)

    def _is_mid_round(self, time: float) -> bool:
        """Whether leases run until later and no answer is awaited that a round begins with."""
        return bool(self.placed) and self._awaiting is None and self._round_ends is not None and time < self._round_ends

    def _wants_allocation(self, time: float) -> bool:
        since = time - self._solved_at
        if self._changed or self.allocation is None:
            return since >= self.settings.min_seconds_between_allocations or self.allocation is None
        return since >= self.settings.recompute_every_seconds

    def _solve_patience(self) -> float:
        """How long a round waits for the policy; not at all if the last answer came too late for its round."""
        slow = self.allocation is not None and self._solve_seconds > self.settings.solve_patience_seconds
        return 0.0 if slow else self.settings.solve_patience_seconds

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

    def _sleep(self, time: float) -> None:
        """Nothing can run: only a change can help, or the end of a pause. One that the policy has not seen is tried."""
        ends = list(self._held.values())
        if self._changed and len(self.roster) > len(self._held) and any(self.occupancy.capacity):
            ends.append(time + self.settings.round_seconds)
        self._note(Slept(time, min(ends, default=None)))

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
            planned = PlanRecorder(self.roster, self.beliefs, self.occupancy).with_places(planned, plan)
        self._note(planned)

    def round_input(self, time: float, *, mid_round: bool = False) -> RoundInput:
        """What the mechanism may look at now."""
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
            mid_round=mid_round,
        )
