"""Roles, callers, and what each call of the protocol needs: a call without a declaration is refused.

Pure rules: how a caller is recognised is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gavel.client.requests import Submission

OPEN_USER = "you"
"""The user of a scheduler that does not identify its callers."""


class Role(StrEnum):
    """What a caller may do. The first four include each other, in this order; the others stand apart."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"
    AGENT = "agent"
    METRICS = "metrics"

    @property
    def for_people(self) -> bool:
        """Whether a user can have it."""
        return self in _RANKS

    def includes(self, other: Role) -> bool:
        """Whether a caller with this role may do what the other may.

        >>> Role.OPERATOR.includes(Role.USER), Role.ADMIN.includes(Role.AGENT)
        (True, False)
        """
        if self in _RANKS and other in _RANKS:
            return _RANKS[self] >= _RANKS[other]
        return self is other


_RANKS = {role: rank for rank, role in enumerate((Role.VIEWER, Role.USER, Role.OPERATOR, Role.ADMIN))}


class Need(StrEnum):
    """What a call needs of its caller."""

    NOTHING = "nothing"
    """The request itself carries the proof, such as a join token."""
    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"
    AGENT = "agent"

    def met_by(self, role: Role) -> bool:
        """Whether the role suffices."""
        return self is Need.NOTHING or role.includes(Role(self.value))


NEEDS: Mapping[str, Need] = {
    "Submit": Need.USER,
    "Cancel": Need.USER,
    "Hold": Need.USER,
    "Release": Need.USER,
    "Requeue": Need.USER,
    "Edit": Need.USER,
    "Resubmit": Need.USER,
    "List": Need.VIEWER,
    "Describe": Need.VIEWER,
    "Watch": Need.VIEWER,
    "Logs": Need.USER,
    "Terminal": Need.USER,
    "Cluster": Need.VIEWER,
    "Drain": Need.OPERATOR,
    "Undrain": Need.OPERATOR,
    "RemoveServer": Need.OPERATOR,
    "RemoveCheckpoints": Need.USER,
    "Events": Need.VIEWER,
    "Attach": Need.AGENT,
    "WhoAmI": Need.VIEWER,
    "Enrol": Need.NOTHING,
    "RenewCertificate": Need.AGENT,
    "ListAgents": Need.OPERATOR,
    "RevokeAgent": Need.ADMIN,
    "ListUsers": Need.OPERATOR,
    "AddUser": Need.ADMIN,
    "ChangeUser": Need.ADMIN,
    "CreateToken": Need.VIEWER,
    "ListTokens": Need.VIEWER,
    "RevokeToken": Need.VIEWER,
    "ListLimits": Need.VIEWER,
    "SetLimits": Need.USER,
    "ShowNotifications": Need.USER,
    "SetNotifications": Need.USER,
    "TestNotifications": Need.USER,
    "Audit": Need.OPERATOR,
}
"""By method of the protocol. Where a call is about one user's things, the rules below decide as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, as far as the scheduler knows."""

    user: str
    """Whose rights count; empty for an agent."""
    role: Role
    teams: tuple[str, ...] = ()
    """The user's teams; the first is the default. Empty for an open scheduler: any team."""
    leads: tuple[str, ...] = ()
    by: str = ""
    """Who acts for the user; empty: the user."""
    address: str = ""
    token: str = ""
    """The id of the token; empty: it has none."""
    agent: str = ""
    """The identity in an agent's certificate."""
    agent_name: str = ""
    open: bool = False
    """Whether the scheduler does not identify its callers."""

    @property
    def operates(self) -> bool:
        return self.role.includes(Role.OPERATOR)

    def in_team(self, team: str | None) -> bool:
        """Whether the team, or one above it, is the caller's."""
        return bool(team) and any(within(team or "", own) for own in self.teams)

    def leads_team(self, team: str | None) -> bool:
        return bool(team) and any(within(team or "", led) for led in self.leads)


def within(team: str, above: str) -> bool:
    """Whether a team is the other one or below it.

    >>> within("research/nlp", "research"), within("researchers", "research")
    (True, False)
    """
    return team == above or team.startswith(above + "/")


def may_change(caller: Caller, job: Submission) -> bool:
    """Whether the caller may cancel or edit a job: its user, leads of its team, operators."""
    return caller.operates or caller.leads_team(job.entity) or (bool(caller.user) and caller.user == job.user)


def may_type(caller: Caller, job: Submission) -> bool:
    """Whether the caller may use a job's terminal, which acts with its user's rights: only that user and operators."""
    return caller.operates or (bool(caller.user) and caller.user == job.user)


def may_read(caller: Caller, job: Submission) -> bool:
    """Whether the caller may read a job's logs and environment: as `may_change`, and its team unless it is private."""
    if not caller.role.includes(Role.USER):
        return False
    return may_change(caller, job) or (not job.private and caller.in_team(job.entity))
