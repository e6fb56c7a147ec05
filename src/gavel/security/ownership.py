"""Whose job it is, and which team's: set by the scheduler from the caller, never taken from the request alone."""

from __future__ import annotations

import math
from dataclasses import replace

from gavel.client.field_checks import shortened
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.security.roles import OPEN_USER, Caller

NO_ONE = ("", OPEN_USER)
"""Users of jobs from before a scheduler had users: of version 0.2, or open."""


class NotAllowedError(InputError):
    """A valid request that this caller may not make."""


def owned(job: Submission, caller: Caller) -> Submission:
    """A job with its user and team; NotAllowedError if the caller may not submit it."""
    job = replace(job, user=caller.user)
    if caller.open:
        return job
    job = replace(job, entity=job.entity or (caller.teams[0] if caller.teams else None))
    if job.entity and not (caller.operates or caller.in_team(job.entity) or caller.leads_team(job.entity)):
        teams = f"your teams are {', '.join(caller.teams)}" if caller.teams else "you are in no team"
        raise NotAllowedError(f"you may not submit for {shortened(job.entity)}: {teams}")
    if (denied := weight_denied(caller, job.weight, job.entity)) is not None:
        raise NotAllowedError(denied)
    return job


def weight_denied(caller: Caller, weight: float, team: str | None) -> str | None:
    """Why a caller may not give a job this weight, in a sentence; None if it may."""
    within = weight <= 1.0 or math.isnan(weight)  # no number at all is refused for everyone
    if caller.open or within or caller.operates or caller.leads_team(team):
        return None
    return f"the weight {weight:g} is above 1; only leads of the team and operators give jobs more weight"


def change_denied(job: str, request: Submission) -> str:
    """Why a caller may not cancel or edit a job, in a sentence."""
    if request.user in NO_ONE:
        return f"{_from_before(job)}; only {_leads(request)}operators change it"
    return f"job {job} is {request.user}'s; only its user, leads of its team and operators change it"


def terminal_denied(job: str, request: Submission) -> str:
    """Why a caller may not use a job's terminal, in a sentence."""
    return f"the terminal of job {job} is for its user, {request.user}, and for operators only"


def logs_denied(job: str, request: Submission) -> str:
    """Why a caller may not read a job's logs, in a sentence."""
    if request.user in NO_ONE:
        team = f"team {shortened(request.entity)} and " if request.entity else ""
        return f"{_from_before(job)}; its logs are for {team}operators only"
    return f"the logs of job {job} are for its user, {request.user}" + ("" if request.private else ", and for its team")


def _from_before(job: str) -> str:
    return f"job {job} was submitted before this scheduler had users"


def _leads(request: Submission) -> str:
    return f"leads of {shortened(request.entity)} and " if request.entity else ""
