"""Measures how accelerator time is used: what servers offered, how much restarts took, and when jobs first ran.

It observes and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gavel.core.events import (
    Command,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    Launch,
    ServerJoined,
    ServerLost,
    Stop,
)


@dataclass(slots=True)
class _Seat:
    """A job on its accelerators."""

    workers: int
    since: float
    """The time up to which its restart has been counted."""
    ready: float
    """When the job begins to make steps."""
    beside: str | None


@dataclass(slots=True)
class UsageMeter:
    """Receives every event before the scheduler does, and then every command."""

    restart_seconds: float = 0.0
    """The cost of a restart if `see` is not told another."""
    offered: float = 0.0
    """Accelerator-seconds of the servers while they were up, until `now`."""
    restarting: float = 0.0
    """Accelerator-seconds without steps because of a start; jobs that run now are not yet counted."""
    now: float = 0.0
    _servers: dict[str, int] = field(default_factory=dict)
    _seats: dict[str, _Seat] = field(default_factory=dict)
    _ran: dict[str, float] = field(default_factory=dict)
    """Active jobs that have run, with their first start: their next launch is a restart."""

    def first_start(self, job: str) -> float | None:
        """When an active job first ran; None if it has not run yet."""
        return self._ran.get(job)

    def start(self, job: str, time: float) -> None:
        """Record that a job runs; only the first time counts."""
        self._ran.setdefault(job, time)

    def hear(self, event: Event) -> None:
        """Record servers that join or leave, and jobs that end."""
        match event:
            case ServerJoined():
                self.advance(event.time)
                self._servers[event.server.name] = event.server.accelerators
            case ServerLost():
                self.advance(event.time)
                self._servers.pop(event.server, None)
            case JobFailed(retry=True):
                self._leave(event.job, event.time)
            case JobFinished() | JobCancelled() | JobFailed():
                self._leave(event.job, event.time)
                self._ran.pop(event.job, None)
            case _:
                pass

    def see(self, command: Command, time: float, start_seconds: float | None = None) -> None:
        """Record jobs that start, which takes `start_seconds`, and jobs that stop."""
        match command:
            case Launch():
                cost = start_seconds
                if cost is None:
                    cost = self.restart_seconds if command.job in self._ran else 0.0
                self.start(command.job, time)
                workers = sum(command.accelerators.values())
                self._seats[command.job] = _Seat(workers, time, time + cost, command.beside)
            case Stop():
                self._leave(command.job, time)
            case _:
                pass

    def close(self, time: float) -> None:
        """Count everything up to the end."""
        self.advance(time)
        for job in list(self._seats):
            self._leave(job, time)

    def advance(self, time: float) -> None:
        """Count what the servers offer up to a time."""
        self.offered += sum(self._servers.values()) * max(time - self.now, 0.0)
        self.now = max(time, self.now)

    def _leave(self, job: str, time: float) -> None:
        """Count a job's restart; if two jobs share accelerators, it ends when the first of them is ready."""
        seat = self._seats.pop(job, None)
        if seat is None:
            return
        other = self._seats.get(seat.beside) if seat.beside else None
        if other is not None and other.beside != job:
            other = None  # it has been launched again since
        ready = min(seat.ready, other.ready) if other else seat.ready
        self.restarting += seat.workers * max(min(time, ready) - seat.since, 0.0)
        if other is not None:
            other.since, other.beside = max(time, other.since), None
