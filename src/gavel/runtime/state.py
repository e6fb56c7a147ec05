"""Everything the live system knows durably: decides what follows from events, and applies facts.

Events in, facts out. Facts are written to the journal before anything outside follows from them; applying any prefix
of them again gives the state that existed then. It reads no clock, does no I/O and asks no policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import numpy as np

from gavel.client.dependencies import Dependency
from gavel.client.field_checks import shortened
from gavel.client.quantities import duration
from gavel.client.requests import Submission
from gavel.client.views import JobState
from gavel.core import events as core
from gavel.core import facts as core_facts
from gavel.core.errors import InputError
from gavel.core.events import Command
from gavel.core.jobs import Cause, JobSpec
from gavel.core.problem import Problem
from gavel.runtime import templates
from gavel.runtime.agents import ITSELF, AgentRecord, Agents
from gavel.runtime.batch import Waits, arrivals, waits_of
from gavel.runtime.events import (
    AgentAttached,
    AgentGone,
    AttemptBegan,
    AttemptEnded,
    AttemptOutcome,
    Began,
    CheckpointsCleared,
    DrainAsked,
    EditAsked,
    Event,
    ForgetAsked,
    HoldAsked,
    IdleFound,
    JobsSubmitted,
    LimitDue,
    LimitsGiven,
    NotificationsGiven,
    ReleaseAsked,
    RemovalAsked,
    RequeueAsked,
    SettingsGiven,
    StepsCounted,
    UndrainAsked,
)
from gavel.runtime.facts import (
    AgentDraining,
    AgentForgotten,
    AgentJoined,
    AgentLost,
    AgentUndrained,
    AttemptClosed,
    CheckpointsRemoved,
    CheckpointsUnwanted,
    DependenciesChanged,
    Fact,
    HoldsChanged,
    LimitsChanged,
    NotificationsChanged,
    OwnFact,
    SchedulerStarted,
    SettingsChanged,
    StartDelayed,
    TemplateRecalled,
    TemplatesForgotten,
    TimeLimitNear,
)
from gavel.runtime.gates import HELD, Arrival, Gates
from gavel.runtime.ids import is_job_id
from gavel.runtime.job_edits import edits
from gavel.runtime.jobs import JobRegistry, LiveJobRecord
from gavel.runtime.open_attempts import OpenAttempts
from gavel.runtime.preferences import Preferences
from gavel.runtime.prerequisites import OUTCOMES, Ends
from gavel.runtime.removals import Removals
from gavel.runtime.resubmission import in_new_arrays
from gavel.runtime.steps import Steps, all_steps
from gavel.runtime.time_limits import DELAY_MATTERS, IDLE_TIMEOUT, TIME_LIMIT, TimeLimits, may_save, warned_before
from gavel.scheduler import state as scheduler_state
from gavel.scheduler.machine import DRAINED, Scheduler
from gavel.security.quotas import Limits, Quotas

REQUEUED = "requeued"
"""The code of the cause for which a job leaves its accelerators because a user asks for that."""
MOST_DOUBLINGS = 60
"""Most doublings of the pause before a failed job runs again; beyond that it exceeds any limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How long a failed job pauses."""

    first_seconds: float = 10.0
    """First pause; doubles with each failure."""
    longest_seconds: float = 600.0
    blocked_seconds: float = 60.0
    """Pause after a failure that is the server's fault, such as a full disk."""

    def pause(self, failures: int) -> float:
        return min(self.first_seconds * 2.0 ** min(failures, MOST_DOUBLINGS), self.longest_seconds)


class Configure(Protocol):
    """Builds schedulers from settings as the journal has them."""

    def fresh(self, settings: Mapping[str, Any]) -> Scheduler:
        """A new scheduler."""
        ...

    def restored(self, settings: Mapping[str, Any], document: Mapping[str, Any]) -> Scheduler:
        """A scheduler restored from its document, perhaps under different settings."""
        ...


