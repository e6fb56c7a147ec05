"""The calls about people, tokens, agents, limits and the audit: the part of `Client` that is for administrators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gavel.client.connection import Away, Connection
from gavel.client.errors import NoSuchJob, Refused
from gavel.client.messages import (
    from_audit,
    from_enrolled,
    from_identity,
    from_limits,
    from_new_token,
    from_notification_test,
    from_notifications,
    from_token,
    from_user,
    to_limits,
)
from gavel.client.views import (
    AuditView,
    EnrolledAgentView,
    IdentityView,
    LimitsView,
    NewTokenView,
    NotificationsView,
    NotificationTestView,
    TokenView,
    UsageLimits,
    UserView,
)
from gavel.errors import InputError
from gavel.wire import gavel_pb2 as pb

EVERYONE = "*"
"""In place of a user: the tokens of all."""


class Administration:
    """Calls that administer a cluster."""

    _connection: Connection

    def whoami(self) -> IdentityView:
        """Who the scheduler takes us for."""
        return from_identity(self._connection.ask("WhoAmI", pb.WhoAmIRequest()))

    def users(self) -> list[UserView]:
        """All users."""
        return [from_user(user) for user in self._connection.ask("ListUsers", pb.ListUsersRequest()).users]

    def add_user(
        self, name: str, role: str = "user", *, teams: Iterable[str] = (), leads: Iterable[str] = ()
    ) -> UserView:
        """Add a user. The first team is the default of the user's jobs."""
        user = pb.User(name=name, role=role, teams=list(teams), leads=list(leads))
        return from_user(self._administer("AddUser", user, repeat=False))

    def change_user(
        self,
        name: str,
        *,
        role: str | None = None,
        teams: Iterable[str] | None = None,
        leads: Iterable[str] | None = None,
        disabled: bool | None = None,
    ) -> UserView:
        """Replace what is given; the rest stays as it is."""
        wanted: dict[str, Any] = {
            "role": role,
            "teams": None if teams is None else list(teams),
            "leads": None if leads is None else list(leads),
            "disabled": disabled,
        }
        given = {field: value for field, value in wanted.items() if value is not None}
        request = pb.ChangeUserRequest(user=pb.User(name=name, **given), fields=list(given))
        return from_user(self._administer("ChangeUser", request))

    def create_token(
        self, *, user: str = "", name: str = "", role: str = "", seconds: float = 0.0, uses: int = 0
    ) -> NewTokenView:
        """Create a token, for ourselves unless a user is named. The answer is the only time that it is shown.

        `role` is at most the user's own, which is the default; `agent` makes a token with which `uses` agents may join.
        """
        if not 0.0 <= seconds < float("inf") or uses < 0:
            raise InputError("the seconds and uses of a token must be at least 0")
        request = pb.CreateTokenRequest(user=user, name=name, role=role, seconds=seconds, uses=uses)
        return from_new_token(self._administer("CreateToken", request, repeat=False))

    def tokens(self, user: str = "") -> list[TokenView]:
        """Our own tokens, those of a user, or of all if the user is `*`."""
        reply = self._administer("ListTokens", pb.ListTokensRequest(user=user))
        return [from_token(token) for token in reply.tokens]

    def revoke_token(self, id: str) -> list[TokenView]:  # noqa: A002 - the word for it everywhere else
        """Make a token count no longer."""
        reply = self._administer("RevokeToken", pb.RevokeTokenRequest(id=id))
        return [from_token(token) for token in reply.tokens]

    def agents(self) -> list[EnrolledAgentView]:
        """All agents with a certificate, revoked ones included."""
        reply = self._connection.ask("ListAgents", pb.ListAgentsRequest())
        return [from_enrolled(agent) for agent in reply.agents]

    def revoke_agent(self, agent: str) -> list[EnrolledAgentView]:
        """Make the certificate of an agent, named by identity or name, count no longer, and close its connection."""
        reply = self._administer("RevokeAgent", pb.RevokeAgentRequest(agent=agent))
        return [from_enrolled(each) for each in reply.agents]

    def limits(self) -> list[LimitsView]:
        """The limits of users and teams, and how much of each is used."""
        return [from_limits(each) for each in self._connection.ask("ListLimits", pb.ListLimitsRequest()).limits]

    def set_limits(self, kind: str, name: str, limits: UsageLimits) -> list[LimitsView]:
        """Set all limits of a `user` or `team`, or with `default` those of users without their own; 0 removes one."""
        reply = self._administer("SetLimits", to_limits(kind, name, limits))
        return [from_limits(each) for each in reply.limits]

    def notifications(self, user: str = "") -> NotificationsView:
        """Where a user (default: we) is notified; operators may ask about others."""
        return from_notifications(self._administer("ShowNotifications", pb.NotificationsRequest(user=user)))

    def set_notifications(self, urls: Iterable[str], *, user: str = "") -> NotificationsView:
        """Set the URLs that are told about every job of a user (default: ours); none: no URL is."""
        return from_notifications(self._administer("SetNotifications", pb.Notifications(user=user, urls=list(urls))))

    def test_notifications(self, user: str = "") -> list[NotificationTestView]:
        """Send one notification to each of a user's URLs, and return how that went."""
        reply = self._administer("TestNotifications", pb.NotificationsRequest(user=user), repeat=False)
        return [from_notification_test(each) for each in reply.tests]

    def audit(self, *, since: float = 0.0, user: str = "", job: str = "", limit: int = 0) -> Iterator[AuditView]:
        """What was done and refused, oldest first: since a time (seconds since 1970); the newest `limit`."""
        if limit < 0:
            raise InputError("limit must be at least 0")
        request = pb.AuditQuery(since=max(since, 0.0), user=user, job=job, limit=limit)
        last = 0
        for line in self._connection.listen("Audit", request, again=lambda: False):
            if not isinstance(line, Away) and line.number > last:  # after a broken connection all come again
                last = line.number
                yield from_audit(line)

    def _administer(self, method: str, request: Any, *, repeat: bool = True) -> Any:
        try:
            return self._connection.ask(method, request, repeat=repeat)
        except NoSuchJob as error:
            raise Refused(str(error)) from None  # what does not exist is a user, token or agent, not a job
