"""The live scheduler between its journal and the world: events become facts, facts are written, then take effect.

A batch goes through three steps: `prepare` decides, the journal writes, `perform` tells the outside. So nothing is
started, stopped or acknowledged before it is durable. Waiting happens elsewhere, in an EngineHost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gavel.core.errors import InputError
from gavel.core.events import Command, Launch, Renew, RoundDue, Solve, Stop, WakeAt
from gavel.core.facts import JobEnded, JobRequeued
from gavel.core.jobs import Cause
from gavel.journal.store import Journal, Write
from gavel.runtime.events import Event
from gavel.runtime.executor import Done, Executor
from gavel.runtime.facts import AgentForgotten, CheckpointsRemoved, CheckpointsUnwanted, Fact, document_of
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.journal_retry import Insist, at_once
from gavel.runtime.limit_watch import LimitWatch
from gavel.runtime.state import ClusterState
from gavel.runtime.state_keeper import Kept, StateKeeper
from gavel.runtime.steps import Steps, all_steps
from gavel.runtime.templates import Learned
from gavel.scheduler.machine import Scheduler

Clock = Callable[[], float]
Beside = Callable[[Sequence[Fact]], Sequence[Write]]
"""What to write in the transaction of the facts that follow from an event, given those facts."""
TOLD_AT_ONCE = 1_000
"""Facts that witnesses are told in one step."""
PERFORMED_AT_ONCE = 50
"""Facts whose commands are carried out in one step."""


class EngineHost(Protocol):
    """What the engine delegates because it takes time."""

    def ask(self, solve: Solve) -> None:
        """Ask the policy, and post its answer."""

    def wake(self, at: float) -> None:
        """Call `round_due` at that time; replaces any earlier request."""

    def hurry(self) -> None:
        """Process the posted events soon."""


@dataclass(slots=True)
class _Posted:
    """Events that were posted together, and the callback for their outcome."""

    events: Sequence[Event]
    done: Done | None = None
    beside: Beside | None = None


@dataclass(slots=True)
class DecisionBatch:
    """Facts that were decided together, the commands that follow, and the callers that wait for them."""

    facts: list[Fact] = field(default_factory=list)
    commands: list[tuple[Fact, Sequence[Command]]] = field(default_factory=list)
    told: list[tuple[Done, InputError | None]] = field(default_factory=list)
    beside: list[Write] = field(default_factory=list)
    """Written in the same transaction."""

    def documents(self) -> list[dict[str, Any]]:
        """The facts as the journal stores them."""
        return [document_of(fact) for fact in self.facts]


class Engine:
    """Processes events, one batch after another. `post` is the only way in."""

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
        """Jobs as the journal has them: what readers and agents see."""
        self.listeners: set[Callable[[set[str]], None]] = set()
        """Called with the jobs whose records changed."""
        self.witnesses: list[Callable[[Sequence[Fact]], None]] = []
        """Called with facts that have just been written, for logs and event streams."""
        self.companions: list[Beside] = []
        """Called with the facts of events posted together, for what is always written with them."""
        self.alarms: dict[str, str] = {}
        """Current alarms, by subject."""
        self._queue: list[_Posted] = []
        self._host: EngineHost | None = None
        self._executor: Executor | None = None
        self._watch: LimitWatch | None = None
        self._since_state = 0
        self._unwitnessed = 0
        """Written facts that the witnesses will be called with next."""
        self._facts_between_states = facts_between_states

    @property
    def scheduler(self) -> Scheduler:
        return self.state.scheduler

    @property
    def witnessed(self) -> int:
        """The number of the last fact that the witnesses have been or are being called with."""
        return self.journal.last - self._unwitnessed

    @property
    def executor(self) -> Executor:
        assert self._executor is not None, "an engine works once it has begun"  # noqa: S101
        return self._executor

    @property
    def host(self) -> EngineHost:
        assert self._host is not None, "an engine works once it has begun"  # noqa: S101
        return self._host

    def begin(self, host: EngineHost, executor: Executor) -> None:
        """Continue where the journal ends: agents are expected back, and an open solve is asked again."""
        self._host, self._executor = host, executor
        self._watch = LimitWatch(self.state, executor, self.post)
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

    def post(self, event: Event, done: Done | None = None, beside: Beside | None = None) -> None:
        """Post an event; `done` is called once its facts are written and in effect, or it was refused.

        Unless it is refused, what `beside` returns is written in the same transaction.
        """
        self.post_together([event], done, beside)

    def post_together(self, events: Sequence[Event], done: Done | None = None, beside: Beside | None = None) -> None:
        """Post events that take effect independently of each other; `done` hears of the first that is refused."""
        self._queue.append(_Posted(events, done, beside))
        if self._host is not None:
            self._host.hurry()

    # ---- one batch ----

    def prepare(self) -> DecisionBatch | None:
        """Decide what follows from everything posted; None if nothing was."""
        return all_steps(self.preparing())

    def preparing(self) -> Steps[DecisionBatch | None]:
        """The same in steps. Between them the state may be read: it is as some of the facts leave it."""
        posted, self._queue = self._queue, []
        if not posted:
            return None
        now, batch = max(self.clock(), self.state.time), DecisionBatch()
        for each in posted:
            error = yield from self._deciding(each, now, batch)
            if each.done is not None:
                batch.told.append((each.done, error))
        return batch

    def _deciding(self, posted: _Posted, now: float, batch: DecisionBatch) -> Steps[InputError | None]:
        refused: InputError | None = None
        facts: list[Fact] = []
        for event in posted.events:
            try:
                facts += yield from self.state.taking(replace(event, time=now))
            except InputError as error:
                refused = refused or error
            yield
        if refused is not None and not facts:
            return refused
        batch.facts += facts
        if posted.beside is not None:
            batch.beside += posted.beside(facts)
        for companion in self.companions:
            batch.beside += companion(facts)
            yield
        batch.commands += [(fact, list(self.state.commands(fact))) for fact in facts]
        return refused

    def write(self, batch: DecisionBatch) -> None:
        """Make a batch durable; safe to repeat after a TemporaryJournalError. Any thread may call it, one at a time."""
        self.journal.append(batch.documents(), batch.beside)

    def perform(self, batch: DecisionBatch) -> None:
        """Tell the outside what has been written."""
        all_steps(self.performing(batch))

    def performing(self, batch: DecisionBatch) -> Steps[None]:
        """The same in steps."""
        changed = self._publish()
        for start in range(0, max(len(batch.facts), 1), TOLD_AT_ONCE):
            facts = batch.facts[start : start + TOLD_AT_ONCE]
            self._unwitnessed = len(batch.facts) - start - len(facts)
            for witness in list(self.witnesses):
                witness(facts)
            yield
        for number, (fact, commands) in enumerate(batch.commands, start=1):
            self._settle(fact)
            for command in commands:
                self._command(command)
            if number % PERFORMED_AT_ONCE == 0:
                yield
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
            self.executor.close(fact.job, Cause(fact.code, fact.reason) if fact.saves else None)
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
                self.executor.launch(command, self.state.attempts.holders_of(command.job, command.attempt))
            case Stop():
                self.executor.stop(command.job, command.cause)

    def take_up(self, insist: Insist = at_once) -> None:
        """Write what follows from the start itself, before anything else; InputError if some of it is refused."""
        batch = self.prepare()
        if batch is not None:
            insist(lambda: self.write(batch))
            self._publish()
            for done, error in batch.told:
                done(error)

    def take_in(self) -> None:
        """Process everything posted, and what follows from it, at once."""
        while (batch := self.prepare()) is not None:
            self.write(batch)
            self.perform(batch)

    # ---- time ----

    def round_due(self) -> None:
        """Handle the requested wake-up. At the end of a round, jobs' steps and rates are reported first.

        During a round that is not needed: the scheduler derives progress from the known rates.
        """
        now, ends = self.clock(), self.scheduler.round_ends
        if ends is None or now >= ends:
            self.executor.report()
        self.post(RoundDue(now))

    def tick(self) -> None:
        """Handle what is due by the clock, a few times a second."""
        self.executor.tick()
        if self._watch is not None:
            self._watch.look(self.clock())

    # ---- jobs, finished ones included ----

    def record(self, job: str) -> LiveJobRecord | None:
        """What is known about a job; None if it never existed."""
        if job in self.records:
            return self.records[job]
        found = self.journal.find(job)
        return LiveJobRecord.of(found) if found is not None else None

    # ---- what was learned about forgotten templates ----

    def recalled(self, unknown: Sequence[str]) -> dict[str, Learned]:
        """What the journal's table says about templates; any thread may ask."""
        found = self.journal.learned(unknown) if unknown else {}
        return {learned["template"]: learned for learned in found.values()}

    # ---- kept states ----

    @property
    def state_due(self) -> bool:
        """Whether to keep the state now, so that a restart need not read many facts."""
        return self._since_state >= self._facts_between_states

    def keep_state(self) -> None:
        """Write the whole state, and hand finished jobs over to the journal's own table."""
        kept = self.state_keeper.catch_up(self.journal.last)
        self.state_keeper.write(kept)
        self.kept(kept)

    def kept(self, kept: Kept) -> None:
        """Drop from memory what a state just written has handed over to the journal's tables."""
        self._since_state = self.journal.last - kept.number
        for record in kept.finished:
            self.state.jobs.records.pop(record.id, None)
            self.records.pop(record.id, None)
        self.state.jobs.forget_keys()
        for template, learned in kept.learned.items():
            if self.state.forgotten.get(template) == learned:  # and was not recalled and forgotten again since
                del self.state.forgotten[template]
