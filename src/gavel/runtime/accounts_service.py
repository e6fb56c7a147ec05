"""Calls about users, tokens and the audit: the part of the gRPC service that manages who may call.

A change is written together with its entry in the audit before it takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc

from gavel.client.field_checks import shortened
from gavel.core.errors import InputError
from gavel.journal.audit import AuditEntry, AuditWanted
from gavel.runtime.access import Access
from gavel.runtime.denying import Denying
from gavel.security.accounts import Accounts, TokenRecord, UserRecord
from gavel.security.caller import current
from gavel.security.ownership import NotAllowedError
from gavel.security.roles import Caller, Role
from gavel.wire import gavel_pb2 as pb
from gavel.wire import gavel_pb2_grpc as stubs

Context = grpc.aio.ServicerContext[Any, Any]
Changed = TypeVar("Changed")
CHANGEABLE = ("role", "teams", "leads", "disabled")
"""Fields of a user that can be replaced."""
ALL = "*"
_OPEN = (
    "this scheduler does not identify its callers, so it has no users and tokens; `gavel init` sets them up, "
    "and the next `gavel serve` uses them"
)


class AccountsService(Denying, stubs.GavelServicer):
    """Users, tokens, the audit."""

    _access: Access

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIReply:  # noqa: ARG002, N802
        caller, accounts = current(), self._access.accounts
        token = accounts.tokens.get(caller.token) if accounts is not None else None
        return pb.WhoAmIReply(
            user=caller.user,
            role=str(caller.role),
            teams=caller.teams,
            leads=caller.leads,
            by=caller.by,
            expires=0.0 if token is None else token.expires,
            cluster=self._access.cluster,
        )

    # ---- users ----

    async def ListUsers(self, request: pb.ListUsersRequest, context: Context) -> pb.UserList:  # noqa: ARG002, N802
        accounts = await self._accounts(context)
        return pb.UserList(users=[_user(accounts.users[name]) for name in sorted(accounts.users)])

    async def AddUser(self, request: pb.User, context: Context) -> pb.User:  # noqa: N802
        accounts = await self._accounts(context)

        async def add() -> UserRecord:
            user = UserRecord(
                name=request.name,
                role=_role(request.role or Role.USER),
                teams=tuple(request.teams),
                leads=tuple(request.leads),
                created=self._access.clock(),
            )
            await self._access.carry_out([accounts.add_user(user)], "AddUser", user.name, _described(user))
            return user

        return _user(await self._changed("AddUser", request.name, add, context))

    async def ChangeUser(self, request: pb.ChangeUserRequest, context: Context) -> pb.User:  # noqa: N802
        accounts, name = await self._accounts(context), request.user.name

        async def change() -> UserRecord:
            user, changed = accounts.change_user(name, _changes(request))
            what = f"{_described(accounts.users[name])} -> {_described(user)}"
            await self._access.carry_out([changed], "ChangeUser", name, what)
            self._access.end_streams(lambda caller: name in {caller.user, caller.by})
            return user

        return _user(await self._changed("ChangeUser", name, change, context))

    # ---- tokens ----

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.NewToken:  # noqa: N802
        accounts, caller = await self._accounts(context), current()
        owner = request.user or caller.user

        async def create() -> tuple[str, TokenRecord]:
            role = _role(request.role) if request.role else accounts.user(owner).role
            if (fault := _may_not_create(caller, accounts.user(owner), role)) is not None:
                raise NotAllowedError(fault)
            text, record, change = accounts.create_token(
                user=owner,
                role=role,
                now=self._access.clock(),
                seconds=request.seconds,
                name=request.name,
                uses=request.uses,
                parent=caller.token if owner == caller.user else "",
            )
            await self._access.carry_out([change], "CreateToken", owner, f"token {record.id}, role {role}")
            return text, record

        text, record = await self._changed("CreateToken", owner, create, context)
        return pb.NewToken(
            token=text,
            view=_token(record),
            address=self._access.advertised,
            fingerprint=self._access.fingerprint,
        )

    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.TokenList:  # noqa: N802
        accounts, caller = await self._accounts(context), current()
        wanted = request.user or caller.user
        if wanted != caller.user and not caller.operates:
            told = "only operators and administrators list the tokens of others"
            await self._deny(told, "ListTokens", wanted, context)
        records = [token for token in accounts.tokens.values() if wanted in (ALL, token.user)]
        return _tokens(records)

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.TokenList:  # noqa: N802
        accounts, caller = await self._accounts(context), current()

        async def revoke() -> list[str]:
            record = accounts.token(request.id)
            if not _may_revoke(caller, record):
                raise NotAllowedError("only its user or an administrator revokes a token")
            gone = [record.id, *accounts.made_with(record.id)]
            changes = [accounts.revoke(token) for token in gone]
            await self._access.carry_out(changes, "RevokeToken", record.id, f"of {record.user}: {', '.join(gone)}")
            self._access.end_streams(lambda caller: caller.token in gone)
            return gone

        gone = await self._changed("RevokeToken", request.id, revoke, context, grpc.StatusCode.NOT_FOUND)
        return _tokens([accounts.tokens[token] for token in gone])

    # ---- the audit ----

    async def Audit(self, request: pb.AuditQuery, context: Context) -> AsyncIterator[pb.AuditLine]:  # noqa: N802
        await context.send_initial_metadata(())
        wanted = AuditWanted(since=request.since, user=request.user, object=request.job, limit=request.limit)
        await self._access.flush()
        for entry in await asyncio.to_thread(self._access.journal.audited, wanted):
            yield _line(entry)

    async def _changed(
        self,
        method: str,
        subject: str,
        change: Callable[[], Awaitable[Changed]],
        context: Context,
        code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT,
    ) -> Changed:
        """Check and change accounts while no other call does; refuse what a rule forbids."""
        try:
            return await self._access.alone(change)
        except NotAllowedError as error:
            await self._deny(str(error), method, subject, context)
        except InputError as error:
            await context.abort(code, str(error))
        raise AssertionError  # abort raises

    async def _accounts(self, context: Context) -> Accounts:
        if self._access.accounts is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, _OPEN)
            raise AssertionError  # abort raises
        return self._access.accounts


def _may_not_create(caller: Caller, owner: UserRecord, role: Role) -> str | None:
    """Why a caller may not create such a token, as a sentence; None if it may."""
    if caller.by:
        return "tokens are not created while acting for others: with one, the audit would not name you"
    if role is Role.AGENT:
        return _may_not_invite(caller, owner)
    if role is Role.METRICS:
        return None if caller.role is Role.ADMIN else "only administrators create tokens for metrics"
    if owner.name != caller.user and caller.role is not Role.ADMIN:
        return "only administrators create tokens for others"
    return _above(caller, owner, role)


def _may_not_invite(caller: Caller, owner: UserRecord) -> str | None:
    """As `_may_not_create`, for join tokens."""
    if not caller.operates:
        return "only operators and administrators create join tokens"
    return None if owner.name == caller.user else "a join token is in your own name; leave out the user"


def _above(caller: Caller, owner: UserRecord, role: Role) -> str | None:
    """A sentence if the token would have more rights than its user, or than the caller's own token."""
    if not owner.role.includes(role):
        return f"{owner.name} has the role {owner.role}; a token cannot have more"
    if owner.name == caller.user and not caller.role.includes(role):
        return f"you called with a token of the role {caller.role}; a new one cannot have more"
    return None


