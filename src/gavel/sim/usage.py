"""Where accelerator time goes: what the servers offered, how much of it restarts took, and when jobs first ran.

It only looks on.
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
    """From when its restart has not been counted yet."""
    ready: float
    """When it begins to make steps."""
    beside: str | None


@dataclass(slots=True)
class UsageMeter:
    """Hears every event before the scheduler does, and every command after."""

    restart_seconds: float = 0.0
    """What a restart costs where `see` is not told."""
    offered: float = 0.0
    """Accelerator-seconds of the servers that were there, until `now`."""
    restarting: float = 0.0
    """Accelerator-seconds in which nobody on them made steps because of a start; of who runs now, not yet counted."""
    now: float = 0.0
    _servers: dict[str, int] = field(default_factory=dict)
    _seats: dict[str, _Seat] = field(default_factory=dict)
    _ran: dict[str, float] = field(default_factory=dict)
    """Jobs that are here and have run, and since when: their next launch is a restart."""

    def first_start(self, job: str) -> float | None:
        """When a job that is here first ran; None if it has not yet."""
        return self._ran.get(job)

    def start(self, job: str, time: float) -> None:
        """Take note that a job runs; only the first time counts."""
        self._ran.setdefault(job, time)

    def hear(self, event: Event) -> None:
        """Take note of servers that come and go, and of jobs that end."""
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
        """Take note of who starts, which takes `start_seconds`, and who is stopped."""
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
        """Count everything until the end."""
        self.advance(time)
        for job in list(self._seats):
            self._leave(job, time)

    def advance(self, time: float) -> None:
        """Count what the servers offer until a time."""
        self.offered += sum(self._servers.values()) * max(time - self.now, 0.0)
        self.now = max(time, self.now)

    def _leave(self, job: str, time: float) -> None:
        """Count a job's restart; where two share accelerators, the first who is ready ends it for them."""
        seat = self._seats.pop(job, None)
        if seat is None:
            return
        other = self._seats.get(seat.beside) if seat.beside else None
        if other is not None and other.beside != job:
            other = None  # it has been launched anew since
        ready = min(seat.ready, other.ready) if other else seat.ready
        self.restarting += seat.workers * max(min(time, ready) - seat.since, 0.0)
        if other is not None:
            other.since, other.beside = max(time, other.since), None
