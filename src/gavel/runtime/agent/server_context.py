"""What the attempts on one server share: its devices, directories and ports, and the channel to the scheduler."""

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
    """Wakes all tasks that wait for a change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the tasks that wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def heard(self) -> None:
        """Wait for the next ring."""
        await self._event.wait()


class SchedulerChannel(Protocol):
    """The channel to the scheduler, whether it is connected or not."""

    def started(self, message: TaskStarted) -> None:
        """Report that a process runs."""
        ...

    def ended(self, message: TaskEnded, log: LogFile | None) -> None:
        """Report that a process has ended until that is acknowledged, then the rest of its log."""
        ...

    def is_ending(self, key: Key) -> bool:
        """Whether this attempt has an ending that the scheduler may not know yet."""
        ...

    def hurry(self) -> None:
        """Send a heartbeat now."""
        ...

    def show(self) -> None:
        """Send what terminals show now."""
        ...

    @property
    def attached(self) -> bool:
        """Whether the scheduler is connected."""
        ...


class Others(Protocol):
    """What an attempt must know about the others on this server."""

    def earlier(self, key: Key) -> bool:
        """Whether an earlier attempt of the same job is still here."""
        ...

    def neighbours_changed(self) -> None:
        """Note that a device gained or lost a holder."""
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
    """Rings when a device is freed, a job's earlier attempt ends, or an attempt was asked to leave."""
    graces: Graces = field(default_factory=Graces)
    address: str = "127.0.0.1"
    mps: Mps | None = None
    ports: set[int] = field(default_factory=set)
    """Ports given to running tasks."""
    sockets: count[int] = field(default_factory=count)
    cluster: str = ""
    """The id of the cluster served now; empty: the scheduler does not name one."""
