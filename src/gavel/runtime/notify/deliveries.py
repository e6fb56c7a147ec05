"""One notification on its way to one target, as it is kept, counted and sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COMMAND = "command"
"""The target that is the site's own command; all others are URLs."""
SUMMARY = "summary"
"""The event of a notification that stands for many."""

Lane = tuple[str, str]
"""A user and a target: what one receiver is told about one user's jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notification for one target."""

    id: str
    """Receivers recognise repetitions by it."""
    user: str
    target: str
    event: str
    time: float
    """When it happened."""
    about: Mapping[str, Any]
    """The rest of the body."""

    @property
    def lane(self) -> Lane:
        return self.user, self.target

    def document(self) -> dict[str, Any]:
        """As the journal keeps it."""
        return {
            "user": self.user,
            "target": self.target,
            "event": self.event,
            "time": self.time,
            "about": dict(self.about),
        }

    @classmethod
    def of(cls, key: str, document: Mapping[str, Any]) -> Delivery:
        return cls(id=key, **{name: document[name] for name in ("user", "target", "event", "time", "about")})

    def body(self) -> bytes:
        """What the receiver gets."""
        head = {"version": 1, "id": self.id, "event": self.event, "time": self.time, "user": self.user}
        return json.dumps({**head, **self.about}, allow_nan=False).encode()
