"""Checks what users submit: fills in defaults, or says in a sentence what is wrong."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gavel.client.field_checks import FieldError, shortened
from gavel.client.quantities import duration
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.limits import LARGEST, LONGEST_SECONDS, at_most
from gavel.policies.policy import Policy
from gavel.runtime.template import default_template


def checked(
    request: Submission,
    policy: Policy,
    entities: Collection[str] | None,
    *,
    longest_grace: float = LONGEST_SECONDS,
) -> Submission:
    """A request with its defaults filled in. `entities` lists those that jobs may belong to; None: any."""
    name = f"job {shortened(request.name)}" if request.name else "the job"
    if not request.command or not request.command[0]:
        raise InputError(f"{name} has no command; say what to run")
    job = replace(request, workers=request.workers or 1, weight=request.weight or 1.0)
    for field, most in (("steps", LARGEST), ("weight", LARGEST), ("deadline_seconds", LONGEST_SECONDS)):
        value = getattr(job, field)
        if value is not None and not 0 <= value <= most:
            raise InputError(f"{name}: {field} is {value}; it must be a positive number, {at_most(most)}")
    try:
        job.request().check()  # clients do the same, but anything may call
    except FieldError as error:
        raise InputError(f"{name}: {error}") from None
    if job.grace_seconds is not None and job.grace_seconds > longest_grace:
        asked, allowed = duration(job.grace_seconds), duration(longest_grace)
        raise InputError(f"{name}: grace is {asked}, and this cluster allows at most {allowed}; ask for less time")
    job = replace(job, template=job.template or default_template(job.command))
    if job.entity and entities is not None and job.entity not in entities:
        raise InputError(f"{name}: there is no entity {job.entity!r}; known: {', '.join(entities) or 'none'}")
    if "steps" in policy.needs and not job.steps:
        raise InputError(f"{name} does not say how many steps it makes, but the policy {policy.name} needs to know")
    return job
