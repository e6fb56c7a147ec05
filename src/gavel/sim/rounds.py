"""A record of every plan of the scheduler. Memory grows with the number of rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gavel.core.events import Command, Event, Launch, Renew, Stop
from gavel.core.serialization import from_plain, plain_record
from gavel.sim.view import View


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """The cluster right after a plan. Launches and stops are counted since the previous record."""

    time_seconds: float
    running: int
    """Jobs that run now."""
    waiting: int
    """Active jobs that do not run."""
    launches: int
    """Jobs put on accelerators: started, resumed or moved."""
    stops: int
    """Jobs removed from accelerators before they finished: preempted, moved, or lost with their server."""
    preemptions: int
    """Stops after which the job waits."""
    busy: Mapping[str, int]
    """By type: accelerators in use; a shared one counts once."""
    available: Mapping[str, int]
    """By type: accelerators of the servers that are up."""

    def row(self) -> dict[str, Any]:
        """The record as flat columns, with those by type last."""
        flat = {name: getattr(self, name) for name in COLUMNS}
        busy = {f"{type_name}_busy": count for type_name, count in self.busy.items()}
        return flat | busy | {f"{type_name}_available": count for type_name, count in self.available.items()}


COLUMNS = ("time_seconds", "running", "waiting", "launches", "stops", "preemptions")


def columns(types: tuple[str, ...]) -> list[str]:
    """The columns of a round's row for a cluster with these types."""
    return [*COLUMNS, *(f"{type_name}_busy" for type_name in types), *(f"{type_name}_available" for type_name in types)]


@dataclass(slots=True)
class _Pending:
    """What has happened since the last record."""

    launched: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    planned: bool = False


@dataclass(slots=True)
class RoundLog:
    """Observes a simulation on a cluster of these types and collects the records."""

    types: tuple[str, ...]
    records: list[RoundRecord] = field(default_factory=list)
    pending: _Pending = field(default_factory=_Pending)
    name: str = "rounds"

    def see(self, command: Command, _: float) -> None:
        """Count a command; only a plan renews leases or launches jobs."""
        match command:
            case Launch():
                self.pending.launched.append(command.job)
                self.pending.planned = True
            case Stop():
                self.pending.stopped.append(command.job)
            case Renew():
                self.pending.planned = True
            case _:
                pass

    def after(self, event: Event, view: View) -> None:
        """Add a record if there was a plan."""
        if self.pending.planned:
            self.records.append(self._record(event.time, view))
            self.pending = _Pending()

    def _record(self, time: float, view: View) -> RoundRecord:
        running, launched, stopped = view.running_count, self.pending.launched, self.pending.stopped
        return RoundRecord(
            time_seconds=time,
            running=running,
            waiting=view.job_count - running,
            launches=len(launched),
            stops=len(stopped),
            preemptions=len(set(stopped) - set(launched)),
            busy=self._by_type(view.types, view.busy),
            available=self._by_type(view.types, view.available),
        )

    def _by_type(self, types: tuple[str, ...], counts: list[int]) -> dict[str, int]:
        count = dict(zip(types, counts, strict=True))
        return {type_name: count[type_name] for type_name in self.types}

    def dump(self) -> dict[str, Any]:
        """The records so far, and the counts since the last one."""
        return plain_record(self)

    def restore(self, document: Any) -> None:
        """Continue from dumped records."""
        before = from_plain(RoundLog, document)
        self.records, self.pending = before.records, before.pending
