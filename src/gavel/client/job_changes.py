"""The part of the API client that changes jobs and submits them again."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any

from gavel.client.connection import Connection
from gavel.client.field_checks import nearest, shortened
from gavel.client.messages import from_job, to_request
from gavel.client.requests import SET_BY_SCHEDULER, JobRequest
from gavel.client.secret_values import SecretValues, check_values
from gavel.client.views import JobView
from gavel.errors import InputError
from gavel.wire import gavel_pb2 as pb

EDITABLE = (
    "name",
    "weight",
    "types",
    "prefer",
    "steps",
    "retries",
    "deadline_hours",
    "time_limit",
    "idle_timeout",
    "tags",
    "notify",
    "at_once",
    "after",
)
"""Fields of a JobRequest that can be changed while the job has not finished."""
RESUBMITTABLE = tuple(
    each.name
    for each in fields(JobRequest)
    if each.name not in {*SET_BY_SCHEDULER, "secrets", "array", "grid", "at_once"}
)
"""Fields that can be different when a job is submitted again."""
IN_PROTOCOL = {
    "deadline_hours": "deadline_seconds",
    "grace": "grace_seconds",
    "time_limit": "time_limit_seconds",
    "idle_timeout": "idle_timeout_seconds",
    "gpu_memory": "gpu_memory_bytes",
    "memory": "memory_bytes",
}
"""Fields that the protocol, and a Submission, name with their unit."""


class JobChanges:
    """Calls that change jobs."""

    _connection: Connection

    def edit(self, ids: str | Iterable[str], **changes: Any) -> list[JobView]:
        """Change fields of unfinished jobs, all or none: `edit("3", weight=2, types=["v100"], time_limit="12h")`.

        The fields are those of JobRequest: name, weight, types, prefer, steps, retries, deadline_hours, time_limit,
        idle_timeout, tags, notify, after (while it has not started) and, for arrays, at_once. None removes a limit.
        Lists and tags are replaced as a whole. The changes count from the next decision on; a running job whose type
        is no longer allowed, or whose number of steps changes, saves and leaves.
        """
        packed, names = packed_changes(changes, EDITABLE)
        reply = self._connection.ask("Edit", pb.EditRequest(ids=_listed(ids), changes=packed, fields=names))
        return [from_job(job) for job in reply.jobs]

    def resubmit(
        self, ids: str | Iterable[str], *, secrets: Mapping[str, str] | None = None, **changes: Any
    ) -> list[str]:
        """Submit jobs like these again, finished ones too, all or none; returns the new ids, in order.

        `changes` are what is different, as in `edit`, with any field of JobRequest. The values of `secrets` must be
        given again.
        """
        packed, names = packed_changes(changes, RESUBMITTABLE) if changes else (pb.JobRequest(), [])
        values = SecretValues(dict(secrets or {}))
        check_values(values)
        request = pb.ResubmitRequest(
            ids=_listed(ids), key=uuid.uuid4().hex, changes=packed, fields=names, secrets=dict(values)
        )
        return list(self._connection.ask("Resubmit", request).ids)


def packed_changes(changes: Mapping[str, Any], allowed: Collection[str]) -> tuple[pb.JobRequest, list[str]]:
    """Checked changes, and the names of their fields, as the protocol has them."""
    if not changes:
        raise InputError("there is nothing to change; name at least one field")
    for name in changes:
        if name not in allowed:
            raise InputError(f"the field {shortened(name)} of a job cannot be changed; {nearest(name, allowed)}")
    request = JobRequest(**{"command": ("changes",), "array_id": "changes", **_without_none(changes)})
    request.check()
    return to_request(request), [IN_PROTOCOL.get(name, name) for name in changes]


def _without_none(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes that give a value; None stands for the default."""
    return {name: value for name, value in changes.items() if value is not None}


def _listed(ids: str | Iterable[str]) -> list[str]:
    return [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