class ClusterState:
    """Scheduler, jobs and agents: one owner for each, changed by facts alone."""

    def __init__(self, configure: Configure, retries: Retries | None = None) -> None:
        self.jobs = JobRegistry()
        self.agents = Agents()
        self.attempts = OpenAttempts()
        self.removals = Removals()
        self.gates = Gates()
        self.time_limits = TimeLimits()
        self.preferences = Preferences()
        self.notified: dict[str, tuple[str, ...]] = {}
        """By user: the URLs that are told about every job."""
        self.forgotten: dict[str, templates.Learned] = {}
        """What was learned about forgotten templates, until the journal's table has it."""
        self.renewed_until = 0.0
        """Until when everything may run, not counting the slack of leases."""
        self.retries = retries or Retries()
        self.settings: Mapping[str, Any] = {}
        """The settings in force, as plain data."""
        self.time = 0.0
        """The time of the last fact."""
        self.trouble = ""
        """Why the last solve has no answer; empty if it has one."""
        self.changed: set[str] = set()
        """Jobs whose records changed since this was last emptied."""
        self._configure = configure
        self._scheduler: Scheduler | None = None
        self._facts: list[Fact] = []

    @property
    def scheduler(self) -> Scheduler:
        assert self._scheduler is not None, "the first fact of a journal is its settings"  # noqa: S101
        return self._scheduler

    @property
    def quotas(self) -> Quotas:
        """The limits of users and teams."""
        return self.gates.quotas

    @property
    def configured(self) -> bool:
        """Whether settings are known, and so there is a scheduler."""
        return self._scheduler is not None

    # ---- decide ----

    def take(self, event: Event) -> list[Fact]:
        """Decide what follows from an event. Each decision takes effect as a fact; they are returned in order."""
        return all_steps(self.taking(event))

    def taking(self, event: Event) -> Steps[list[Fact]]:
        """The same in steps, all of which are taken before the next event; it is refused before its first fact."""
        facts: list[Fact] = []
        self._facts = facts
        yield from self._deciding(event)
        self._open_gates(event.time)
        self._apply_preferences(event.time)
        return facts

    def _deciding(self, event: Event) -> Iterator[None]:
        answer = _ANSWERS.get(type(event))
        if answer is None:
            self._schedule(event)  # type: ignore[arg-type] # all others are the scheduler's own
        elif (steps := answer(self, event)) is not None:
            yield from steps

    def _schedule(self, event: core.Event) -> None:
        """Let the scheduler decide; it has already applied its own facts."""
        for fact in self.scheduler.take(event):
            self._evolve_rest(fact)
            self._facts.append(fact)

    def _note(self, fact: Fact) -> None:
        self.evolve(fact)
        self._facts.append(fact)

    def _submitted(self, event: JobsSubmitted) -> Iterator[None]:
        if event.key in self.jobs.keys:
            return
        jobs = yield from arrivals(
            event.requests, self.jobs.next_number, lambda reference: self._ends_of(reference, event.outcomes)
        )
        jobs = in_new_arrays(jobs, self.jobs.next_number)
        yield
        specs = [JobSpec.of(each.job, each.request) for each in jobs]
        for number, spec in enumerate(specs):
            if number % _AT_ONCE == 0:
                yield
            self.scheduler.check(spec)
        yield
        self.quotas.check([each.request for each in jobs], event.time)
        for template in dict.fromkeys(spec.template for spec in specs):
            self._recall(event, template)
        held = self.gates.arrivals(jobs, event.by)
        for number, (each, spec) in enumerate(zip(jobs, specs, strict=True)):
            if number % _AT_ONCE == 0:
                yield
            submitted = core.JobSubmitted(event.time, spec, each.request, event.key, held.get(each.job), each.met)
            self._schedule(submitted)
        if forgotten := templates.forgettable(self.scheduler):
            self._note(TemplatesForgotten(event.time, forgotten))

    def _ends_of(self, reference: str, outcomes: Mapping[str, Ends]) -> Ends | None:
        """How the jobs of a reference have ended; None if there are none, as far as is known."""
        record = self.jobs.get(reference)
        if record is not None and record.finished:
            return Ends(unfinished=1).ended(record.id, record.state)
        return self.gates.prerequisites.ends_of(reference) or outcomes.get(reference)

    def _recall(self, event: JobsSubmitted, template: str) -> None:
        """Restore what was learned about a template; an entry that has not reached the table yet is newer."""
        learned = self.forgotten.get(template) or event.learned.get(template)
        if learned and not templates.knows(self.scheduler, template):
            self._note(TemplateRecalled(event.time, learned))

    def unknown_templates(self, requests: Iterable[Submission]) -> list[str]:
        """The templates of jobs about which only the journal's table may know something."""
        names = dict.fromkeys(request.template for request in requests)
        return [name for name in names if name not in self.forgotten and not templates.knows(self.scheduler, name)]

    # ---- what users do with jobs ----

    def _hold(self, event: HoldAsked) -> None:
        """Hold jobs; those that run save and leave. Jobs that are held already stay as they are."""
        jobs = [self._unfinished(job).id for job in dict.fromkeys(event.jobs)]
        fresh = tuple([job for job in jobs if not self.gates.held_by_user(job)])
        if fresh:
            self._note(HoldsChanged(event.time, fresh, event.by, held=True))
            self._schedule(core.StopAsked(event.time, fresh, Cause(HELD, f"held by {event.by}")))

    def _release(self, event: ReleaseAsked) -> None:
        jobs = [self._unfinished(job) for job in dict.fromkeys(event.jobs)]
        for record in jobs:
            if not self.gates.held_by_user(record.id):
                raise InputError(f"job {record.id} is not held by a user: {self._situation(record)}")
        self._note(HoldsChanged(event.time, tuple([record.id for record in jobs]), event.by, held=False))

    def _requeue(self, event: RequeueAsked) -> None:
        jobs = [self._unfinished(job) for job in dict.fromkeys(event.jobs)]
        running = tuple([record.id for record in jobs if self.runs(record.id)])
        pausing = tuple([record.id for record in jobs if self._pauses(record.id)])
        for record in jobs:
            if record.id not in (*running, *pausing):
                raise InputError(
                    f"job {record.id} neither runs nor pauses after a failure, so there is nothing to requeue: "
                    f"{self._situation(record)}"
                )
        cause = Cause(REQUEUED, f"requeued by {event.by}")
        if pausing:
            self._schedule(core.PausesEnded(event.time, pausing, cause))
        if running:
            self._schedule(core.StopAsked(event.time, running, cause))

    def _pauses(self, job: str) -> bool:
        return self.scheduler.paused_until(self.scheduler.roster.slot_of[job]) is not None

    def _unfinished(self, job: str) -> LiveJobRecord:
        record = self.jobs.get(job)
        if record is not None and not record.finished:
            return record
        if record is None and not (is_job_id(job) and 0 < int(job) < self.jobs.next_number):
            raise InputError(f"there is no job {shortened(job)}; `gavel jobs --all` lists them")
        how = "has finished" if record is None else OUTCOMES[record.state]
        raise InputError(f"job {job} {how}; use `gavel resubmit {job}` to run it again")

    def _situation(self, record: LiveJobRecord) -> str:
        """What a job does or waits for, as a clause."""
        cause = self.gates.reason(record.id)
        if cause is None:
            return f"it is {record.state}, {record.history[-1].reason}"
        return f"it is {record.state}, {cause.text}"

    def replace_dependencies(
        self, time: float, job: str, after: Sequence[str], by: str, outcomes: Mapping[str, Ends] | None = None
    ) -> None:
        """Decide that a job waits for these instead, as ids with conditions, and note the fact; `by` asks for it.

        To be called while an event is handled. InputError, before anything changes, as of `_new_waits`.
        """
        waits = self._new_waits(job, after, outcomes or {})
        if waits.after != self.jobs[job].request.after:
            self._note(DependenciesChanged(time, job, waits.after, by, waits.met))

    def _new_waits(self, job: str, after: Sequence[str], known: Mapping[str, Ends]) -> Waits:
        """What a job would wait for; InputError if it cannot.

        It has finished or has started already, a reference does not exist or can never be met, or jobs would wait for
        each other. `known` tells how references have ended whose jobs have all finished and left memory
        (`runtime.outcomes`).
        """
        record = self._unfinished(job)
        if record.attempts:
            raise InputError(f"job {job} has started already, so it waits for no other job any more")
        dependencies = [Dependency.of(text) for text in after]
        for each in dependencies:
            if not each.by_id:
                raise InputError(
                    f"job {job} cannot wait for {shortened(each.reference)}: write the id of a job or array"
                )
        waits = waits_of(dependencies, f"job {job}", lambda reference: self._ends_of(reference, known))
        if (way := self.gates.prerequisites.path(job, dependencies)) is not None:
            raise InputError(f"these jobs would wait for each other, so none could ever start: {' → '.join(way)}")
        return waits

    def _edit(self, event: EditAsked) -> Iterator[None]:
        found = yield from edits(event, self.jobs.records, self)
        if "after" in event.fields:
            for number, job in enumerate(event.jobs):  # before any of them changes
                if number % _AT_ONCE == 0:
                    yield
                self._new_waits(job, event.changes.after, event.outcomes)
            for number, job in enumerate(event.jobs):
                if number % _AT_ONCE == 0:
                    yield
                self.replace_dependencies(event.time, job, event.changes.after, event.by, event.outcomes)
            found = yield from edits(event, self.jobs.records, self)  # of the requests as they are now
        for number, each in enumerate(found.events(event.time)):
            if number % _AT_ONCE == 0:
                yield
            self._schedule(each)

    def runs(self, job: str) -> bool:
        """Whether a job runs, according to the plan."""
        return self.scheduler.roster.slot_of.get(job) in self.scheduler.run_of

    def types_of(self, job: str, request: Submission) -> tuple[str, ...] | None:
        """On which types a job may run now if this is its request; None: all."""
        run = self.scheduler.run_of.get(self.scheduler.roster.slot_of[job])
        running_on = None if run is None else self.scheduler.types[run.type_index]
        return self.preferences.types_of(job, request, self.jobs[job].request, running_on)

    def _apply_preferences(self, time: float) -> None:
        """Allow jobs other types than those they prefer where they need not, or can not, wait for them any longer."""
        if self.preferences.due:
            self.preferences.due = False
            for change in self.preferences.changes(time, self.jobs.records, self._enough, self.scheduler.types):
                self._schedule(change)

    def _enough(self, job: str, type_name: str) -> bool:
        """Whether servers have enough accelerators of a type for a job; not where it is known to be unable to run."""
        scheduler = self.scheduler
        if type_name not in scheduler.types:
            return False
        index, slot = scheduler.types.index(type_name), scheduler.roster.slot_of[job]
        profile = scheduler.beliefs.profile_at(int(scheduler.roster.profile[slot]))
        confined = profile[2] is not None and type_name not in profile[2]
        runs = confined or bool(scheduler.roster.rates[slot, index] > 0)
        return runs and scheduler.occupancy.capacity[index] >= int(scheduler.roster.workers[slot])

    def _able(self, job: str) -> bool:
        """Whether a job that waits could run: it is neither on hold nor pauses after a failure."""
        slot = self.scheduler.roster.slot_of[job]
        return not self.scheduler.on_hold(job) and self.scheduler.paused_until(slot) is None

    def time_used(self, job: str, time: float) -> float:
        """How long an unfinished job had run by this time, in seconds over all attempts."""
        slot = self.scheduler.roster.slot_of.get(job)
        received = 0.0 if slot is None else float(self.scheduler.received_until(slot, time).sum())
        return received - self.time_limits.excused.get(job, 0.0)

    def _limit_due(self, event: LimitDue) -> None:
        """Warn a running job, or end it once it has reached its time limit."""
        record = self.jobs.get(event.job)
        limit = None if record is None or record.finished else record.request.time_limit_seconds
        if record is None or limit is None:
            return
        left = limit - self.time_used(event.job, event.time)
        if left <= 0:
            reason = f"its time limit of {duration(limit)} is reached; it was stopped at a checkpoint"
            self._end_saving(event.time, event.job, reason, TIME_LIMIT)
        elif record.state is JobState.RUNNING and not record.warned and left <= warned_before(limit):
            self._note(TimeLimitNear(event.time, event.job, limit, left))

    def _attempt_began(self, event: AttemptBegan) -> None:
        """Do not count the time in which a job waited for earlier ones to leave its accelerators."""
        record = self.jobs.get(event.job)
        if record is None or record.state is not JobState.RUNNING or record.attempts != event.attempt:
            return
        delay = event.time - float(self.scheduler.roster.launched[self.scheduler.roster.slot_of[event.job]])
        if record.request.time_limit_seconds is not None and delay >= DELAY_MATTERS:
            self._note(StartDelayed(event.time, event.job, delay))

    def _idle(self, event: IdleFound) -> None:
        record = self.jobs.get(event.job)
        if record is None or record.state is not JobState.RUNNING or record.attempts != event.attempt:
            return
        patience = record.request.idle_timeout_seconds
        if patience is not None and event.time - event.since >= patience:
            reason = f"it made no step and printed nothing for {duration(patience)}, its idle timeout; it was stopped"
            self._end_saving(event.time, event.job, reason, IDLE_TIMEOUT)

    def _end_saving(self, time: float, job: str, reason: str, code: str) -> None:
        """Let a job fail for good; its processes may save first."""
        failed = core.JobFailed(time, job, reason, retry=False, counts=False, code=code, saves=True)
        self._schedule(failed)

    def _cancel(self, event: core.JobCancelled) -> None:
        record = self.jobs.get(event.job)
        if record is not None and not record.finished:
            self._schedule(event)

    def _count(self, event: StepsCounted) -> None:
        """Record the steps that jobs have done since the last count."""
        done: dict[str, float] = {}
        for job, total in event.steps.items():
            record = self.jobs.get(job)
            if record is not None and not record.finished and total != record.steps_done:
                done[job] = total - record.steps_done
        if done:
            self._schedule(core.JobsProgressed(event.time, tuple(done), np.array(list(done.values()))))

    def _attempt_ended(self, event: AttemptEnded) -> None:
        if not self.attempts.has(event.job, event.attempt):
            return  # heard before
        closed = AttemptClosed(event.time, event.job, event.attempt, event.outcome, event.reason, event.exit_code)
        self._note(closed)
        record = self.jobs.get(event.job)
        if record is None or record.finished:
            self._count_last(event, record)
            return
        if event.steps is not None:
            self._count(StepsCounted(event.time, {event.job: event.steps}))
        match event.outcome:
            case AttemptOutcome.DONE:
                self._schedule(core.JobFinished(event.time, event.job, event.reason or _done(record)))
            case AttemptOutcome.LOST:
                self._schedule(core.JobFailed(event.time, event.job, event.reason, counts=False))
            case AttemptOutcome.BLOCKED:
                self._blocked(event)
            case AttemptOutcome.CRASHED:
                self._crashed(record, event)
            case AttemptOutcome.LEFT:
                pass

    def _count_last(self, event: AttemptEnded, record: LiveJobRecord | None) -> None:
        """Record the steps that a job saved after it was ended, if it was to save."""
        if record is not None and may_save(record) and event.steps is not None and event.steps != record.steps_done:
            last = np.array([event.steps - record.steps_done])
            self._schedule(core.JobsProgressed(event.time, (event.job,), last))

    def _blocked(self, event: AttemptEnded) -> None:
        """Try again, however often: nothing is wrong with the job."""
        pause = self.retries.blocked_seconds
        sentence = f"{event.reason}; runs again in {pause:.0f} s, which costs no retry"
        failed = core.JobFailed(event.time, event.job, sentence, not_before=event.time + pause, counts=False)
        self._schedule(failed)

    def _crashed(self, record: LiveJobRecord, event: AttemptEnded) -> None:
        job, time, reason = event.job, event.time, event.reason or "it failed"
        left = record.request.retries - record.failures
        if event.hopeless or left <= 0:
            self._schedule(core.JobFailed(time, job, reason, retry=False, crashed=True))
            return
        pause = self.retries.pause(record.failures)
        more = f"{left - 1} more {'retry' if left == 2 else 'retries'}"
        sentence = f"{reason}; runs again in {pause:.0f} s, {more}"
        self._schedule(core.JobFailed(time, job, sentence, not_before=time + pause, crashed=True))

    def _attached(self, event: AgentAttached) -> None:
        known = self.agents.get(event.agent)
        for rival in [record for record in self.agents if record.name == event.name and record.agent != event.agent]:
            if not rival.lost:
                self._gone(AgentGone(event.time, rival.agent, f"another agent has taken the name {event.name}"))
            self._note(AgentForgotten(event.time, rival.agent, "another agent has taken its name", rival.name))
        if known is None or known.lost or (known.name, known.servers) != (event.name, event.servers):
            if known is not None:
                self._withdraw(
                    event.time, set(known.servers) - set(event.servers), Cause("replaced", "its server changed")
                )
            self._note(AgentJoined(event.time, event.agent, event.name, event.servers))
        record = self.agents.records[event.agent]
        if event.draining and not record.draining:
            self._drain(DrainAsked(event.time, event.agent, ITSELF))
        elif record.drained_by == ITSELF and not event.draining:
            self._note(AgentUndrained(event.time, event.agent, ITSELF, event.name))
        self._offer(event.time, event.agent)

    def _offer(self, time: float, agent: str) -> None:
        """Offer every server of an agent that should take work."""
        for server in self.agents.records[agent].offered:
            if not self._has(server.name):
                self._schedule(core.ServerJoined(time, server))
            else:
                self._schedule(core.ServerStays(time, server.name))

    def _withdraw(self, time: float, servers: Iterable[Any], cause: Cause) -> None:
        for server in servers:
            self._schedule(core.ServerLost(time, server.name, cause))

    def _has(self, server: str) -> bool:
        return any(server in pool for pool in self.scheduler.server_pools)

    def _gone(self, event: AgentGone) -> None:
        record = self.agents.get(event.agent)
        if record is None or record.lost:
            return
        self._note(AgentLost(event.time, event.agent, event.reason, event.fences, record.name))
        self._withdraw(event.time, record.servers, Cause("lost", event.reason))

    def _drain(self, event: DrainAsked) -> None:
        record = self._find(event.agent)
        if not record.draining or (event.now and event.by != ITSELF):
            self._note(AgentDraining(event.time, record.agent, event.by, event.now, record.name))
        if event.now:
            self._withdraw(event.time, record.servers, DRAINED)
        else:
            for server in record.servers:
                self._schedule(core.ServerLeaving(event.time, server.name))

    def _undrain(self, event: UndrainAsked) -> None:
        record = self._find(event.agent)
        if record.draining:
            self._note(AgentUndrained(event.time, record.agent, event.by, record.name))
            self._offer(event.time, record.agent)

    def _forget(self, event: ForgetAsked) -> None:
        record = self._find(event.agent)
        if not record.lost and not (record.draining and not any(self._has(server.name) for server in record.servers)):
            raise InputError(f"agent {record.name!r} is neither lost nor drained; drain it first")
        self._note(AgentForgotten(event.time, record.agent, event.by, record.name))

    def _find(self, name: str) -> AgentRecord:
        record = self.agents.named(name)
        if record is None:
            names = ", ".join(sorted(record.name for record in self.agents)) or "none"
            raise InputError(f"there is no agent {name!r}; known: {names}")
        return record

    def _remove(self, event: RemovalAsked) -> None:
        for job in event.jobs:
            if reason := self.why_checkpoints_stay(job, event.time):
                raise InputError(reason)
        known = self.removals.numbers()
        fresh = tuple(job for job in dict.fromkeys(event.jobs) if job not in known)
        if fresh or event.through is not None:
            self._note(CheckpointsUnwanted(event.time, fresh, event.by, event.through))

    def why_checkpoints_stay(self, job: str, time: float) -> str:
        """Why the checkpoints of a job cannot be removed now; empty if they can."""
        record = self.jobs.get(job)
        if not is_job_id(job) or not 0 < int(job) < self.jobs.next_number:
            return f"there is no job {job!r}; `gavel jobs --all` lists them"
        if record is not None and not record.finished:
            return f"job {job} is {record.state}; only checkpoints of finished jobs are removed"
        fenced = any(fenced == job and until > time for (fenced, _), until in self.agents.fences.items())
        if fenced or job in self.attempts.by_job:
            return f"job {job} has finished, but its last processes may still run; try again in a moment"
        return ""

    def _cleared(self, event: CheckpointsCleared) -> None:
        """Record what agents report; what is known already changes nothing."""
        removals = self.removals
        done = {
            agent: number
            for agent, number in event.done.items()
            if self.agents.get(agent) is not None and removals.done.get(agent, 0) < number <= removals.last
        }
        if done:
            self._note(CheckpointsRemoved(event.time, done, event.removed, event.kept))

    def _given(self, event: SettingsGiven) -> None:
        if not self.configured or event.settings != self.settings:
            self._note(SettingsChanged(event.time, event.by, event.settings, self.settings))

    def _limit(self, event: LimitsGiven) -> None:
        event.limits.check()
        if self.quotas.limits.get(event.subject, Limits()) != event.limits:
            self._note(LimitsChanged(event.time, event.by, event.subject, event.limits))

    def _notify(self, event: NotificationsGiven) -> None:
        if self.notified.get(event.user, ()) != event.urls:
            self._note(NotificationsChanged(event.time, event.by, event.user, event.urls))

    def _open_gates(self, time: float) -> None:
        """Hold jobs that may not continue, and release those that may: what follows from the event for all others."""
        gates = self.gates
        if not gates.due:
            return
        for jobs, cause in gates.closing(self.runs):
            self._schedule(core.JobsHeld(time, jobs, cause))
        while (excess := self.quotas.excess(self._stays)) is not None:
            self._schedule(core.JobsHeld(time, *excess))
        opening = gates.opening()
        for jobs, cause in opening.held:
            self._schedule(core.JobsHeld(time, jobs, cause))
        if opening.released:
            self._schedule(core.JobsReleased(time, opening.released))
        gates.settled()

    def _stays(self, job: str) -> bool:
        """Whether holding a job would change nothing: it runs, or is on hold for another reason."""
        return self.scheduler.on_hold(job) or self.runs(job)

    def _began(self, event: Began) -> None:
        self._note(SchedulerStarted(event.time, event.version, event.term, event.holder))

    # ---- evolve ----

    def evolve(self, fact: Fact) -> None:
        """Apply a fact; the only way in which this state changes."""
        if isinstance(fact, SettingsChanged):
            self._reconfigure(fact)
        elif isinstance(fact, TemplatesForgotten):
            self.forgotten |= templates.forget(self.scheduler, fact.templates, fact.time)
        elif isinstance(fact, TemplateRecalled):
            templates.recall(self.scheduler, fact.learned)
            self.forgotten.pop(fact.learned["template"], None)
        elif isinstance(fact, _OWN):
            pass
        else:
            self.scheduler.evolve(fact)  # type: ignore[arg-type] # all others are the scheduler's
        self._evolve_rest(fact)

    def _evolve_rest(self, fact: Fact) -> None:
        """Apply a fact to everything but the scheduler."""
        if isinstance(fact, SchedulerStarted):
            self._wake_up(fact.time, fact.time - self.time)
        self.time = fact.time
        changed = self.jobs.evolve(fact)
        self.changed |= changed
        self.time_limits.evolve(fact, changed, self.jobs.records, self._used_now)
        self.preferences.evolve(fact, self.jobs.records, self._able)
        self.agents.evolve(fact)
        self.attempts.evolve(fact, self.agents.by_server)
        self.removals.evolve(fact, self.agents.records)
        self.gates.evolve(fact)
        if isinstance(fact, NotificationsChanged):
            self.notified = {**self.notified, fact.user: fact.urls}
            if not fact.urls:
                del self.notified[fact.user]
        if isinstance(fact, core_facts.RoundPlanned) and not fact.mid_round:
            self.renewed_until = max(self.renewed_until, fact.until)  # agents never shorten a lease
        if isinstance(fact, core.SolveFailed):
            self.trouble = fact.reason
        elif isinstance(fact, core_facts.AllocationAdopted):
            self.trouble = ""

    def _used_now(self, job: str) -> float:
        return self.time_used(job, self.time)

    def _wake_up(self, time: float, asleep: float) -> None:
        """Extend leases and fences as if no time had passed since the last fact: the clock may have been set.

        Of the time in which there was no scheduler, only what was left of the leases counts as running time.
        """
        lost = asleep - max(self.renewed_until - self.time, 0.0)
        if lost > 0.0:
            self.time_limits.excuse(lost, time, self.jobs.records, lambda job: self.time_used(job, time))
        self.renewed_until += asleep
        self.agents.postpone(asleep)

    def _reconfigure(self, fact: SettingsChanged) -> None:
        self.settings = fact.after
        if self._scheduler is None:
            self._scheduler = self._configure.fresh(fact.after)
        else:
            self._scheduler = self._configure.restored(fact.after, _scheduler_document(self._scheduler))

    def commands(self, fact: Fact) -> Iterable[Command]:
        """The commands that follow from a fact."""
        return () if isinstance(fact, _OWN) else self.scheduler.commands(fact)  # type: ignore[arg-type]

    def problem_of(self, number: int) -> Problem:
        """The problem of the solve that is being answered."""
        asked = self.scheduler.unanswered
        if asked is None or asked.number != number:
            raise InputError(f"solve {number} was not asked, or was answered before")
        return asked.problem

    # ---- as a document ----

    def document(self) -> dict[str, Any]:
        """Everything needed to continue from here."""
        return {
            "settings": dict(self.settings),
            **_scheduler_document(self.scheduler),
            "jobs": self.jobs.document(),
            "agents": self.agents.document(),
            "attempts": self.attempts.document(),
            "removals": self.removals.document(),
            "quotas": self.quotas.document(),
            "gates": self.gates.document(),
            "time_limits": self.time_limits.document(),
            "preferences": self.preferences.document(),
            "notified": {user: list(urls) for user, urls in self.notified.items()},
            "renewed_until": self.renewed_until,
            "trouble": self.trouble,
            "time": self.time,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], configure: Configure, retries: Retries | None = None) -> ClusterState:
        """The state in a document."""
        state = cls(configure, retries)
        state.settings = document["settings"]
        state._scheduler = configure.restored(state.settings, document)
        state.jobs = JobRegistry.of(document["jobs"])
        state.agents = Agents.of(document["agents"])
        state.attempts = OpenAttempts.of(document["attempts"])
        if "removals" in document:  # states of earlier versions have none
            state.removals = Removals.of(document["removals"])
        unfinished = [Arrival(record.id, record.request) for record in state.jobs.active()]
        state.gates = Gates.of(document.get("gates", {}), document.get("quotas", {}), unfinished)
        state.notified = {user: tuple(urls) for user, urls in document.get("notified", {}).items()}
        state.renewed_until = document["renewed_until"]
        state.trouble, state.time = document["trouble"], document["time"]
        state.preferences = Preferences.of(document.get("preferences", {}))
        state._find_limits(document.get("time_limits", {}))  # states of earlier versions have none
        return state

    def _find_limits(self, document: Mapping[str, Any]) -> None:
        self.time_limits = TimeLimits.of(document)
        self.time_limits.look_again(self.time, self.jobs.records, self._used_now)


