"""The live scheduler without its clockwork: events are written to the journal, take effect, and commands follow.

Also how all of it is recovered from a journal. Time passes elsewhere, in a World.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gavel.core.cluster import Server
from gavel.core.codec import decode_event, encode_event
from gavel.core.errors import InputError
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    Launch,
    Renew,
    RoundDue,
    ServerJoined,
    ServerLost,
    Solve,
    SolveFailed,
    Stop,
    WakeAt,
)
from gavel.core.problem import Problem
from gavel.runtime.book import Book, Note, Record
from gavel.runtime.fleet import Fleet, FleetSettings, agent_name
from gavel.runtime.journal import Journal
from gavel.scheduler import state
from gavel.scheduler.machine import Scheduler

Done = Callable[[InputError | None], None]


@dataclass(slots=True)
class _Posted:
    """An event on its way, and who waits for it to take effect."""

    event: Event
    note: Note
    done: Done | None = None

    def tell(self, error: InputError | None) -> None:
        if self.done is not None:
            self.done(error)


class TooLateError(InputError):
    """An answer of the policy that nobody waits for any more."""


@dataclass(slots=True)
class Recovered:
    """Scheduler and book as the journal tells them, and what the scheduler had asked for and not yet heard."""

    scheduler: Scheduler
    book: Book
    wake: float | None = None
    renewed_until: float = 0.0
    launches: dict[str, Launch] = field(default_factory=dict)
    """The last launch of each job that runs."""
    fences: dict[tuple[str, str], float] = field(default_factory=dict)
    """By job and lost agent: until when the job may still run there, so that it must not start elsewhere."""
    time: float = 0.0

    def apply(self, event: Event, note: Note) -> tuple[list[Command], set[str]]:
        """One event's whole effect on what is remembered: the commands, and the jobs whose records changed."""
        self.time = event.time
        note = {**note, **figures(self.scheduler, event)}
        commands = self.scheduler.handle(event)
        changed = self.book.apply(event, note, commands)
        if isinstance(event, RoundDue):
            self.wake = None
        for command in commands:
            match command:
                case WakeAt():
                    self.wake = command.time
                case Renew():
                    self.renewed_until = command.until
                case Launch():
                    self.launches[command.job] = command
                case Stop():
                    self.launches.pop(command.job, None)
        if isinstance(event, JobFinished | JobCancelled | JobFailed):
            self.launches.pop(event.job, None)
        self._fence(event, note)
        return commands, changed

    def _fence(self, event: Event, note: Note) -> None:
        """Remember what a lost agent may still run, until its leases end or it comes back and says what runs there."""
        match event:
            case ServerLost():
                agent = agent_name(event.server)
                fenced = {(job, agent): until for job, until in note.get("fences", {}).items()}
                self.fences = {key: until for key, until in self.fences.items() if until > event.time} | fenced
            case ServerJoined():
                back = agent_name(event.server.name)
                self.fences = {key: until for key, until in self.fences.items() if key[1] != back}
            case _:
                pass

    def servers(self) -> list[Server]:
        """Every server that the scheduler counts on."""
        kinds = zip(self.scheduler.types, self.scheduler.floors, strict=True)
        return [Server(name, kind, size) for kind, floor in kinds for name, size, _ in floor.servers()]

    def problem_of(self, number: int) -> Problem:
        """The problem of the solve that is under way."""
        asked = self.scheduler.unanswered
        if asked is None or asked.number != number:
            raise TooLateError(f"solve {number} has been asked anew or answered since")
        return asked.problem


def leaves(event: Event) -> str | None:
    """The job that is over with this event."""
    if isinstance(event, JobFinished | JobCancelled) or (isinstance(event, JobFailed) and not event.retry):
        return event.job
    return None


def figures(scheduler: Scheduler, event: Event) -> dict[str, Any]:
    """What the scheduler knows of a job that is about to leave."""
    job = leaves(event)
    if job is None or job not in scheduler.roster:
        return {}
    slot = scheduler.roster.slot_of[job]
    received = dict(zip(scheduler.types, scheduler.received_until(slot, event.time).tolist(), strict=True))
    return {
        "received": {kind: seconds for kind, seconds in received.items() if seconds},
        "restarts": int(scheduler.roster.restarts[slot]),
    }


def recover(
    journal: Journal, fresh: Callable[[], Scheduler], restored: Callable[[Mapping[str, Any]], Scheduler]
) -> Recovered:
    """The state that the journal tells: the last one kept, and every event after it."""
    kept = journal.latest()
    if kept is None:
        here = Recovered(fresh(), Book())
        number = 0
    else:
        number, document = kept
        here = _recovered(document, restored)
    for entry in journal.events(after=number):
        replay(here, entry)
    return here


def replay(here: Recovered, entry: Mapping[str, Any]) -> list[Command]:
    """Take in one entry of the journal."""
    fields = dict(entry)
    note = fields.pop("note", {})
    try:
        event = decode_event(fields, here.problem_of)
    except TooLateError:
        return []  # nor did it change anything then
    try:
        return here.apply(event, note)[0]
    except InputError:
        return []  # refused then, refused now


def _recovered(document: Mapping[str, Any], restored: Callable[[Mapping[str, Any]], Scheduler]) -> Recovered:
    launches = {entry["job"]: Launch(**entry) for entry in document["launches"]}
    return Recovered(
        restored(document),
        Book.of(document["book"]),
        wake=document["wake"],
        renewed_until=document["renewed_until"],
        launches=launches,
        fences={(job, agent): until for job, agent, until in document.get("fences", ())},
        time=document["time"],
    )


