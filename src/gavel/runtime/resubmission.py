"""What submits old jobs again: their requests as one submission, with what is different this time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from gavel.client.field_checks import shortened
from gavel.client.job_changes import IN_PROTOCOL, RESUBMITTABLE
from gavel.client.messages import from_submission
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.runtime.gates import Arrival
from gavel.runtime.job_edits import changed, check_fields
from gavel.security.roles import Caller, may_read
from gavel.wire import gavel_pb2 as pb

CHANGEABLE = tuple(IN_PROTOCOL.get(name, name) for name in RESUBMITTABLE)


def may_repeat(caller: Caller, job: Submission) -> bool:
    """Whether a caller may submit a job again: a new job would show it the old one's environment."""
    return caller.open or not job.environment or may_read(caller, job)


def repeat_denied(job: str, request: Submission) -> str:
    """Why a caller may not submit a job again, in a sentence."""
    return f"job {job} is {request.user or 'of another user'}'s and has an environment that you may not read"


def resubmission(
    request: pb.ResubmitRequest, old: Mapping[str, Submission]
) -> tuple[list[Submission], pb.SubmitRequest]:
    """The jobs that run old ones again, and the request with their secrets; InputError if something does not fit.

    Several jobs of an array are an array again; one alone is not.
    """
    if not old:
        raise InputError("there is no job to submit again; give at least one id")
    fields, changes = tuple(dict.fromkeys(request.fields)), from_submission(request.changes)
    check_fields(fields, CHANGEABLE)
    _check_secrets(request.secrets, old)
    sizes = Counter(submission.array_id for submission in old.values())
    jobs = [_again(job, each, changes, fields, alone=sizes[each.array_id] == 1) for job, each in old.items()]
    secrets = [pb.Secrets(values={name: request.secrets[name] for name in job.secrets}) for job in jobs]
    return jobs, pb.SubmitRequest(key=request.key, secrets=secrets if any(job.secrets for job in jobs) else [])


def in_new_arrays(jobs: Iterable[Arrival], first: int) -> list[Arrival]:
    """Jobs of arrays from before the id `first` as jobs of new arrays, called after their first jobs."""
    names: dict[str, str] = {}
    found = []
    for each in jobs:
        array = each.request.array_id
        if array and int(array.removeprefix("a")) < first:
            new = names.setdefault(array, f"a{each.job}")
            found.append(replace(each, request=replace(each.request, array_id=new)))
        else:
            found.append(each)
    return found


def _again(
    job: str, submission: Submission, changes: Submission, fields: Collection[str], *, alone: bool
) -> Submission:
    """The request of one old job as a new one of the caller."""
    again = replace(submission, user="", array_id="", at_once=0) if alone else replace(submission, user="")
    try:
        return changed(again, changes, fields)
    except InputError as error:
        raise InputError(f"job {job}: {error}") from None


def _check_secrets(values: Collection[str], old: Mapping[str, Submission]) -> None:
    """Refuse a job without the values of its secrets, and values that no job needs."""
    for job, submission in old.items():
        if missing := [name for name in submission.secrets if name not in values]:
            options = " ".join(f"--secret {name}" for name in missing)
            raise InputError(
                f"job {job} needs the value of {', '.join(missing)} again, because secrets are not kept: give {options}"
            )
    needed = {name for submission in old.values() for name in submission.secrets}
    if unknown := [name for name in values if name not in needed]:
        raise InputError(f"none of the jobs has a secret {shortened(unknown[0])}")
