"""What has not been delivered: kept beside the facts, bounded per user, released once it is durable."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import uuid4

from gavel.journal.notifications import remove_notifications, write_notifications
from gavel.journal.store import Write
from gavel.runtime.notify.deliveries import SUMMARY, Delivery, Lane
from gavel.runtime.notify.newest import NewestOnly

logger = logging.getLogger(__name__)

MOST_IN_A_LANE = 50
"""Deliveries that wait for one receiver; what happens beyond that is told in a summary."""
MOST_OF_A_USER = 1_000
"""Deliveries that wait for one user's receivers; what happens beyond that is not told."""
SUMMARY_SECONDS = 60.0
"""How long a summary collects before it is sent."""
MOST_NAMED = 20
"""Jobs named in a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something to tell about a job or an array."""

    event: str
    user: str
    time: float
    subject: str
    """The job, or the array, as a summary names it."""
    about: Mapping[str, Any]
    targets: Sequence[str]


@dataclass(frozen=True, slots=True)
class Addition:
    """What is written for happenings, and what may be sent once that is durable."""

    writes: Sequence[Write] = ()
    deliveries: Sequence[Delivery] = ()


@dataclass(slots=True)
class Outbox:
    """Deliveries that are in the journal, or are being written to it. Everything happens in one thread."""

    lanes: dict[Lane, set[str]] = field(default_factory=dict)
    """Ids of what waits, by lane."""
    of_user: Counter[str] = field(default_factory=Counter)
    """How much waits, by user."""
    summaries: dict[Lane, Delivery] = field(default_factory=dict)
    """That still collect."""
    dropped: Counter[str] = field(default_factory=Counter)
    """What was not told, by user: too much waited."""
    _writes: NewestOnly[str, Mapping[str, Any]] = field(default_factory=lambda: NewestOnly(write_notifications))
    unwritten: int = 0
    """Additions that are being written: until then, no summary is sent, because it may be among them."""

    def take_up(self, kept: Mapping[str, Mapping[str, Any]]) -> list[Delivery]:
        """Begin with what an earlier scheduler did not deliver."""
        found = [Delivery.of(key, document) for key, document in kept.items()]
        for delivery in found:
            self._count(delivery)
        return found

    def add(self, happenings: Sequence[Happening]) -> Addition:
        """Add deliveries; `written` says later that they are durable."""
        written: dict[str, Delivery] = {}
        for happening in happenings:
            for target in happening.targets:
                delivery = self._delivery(happening, target)
                if delivery is not None:
                    written[delivery.id] = delivery
        if not written:
            return Addition()
        self.unwritten += 1
        documents = {key: each.document() for key, each in written.items()}
        single = [each for each in written.values() if each.event != SUMMARY]
        return Addition([self._writes.of(documents)], single)

    def written(self, additions: Sequence[Addition]) -> list[Delivery]:
        """What may be sent now that these are durable."""
        self.unwritten -= sum(bool(each.writes) for each in additions)
        return [delivery for each in additions for delivery in each.deliveries]

    def due(self, now: float) -> list[Delivery]:
        """Summaries that have collected for long enough."""
        if self.unwritten:
            return []
        due = [lane for lane, each in self.summaries.items() if each.time + SUMMARY_SECONDS <= now]
        return [self.summaries.pop(lane) for lane in due]

    def remove(self, deliveries: Sequence[Delivery]) -> list[Write]:
        """What to write when deliveries have ended."""
        for delivery in deliveries:
            waiting = self.lanes.get(delivery.lane, set())
            if delivery.id in waiting:
                waiting.discard(delivery.id)
                self.of_user[delivery.user] -= 1
            if not waiting:
                self.lanes.pop(delivery.lane, None)
            if not self.of_user[delivery.user]:
                del self.of_user[delivery.user]
        ids = [delivery.id for delivery in deliveries]
        self._writes.forget(ids)
        return [partial(remove_notifications, ids=ids)] if ids else []

    def _delivery(self, happening: Happening, target: str) -> Delivery | None:
        lane = happening.user, target
        summary = self.summaries.get(lane)
        if summary is not None:
            return self._summarised(summary, happening)
        if self.of_user[happening.user] >= MOST_OF_A_USER:
            self._drop(happening)
            return None
        delivery = Delivery(
            id=uuid4().hex,
            user=happening.user,
            target=target,
            event=happening.event,
            time=happening.time,
            about=happening.about,
        )
        if len(self.lanes.get(lane, ())) >= MOST_IN_A_LANE:
            first = replace(delivery, event=SUMMARY, about={"events": {}, "jobs": [], "text": ""})
            self._count(first)
            return self._summarised(first, happening)
        self._count(delivery)
        return delivery

    def _summarised(self, summary: Delivery, happening: Happening) -> Delivery:
        events = dict(summary.about["events"])
        events[happening.event] = events.get(happening.event, 0) + 1
        jobs = [*summary.about["jobs"], happening.subject][:MOST_NAMED]
        text = "many notifications at once: " + ", ".join(f"{count:,} {event}" for event, count in events.items())
        grown = replace(summary, about={"events": events, "jobs": jobs, "text": text})
        self.summaries[summary.lane] = grown
        return grown

    def _count(self, delivery: Delivery) -> None:
        self.lanes.setdefault(delivery.lane, set()).add(delivery.id)
        self.of_user[delivery.user] += 1

    def _drop(self, happening: Happening) -> None:
        if not self.dropped[happening.user]:
            logger.warning(
                "%d notifications of user %s wait for their receivers; further ones are not sent",
                MOST_OF_A_USER,
                happening.user,
            )
        self.dropped[happening.user] += 1
