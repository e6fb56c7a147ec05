"""What there is to tell about facts: a job started for the first time, ended, or fails again and again.

It reads the state after each event and changes nothing in it. Jobs of an array are told about together: the first that
starts, the first that fails, and the end of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gavel.client.requests import Submission
from gavel.core.facts import JobEnded, JobQueued, JobRequeued, RoundPlanned
from gavel.limits import LONGEST_REASON
from gavel.runtime.facts import Fact
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.notify.memos import Memos
from gavel.runtime.notify.outbox import Happening

FAILURES = 3
"""Failures in a row, without a saved step between them, after which a job counts as stuck."""
ARRAY, FAILING, STUCK = "array", "failing", "stuck"
"""Kinds of memos."""


class TargetsOf(Protocol):
    """Who is told about a job."""

    def __call__(self, job: Submission, event: str = "") -> Sequence[str]:
        """Of one event, or of any."""
        ...


Jobs = Callable[[str], LiveJobRecord | None]


def job_document(record: LiveJobRecord) -> dict[str, Any]:
    """A job for strangers: neither its command nor its environment, which may hold secrets."""
    request = record.request
    last = record.history[-1]
    return {
        "id": record.id,
        "name": request.name,
        "template": request.template,
        "user": request.user,
        "team": request.entity,
        "tags": dict(request.tags),
        "state": str(record.state),
        "reason": last.reason[:LONGEST_REASON],
        "code": last.code,
        "exit_code": record.exit_code,
        "submitted": record.submitted,
        "changed": record.changed,
        "steps": request.steps,
        "steps_done": record.steps_done,
        "workers": request.workers,
        "type": record.type,
        "attempts": record.attempts,
        "failures": record.failures,
        "array_id": request.array_id,
        "index": request.index,
        "parameters": dict(request.parameters),
    }


class Occasions:
    """Derives what to tell from the facts of one event after another."""

    def __init__(self, jobs: Jobs, targets_of: TargetsOf, memos: Memos) -> None:
        self._jobs = jobs
        """Records as the state has them, right after the event."""
        self._targets_of = targets_of
        self._memos = memos

    def of(self, facts: Sequence[Fact]) -> list[Happening]:
        """What there is to tell."""
        found: list[Happening] = []
        for fact in facts:
            match fact:
                case JobQueued():
                    self._queued(fact)
                case RoundPlanned():
                    found += self._planned(fact)
                case JobRequeued() if fact.counts:
                    found += self._requeued(fact)
                case JobEnded():
                    found += self._ended(fact)
                case _:
                    pass
        return found

    def tell(
        self, event: str, record: LiveJobRecord, time: float, text: str, code: str = "", **more: Any
    ) -> list[Happening]:
        """Something about one job, for the targets of that job."""
        targets = self._targets_of(record.request, event)
        if not targets:
            return []
        job = job_document(record)
        text = text[:LONGEST_REASON]
        about = {"reason": job["reason"], "code": code or job["code"], "text": text, "job": job, **more}
        subject = record.request.array_id if "array" in more else record.id
        happening = Happening(
            event=event, user=record.request.user, time=time, subject=subject, about=about, targets=targets
        )
        return [happening]

    # ---- facts ----

    def _queued(self, fact: JobQueued) -> None:
        request = fact.request
        if request is None or not request.array_id or not self._targets_of(request):
            return
        memo = self._memos.get(ARRAY, request.array_id) or {"total": 0, "ended": {}}
        self._memos.put(ARRAY, request.array_id, {**memo, "total": memo["total"] + 1})

    def _planned(self, fact: RoundPlanned) -> list[Happening]:
        first = [
            launch.job for started in fact.started for launch in started.launches(fact.time) if launch.attempt == 1
        ]
        return [each for job in first if (record := self._jobs(job)) is not None for each in self._started(record)]

    def _started(self, record: LiveJobRecord) -> list[Happening]:
        time, array = record.changed, record.request.array_id
        memo = self._memos.get(ARRAY, array)
        if memo is None:
            return self.tell("started", record, time, f"{named(record)} started for the first time")
        if memo.get("started"):
            return []
        self._memos.put(ARRAY, array, {**memo, "started": True})
        text = f"the first job of array {array}, {named(record)}, started"
        return self.tell("started", record, time, text, array=_figures(array, memo))

    def _requeued(self, fact: JobRequeued) -> list[Happening]:
        """Notice a job that fails again and again without getting any further."""
        record = self._jobs(fact.job)
        if record is None or not self._targets_of(record.request):
            return []
        before = self._memos.get(FAILING, fact.job)
        again = before is not None and before["steps"] == record.steps_done
        count = before["count"] + 1 if before is not None and again else 1
        self._memos.put(FAILING, fact.job, {"steps": record.steps_done, "count": count})
        if count != FAILURES:
            return []
        where = f"at step {record.steps_done:,.0f}" if record.steps_done else "before its first saved step"
        text = f"{named(record)} has failed {count} times in a row {where}: {fact.reason}"
        return self.tell("stuck", record, fact.time, text, "failing")

    def _ended(self, fact: JobEnded) -> list[Happening]:
        self._memos.drop(FAILING, fact.job)
        self._memos.drop(STUCK, fact.job)
        record = self._jobs(fact.job)
        if record is None:
            return []
        own = fact.outcome == "cancelled" and fact.by != "" and fact.by == record.request.user
        memo = self._memos.get(ARRAY, record.request.array_id)
        if memo is not None:
            return self._one_of_array(fact, record, memo, own=own)
        if own:
            return []
        return self.tell(fact.outcome, record, fact.time, _ending(fact, record))

    def _one_of_array(
        self, fact: JobEnded, record: LiveJobRecord, memo: Mapping[str, Any], *, own: bool
    ) -> list[Happening]:
        array, ended = record.request.array_id, dict(memo["ended"])
        ended[fact.outcome] = ended.get(fact.outcome, 0) + 1
        memo = {**memo, "ended": ended, "to_tell": memo.get("to_tell", False) or not own}
        if sum(ended.values()) >= memo["total"]:
            self._memos.drop(ARRAY, array)
            self._memos.drop(STUCK, array)
            if not memo["to_tell"]:
                return []
            event = next(each for each in ("failed", "completed", "cancelled") if ended.get(each))
            figures = ", ".join(f"{count:,} {outcome}" for outcome, count in ended.items())
            return self.tell(
                event, record, fact.time, f"array {array} has ended: {figures}", array=_figures(array, memo)
            )
        first_failure = fact.outcome == "failed" and ended["failed"] == 1
        self._memos.put(ARRAY, array, memo)
        if not first_failure:
            return []
        text = f"the first failure of array {array}: {_ending(fact, record)}"
        return self.tell("failed", record, fact.time, text, array=_figures(array, memo))


def _ending(fact: JobEnded, record: LiveJobRecord) -> str:
    if fact.outcome == "cancelled":
        return f"{named(record)} was cancelled by {fact.by or 'the scheduler'}"
    return f"{named(record)} {fact.outcome}: {fact.reason}"


def named(record: LiveJobRecord) -> str:
    """A job in a sentence."""
    return f"job {record.id}" + (f" ({record.request.name})" if record.request.name else "")


def _figures(array: str, memo: Mapping[str, Any]) -> dict[str, Any]:
    """An array in a body."""
    ended = memo["ended"]
    counts = {outcome: ended.get(outcome, 0) for outcome in ("completed", "failed", "cancelled")}
    return {"id": array, "jobs": memo["total"], **counts, "over": sum(ended.values()) >= memo["total"]}
