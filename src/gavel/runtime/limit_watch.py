"""Notices in time that a running job reaches its time limit, or has been silent for its idle timeout."""

from __future__ import annotations

from collections.abc import Callable

from gavel.client.views import JobState
from gavel.core.errors import InputError
from gavel.runtime.events import Event, IdleFound, LimitDue
from gavel.runtime.executor import EventSink, Executor
from gavel.runtime.state import ClusterState


class LimitWatch:
    """Looks at the few jobs that may be due. What follows is decided by the state."""

    def __init__(self, state: ClusterState, executor: Executor, post: EventSink) -> None:
        self._state = state
        self._executor = executor
        self._post = post
        self._asked: set[str] = set()
        """Jobs about which an event is on its way to the journal."""

    def look(self, now: float) -> None:
        """Report the jobs that are due."""
        limits = self._state.time_limits
        for job in limits.due(now):
            if self._may_use_time(job):
                self._report(job, LimitDue(now, job))
        for job, patience in limits.idle.items():
            attempt = self._executor.attempt(job)
            if attempt is not None and attempt.quiet_since is not None and now - attempt.quiet_since >= patience:
                self._report(job, IdleFound(now, job, attempt.attempt, attempt.quiet_since))

    def _may_use_time(self, job: str) -> bool:
        """Whether a job cannot be waiting for earlier ones to leave its accelerators; that does not count."""
        record, attempt = self._state.jobs.get(job), self._executor.attempt(job)
        if record is None or record.state is not JobState.RUNNING:
            return True
        return attempt is not None and attempt.attempt == record.attempts and attempt.begun

    def _report(self, job: str, event: Event) -> None:
        if job not in self._asked:
            self._asked.add(job)
            self._post(event, self._answered(job))

    def _answered(self, job: str) -> Callable[[InputError | None], None]:
        return lambda _: self._asked.discard(job)
