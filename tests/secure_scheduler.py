"""A fake scheduler behind TLS or a UNIX socket, which asks for tokens and records everything that callers send."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from certificates import Authority, ServerFiles
from fake_scheduler import START, FakeScheduler
from gavel.wire import gavel_pb2 as pb

LOGIN_SUFFIX = ".login"


class _Recorder(grpc.ServerInterceptor):  # type: ignore[type-arg] # at run time it takes none
    """Records the metadata of calls, and refuses calls without a known token."""

    def __init__(self, scheduler: SecureScheduler) -> None:
        self._scheduler = scheduler

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        given = {str(key): str(value) for key, value in handler_call_details.invocation_metadata or ()}
        self._scheduler.calls.append((handler_call_details.method.rpartition("/")[2], given))
        handler = continuation(handler_call_details)
        if given.get("authorization", "").removeprefix("Bearer ") in self._scheduler.tokens:
            return handler
        refuse = self._refuse
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                refuse, handler.request_deserializer, handler.response_serializer
            )
        return grpc.unary_stream_rpc_method_handler(refuse, handler.request_deserializer, handler.response_serializer)

    def _refuse(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002
        context.abort(grpc.StatusCode.UNAUTHENTICATED, self._scheduler.unknown)


class SecureScheduler(FakeScheduler):
    """A scheduler whose calls need a token; for TLS with the files of a server, else on a UNIX socket."""

    def __init__(self, files: ServerFiles | None = None, socket: Path | None = None) -> None:
        self.files, self.socket = files, socket
        self.tokens: dict[str, pb.User] = {}
        """Users by token."""
        self.calls: list[tuple[str, dict[str, str]]] = []
        """Methods that were called, with their metadata."""
        self.unknown = "token ab12 has expired; ask for a new one"
        self.users: dict[str, pb.User] = {}
        self.created: list[pb.CreateTokenRequest] = []
        self.revoked: list[str] = []
        self.configured = ""
        """The address and fingerprint that new tokens come with."""
        self.fingerprint = ""
        self.enrolled = [pb.EnrolledAgent(agent="a1", name="server-1", enrolled=START, expires=2 * START, by="root")]
        self.limit_list: dict[tuple[str, str], pb.LimitsOf] = {}
        self.audited: list[pb.AuditLine] = []
        self.audit_queries: list[pb.AuditQuery] = []
        super().__init__()

    def interceptors(self) -> list[grpc.ServerInterceptor[Any, Any]]:
        return [_Recorder(self)]

    def add_port(self, server: grpc.Server, address: str) -> int:
        if self.socket is not None:
            return server.add_insecure_port(f"unix:{self.socket}")
        if self.files is None:
            return server.add_insecure_port(address)
        credentials = grpc.ssl_server_credentials([(self.files.key, self.files.chain)])
        return server.add_secure_port(address, credentials)

    def admit(self, token: str, name: str = "ann", role: str = "user", teams: Sequence[str] = ("nlp",)) -> str:
        self.tokens[token] = pb.User(name=name, role=role, teams=teams)
        return token

    @property
    def secrets_seen(self) -> set[str]:
        return {given["authorization"] for _, given in self.calls if "authorization" in given}

    def _caller(self, context: grpc.ServicerContext) -> tuple[pb.User, str]:
        given = dict(context.invocation_metadata())
        caller = self.tokens[str(given["authorization"]).removeprefix("Bearer ")]
        return caller, str(given.get("x-gavel-as", ""))

    def WhoAmI(self, request: pb.WhoAmIRequest, context: grpc.ServicerContext) -> pb.WhoAmIReply:  # noqa: ARG002
        user, acting = self._caller(context)
        by = user.name if acting else ""
        return pb.WhoAmIReply(user=acting or user.name, role=user.role, teams=user.teams, by=by, cluster="c1")

    def ListUsers(self, request: pb.ListUsersRequest, context: grpc.ServicerContext) -> pb.UserList:  # noqa: ARG002
        return pb.UserList(users=self.users.values())

    def AddUser(self, request: pb.User, context: grpc.ServicerContext) -> pb.User:
        if request.name in self.users:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"there is a user {request.name!r} already")
        self.users[request.name] = request
        return request

    def ChangeUser(self, request: pb.ChangeUserRequest, context: grpc.ServicerContext) -> pb.User:
        if request.user.name not in self.users:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no user {request.user.name!r}")
        user = self.users[request.user.name]
        for field in request.fields:
            user.ClearField(field)
            user.MergeFrom(pb.User(**{field: getattr(request.user, field)}))
        return user

    def CreateToken(self, request: pb.CreateTokenRequest, context: grpc.ServicerContext) -> pb.NewToken:
        self.created.append(request)
        caller, _ = self._caller(context)
        joins = request.role == "agent"
        view = pb.TokenView(
            id="t1",
            name=request.name,
            user=request.user or caller.name,
            role=request.role or "user",
            expires=2 * START,
            uses_left=(request.uses or 1) if joins else 0,
        )
        token = ("gvj_" if joins else "gvl_") + "n" * 43
        return pb.NewToken(token=token, view=view, address=self.configured, fingerprint=self.fingerprint)

    def ListTokens(self, request: pb.ListTokensRequest, context: grpc.ServicerContext) -> pb.TokenList:  # noqa: ARG002
        view = pb.TokenView(id="t1", name=f"of {request.user or 'me'}", user="ann", role="user", expires=2 * START)
        view.revoked = "t1" in self.revoked
        return pb.TokenList(tokens=[view])

    def RevokeToken(self, request: pb.RevokeTokenRequest, context: grpc.ServicerContext) -> pb.TokenList:
        if request.id != "t1":
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no token {request.id!r}")
        self.revoked.append(request.id)
        return self.ListTokens(pb.ListTokensRequest(), context)

    def ListAgents(self, request: pb.ListAgentsRequest, context: grpc.ServicerContext) -> pb.AgentList:  # noqa: ARG002
        return pb.AgentList(agents=self.enrolled)

    def RevokeAgent(self, request: pb.RevokeAgentRequest, context: grpc.ServicerContext) -> pb.AgentList:
        for agent in self.enrolled:
            if request.agent in (agent.agent, agent.name):
                agent.revoked = True
                return pb.AgentList(agents=self.enrolled)
        context.abort(grpc.StatusCode.NOT_FOUND, f"there is no agent {request.agent!r}")
        raise AssertionError

    def ListLimits(self, request: pb.ListLimitsRequest, context: grpc.ServicerContext) -> pb.LimitList:  # noqa: ARG002
        return pb.LimitList(limits=self.limit_list.values())

    def SetLimits(self, request: pb.LimitsOf, context: grpc.ServicerContext) -> pb.LimitList:
        self.limit_list[request.kind, request.name] = request
        return self.ListLimits(pb.ListLimitsRequest(), context)

    def Audit(self, request: pb.AuditQuery, context: grpc.ServicerContext) -> Iterator[pb.AuditLine]:
        self._take_up(context)
        self.audit_queries.append(request)
        yield from self.audited


class LoginSocket:
    """The socket beside `gavel.sock` that hands out tokens of sessions."""

    def __init__(self, path: Path, answer: Callable[[], bytes]) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.sendall(answer())

        self.path = Path(f"{path}{LOGIN_SUFFIX}")
        self._server = socketserver.ThreadingUnixStreamServer(str(self.path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.path.unlink(missing_ok=True)


def answer_with(token: str, user: str = "ann") -> bytes:
    return json.dumps({"token": token, "user": user, "expires": 2 * START}).encode() + b"\n"


def tls_scheduler(authority: Authority, **how: Any) -> SecureScheduler:
    """A scheduler with a certificate of an authority."""
    return SecureScheduler(authority.server(**how))
