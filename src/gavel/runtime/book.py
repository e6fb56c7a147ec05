"""What users are told of their jobs: states, reasons, attempts. A fold over events and commands, like the scheduler.

Nothing here decides anything; replaying the journal gives the same book.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from gavel.core.events import (
    Command,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobsProgressed,
    JobSubmitted,
    Launch,
    ServerLost,
    Stop,
)
from gavel.wire import gavel_pb2 as pb

State = pb.JobState

OVER = (pb.COMPLETED, pb.FAILED, pb.CANCELLED)
HISTORY = 200
"""Transitions that are kept of one job: the newest."""

Note = Mapping[str, Any]
"""What the book needs to know of an event and the scheduler does not."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A job's state from some time on, and why."""

    time: float
    state: int
    reason: str


@dataclass(slots=True)
class Record:
    """One job as its owner sees it."""

    id: str
    request: pb.JobRequest
    submitted: float
    history: list[Transition]
    steps_done: float = 0.0
    attempts: int = 0
    failures: int = 0
    type: str = ""
    places: dict[str, int] = field(default_factory=dict)
    beside: str = ""
    received: dict[str, float] = field(default_factory=dict)
    """Seconds by type; of a job that is not over, the scheduler knows."""
    restarts: int = 0

    @property
    def state(self) -> int:
        return self.history[-1].state

    @property
    def over(self) -> bool:
        return self.state in OVER

    def turn(self, time: float, state: int, reason: str) -> None:
        """Enter a state; entering the one it is in changes only the reason."""
        if self.history and (self.history[-1].state, self.history[-1].reason) == (state, reason):
            return
        self.history.append(Transition(time, state, reason))
        del self.history[:-HISTORY]
        if state != pb.RUNNING:
            self.type, self.places, self.beside = "", {}, ""

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "request": MessageToDict(self.request),
            "submitted": self.submitted,
            "history": [[t.time, t.state, t.reason] for t in self.history],
            "steps_done": self.steps_done,
            "attempts": self.attempts,
            "failures": self.failures,
            "type": self.type,
            "places": self.places,
            "beside": self.beside,
            "received": self.received,
            "restarts": self.restarts,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Record:
        fields = dict(document)
        fields["request"] = ParseDict(fields["request"], pb.JobRequest())
        fields["history"] = [Transition(*entry) for entry in fields["history"]]
        return cls(**fields)


class Book:
    """The records of all jobs that are not over, and of those that ended since the state was last kept."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.next_number = 1
        self.keys: dict[str, list[str]] = {}
        """Ids by the key of the request that submitted them."""

    def __getitem__(self, job: str) -> Record:
        return self.records[job]

    def __contains__(self, job: str) -> bool:
        return job in self.records

    def active(self) -> Iterator[Record]:
        return (record for record in self.records.values() if not record.over)

    def apply(self, event: Event, note: Note, commands: Sequence[Command]) -> set[str]:
        """Take in an event with the scheduler's answer; returns the jobs whose records changed."""
        changed = self._take_in(event, note)
        moved = {command.job: command.type for command in commands if isinstance(command, Launch)}
        for command in commands:
            if isinstance(command, Launch):
                self._launched(event.time, command)
                changed.add(command.job)
            elif isinstance(command, Stop):
                reason = _why_stopped(event, moved.get(command.job))
                self.records[command.job].turn(event.time, pb.PREEMPTED, reason)
                changed.add(command.job)
        return changed

    def _take_in(self, event: Event, note: Note) -> set[str]:
        match event:
            case JobSubmitted():
                return self._submitted(event, note)
            case JobsProgressed():
                for job, steps in zip(event.jobs, event.steps.tolist(), strict=True):
                    if job in self.records:
                        self.records[job].steps_done += steps
                return set()
            case JobFinished():
                return self._ended(event.job, event.time, pb.COMPLETED, "all steps done", note)
            case JobCancelled():
                return self._ended(event.job, event.time, pb.CANCELLED, "cancelled", note)
            case JobFailed():
                return self._failed(event, note)
            case _:
                return set()

    def _submitted(self, event: JobSubmitted, note: Note) -> set[str]:
        job = event.job.id
        request = ParseDict(note["request"], pb.JobRequest())
        self.records[job] = Record(
            job, request, event.time, [Transition(event.time, pb.QUEUED, "waiting for accelerators")]
        )
        self.next_number = max(self.next_number, int(job) + 1)
        if key := note.get("key"):
            self.keys.setdefault(key, []).append(job)
        return {job}

    def _failed(self, event: JobFailed, note: Note) -> set[str]:
        record = self.records.get(event.job)
        if record is None or record.over:
            return set()
        record.failures += bool(note.get("counts", True))
        if not event.retry:
            return self._ended(event.job, event.time, pb.FAILED, event.reason, note)
        record.turn(event.time, pb.QUEUED, event.reason)
        return {event.job}

    def _ended(self, job: str, time: float, state: int, reason: str, note: Note) -> set[str]:
        """A job is over, and stays as it ended: what was said of it before that was known changes nothing."""
        record = self.records.get(job)
        if record is None or record.over:
            return set()
        record.received = dict(note.get("received", {}))
        record.restarts = int(note.get("restarts", 0))
        record.turn(time, state, reason)
        return {job}

    def _launched(self, time: float, command: Launch) -> None:
        record = self.records[command.job]
        record.attempts += 1
        servers = ", ".join(command.accelerators)
        company = f", beside job {command.beside}" if command.beside else ""
        record.turn(time, pb.RUNNING, f"on {command.type} ({servers}){company}")
        record.type, record.places, record.beside = command.type, dict(command.accelerators), command.beside or ""

    def document(self) -> dict[str, Any]:
        """Everything about jobs that are not over."""
        active = {record.id for record in self.active()}
        return {
            "next_number": self.next_number,
            "records": [record.document() for record in self.active()],
            "keys": {key: ids for key, ids in self.keys.items() if active.intersection(ids)},
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Book:
        book = cls()
        book.next_number = document["next_number"]
        book.keys = {key: list(ids) for key, ids in document["keys"].items()}
        book.records = {entry["id"]: Record.of(entry) for entry in document["records"]}
        return book


def _why_stopped(event: Event, moves_to: str | None) -> str:
    if isinstance(event, ServerLost):
        return f"server {event.server} is gone or drained"
    if moves_to is not None:
        return f"moves to {moves_to}"
    return "others are owed more time"
