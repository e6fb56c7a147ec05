"""The safety properties of the live system, checked from outside while it runs, by what is in the journal.

1 no two attempts of a job have processes at once; 2 no accelerator is held by two combos; 3 nothing is acknowledged or
started before it is in the journal; 4 a finished job stays finished; 5 steps go back only to a checkpoint; 6 recovery
from any prefix gives the state that existed then; 7 no job starts beyond the accelerators that its user and teams may
use; 8 no job starts while a user holds it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gavel.client.views import JobState
from gavel.core.codec import kind_of
from gavel.core.events import JobEdited, JobsProgressed
from gavel.core.facts import JobEnded, JobQueued, RoundPlanned
from gavel.core.serialization import from_plain
from gavel.journal.facts import Head
from gavel.runtime.configuration import Configurator, settings_document
from gavel.runtime.engine import Engine
from gavel.runtime.events import AttemptEnded, Event, SettingsGiven, StepsCounted
from gavel.runtime.facts import (
    AgentDraining,
    AgentJoined,
    AgentLost,
    AgentUndrained,
    AttemptClosed,
    CheckpointsUnwanted,
    HoldsChanged,
    LimitsChanged,
)
from gavel.runtime.messages import StartAttempt, TaskEnded, TaskStatus
from gavel.runtime.recovery import recover
from gavel.scheduler.machine import check_invariants
from gavel.security.quotas import Limits, Quotas, Subject, subjects_of

if TYPE_CHECKING:
    from virtual_agent import Agent
    from virtual_fleet import VirtualFleet

    from gavel.runtime.state import ClusterState

QUEUED, ENDED, PLANNED, CLOSED = (kind_of(fact) for fact in (JobQueued, JobEnded, RoundPlanned, AttemptClosed))
PROGRESSED = kind_of(JobsProgressed)
JOINED, LOST = kind_of(AgentJoined), kind_of(AgentLost)
DRAINING, UNDRAINED = kind_of(AgentDraining), kind_of(AgentUndrained)
UNWANTED, EDITED = kind_of(CheckpointsUnwanted), kind_of(JobEdited)
LIMITED, HOLDS = kind_of(LimitsChanged), kind_of(HoldsChanged)


class Checker:
    """What the journal of a run says, and what follows from it."""

    def __init__(self, world: VirtualFleet) -> None:
        self.world = world
        self.head_before = Head(0, b"")
        self.queued: dict[str, str] = {}
        """Keys of calls by job."""
        self.keys: dict[str, str] = {}
        """By key: the job, the first of an array."""
        self.arrays: dict[str, str] = {}
        """By key: the array, or empty."""
        self.ended: dict[str, str] = {}
        """Outcomes by job."""
        self.launched: dict[str, set[int]] = {}
        self._agents: dict[str, str] = {}
        """By server: the agent that joined with it last."""
        self._holders: dict[tuple[str, int], set[str]] = {}
        """By job and attempt: the agents of its servers when it was launched."""
        self.closed: dict[str, set[int]] = {}
        self.drained: set[tuple[str, bool]] = set()
        """Names of agents that were drained (True) and undrained (False)."""
        self.holds: set[tuple[str, bool]] = set()
        """Jobs that were ever held (True) and released (False) by a user."""
        self.held: set[str] = set()
        """Jobs that a user holds now."""
        self.limited: set[tuple[Subject, Limits]] = set()
        """All limits that were ever in force."""
        self._names: dict[str, str] = {}
        self._given_up: set[tuple[str, str, int]] = set()
        """By agent, job and attempt: what was open when the agent was lost."""
        self._written = 0
        self.states: dict[int, str] | None = None
        """The live state after each batch, by the number of its last fact; None: not kept."""
        self.steps: dict[str, float] = {}
        """As recorded, by job."""
        self._begun: dict[str, float] = {}
        """By job: the steps with which its last attempt began."""
        self._fell: dict[str, int] = {}
        """By job: how many of its attempts had ended when its steps last went back."""
        self._ran: set[str] | None = None
        """The jobs that ran when a batch was last decided; None: not known."""
        self._limits = Quotas()
        """The limits that were in force then."""
        self._known_saved: dict[str, float] = {}
        """By job: the checkpoint that the present scheduler has heard of."""
        self._reported: dict[str, list[tuple[float, float]]] = {}
        """By job: steps that were reported and are not recorded yet, each with the checkpoint that was known then."""
        self.edited: set[str] = set()
        """Jobs that were changed."""
        self.unwanted: set[str] = set()
        """Jobs whose checkpoints are to be removed."""

    # ---- what is written ----

    def wrote(self, documents: Sequence[Mapping[str, Any]], last: int) -> None:
        """Facts are in the journal; those of a repeated append are there once."""
        if last <= self._written:
            return
        assert last == self._written + len(documents), "facts are missing, or there twice"
        self._written = last
        for document in documents:
            self._took(document["kind"], document["fact"])
            if document["kind"] == LIMITED:
                self._limited(document["fact"])

    def _limited(self, fact: Mapping[str, Any]) -> None:
        self.limited.add((from_plain(Subject, fact["subject"]), from_plain(Limits, fact.get("limits", {}))))

    def _took(self, kind: str, fact: Mapping[str, Any]) -> None:  # noqa: C901 - one answer for each kind of fact
        if kind == QUEUED:
            self._queued(fact)
        elif kind == ENDED:
            job = fact["job"]
            assert job not in self.ended, f"job {job} ended twice: {self.ended[job]}, then {fact['outcome']}"
            self.ended[job] = fact["outcome"]
        elif kind == PLANNED:
            for run in (*fact.get("moved", ()), *fact.get("started", ())):
                for job, attempt in zip(run["jobs"], run["attempts"], strict=True):
                    assert job not in self.ended, f"job {job} was launched although it has {self.ended[job]}"
                    assert job not in self.held, f"job {job} was launched although its user holds it"
                    numbers = self.launched.setdefault(job, set())
                    assert attempt not in numbers, f"attempt {attempt} of job {job} was launched twice"
                    numbers.add(attempt)
                    self._holders[job, attempt] = {self._agents[server] for server in run["accelerators"]}
        elif kind == PROGRESSED:
            for job, steps in zip(fact["jobs"], fact["steps"], strict=True):
                self._counted(job, steps)
        elif kind == CLOSED:
            numbers = self.closed.setdefault(fact["job"], set())
            assert fact["attempt"] not in numbers, f"attempt {fact['attempt']} of job {fact['job']} was closed twice"
            numbers.add(fact["attempt"])
        elif kind == EDITED:
            assert fact["job"]["id"] not in self.ended, f"job {fact['job']['id']} was changed although it has finished"
            self.edited.add(fact["job"]["id"])
        elif kind == HOLDS:
            self._holds(fact["jobs"], held=fact["held"])
        elif kind == UNWANTED:
            self.unwanted |= set(fact["jobs"])
        else:
            self._agent(kind, fact)

    def _holds(self, jobs: Iterable[str], *, held: bool) -> None:
        self.holds |= {(job, held) for job in jobs}
        self.held = self.held | set(jobs) if held else self.held - set(jobs)

    def _counted(self, job: str, steps: float) -> None:
        """The recorded steps of a job change; they fall once after the end of an attempt at most."""
        self.steps[job] = after = self.steps.get(job, 0.0) + steps
        saved = self._saved_when_reported(job, after)
        if steps >= -1e-6:
            return
        closed, before = len(self.closed.get(job, ())), after - steps
        assert closed > self._fell.get(job, 0), f"job {job} went back from {before} to {after}, and nothing crashed"
        self._fell[job] = closed
        floor = max(saved, self._begun.get(job, 0.0))
        assert after >= floor - 1e-6, f"job {job} went back from {before} to {after}, behind its checkpoint of {floor}"

    def _saved_when_reported(self, job: str, steps: float) -> float:
        """The checkpoint that the scheduler had heard of when it reported these steps; writing takes time."""
        reports = self._reported.get(job, [])
        while reports:
            reported, saved = reports.pop(0)
            if abs(reported - steps) < 1e-6:
                return saved
        return self._known_saved.get(job, 0.0)

    def _queued(self, fact: Mapping[str, Any]) -> None:
        job, key = fact["job"]["id"], fact["key"]
        assert job not in self.queued, f"the id {job} was given twice"
        array = fact["request"].get("array_id", "")
        again = key in self.keys and (not array or self.arrays.get(key) != array)
        assert not again, f"the call {key!r} was accepted twice"
        self.queued[job] = key
        if fact["request"].get("hold"):
            self._holds([job], held=True)
        self.keys.setdefault(key, job)
        self.arrays[key] = array

    def _agent(self, kind: str, fact: Mapping[str, Any]) -> None:
        if kind == JOINED:
            self._names[fact["agent"]] = fact["name"]
            self._agents |= {server["name"]: fact["agent"] for server in fact["servers"]}
        elif kind == LOST:
            for job, numbers in self.launched.items():
                open_ = numbers - self.closed.get(job, set())
                self._given_up |= {(fact["agent"], job, attempt) for attempt in open_}
        elif kind in (DRAINING, UNDRAINED):
            self.drained.add((self._names[fact["agent"]], kind == DRAINING))

    # ---- what is said ----

    def acknowledges(self, agent: Agent, ended: TaskEnded) -> None:
        """An agent is about to be told that it may forget an end: it is written, or was taken for lost there."""
        job, attempt = ended.status.job, ended.status.attempt
        written = attempt in self.closed.get(job, ()) or (agent.identity, job, attempt) in self._given_up
        assert written, f"the end of attempt {attempt} of job {job} is not in the journal"

    def sends(self, agent: Agent, message: Any) -> None:
        """A message is about to be sent to an agent."""
        if isinstance(message, StartAttempt):
            job, attempt = message.job, message.attempt
            assert attempt in self.launched.get(job, ()), f"attempt {attempt} of job {job} starts before it is written"
            holders = self._holders[job, attempt]
            assert agent.identity in holders, f"job {job} starts at {agent.identity}, in the journal at {holders}"
            assert attempt not in self.closed.get(job, ()), f"attempt {attempt} of job {job} starts after its end"
            earlier = {n for n in self.launched[job] if n < attempt} - self.closed.get(job, set())
            assert not earlier, f"attempt {attempt} of job {job} starts at {agent.name} before {earlier} have ended"

    # ---- what is decided ----

    def began(self, engine: Engine) -> None:
        """A scheduler has read the journal."""
        self._known_saved.clear()
        self._reported.clear()
        self._ran = None
        self.decided(engine)

    def decided(self, engine: Engine) -> None:
        """A batch is written, and has taken effect in the state."""
        refusals = [str(refusal) for refusal in engine.state.jobs.refusals]
        assert not refusals, refusals
        check_invariants(engine.scheduler)
        self._check_limits(engine.state)
        for record in engine.state.jobs.records.values():
            told = self.steps.get(record.id, 0.0)
            assert abs(record.steps_done - told) < 1e-6, f"job {record.id} has {record.steps_done} steps, not {told}"
        if self.states is not None:
            self.states[engine.journal.last] = text_of(engine.state)

    def _check_limits(self, state: ClusterState) -> None:
        """Jobs that started since the last batch are within the limits in force then or now."""
        running = {job: record for job, record in state.jobs.records.items() if record.state is JobState.RUNNING}
        used: Counter[Subject] = Counter()
        fresh: dict[Subject, str] = {}
        for job, record in running.items():
            for subject in subjects_of(record.request.user, record.request.entity):
                used[subject] += record.request.workers
                if self._ran is not None and job not in self._ran:
                    fresh[subject] = job
        for subject, job in fresh.items():
            limits = [quotas.limits_of(subject).running_accelerators for quotas in (self._limits, state.quotas)]
            assert not all(limits) or used[subject] <= max(limits), (
                f"job {job} starts although {subject} may run {max(limits)} accelerators and runs {used[subject]}"
            )
        self._ran, self._limits = set(running), Quotas()
        self._limits.limits = dict(state.quotas.limits)

    def saved(self, job: str) -> None:
        """A job has saved a checkpoint."""
        assert job not in self.ended or self.ended[job] != "completed", f"job {job} saves although it has completed"

    def removes(self, job: str) -> None:
        """An agent is about to remove the checkpoints of a job."""
        assert job in self.unwanted, f"the removal of checkpoints of job {job} is not in the journal"
        assert job in self.ended, f"the checkpoints of job {job} are removed although it has not finished"
        running = [a.name for a in self.world.agents.values() for task in a.tasks.values() if task.start.job == job]
        assert not running, f"the checkpoints of job {job} are removed while it runs at {running}"

    def unremoved(self) -> set[str]:
        """Jobs whose checkpoints are to be removed and are still there, or that an agent which is here must hear of."""
        state = self.world.engine.state if self.world.engine is not None else None
        there = {agent.identity for agent in self.world.agents.values() if not agent.gone}
        owed = {job for agent in there for _, job in state.removals.outstanding().of(agent)} if state else set()
        return (self.unwanted & self.world.disk.keys()) | owed

    def begins(self, job: str, steps: float) -> None:
        """An attempt begins with what is saved."""
        self._begun[job] = steps

    def reports(self, event: Event) -> None:
        """The executor reports an event, perhaps with the steps of jobs."""
        steps: Mapping[str, float] = event.steps if isinstance(event, StepsCounted) else {}
        if isinstance(event, AttemptEnded) and event.steps is not None:
            steps = {event.job: event.steps}
        for job, done in steps.items():
            self._reported.setdefault(job, []).append((done, self._known_saved.get(job, 0.0)))

    def heard(self, statuses: Iterable[TaskStatus]) -> None:
        """The scheduler hears how far jobs are."""
        for status in statuses:
            if status.counts and not status.rank:
                known = self._known_saved.get(status.job, 0.0)
                self._known_saved[status.job] = max(known, status.saved_steps)

    # ---- what runs ----

    def check(self) -> None:
        """No job runs twice at once, and no accelerator is held by two combos."""
        attempts: dict[str, int] = {}
        for agent in self.world.agents.values():
            held: dict[int, list[StartAttempt]] = {}
            for (job, attempt), task in agent.tasks.items():
                if not task.processes:
                    continue
                other = attempts.setdefault(job, attempt)
                assert other == attempt, f"job {job} runs as attempts {other} and {attempt} at {self.world.now}"
                for device in task.devices:
                    held.setdefault(device, []).append(task.start)
            for device, starts in held.items():
                assert 0 <= device < agent.count
                if len(starts) > 1:
                    first, second = starts  # no more than two
                    assert (first.beside, second.beside) == (second.job, first.job), (
                        f"device {device} of {agent.name} is held by jobs {first.job} and {second.job}"
                    )

    # ---- in the end ----

    def check_outcomes(self) -> None:
        """Every job that was accepted has finished, once, and says so wherever it is asked."""
        for job, outcome in self.ended.items():
            assert self.world.record(job).state == outcome
        for job in self.queued:
            record = self.world.record(job)
            assert record.state != "completed" or job in self.world.done_jobs, f"job {job} completed too early"

    def check_prefixes(self) -> None:
        """Recovery from the journal, cut after any fact, gives the state that existed then."""
        assert self.states
        assert self.world.leader is not None
        journal, settings = self.world.leader.journal, self.world.settings
        configure = Configurator(settings.scheduling)
        for number in range(min(self.states), journal.last + 1):
            state = recover(journal, configure, until=number)
            assert not state.jobs.refusals
            check_invariants(state.scheduler)
            if number in self.states:
                assert text_of(state) == self.states[number], f"after fact {number}"

    def check_other_settings(self, **changes: Any) -> None:
        """Whatever a scheduler is started with, what runs stays where it is."""
        assert self.world.leader is not None
        journal, settings = self.world.leader.journal, self.world.settings
        other = replace(settings, **changes).scheduling
        for number in self.states or ():
            before = recover(journal, Configurator(settings.scheduling), until=number)
            after = recover(journal, Configurator(other), until=number)
            after.take(SettingsGiven(after.time, "operator", settings_document(other)))
            assert placed(after) == placed(before), f"after fact {number}"
            assert after.attempts.document() == before.attempts.document()
            assert after.jobs.document() == before.jobs.document()
            check_invariants(after.scheduler)


def placed(state: ClusterState) -> dict[tuple[str, ...], Mapping[str, int]]:
    """Which job runs where."""
    names = state.scheduler.roster.ids
    return {
        tuple(str(names[slot]) for slot in run.members): dict(where) for run, where in state.scheduler.placed.items()
    }


def text_of(state: ClusterState) -> str:
    """A state to compare."""
    return json.dumps(state.document(), sort_keys=True)
