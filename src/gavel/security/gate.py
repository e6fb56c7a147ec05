"""The gate before every call: recognises the caller, checks what the call needs, and refuses the rest.

It is a gRPC interceptor. A method without a declared need is refused to every caller.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import grpc

from gavel.client.field_checks import label_fault, shortened
from gavel.core.errors import InputError
from gavel.security.accounts import SESSION_PREFIX, Accounts, Sessions, UnknownTokenError
from gavel.security.caller import set_caller
from gavel.security.roles import NEEDS, OPEN_USER, Caller, Need, Role
from gavel.security.trail import Trail

Context = grpc.aio.ServicerContext[Any, Any]
AUTHORIZATION = "authorization"
ACTING_FOR = "x-gavel-as"
_BEARER = "bearer "
PLAINTEXT = (
    "this port takes only agents that have not enrolled yet; people and programs use the port with TLS: install the "
    "scheduler's version of gavel and log in there once, with the `gavel login` line from an administrator"
)
"""For clients of an earlier version, while a cluster is being upgraded."""


class CertificateCheck(Protocol):
    """Recognises agents by their certificates."""

    def check(self, certificate: str) -> tuple[str, str]:
        """The identity and name of the agent that has this certificate; InputError if it is not valid."""


class CallRates(Protocol):
    """Limits how often callers call."""

    def admit(self, key: str) -> str | None:
        """None, or a sentence that says when to try again."""


class FailedLogins(Protocol):
    """Counts failed attempts by address."""

    def note(self, address: str) -> None:
        """Count one more."""

    def blocked(self, address: str) -> str | None:
        """A sentence if the address failed too often."""


class RefusedCallError(Exception):
    """A call that is not admitted."""

    def __init__(self, code: grpc.StatusCode, sentence: str, caller: Caller, reason: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.caller = caller
        self.reason = reason


@dataclass(slots=True, kw_only=True)
class Identities:
    """By what callers are recognised. Without accounts the scheduler is open: every caller may do everything."""

    accounts: Accounts | None = None
    sessions: Sessions = field(default_factory=Sessions)
    certificates: CertificateCheck | None = None
    plaintext_agents: bool = False
    """Whether agents without certificates may attach in plaintext, during an upgrade."""


@dataclass(frozen=True, slots=True)
class CallingPeer:
    """What the transport says about a caller."""

    address: str
    encrypted: bool
    local: bool
    """Whether it came through a UNIX socket."""
    certificate: str = ""


def peer_of(peer: str, properties: Mapping[str, Iterable[bytes]]) -> CallingPeer:
    """Read gRPC's description of a connection.

    >>> peer_of("ipv4:10.0.0.7:1234", {"transport_security_type": [b"ssl"]})
    CallingPeer(address='10.0.0.7', encrypted=True, local=False, certificate='')
    """
    certificate = next(iter(properties.get("x509_pem_cert", ())), b"")
    return CallingPeer(
        address=_host(peer),
        encrypted=b"ssl" in properties.get("transport_security_type", ()),
        local=peer.startswith("unix"),
        certificate=certificate.decode(errors="replace"),
    )


def _host(peer: str) -> str:
    """The host in gRPC's name of a connection.

    >>> _host("ipv6:%5B::1%5D:99"), _host("unix:")
    ('::1', 'this machine')
    """
    kind, _, rest = peer.partition(":")
    if kind.startswith("unix"):
        return "this machine"
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")[:100]


class Gate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic only in its stubs
    """Admits calls, and ends open streams of callers that may no longer call."""

    def __init__(
        self,
        identities: Identities,
        clock: Callable[[], float],
        trail: Trail,
        *,
        rates: CallRates | None = None,
        failures: FailedLogins | None = None,
    ) -> None:
        self._identities = identities
        self._clock = clock
        self._trail = trail
        self._rates = rates
        self._failures = failures
        self._streams: dict[Caller, dict[asyncio.Task[Any], Context]] = defaultdict(dict)
        self._ending: set[asyncio.Task[Any]] = set()
        """The event loop itself keeps no reference to tasks."""
        self.refusals: dict[str, int] = defaultdict(int)
        """How many calls were refused, by reason."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return self._guarded(handler, handler_call_details.method.rpartition("/")[2])

    def _guarded(self, handler: Any, method: str) -> Any:
        # One message is read before the handler runs, so it is parsed here, once the caller is admitted; messages of a
        # stream are read by the handler.
        parse = handler.request_deserializer
        packing = {"request_deserializer": None, "response_serializer": handler.response_serializer}
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._call(handler.unary_unary, method, parse), **packing)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._stream(handler.unary_stream, method, parse), **packing)
        packing["request_deserializer"] = parse
        return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream, method, None), **packing)

    def _call(self, inner: Any, method: str, parse: Any) -> Any:
        async def call(packed: Any, context: Context) -> Any:
            await self._admit(method, context)
            return await inner(await _parsed(packed, parse, context), context)

        return call

    def _stream(self, inner: Any, method: str, parse: Any) -> Any:
        async def stream(packed: Any, context: Context) -> AsyncIterator[Any]:
            caller = await self._admit(method, context)
            request = packed if parse is None else await _parsed(packed, parse, context)
            with self._open(caller, context):
                async with aclosing(inner(request, context)) as messages:
                    async for message in messages:
                        yield message

        return stream

    @contextmanager
    def _open(self, caller: Caller, context: Context) -> Any:
        """Remember the task of a stream for as long as it is open."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - gRPC runs every call in a task
        self._streams[caller][task] = context
        try:
            yield
        finally:
            self._streams[caller].pop(task, None)
            if not self._streams[caller]:
                del self._streams[caller]

    async def _admit(self, method: str, context: Context) -> Caller:
        peer = peer_of(context.peer(), context.auth_context())
        given = [(str(key).lower(), value) for key, value in context.invocation_metadata() or ()]
        try:
            self._check_once(given, peer)
            caller = self.admitted(method, peer, dict(given))
        except RefusedCallError as refused:
            self.refusals[refused.reason] += 1
            self._trail.refused(refused.caller, method, str(refused))
            await context.abort(refused.code, str(refused))
            raise AssertionError from None  # abort raises
        set_caller(caller)
        return caller

    def _check_once(self, metadata: Sequence[tuple[str, Any]], peer: CallingPeer) -> None:
        """Refuse a call that names two tokens or two users: what stands before us may have checked the other one."""
        names = [key for key, _ in metadata]
        for name in (AUTHORIZATION, ACTING_FOR):
            if names.count(name) > 1:
                stranger = Caller(user="", role=Role.VIEWER, address=peer.address)
                raise self._failed(f"the call has {name} more than once; send it once", stranger, "ambiguous")

    def admitted(self, method: str, peer: CallingPeer, metadata: Mapping[str, Any]) -> Caller:
        """The caller, if it may call this method; RefusedCallError otherwise."""
        stranger = Caller(user="", role=Role.VIEWER, address=peer.address)
        need = NEEDS.get(method)
        if need is None:
            raise RefusedCallError(grpc.StatusCode.PERMISSION_DENIED, "no one may call this", stranger, "undeclared")
        if need is Need.NOTHING:  # what fails later is counted then, so that a neighbour's failures lock no one out
            if peer.encrypted or peer.local or self._identities.accounts is None:
                return stranger
            raise self._failed(PLAINTEXT, stranger, "plaintext")
        caller = self._acting(self._recognised(peer, metadata, stranger), metadata)
        if not caller.open and not need.met_by(caller.role):
            told = _not_allowed(caller, need) if peer.encrypted or peer.local else PLAINTEXT
            raise RefusedCallError(grpc.StatusCode.PERMISSION_DENIED, told, caller, "role")
        if (sentence := self._too_often(caller)) is not None:
            raise RefusedCallError(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence, caller, "rate")
        return caller

    def _too_often(self, caller: Caller) -> str | None:
        """A sentence if a caller calls too often; that of an open scheduler may."""
        if self._rates is None or caller.open:
            return None
        return self._rates.admit(_key(caller))

    def _recognised(self, peer: CallingPeer, metadata: Mapping[str, Any], stranger: Caller) -> Caller:
        identities = self._identities
        if peer.certificate and identities.certificates is not None:
            try:
                agent, name = identities.certificates.check(peer.certificate)
            except InputError as error:
                raise self._failed(str(error), stranger, "certificate") from None
            return Caller(user="", role=Role.AGENT, address=peer.address, agent=agent, agent_name=name)
        if identities.accounts is None:
            return Caller(user=OPEN_USER, role=Role.ADMIN, address=peer.address, open=True)
        if not peer.encrypted and not peer.local:
            # Agents that have not enrolled yet, during an upgrade; people need a token and encryption.
            if identities.plaintext_agents:
                return Caller(user="", role=Role.AGENT, address=peer.address)
            raise self._failed("this scheduler takes no calls without TLS", stranger, "plaintext")
        text = _token(metadata)
        if text is None:
            raise self._failed("this scheduler needs a token; `gavel login` stores one", stranger, "missing")
        return self._with_token(text, peer, stranger, identities.accounts)

    def _with_token(self, text: str, peer: CallingPeer, stranger: Caller, accounts: Accounts) -> Caller:
        now = self._clock()
        try:
            if text.startswith(SESSION_PREFIX) and peer.local:
                user = accounts.active(self._identities.sessions.user(text, now)[0])
                role, token = user.role, ""
            else:
                known = accounts.recognise(text, now, peer.address)
                user, role, token = known.user, known.role, known.token.id
        except UnknownTokenError as error:
            raise self._failed(str(error), stranger, error.reason) from None
        return Caller(user=user.name, role=role, teams=user.teams, leads=user.leads, address=peer.address, token=token)

    def _failed(self, sentence: str, caller: Caller, reason: str) -> RefusedCallError:
        """A caller that was not recognised; one that fails too often is told only that."""
        if self._failures is not None:
            blocked = self._failures.blocked(caller.address)
            self._failures.note(caller.address)
            if blocked is not None:
                return RefusedCallError(grpc.StatusCode.RESOURCE_EXHAUSTED, blocked, caller, "failures")
        return RefusedCallError(grpc.StatusCode.UNAUTHENTICATED, sentence, caller, reason)

    def _acting(self, caller: Caller, metadata: Mapping[str, Any]) -> Caller:
        """The caller as the user that it acts for."""
        name = metadata.get(ACTING_FOR)
        if not name:
            return caller
        if not caller.open and not caller.operates:
            told = "only operators and administrators act for others"
            raise RefusedCallError(grpc.StatusCode.PERMISSION_DENIED, told, caller, "acting")
        if not isinstance(name, str) or label_fault(name) is not None:
            raise RefusedCallError(grpc.StatusCode.INVALID_ARGUMENT, "this is not a user's name", caller, "acting")
        if self._identities.accounts is None:
            return replace(caller, user=name, by=caller.user)
        user = self._identities.accounts.users.get(name)
        if user is None or user.disabled:
            told = f"there is no user {shortened(name)}, or it is disabled; `gavel user list` lists them"
            raise RefusedCallError(grpc.StatusCode.PERMISSION_DENIED, told, caller, "acting")
        if not caller.role.includes(user.role):
            told = f"{user.name} has the role {user.role}, which is above your own"
            raise RefusedCallError(grpc.StatusCode.PERMISSION_DENIED, told, caller, "acting")
        return replace(caller, user=user.name, role=user.role, teams=user.teams, leads=user.leads, by=caller.user)

    def note_failure(self, address: str) -> str | None:
        """Count a proof that failed after the call was admitted, such as a join token; a sentence if it is too many."""
        if self._failures is None:
            return None
        blocked = self._failures.blocked(address)
        self._failures.note(address)
        return blocked

    def end_streams(self, invalid: Callable[[Caller], bool]) -> int:
        """End the open streams of callers that may no longer call; returns how many."""
        found = [each for caller, streams in self._streams.items() if invalid(caller) for each in streams.items()]
        for task, context in found:
            ending = asyncio.create_task(_ended(task, context))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        return len(found)


async def _parsed(packed: bytes, parse: Callable[[bytes], Any], context: Context) -> Any:
    """The message of an admitted caller."""
    try:
        return parse(packed)
    except Exception:  # noqa: BLE001 - whatever the library raises for bytes that are no message
        told = "the request is not a message of this protocol; use a client of the scheduler's version"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, told)


async def _ended(task: asyncio.Task[Any], context: Context) -> None:
    """End a stream with a status, which the library does not send by itself when a call is cancelled."""
    with suppress(Exception):  # abort raises in any case
        told = "your token, your role or your account has changed; call again, or `gavel login` with a new token"
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, told)
    task.cancel()


def _token(metadata: Mapping[str, Any]) -> str | None:
    given = metadata.get(AUTHORIZATION)
    if not isinstance(given, str) or given[: len(_BEARER)].lower() != _BEARER:
        return None
    return given[len(_BEARER) :].strip(" ") or None


def _key(caller: Caller) -> str:
    """By what calls are counted: the token, the user of a session, or the agent."""
    return caller.token or caller.by or caller.user or caller.agent or caller.agent_name or caller.address


def _not_allowed(caller: Caller, need: Need) -> str:
    if caller.role is Role.AGENT or need is Need.AGENT:
        whom = "agents" if need is Need.AGENT else "people"
        return f"only {whom} may call this, and you are {caller.agent_name or caller.user or 'an agent'}"
    return f"this needs the role {need}, and {caller.user} has the role {caller.role}"