def _done(record: LiveJobRecord) -> str:
    steps = record.request.steps
    return "all steps done" if steps is not None and record.steps_done >= steps else "finished by itself"


def _scheduler_document(scheduler: Scheduler) -> dict[str, Any]:
    return {"scheduler": scheduler_state.dump(scheduler), "learned": scheduler.table.document()}


_OWN = get_args(OwnFact)
_ANSWERS: dict[type, Callable[[ClusterState, Any], Iterator[None] | None]] = {
    JobsSubmitted: ClusterState._submitted,  # noqa: SLF001 - its own table
    EditAsked: ClusterState._edit,  # noqa: SLF001
    LimitDue: ClusterState._limit_due,  # noqa: SLF001
    AttemptBegan: ClusterState._attempt_began,  # noqa: SLF001
    IdleFound: ClusterState._idle,  # noqa: SLF001
    core.JobCancelled: ClusterState._cancel,  # noqa: SLF001
    HoldAsked: ClusterState._hold,  # noqa: SLF001
    ReleaseAsked: ClusterState._release,  # noqa: SLF001
    RequeueAsked: ClusterState._requeue,  # noqa: SLF001
    AttemptEnded: ClusterState._attempt_ended,  # noqa: SLF001
    StepsCounted: ClusterState._count,  # noqa: SLF001
    AgentAttached: ClusterState._attached,  # noqa: SLF001
    AgentGone: ClusterState._gone,  # noqa: SLF001
    DrainAsked: ClusterState._drain,  # noqa: SLF001
    UndrainAsked: ClusterState._undrain,  # noqa: SLF001
    ForgetAsked: ClusterState._forget,  # noqa: SLF001
    RemovalAsked: ClusterState._remove,  # noqa: SLF001
    CheckpointsCleared: ClusterState._cleared,  # noqa: SLF001
    SettingsGiven: ClusterState._given,  # noqa: SLF001
    LimitsGiven: ClusterState._limit,  # noqa: SLF001
    NotificationsGiven: ClusterState._notify,  # noqa: SLF001
    Began: ClusterState._began,  # noqa: SLF001
}
"""Events that this class handles itself, perhaps in steps; all others go to the scheduler."""
_AT_ONCE = 20
"""Jobs whose facts are decided in one step."""
