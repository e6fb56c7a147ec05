"""What an edit makes of jobs: their new requests, and what the scheduler has to know. Pure; nothing is applied here."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gavel.client.field_checks import FieldError, nearest, shortened
from gavel.client.job_changes import IN_PROTOCOL
from gavel.client.quantities import duration
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.core.events import FieldChange, JobEdited, StopAsked
from gavel.core.jobs import Cause, JobSpec
from gavel.runtime.events import EditAsked
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.steps import Steps

STEPS_CHANGED = Cause("edited", "its number of steps was changed")
"""A process learns its number of steps when it starts, so a running one starts again."""


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "" if value is None else duration(value)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(values)


def _tags(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "name": _plain,
    "weight": _number,
    "types": _listed,
    "prefer": _listed,
    "steps": _number,
    "retries": _plain,
    "deadline_seconds": _seconds,
    "time_limit_seconds": _seconds,
    "idle_timeout_seconds": _seconds,
    "tags": _tags,
    "notify": lambda urls: f"{len(urls)} URL{'s' if len(urls) != 1 else ''}" if urls else "",
    "at_once": lambda most: _plain(most or None),
}
"""By field that can be edited: its values as text. URLs may contain secrets."""
EDITABLE = (*_TEXTS, "after")
"""What jobs wait for is its own fact."""
AT_ONCE = 20
"""Jobs whose edits are checked in one step."""
_WRITTEN = {"deadline_seconds": "deadline", "time_limit_seconds": "time limit", "idle_timeout_seconds": "idle timeout"}


def named(field: str) -> str:
    """A field as sentences name it.

    >>> named("time_limit_seconds"), named("at_once"), named("types")
    ('time limit', 'at once', 'types')
    """
    return _WRITTEN.get(field, field.replace("_", " "))


def check_fields(fields: Collection[str], allowed: Collection[str]) -> None:
    """Refuse fields that a call cannot change."""
    for field in fields:
        if field not in allowed:
            raise InputError(f"the field {shortened(field)} of a job cannot be changed; {nearest(field, allowed)}")


def changed(request: Submission, changes: Submission, fields: Collection[str]) -> Submission:
    """A request with the values of some fields from another; InputError if that is no valid request."""
    after = replace(request, **{field: getattr(changes, field) for field in fields})
    try:
        after.request().check()
    except FieldError as error:
        if IN_PROTOCOL.get(error.field, error.field) not in {*fields, *_dependent(fields)}:
            return after  # an earlier version accepted it so
        raise
    return after


def _dependent(fields: Collection[str]) -> set[str]:
    """Fields whose rules depend on those that change."""
    return {"prefer"} if "types" in fields else set()


def changes_of(before: Submission, after: Submission, fields: Iterable[str] = tuple(_TEXTS)) -> tuple[FieldChange, ...]:
    """What differs between two requests, for people."""
    found = [(field, getattr(before, field), getattr(after, field)) for field in fields]
    return tuple(
        FieldChange(named(field), _TEXTS[field](old), _TEXTS[field](new)) for field, old, new in found if old != new
    )


@dataclass(frozen=True, slots=True)
class Edits:
    """What follows from an edit."""

    stopped: tuple[str, ...]
    """Running jobs that save and start again."""
    edited: tuple[JobEdited, ...]

    def events(self, time: float) -> Iterator[StopAsked | JobEdited]:
        """For the scheduler, in order."""
        if self.stopped:
            yield StopAsked(time, self.stopped, STEPS_CHANGED)
        yield from self.edited


class EditContext(Protocol):
    """What decides about an edit, beside the records of the jobs."""

    def runs(self, job: str) -> bool:
        """Whether a job runs."""
        ...

    def types_of(self, job: str, request: Submission) -> tuple[str, ...] | None:
        """On which types a job may run now if this is its request; None: all."""
        ...

    def time_used(self, job: str, time: float) -> float:
        """How long a job has run, in seconds."""
        ...


def edits(event: EditAsked, records: Mapping[str, LiveJobRecord], cluster: EditContext) -> Steps[Edits]:
    """What an edit changes; InputError, and nothing at all, if one of its jobs does not allow it.

    In steps, during which the state must not change.
    """
    check_fields(event.fields, EDITABLE)
    if not event.fields:
        raise InputError("the edit names no field, so there is nothing to change")
    wanted = {job: tuple(field for field in event.fields if field != "after") for job in event.jobs}
    if "at_once" in event.fields:
        wanted = dict.fromkeys(_of_arrays(event.jobs, records), ("at_once",)) | wanted
    made = []
    for number, (job, fields) in enumerate(wanted.items()):
        if number % AT_ONCE == 0:
            yield
        record = _unfinished(job, records)
        after = _checked(record, event.changes, fields)
        if "time_limit_seconds" in fields:
            _check_limit(job, after.time_limit_seconds, cluster.time_used(job, event.time))
        if after != record.request:
            spec = replace(JobSpec.of(job, after), types=cluster.types_of(job, after))
            left = math.nan if after.steps is None else after.steps - record.steps_done
            told = changes_of(record.request, after)
            made.append(JobEdited(event.time, spec, left, after, event.by, told))
    stopped = [each.job.id for each in made if _steps_differ(each, records) and cluster.runs(each.job.id)]
    return Edits(tuple(stopped), tuple(made))


def _steps_differ(edited: JobEdited, records: Mapping[str, LiveJobRecord]) -> bool:
    return edited.request is not None and edited.request.steps != records[edited.job.id].request.steps


def _of_arrays(jobs: Iterable[str], records: Mapping[str, LiveJobRecord]) -> list[str]:
    """The unfinished jobs of the arrays of these jobs."""
    arrays = {records[job].request.array_id for job in jobs if job in records} - {""}
    return [record.id for record in records.values() if record.request.array_id in arrays and not record.finished]


def _unfinished(job: str, records: Mapping[str, LiveJobRecord]) -> LiveJobRecord:
    record = records.get(job)
    if record is None:
        raise InputError(f"there is no unfinished job {shortened(job)}; `gavel jobs --all` lists all of them")
    if record.finished:
        raise InputError(f"job {job} has {_ended(record)} and cannot be changed; `gavel resubmit {job}` runs it again")
    return record


def _ended(record: LiveJobRecord) -> str:
    return "been cancelled" if record.state == "cancelled" else str(record.state)


def _checked(record: LiveJobRecord, changes: Submission, fields: Collection[str]) -> Submission:
    try:
        after = changed(record.request, changes, fields)
    except InputError as error:
        raise InputError(f"job {record.id}: {error}") from None
    if "steps" in fields:
        check_steps(record.id, after.steps, record.steps_done)
    return after


def check_steps(job: str, steps: float | None, done: float) -> None:
    """Refuse a total number of steps that a job has exceeded."""
    if steps is not None and steps < done:
        raise InputError(
            f"job {job} has made {done:,.0f} steps, more than {steps:,g}; give more steps, or cancel it with "
            f"`gavel cancel {job}`"
        )


def _check_limit(job: str, limit: float | None, used: float) -> None:
    if limit is not None and limit <= used:
        raise InputError(
            f"job {job} has run for {duration(float(round(used)))}, so a time limit of {duration(limit)} would end it "
            f"now; give a longer one, or cancel it with `gavel cancel {job}`"
        )
