"""The live scheduler between its journal and the world: events become facts, facts are written, then they take effect.

A batch goes through three steps: `prepare` decides, the journal writes, `perform` lets the outside know. So nothing is
started, stopped or acknowledged before it is durable. Time passes elsewhere, in an EngineHost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gavel.core.errors import InputError
from gavel.core.events import Command, Launch, Renew, RoundDue, Solve, Stop, WakeAt
from gavel.core.facts import JobEnded, JobRequeued
from gavel.journal.store import Journal
from gavel.runtime.events import Event
from gavel.runtime.executor import Done, Executor
from gavel.runtime.facts import AgentForgotten, CheckpointsRemoved, CheckpointsUnwanted, Fact, document_of
from gavel.runtime.insistence import Insist, at_once
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.state import ClusterState
from gavel.runtime.state_keeper import Kept, StateKeeper
from gavel.runtime.templates import Learned
from gavel.scheduler.machine import Scheduler

Clock = Callable[[], float]


class EngineHost(Protocol):
    """What the engine cannot do by itself: it takes time."""

    def ask(self, solve: Solve) -> None:
        """Have the policy answer, and post what it says."""

    def wake(self, at: float) -> None:
        """Call `round_due` at that time; replaces what was asked before."""

    def hurry(self) -> None:
        """Have the events that were posted taken in soon."""


@dataclass(slots=True)
class _Posted:
    """An event on its way, and whom to tell."""

    event: Event
    done: Done | None = None


@dataclass(slots=True)
class DecisionBatch:
    """Facts that were decided together, what they ask for, and who waits for them to be written."""

    facts: list[Fact] = field(default_factory=list)
    commands: list[tuple[Fact, Sequence[Command]]] = field(default_factory=list)
    told: list[tuple[Done, InputError | None]] = field(default_factory=list)

    def documents(self) -> list[dict[str, Any]]:
        """The facts as the journal keeps them."""
        return [document_of(fact) for fact in self.facts]


class Engine:
    """Takes events in, one batch after the other. `post` is the one way in."""

    def __init__(
        self,
        state: ClusterState,
        journal: Journal,
        clock: Clock,
        state_keeper: StateKeeper,
        *,
        facts_between_states: int = 10_000,
    ) -> None:
        self.state = state
        self.journal = journal
        self.clock = clock
        self.state_keeper = state_keeper
        self.records: dict[str, LiveJobRecord] = dict(state.jobs.records)
        """Jobs as the journal has them: what readers and agents are told."""
        self.listeners: set[Callable[[set[str]], None]] = set()
        """Called with the jobs whose records changed."""
        self.witnesses: list[Callable[[Sequence[Fact]], None]] = []
        """Called with facts that have just been written: for logs and streams of events."""
        self.alarms: dict[str, str] = {}
        """What is wrong at the moment, by what it is about."""
        self._queue: list[_Posted] = []
        self._host: EngineHost | None = None
        self._executor: Executor | None = None
        self._since_state = 0
        self._facts_between_states = facts_between_states

    @property
    def scheduler(self) -> Scheduler:
        return self.state.scheduler

    @property
    def executor(self) -> Executor:
        assert self._executor is not None, "an engine works once it has begun"  # noqa: S101
        return self._executor

    @property
    def host(self) -> EngineHost:
        assert self._host is not None, "an engine works once it has begun"  # noqa: S101
        return self._host

    def begin(self, host: EngineHost, executor: Executor) -> None:
        """Continue where the journal ends: agents are expected back, an unanswered question is asked again."""
        self._host, self._executor = host, executor
        state = self.state
        attempts = state.attempts
        holders = {**attempts.closed, **attempts.holders}
        executor.begin(list(state.agents), list(attempts), state.agents.fences, state.renewed_until, holders)
        executor.remove_checkpoints(state.removals.outstanding())
        if state.scheduler.unanswered is not None:
            host.ask(state.scheduler.unanswered)
        if state.scheduler.wake is not None:
            host.wake(state.scheduler.wake)
        if self._queue:
            host.hurry()

    def post(self, event: Event, done: Done | None = None) -> None:
        """Have an event taken in; `done` is called once its facts are written and in effect, or it was refused."""
        self._queue.append(_Posted(event, done))
        if self._host is not None:
            self._host.hurry()

    # ---- one batch ----

    def prepare(self) -> DecisionBatch | None:
        """Decide what follows from everything that has been posted; None if nothing has."""
        posted, self._queue = self._queue, []
        if not posted:
            return None
        now, batch = max(self.clock(), self.state.time), DecisionBatch()
        for each in posted:
            error = self._decide(replace(each.event, time=now), batch)
            if each.done is not None:
                batch.told.append((each.done, error))
        return batch

    def _decide(self, event: Event, batch: DecisionBatch) -> InputError | None:
        try:
            facts = self.state.take(event)
        except InputError as error:
            return error
        batch.facts += facts
        batch.commands += [(fact, list(self.state.commands(fact))) for fact in facts]
        return None

    def write(self, batch: DecisionBatch) -> None:
        """Make a batch durable; may be repeated after a TemporaryJournalError. Any thread may do it, one at a time."""
        self.journal.append(batch.documents())

    def perform(self, batch: DecisionBatch) -> None:
        """Let the outside know what has been written."""
        changed = self._publish()
        for witness in self.witnesses:
            witness(batch.facts)
        for fact, commands in batch.commands:
            self._settle(fact)
            for command in commands:
                self._command(command)
        if changed:
            for listener in list(self.listeners):
                listener(changed)
        for done, error in batch.told:
            done(error)
        self._since_state += len(batch.facts)

    def _publish(self) -> set[str]:
        jobs = self.state.jobs
        for job in jobs.touched:
            if job in jobs:
                self.records[job] = jobs[job]
        jobs.touched = set()
        changed, self.state.changed = self.state.changed, set()
        return changed

    def _settle(self, fact: Fact) -> None:
        if isinstance(fact, JobEnded):
            self.executor.close(fact.job)
        elif isinstance(fact, JobRequeued):
            self.executor.withdraw(fact.job)
        elif isinstance(fact, CheckpointsUnwanted | CheckpointsRemoved | AgentForgotten):
            self.executor.remove_checkpoints(self.state.removals.outstanding())

    def _command(self, command: Command) -> None:
        match command:
            case Solve():
                self.host.ask(command)
            case WakeAt():
                self.host.wake(command.time)
            case Renew():
                self.executor.renew(command.until)
            case Launch():
                self.executor.launch(command)
            case Stop():
                self.executor.stop(command.job, command.cause)

    def take_up(self, insist: Insist = at_once) -> None:
        """Write down what a start brings, before anything else can follow from it."""
        batch = self.prepare()
        if batch is not None:
            insist(lambda: self.write(batch))
            self._publish()

    def take_in(self) -> None:
        """Take in everything that was posted, and what follows from it, at once."""
        while (batch := self.prepare()) is not None:
            self.write(batch)
            self.perform(batch)

    # ---- time ----

    def round_due(self) -> None:
        """The scheduler asked to be called. When a round ends, what jobs have done and how fast they were comes first.

        During a round that is not needed: the scheduler works out how far jobs are from how fast they are.
        """
        now, ends = self.clock(), self.scheduler.round_ends
        if ends is None or now >= ends:
            self.executor.report()
        self.post(RoundDue(now))

    # ---- jobs, finished ones included ----

    def record(self, job: str) -> LiveJobRecord | None:
        """What is known of a job; None if there was never one."""
        if job in self.records:
            return self.records[job]
        found = self.journal.find(job)
        return LiveJobRecord.of(found) if found is not None else None

    # ---- what was learned about templates that were forgotten ----

    def recalled(self, unknown: Sequence[str]) -> dict[str, Learned]:
        """What the journal's table has of templates; any thread may ask."""
        found = self.journal.learned(unknown) if unknown else {}
        return {learned["template"]: learned for learned in found.values()}

    # ---- kept states ----

    @property
    def state_due(self) -> bool:
        """Whether the state should be kept, so that a restart need not read many facts."""
        return self._since_state >= self._facts_between_states

    def keep_state(self) -> None:
        """Write the whole state down, and hand finished jobs over to the journal's own table."""
        kept = self.state_keeper.catch_up(self.journal.last)
        self.state_keeper.write(kept)
        self.kept(kept)

    def kept(self, kept: Kept) -> None:
        """A state was written: what the journal's table of finished jobs has need not be in memory."""
        self._since_state = self.journal.last - kept.number
        for record in kept.finished:
            self.state.jobs.records.pop(record.id, None)
            self.records.pop(record.id, None)
        self.state.jobs.forget_keys()
        for template, learned in kept.learned.items():
            if self.state.forgotten.get(template) == learned:  # and was not recalled and forgotten again since
                del self.state.forgotten[template]