def document_of(here: Recovered) -> dict[str, Any]:
    """Everything that a scheduler needs to go on."""
    return {
        "scheduler": state.dump(here.scheduler),
        "learned": here.scheduler.table.document(),
        "book": here.book.document(),
        "wake": here.wake,
        "renewed_until": here.renewed_until,
        "launches": [
            {
                "job": launch.job,
                "type": launch.type,
                "accelerators": dict(launch.accelerators),
                "until": launch.until,
                "consolidated": launch.consolidated,
                "beside": launch.beside,
            }
            for launch in here.launches.values()
        ],
        "fences": [[job, agent, until] for (job, agent), until in here.fences.items()],
        "time": here.time,
    }


class World(Protocol):
    """What the engine cannot do by itself: it takes time."""

    def ask(self, solve: Solve) -> None:
        """Have the policy answer, and post what it says."""

    def wake(self, at: float) -> None:
        """Call `round_due` at that time; replaces what was asked before."""

    def hurry(self) -> None:
        """Call `take_in` soon."""


class Engine:
    """The scheduler at work: journal first, then effect, then commands. `post` is the one way in.

    It does not wait for anything; a World, which it is given when it begins, does.
    """

    def __init__(
        self,
        here: Recovered,
        journal: Journal,
        settings: FleetSettings,
        *,
        clock: Callable[[], float],
        events_between_states: int = 5_000,
    ) -> None:
        self.here = here
        self.journal = journal
        self.clock = clock
        self.fleet = Fleet(settings, clock, self.post, here.book)
        self.listeners: set[Callable[[set[str]], None]] = set()
        """Called with the jobs whose records changed."""
        self.performed: Callable[[Event, Sequence[Command]], None] | None = None
        """Told of every event and its commands; for tests and logs."""
        self.trouble = ""
        """Why the last question to the policy has no answer; empty if it has one."""
        self._queue: list[_Posted] = []
        self._world: World | None = None
        self._since_state = 0
        self._events_between_states = events_between_states

    @property
    def scheduler(self) -> Scheduler:
        return self.here.scheduler

    @property
    def book(self) -> Book:
        return self.here.book

    @property
    def world(self) -> World:
        assert self._world is not None, "an engine works once it has begun"  # noqa: S101
        return self._world

    def begin(self, world: World) -> None:
        """Go on where the journal ends: agents are expected back, an unanswered question is asked again."""
        self._world = world
        here = self.here
        # As if no time had passed since the last event: who knows whether the machine's clock was set meanwhile?
        asleep = max(self.clock() - here.time, 0.0)
        self.fleet.fences.update({key: until + asleep for key, until in here.fences.items()})
        if servers := here.servers():
            self.fleet.expect(servers, here.launches, here.renewed_until)
        if here.scheduler.unanswered is not None:
            world.ask(here.scheduler.unanswered)
        if here.wake is not None:
            world.wake(here.wake)

    def post(self, event: Event, note: Note, done: Done | None = None) -> None:
        """Have an event journaled and handled; `done` is told when it has taken effect, or why it was refused."""
        self._queue.append(_Posted(event, note, done))
        if self._world is not None:
            self._world.hurry()

    def take_in(self) -> None:
        """Write down everything that is waiting, in one transaction; then let it take effect."""
        batch, self._queue = self._queue, []
        if batch:
            now = max(self.clock(), self.here.time)
            for posted in batch:
                posted.event = replace(posted.event, time=now)
            self.journal.append([_entry(posted) for posted in batch])
            changed: set[str] = set()
            for posted in batch:
                changed |= self._handle(posted)
            if changed:
                for listener in list(self.listeners):
                    listener(changed)
        if not self._queue:
            self.fleet.acknowledge()
        self._since_state += len(batch)
        if self._since_state >= self._events_between_states:
            self.keep_state()

    def _handle(self, posted: _Posted) -> set[str]:
        event = posted.event
        try:
            commands, changed = self.here.apply(event, posted.note)
        except InputError as error:
            posted.tell(error)
            return set()
        self.trouble = _trouble(event, self.trouble)
        if self.performed is not None:
            self.performed(event, commands)
        if (over := leaves(event)) is not None:
            self.fleet.closed(over)
        for command in commands:
            self._perform(command)
        posted.tell(None)
        return changed

    def _perform(self, command: Command) -> None:
        match command:
            case Solve():
                self.world.ask(command)
            case WakeAt():
                self.world.wake(command.time)
            case Renew():
                self.fleet.renew(command.until)
            case Launch():
                self.fleet.launch(command)
            case Stop():
                self.fleet.stop(command.job)

    def record(self, job: str) -> Record | None:
        """What is known of a job, also of one that is over and no longer in the book; None if there was never one."""
        if job in self.book:
            return self.book[job]
        found = self.journal.find(int(job)) if job.isdecimal() else None
        return Record.of(found) if found is not None else None

    def round_due(self) -> None:
        """The scheduler asked to be woken: count what all jobs have done, then let it plan.

        During a round it only needs to know how many steps are left; how fast jobs are is told when the round is over.
        """
        now, ends = self.clock(), self.scheduler.round_ends
        self.fleet.progress(rates=ends is None or now >= ends)
        self.post(RoundDue(now), {})

    def keep_state(self) -> None:
        """Write the whole state down, so that a restart need not read the journal from its beginning."""
        over = [record for record in self.book.records.values() if record.over]
        self.journal.keep(
            document_of(self.here),
            [(int(record.id), record.state, record.history[-1].time, record.document()) for record in over],
        )
        for record in over:
            del self.book.records[record.id]
        self._since_state = 0


def _trouble(event: Event, before: str) -> str:
    if isinstance(event, SolveFailed):
        return event.reason
    return "" if isinstance(event, AllocationReady) else before


def _entry(posted: _Posted) -> dict[str, Any]:
    document = encode_event(posted.event)
    return {**document, "note": posted.note} if posted.note else document
