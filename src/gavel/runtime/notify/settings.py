"""What an operator says about notifications."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gavel.client.field_checks import nearest
from gavel.core.errors import InputError
from gavel.limits import LONGEST_SECONDS, check_positive
from gavel.runtime.notify.hosts import AllowedHosts

LONGEST_COMMAND_SECONDS = 3600.0
EVENTS = ("started", "completed", "failed", "cancelled", "stuck")
"""What notifications are about. `summary` stands for many of them, and `test` is sent only on request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySettings:
    """Whom the scheduler may call, and what it runs."""

    hosts: tuple[str, ...] = ()
    """Hosts that users may name in URLs; empty: none."""
    command: tuple[str, ...] = ()
    """The site's own program, with its arguments, which reads each notification; empty: none."""
    events: tuple[str, ...] = ()
    """What the command is run for; empty: everything."""
    command_seconds: float = 30.0
    """How long the command may take."""
    commands_at_once: int = 4
    stuck_minutes: float = 30.0
    """How long a job is without a sign of life, or cannot run, before it counts as stuck."""
    allowed: AllowedHosts = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed", AllowedHosts.of(self.hosts))
        for event in self.events:
            if event not in EVENTS:
                raise InputError(f"--notify-events {event}: there is no such event; {nearest(event, EVENTS)}")
        if self.events and not self.command:
            raise InputError("--notify-events says what --notify-command is run for; give that, too")
        if self.command and not self.command[0]:
            raise InputError("--notify-command is empty; give a program and its arguments")
        if self.commands_at_once < 1:
            raise InputError(f"--notify-commands-at-once must be at least 1, not {self.commands_at_once}")
        check_positive("--notify-command-seconds", self.command_seconds, most=LONGEST_COMMAND_SECONDS)
        check_positive("--stuck-minutes", self.stuck_minutes, most=LONGEST_SECONDS / 60.0)

    @property
    def used(self) -> bool:
        """Whether anybody can be told anything."""
        return bool(self.hosts or self.command)

    def options(self) -> dict[str, Any]:
        """As the options of `gavel serve`."""
        return {
            "notify_hosts": self.hosts,
            "notify_command": self.command,
            "notify_events": self.events,
            "notify_command_seconds": self.command_seconds,
            "notify_commands_at_once": self.commands_at_once,
            "stuck_minutes": self.stuck_minutes,
        }
