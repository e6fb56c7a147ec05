"""Which jobs seem stuck: running without a sign of life, or waiting for what can never be.

Only jobs that someone is told about are looked at. A sign of life is a step, output, or a new attempt. A job that has
neither counted a step nor printed anything in its life is not called stuck: it has nothing to be judged by.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from gavel.client.views import JobState
from gavel.runtime.engine import Engine
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.logs import Logs
from gavel.runtime.notify.memos import Memos
from gavel.runtime.notify.occasions import STUCK, Occasions, TargetsOf, named
from gavel.runtime.notify.outbox import Happening
from gavel.runtime.views import never_fault, steps_done

AT_ONCE = 200
"""Jobs looked at before other tasks of the scheduler get their turn."""

Sign = tuple[str, ...]
"""What a job shows; as long as it stays the same, nothing happens."""


@dataclass(frozen=True, slots=True)
class _Seen:
    sign: Sign
    since: float


class StuckWatch:
    """Looks at jobs from time to time; each occurrence is told once, also across restarts."""

    def __init__(
        self, engine: Engine, logs: Logs, occasions: Occasions, targets_of: TargetsOf, memos: Memos, seconds: float
    ) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._last_output: Callable[[Sequence[str]], dict[str, float]] = logs.last_written
        self._occasions = occasions
        self._targets_of = targets_of
        self._memos = memos
        self._seconds = seconds
        self._seen: dict[str, _Seen] = {}

    async def look(self) -> AsyncIterator[list[Happening]]:
        """What there is to tell now, a part of the jobs at a time; memos have changed only with what is yielded."""
        records = [record for record in self._engine.records.values() if self._is_watched(record)]
        running = [record.id for record in records if record.state is JobState.RUNNING]
        output = await asyncio.to_thread(self._last_output, running) if running else {}
        self._forget({record.id for record in records})
        for start in range(0, len(records), AT_ONCE):
            ids = [record.id for record in records[start : start + AT_ONCE]]
            current = [each for job in ids if (each := self._engine.records.get(job)) is not None and not each.finished]
            yield [told for record in current for told in self._judge(record, output.get(record.id))]
            await asyncio.sleep(0)

    def _is_watched(self, record: LiveJobRecord) -> bool:
        return not record.finished and bool(self._targets_of(record.request))

    def _forget(self, watched: set[str]) -> None:
        self._seen = {job: seen for job, seen in self._seen.items() if job in watched}

    def _judge(self, record: LiveJobRecord, printed: float | None) -> list[Happening]:
        why, now = "", self._clock()
        if record.state is JobState.RUNNING:
            steps = steps_done(self._engine, record)
            sign: Sign = ("running", str(record.attempts), repr(steps), repr(printed))
            alive = bool(steps) or printed is not None
            why = "has made no step and printed nothing" if alive else ""
        else:
            fault = never_fault(self._engine, record)
            sign = ("waiting", fault)
            why = f"cannot run: {fault}" if fault else ""
        seen = self._seen.get(record.id)
        if seen is None or seen.sign != sign:
            self._seen[record.id] = _Seen(sign, now)
            return []
        if not why or now - seen.since < self._seconds:
            return []
        return self._tell(record, sign, why, now, now - seen.since)

    def _tell(self, record: LiveJobRecord, sign: Sign, why: str, now: float, seconds: float) -> list[Happening]:
        """Tell an occurrence, unless it was told before; jobs of an array that cannot run are told about once."""
        waits = sign[0] == "waiting"
        subject = record.request.array_id if waits and record.request.array_id else record.id
        told = self._memos.get(STUCK, subject)
        if told is not None and tuple(told["sign"]) == sign:
            return []
        self._memos.put(STUCK, subject, {"sign": list(sign)})
        text = f"{named(record)} {why} for {seconds / 60.0:,.0f} minutes"
        return self._occasions.tell("stuck", record, now, text, "never" if waits else "silent")
