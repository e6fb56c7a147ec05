"""A stage for agents with certificates: a real server with TLS on both ports, and join tokens that a test makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import grpc
import sqlalchemy as sql

from gavel.errors import InputError
from gavel.journal.store import Journal, Write
from gavel.runtime.agent_wire import pack_to_agent, unpack_from_agent
from gavel.runtime.enrolment_service import Context, EnrolmentCalls, EnrolmentDesk, RedeemedJoin, peer_certificate
from gavel.runtime.messages import AttachRefused, FromAgentFrame, Hello, ToAgentFrame, Welcome
from gavel.security.authority import Authority
from gavel.security.caller import as_caller
from gavel.security.certificates import AGENT_SECONDS
from gavel.security.enrolment import KIND, Enrolment
from gavel.security.roles import Caller, Role
from gavel.security.tls import Source, server_credentials
from gavel.wire import SERVER_OPTIONS
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelServicer, add_GavelServicer_to_server

CLUSTER = "0f3cab"
TOKEN = "gvj_for-one-agent"  # noqa: S105 - of the test


@dataclass
class JoinBook:
    """Join tokens: how often each may still be used, and until when."""

    left: dict[str, int] = field(default_factory=lambda: {TOKEN: 1})
    until: float = float("inf")

    def redeem(self, token: str, now: float) -> RedeemedJoin:
        if now >= self.until:
            raise InputError("the join token has expired; create another with `gavel token create --role agent`")
        if self.left.get(token, 0) < 1:
            raise InputError("the join token is unknown or used up")

        def count() -> None:
            self.left[token] -= 1

        return RedeemedJoin("alice", lambda _: None, count)


class SecureScheduler(EnrolmentCalls, GavelServicer):
    """Enrols agents, and welcomes those that show their certificate."""

    def __init__(
        self,
        folder: Path,
        *,
        lifetime_seconds: float = AGENT_SECONDS,
        clock: Callable[[], float] = time.time,
        server_clock: Callable[[], float] = time.time,
        source: Source | None = None,
        client_authority: bytes | None = None,
    ) -> None:
        self.folder = folder
        self.journal = Journal.open(f"sqlite:///{folder / 'journal.sqlite'}", holder="test")
        self.authority = Authority.create(folder / "security", CLUSTER, ["127.0.0.1"], clock=server_clock)
        own = None if client_authority is not None else self.authority
        self.enrolment = Enrolment.of(own, self.journal.documents(KIND), clock=clock, lifetime_seconds=lifetime_seconds)
        self.tokens = JoinBook()
        self.audited: list[tuple[str, str, str]] = []
        self.source = source or self.authority.shown
        self.client_authority = client_authority or self.authority.authority_pem
        self.welcomed: asyncio.Queue[tuple[Hello, str]] = asyncio.Queue()
        """Each hello that was accepted, and the serial number that came with it."""
        self.refusals: list[str] = []
        self.orders: list[pb.ToAgent] = []
        """What the next agent that attaches is told to do."""
        self._streams: dict[str, asyncio.Event] = {}
        self._server: grpc.aio.Server | None = None
        self._writer = ThreadPoolExecutor(1)
        self.port = self.agents_port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.appear()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.vanish()
        self._writer.shutdown()
        self.journal.close()

    async def appear(self) -> None:
        self._server = server = grpc.aio.server(options=[*SERVER_OPTIONS, ("grpc.so_reuseport", 0)])
        add_GavelServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        self.port = server.add_secure_port(f"127.0.0.1:{self.port}", server_credentials(self.source))
        mutual = server_credentials(self.source, self.client_authority)
        self.agents_port = server.add_secure_port(f"127.0.0.1:{self.agents_port}", mutual)
        self._desk = EnrolmentDesk(
            enrolment=self.enrolment,
            join_tokens=self.tokens,
            write=self._write,
            agents_port=self.agents_port,
            authority=self.authority.authority_pem,
            server_name=self.authority.server_name,
            clock=time.time,
        )
        await server.start()

    async def vanish(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def _write(self, writes: Sequence[Write]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self.journal.write, writes)

    def _audit(self, *, method: str, object: str, what: str) -> Write:  # noqa: A002
        def write(_: sql.Connection) -> None:
            self.audited.append((method, object, what))

        return write

    def agent_state(self, agent: str) -> str:
        return "connected" if agent in self._streams else ""

    def disconnect(self, agent: str) -> None:
        if agent in self._streams:
            self._streams.pop(agent).set()

    async def Attach(self, requests: AsyncIterator[pb.FromAgent], context: Context) -> AsyncIterator[pb.ToAgent]:
        """Welcome an agent as the real scheduler does, and keep its stream until it is disconnected."""
        shown = peer_certificate(context) or ""
        try:
            agent, name = self.enrolment.check(shown) if shown else ("", "")
        except InputError as error:
            self.refusals.append(str(error))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        first = unpack_from_agent(await anext(aiter(requests)))
        assert isinstance(first, FromAgentFrame)
        assert isinstance(first.message, Hello)
        with as_caller(Caller(user="", role=Role.AGENT, agent=agent, agent_name=name)):
            fault = self.hello_fault(first.message, None)
        if fault is not None:
            self.refusals.append(fault)
            yield pack_to_agent(ToAgentFrame(AttachRefused(reason=fault, retry=False), 1))
            return
        yield pack_to_agent(
            ToAgentFrame(Welcome(cluster=CLUSTER, heartbeat_seconds=0.1, checkpoint_grace_seconds=1.0,
                                 terminate_grace_seconds=1.0), 1)
        )  # fmt: skip
        closed = self._streams[first.message.agent] = asyncio.Event()
        self.welcomed.put_nowait((first.message, shown))
        while self.orders:
            yield self.orders.pop(0)
        await closed.wait()
