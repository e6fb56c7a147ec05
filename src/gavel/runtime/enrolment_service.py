"""The calls about agents' certificates: Enrol, RenewCertificate, ListAgents, RevokeAgent.

Part of the gRPC servicer; the rules are those of gavel.security.enrolment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from gavel.client.field_checks import shortened
from gavel.errors import InputError
from gavel.journal.store import Write
from gavel.runtime.messages import Hello
from gavel.security.accounts import Accounts, UnknownTokenError
from gavel.security.caller import current
from gavel.security.enrolment import EnrolledAgent, Enrolment, EnrolmentChange
from gavel.security.roles import Caller
from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]
Changing = Coroutine[Any, Any, EnrolmentChange]


@dataclass(frozen=True, slots=True)
class RedeemedJoin:
    """A join token that may be used once more."""

    by: str
    """The user who created it."""
    write: Write
    """Counts the use in the journal."""
    count: Callable[[], None]
    """Counts the use in memory; called when it is in the journal."""


class JoinTokens(Protocol):
    """Tokens with which agents enrol."""

    def redeem(self, token: str, now: float) -> RedeemedJoin:
        """Check a token; InputError if it is unknown, expired, revoked or used up. Nothing is counted yet."""
        ...


class Audit(Protocol):
    """Describes what the current caller does."""

    def __call__(self, *, method: str, object: str, what: str) -> Write:  # noqa: A002 - the audit's own word
        """The write of one row, for the transaction of what it describes."""
        ...


@dataclass(frozen=True, slots=True)
class AccountJoinTokens:
    """The join tokens among the accounts."""

    accounts: Accounts

    def redeem(self, token: str, now: float) -> RedeemedJoin:
        try:
            record, change = self.accounts.redeem(token, now)
        except UnknownTokenError as error:
            raise InputError(str(error)) from None
        return RedeemedJoin(record.user, change.write, change.apply)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentDesk:
    """What the calls need from the scheduler around them."""

    enrolment: Enrolment
    join_tokens: JoinTokens
    write: Callable[[Sequence[Write]], Awaitable[None]]
    """Writes to the journal, all or none, and returns when that is durable."""
    agents_port: int
    authority: bytes = b""
    """In PEM; empty: agents bring certificates of the operator's own authority."""
    server_name: str = ""
    clock: Callable[[], float]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from a check to the record of its consequence."""


class EnrolmentCalls:
    """The calls, for a servicer that has an audit and knows its agents."""

    _desk: EnrolmentDesk | None
    """None: the scheduler does not identify its callers."""
    _audit: Audit

    def agent_state(self, agent: str) -> str:
        """The state of an agent in the cluster; empty if it is not part of it."""
        raise NotImplementedError

    def disconnect(self, agent: str) -> None:
        """Close the connection of an agent, if it has one."""
        raise NotImplementedError

    def refused_call(self, method: str, sentence: str, *, proof: bool) -> str | None:
        """Note that a call was refused; `proof`: because its token or certificate proves nothing.

        Returns what to say instead, if the caller's address has failed too often.
        """

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.Certificate:  # noqa: N802
        desk = await self._secured(context)
        return _certificate(desk, await self._answered("Enrol", context, self._enrol(desk, request)))

    async def _enrol(self, desk: EnrolmentDesk, request: pb.EnrolRequest) -> EnrolmentChange:
        async with desk.turn:
            with _refusing(grpc.StatusCode.UNAUTHENTICATED):
                joined = desk.join_tokens.redeem(request.join_token, desk.clock())
            with _refusing(grpc.StatusCode.FAILED_PRECONDITION):
                change = desk.enrolment.enrol(request.agent, request.name, request.signing_request, joined.by)
            what = f"as {change.record.name}, with a join token of {joined.by}"
            audit = self._audit(method="Enrol", object=change.record.agent, what=what)
            await desk.write([change.write, joined.write, audit])
            desk.enrolment.adopt(change)
            joined.count()
            return change

    async def RenewCertificate(self, request: pb.RenewRequest, context: Context) -> pb.Certificate:  # noqa: N802
        desk, shown = await self._secured(context), peer_certificate(context)
        if shown is None:
            told = "only an agent that shows its certificate can renew it; connect to the agents' port"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, told)
        renewal = self._renew(desk, shown, request.signing_request)
        return _certificate(desk, await self._answered("RenewCertificate", context, renewal))

    async def _renew(self, desk: EnrolmentDesk, shown: str, signing_request: str) -> EnrolmentChange:
        async with desk.turn:
            with _refusing(grpc.StatusCode.PERMISSION_DENIED):
                change = desk.enrolment.renew(shown, signing_request)
            audit = self._audit(method="RenewCertificate", object=change.record.agent, what=change.record.name)
            await desk.write([change.write, audit])
            desk.enrolment.adopt(change)
            return change

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.AgentList:  # noqa: ARG002, N802
        desk = await self._secured(context)
        return self._agents(desk.enrolment.records())

    async def RevokeAgent(self, request: pb.RevokeAgentRequest, context: Context) -> pb.AgentList:  # noqa: N802
        desk = await self._secured(context)
        change = await self._answered("RevokeAgent", context, self._revoke(desk, request.agent))
        return self._agents([change.record])

    async def _revoke(self, desk: EnrolmentDesk, agent: str) -> EnrolmentChange:
        async with desk.turn:
            with _refusing(grpc.StatusCode.NOT_FOUND):
                change = desk.enrolment.revoke(agent)
            audit = self._audit(method="RevokeAgent", object=change.record.agent, what=change.record.name)
            await desk.write([change.write, audit])
            desk.enrolment.adopt(change)
        self.disconnect(change.record.agent)
        return change

    async def _answered(
        self, method: str, context: Context, work: Coroutine[Any, Any, EnrolmentChange]
    ) -> EnrolmentChange:
        """Do the work to its end even if the caller disconnects: a change is recorded completely or not at all."""
        working = asyncio.ensure_future(work)
        working.add_done_callback(lambda done: done.cancelled() or done.exception())  # for a caller that is gone
        try:
            return await asyncio.shield(working)
        except _RefusedCallError as refused:
            proof = refused.code is grpc.StatusCode.UNAUTHENTICATED
            if (blocked := self.refused_call(method, str(refused), proof=proof)) is not None:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, blocked)
            await context.abort(refused.code, str(refused))
            raise AssertionError from None  # abort raises

    async def _secured(self, context: Context) -> EnrolmentDesk:
        if self._desk is None:
            told = "this scheduler does not identify its agents; `gavel init` secures it, then agents can enrol"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, told)
        return self._desk

    def _agents(self, records: Sequence[EnrolledAgent]) -> pb.AgentList:
        return pb.AgentList(agents=[self._agent(record) for record in records])

    def _agent(self, record: EnrolledAgent) -> pb.EnrolledAgent:
        return pb.EnrolledAgent(
            agent=record.agent,
            name=record.name,
            enrolled=record.enrolled,
            expires=record.expires,
            revoked=record.revoked,
            state=self.agent_state(record.agent),
            by=record.by,
        )

    def hello_fault(self, hello: Hello, known_name: str | None) -> str | None:
        """Why the current caller may not speak for this agent, in a sentence; None if it may.

        `known_name` is what an agent with that identity is called in the cluster; None: there is none.
        """
        if self._desk is None:
            return None
        caller = current()
        if caller.agent or caller.agent_name:
            # It may have been revoked since the connection began.
            return self._desk.enrolment.revoked_fault(caller.agent) or _impostor(caller, hello, known_name)
        return self._desk.enrolment.plaintext_fault(hello.agent, hello.name)


class _RefusedCallError(Exception):
    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@contextmanager
def _refusing(code: grpc.StatusCode) -> Iterator[None]:
    """Refuse the call with this status if a rule forbids it."""
    try:
        yield
    except InputError as error:
        raise _RefusedCallError(code, str(error)) from None


def _impostor(caller: Caller, hello: Hello, known_name: str | None) -> str | None:
    """Why the holder of a certificate may not use an identity and a name, in a sentence; None if it may."""
    if caller.agent and hello.agent != caller.agent:
        return f"the certificate is for agent {caller.agent}, but the agent says that it is {shortened(hello.agent)}"
    if hello.name != caller.agent_name:
        return (
            f"the certificate is for the name {caller.agent_name!r}, but the agent is called {shortened(hello.name)}; "
            f"start it with --name {caller.agent_name}, or enrol it again under its new name"
        )
    if not caller.agent and known_name is not None and known_name != caller.agent_name:
        return f"agent {hello.agent} is known as {known_name!r}, and the certificate is for {caller.agent_name!r}"
    return None


def _certificate(desk: EnrolmentDesk, change: EnrolmentChange) -> pb.Certificate:
    return pb.Certificate(
        certificate=change.signed.pem if change.signed is not None else "",
        authority=desk.authority.decode(),
        expires=change.record.expires,
        agents_port=desk.agents_port,
        server_name=desk.server_name,
    )


def peer_certificate(context: Context) -> str | None:
    """The certificate that the caller showed and the connection verified, in PEM; None if it showed none."""
    shown = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    return None if shown is None else bytes(shown).decode()
