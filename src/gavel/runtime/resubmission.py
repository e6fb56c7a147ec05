"""What submits old jobs again: their requests as one submission, with what is different this time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gavel.client.field_checks import shortened
from gavel.client.job_changes import IN_PROTOCOL, RESUBMITTABLE
from gavel.client.messages import from_submission, to_submission
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.runtime.job_edits import changed, check_fields
from gavel.security.roles import Caller, may_read
from gavel.wire import gavel_pb2 as pb

CHANGEABLE = tuple(IN_PROTOCOL.get(name, name) for name in RESUBMITTABLE)


def may_repeat(caller: Caller, job: Submission) -> bool:
    """Whether a caller may submit a job again: a new job of its own would show it the old one's environment."""
    return caller.open or not job.environment or may_read(caller, job)


def repeat_denied(job: str, request: Submission) -> str:
    """Why a caller may not submit a job again, in a sentence."""
    return f"job {job} is {request.user or 'of another user'}'s and has an environment that you may not read"


def resubmission(request: pb.ResubmitRequest, old: Mapping[str, Submission]) -> pb.SubmitRequest:
    """The submission that runs old jobs again, by id; InputError if something does not fit."""
    if not old:
        raise InputError("there is no job to submit again; give at least one id")
    fields, changes = tuple(dict.fromkeys(request.fields)), from_submission(request.changes)
    check_fields(fields, CHANGEABLE)
    _check_secrets(request.secrets, old)
    jobs = [_again(job, submission, changes, fields) for job, submission in old.items()]
    secrets = [pb.Secrets(values={name: request.secrets[name] for name in job.secrets}) for job in jobs]
    return pb.SubmitRequest(
        jobs=[to_submission(job) for job in jobs],
        key=request.key,
        secrets=secrets if any(job.secrets for job in jobs) else [],
    )


def _again(job: str, submission: Submission, changes: Submission, fields: Collection[str]) -> Submission:
    """The request of one old job as a new one: alone, and of the caller."""
    alone = replace(submission, user="", array_id="", at_once=0)
    try:
        return changed(alone, changes, fields)
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