def _may_revoke(caller: Caller, token: TokenRecord) -> bool:
    if caller.role is Role.ADMIN or (token.role is Role.AGENT and caller.operates):
        return True
    return token.user == caller.user and not caller.by and caller.role.includes(token.role)


def _changes(request: pb.ChangeUserRequest) -> dict[str, Any]:
    if unknown := [name for name in request.fields if name not in CHANGEABLE]:
        raise InputError(f"{shortened(unknown[0])} of a user cannot be changed; change {', '.join(CHANGEABLE)}")
    given = {
        "role": request.user.role,
        "teams": tuple(request.user.teams),
        "leads": tuple(request.user.leads),
        "disabled": request.user.disabled,
    }
    changes = {name: given[name] for name in request.fields}
    if "role" in changes:
        changes["role"] = _role(request.user.role)
    return changes


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InputError(f"there is no role {shortened(text)}; roles are {', '.join(Role)}") from None


def _described(user: UserRecord) -> str:
    teams = f", teams {', '.join(user.teams)}" if user.teams else ""
    leads = f", leads {', '.join(user.leads)}" if user.leads else ""
    return f"role {user.role}{teams}{leads}{', disabled' if user.disabled else ''}"


def _user(user: UserRecord) -> pb.User:
    return pb.User(
        name=user.name,
        role=str(user.role),
        teams=user.teams,
        leads=user.leads,
        disabled=user.disabled,
        created=user.created,
    )


def _tokens(records: Iterable[TokenRecord]) -> pb.TokenList:
    return pb.TokenList(tokens=[_token(record) for record in sorted(records, key=lambda record: record.created)])


def _token(record: TokenRecord) -> pb.TokenView:
    return pb.TokenView(
        id=record.id,
        name=record.name,
        user=record.user,
        role=str(record.role),
        created=record.created,
        expires=record.expires,
        last_used=record.last_used,
        last_address=record.last_address,
        revoked=record.revoked,
        uses_left=record.uses_left,
    )


def _line(entry: AuditEntry) -> pb.AuditLine:
    line = pb.AuditLine(
        number=entry.number,
        time=entry.time,
        user=entry.user,
        role=entry.role,
        address=entry.address,
        method=entry.method,
        object=entry.object,
        what=entry.what,
        outcome=entry.outcome,
    )
    setattr(line, "as", entry.acting_for)  # a word of Python
    return line
