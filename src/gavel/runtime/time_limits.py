"""How long jobs have run, and when to look at those with a time limit: a fold over facts that decides nothing.

Running time is what the scheduler accounts for, over all attempts, without the time in which no scheduler could let
anything run. The times to look follow from the rest, so they are in no document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gavel.client.quantities import duration
from gavel.client.views import JobState
from gavel.core.facts import JobEnded
from gavel.runtime.facts import Fact, StartDelayed
from gavel.runtime.jobs import LiveJobRecord

TIME_LIMIT, IDLE_TIMEOUT = "time_limit", "idle_timeout"
"""Codes of the ends of jobs; such jobs save before they leave."""
DELAY_MATTERS = 1.0
"""The shortest delay of a start, in seconds, that is not counted."""
WARNED_PART, WARNED_SECONDS, LEAST_WARNED_SECONDS = 0.1, 600.0, 5.0


def warned_before(limit: float) -> float:
    """How long before its limit a job is warned: a tenth of it, at most 10 minutes and at least a few seconds.

    >>> [warned_before(limit) for limit in (43_200.0, 1_800.0, 20.0, 4.0)]
    [600.0, 180.0, 5.0, 2.0]
    """
    return max(min(WARNED_PART * limit, WARNED_SECONDS), min(LEAST_WARNED_SECONDS, limit / 2))


def warning(limit: float, used: float) -> str:
    """What the user of a job should know shortly before its limit.

    >>> warning(43_200.0, 42_629.7)
    'its time limit of 12h is near: it is stopped after 9m30s more of running'
    """
    left = duration(float(max(round(limit - used), 0)))
    return f"its time limit of {duration(limit)} is near: it is stopped after {left} more of running"


def may_save(record: LiveJobRecord) -> bool:
    """Whether processes of a job may save before they end: it continues, or it was to save when it was ended."""
    return not record.finished or record.history[-1].code in {TIME_LIMIT, IDLE_TIMEOUT}


class TimeLimits:
    """Running time that does not count, and when to look at which job."""

    def __init__(self) -> None:
        self.excused: dict[str, float] = {}
        """By unfinished job: seconds that the scheduler accounts for but that it cannot have run."""
        self.look_at: dict[str, float] = {}
        """By job with a time limit: when it may reach the limit, or should be warned; only jobs that run, or ran."""
        self.idle: dict[str, float] = {}
        """By running job with an idle timeout: that timeout."""

    def evolve(
        self, fact: Fact, changed: Iterable[str], records: Mapping[str, LiveJobRecord], used: Callable[[str], float]
    ) -> None:
        """Apply a fact that changed the records of jobs; `used` says how long a job had run by then."""
        if isinstance(fact, JobEnded):
            for known in (self.excused, self.look_at, self.idle):
                known.pop(fact.job, None)
        elif isinstance(fact, StartDelayed):
            self.excused[fact.job] = self.excused.get(fact.job, 0.0) + fact.seconds
            self._look(fact.job, fact.time, records, used)
        else:
            for job in changed:
                self._look(job, fact.time, records, used)

    def _look(self, job: str, time: float, records: Mapping[str, LiveJobRecord], used: Callable[[str], float]) -> None:
        record = records.get(job)
        if record is None or record.finished:
            return
        runs = record.state is JobState.RUNNING
        limit, idle = record.request.time_limit_seconds, record.request.idle_timeout_seconds
        self.look_at.pop(job, None)
        self.idle.pop(job, None)
        if runs and idle is not None:
            self.idle[job] = idle
        if limit is not None:
            left = limit - used(job)
            if runs:
                self.look_at[job] = time + left - (0.0 if record.warned else warned_before(limit))
            elif left <= 0:
                self.look_at[job] = time

    def excuse(
        self, seconds: float, time: float, records: Mapping[str, LiveJobRecord], used: Callable[[str], float]
    ) -> None:
        """Do not count the last seconds of the jobs that run."""
        for record in list(records.values()):
            if record.state is JobState.RUNNING:
                self.excused[record.id] = self.excused.get(record.id, 0.0) + seconds
                self._look(record.id, time, records, used)

    def due(self, time: float) -> list[str]:
        """The jobs to look at now."""
        return [job for job, at in self.look_at.items() if at <= time]

    def document(self) -> dict[str, Any]:
        return {"excused": dict(self.excused)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TimeLimits:
        """Those in a document, without the times to look."""
        limits = cls()
        limits.excused = dict(document.get("excused", {}))
        return limits

    def look_again(self, time: float, records: Mapping[str, LiveJobRecord], used: Callable[[str], float]) -> None:
        """Find the times to look again."""
        for job in records:
            self._look(job, time, records, used)
