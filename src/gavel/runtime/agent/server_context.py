"""What the attempts on one server share: its devices, directories and ports, and the way to the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from gavel.runtime.agent.devices import Devices
from gavel.runtime.agent.logs import LogFile
from gavel.runtime.agent.mps import Mps
from gavel.runtime.agent.settings import AgentSettings
from gavel.runtime.agent.state import StateDirectory
from gavel.runtime.agent.task import Graces
from gavel.runtime.messages import TaskEnded, TaskStarted

Key = tuple[str, int]
"""A job and the number of its attempt."""


class Bell:
    """Wakes all who wait for something to have changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake those who wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def heard(self) -> None:
        """Wait for the next ring."""
        await self._event.wait()


class SchedulerChannel(Protocol):
    """The way to the scheduler, whether it is there or not."""

    def started(self, message: TaskStarted) -> None:
        """Say that a process runs."""
        ...

    def ended(self, message: TaskEnded, log: LogFile | None) -> None:
        """Say that a process has ended, until it is heard; then what is left of its log."""
        ...

    def is_ending(self, key: Key) -> bool:
        """Whether an end of this attempt was said that the scheduler may not know."""
        ...

    def hurry(self) -> None:
        """Send a heartbeat now."""
        ...

    @property
    def attached(self) -> bool:
        """Whether the scheduler is there."""
        ...


class Others(Protocol):
    """What an attempt must know of the others here."""

    def earlier(self, key: Key) -> bool:
        """Whether an earlier attempt of the same job is still here."""
        ...

    def neighbours_changed(self) -> None:
        """Hear that a device got or lost a holder."""
        ...


@dataclass
class ServerContext:
    """One server."""

    settings: AgentSettings
    state: StateDirectory
    devices: Devices
    post: SchedulerChannel
    say: Callable[[str], None]
    others: Others
    changed: Bell = field(default_factory=Bell)
    """Rings when a device or a job's earlier attempt is gone, or someone was asked to leave."""
    graces: Graces = field(default_factory=Graces)
    address: str = "127.0.0.1"
    mps: Mps | None = None
    ports: set[int] = field(default_factory=set)
    """Given to tasks that run."""
    sockets: count[int] = field(default_factory=count)
    cluster: str = ""
    """The id of the cluster that is served now; empty: the scheduler names none."""
