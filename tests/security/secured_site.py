"""A real secured scheduler on loopback, with users of every role, agents with certificates, and raw access to all."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from gavel.runtime.listening import Listening, server_names
from gavel.runtime.server import FleetSettings, Running, ServeSettings, open_journal, serving
from gavel.security.setup import set_up
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

LONGEST = 90.0
"""Nothing here takes this long unless it hangs."""
USERS = {
    "vic": pb.User(name="vic", role="viewer", teams=["nlp"]),
    "ann": pb.User(name="ann", role="user", teams=["nlp"]),
    "amy": pb.User(name="amy", role="user", teams=["nlp"]),
    "bob": pb.User(name="bob", role="user", teams=["vision"]),
    "liz": pb.User(name="liz", role="user", teams=["nlp"], leads=["nlp"]),
    "oda": pb.User(name="oda", role="operator"),
    "max": pb.User(name="max", role="admin"),
}
"""Two of one team, one of another, its lead, an operator and an administrator."""


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run an asynchronous test."""
    asyncio.run(asyncio.wait_for(scene, LONGEST))


@dataclass
class SecuredSite:
    """A scheduler, and ways to it."""

    running: Running
    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.running.address

    @property
    def agents_address(self) -> str:
        return f"127.0.0.1:{self.running.bound.agents_port}"

    @property
    def authority(self) -> Any:
        assert self.running.secured is not None
        return self.running.secured.authority

    def channel(
        self,
        address: str | None = None,
        *,
        roots: bytes | None = None,
        key: bytes | None = None,
        chain: bytes | None = None,
    ) -> grpc.aio.Channel:
        """A channel that checks the scheduler as our clients do; with a key, it shows a certificate, too."""
        trusted = grpc.ssl_channel_credentials(roots or self.authority.authority_pem, key, chain)
        named = (("grpc.ssl_target_name_override", self.authority.server_name),)
        found = grpc.aio.secure_channel(address or self.address, trusted, options=named)
        self.channels.append(found)
        return found

    def stub(self, channel: grpc.aio.Channel | None = None) -> Any:
        return GavelStub(channel or self.channel())  # type: ignore[no-untyped-call]

    def plain(self, address: str | None = None) -> Any:
        """A stub without TLS."""
        found = grpc.aio.insecure_channel(address or self.address)
        self.channels.append(found)
        return self.stub(found)

    async def call(self, method: str, request: Any, user: str = "", *, token: str = "", acting_for: str = "") -> Any:
        """Call as a user, or with any token."""
        return await getattr(self.stub(), method)(request, metadata=self.metadata(user, token, acting_for), timeout=30)

    def metadata(self, user: str = "", token: str = "", acting_for: str = "") -> tuple[tuple[str, str], ...]:
        shown = token or (self.tokens[user] if user else "")
        found = [("authorization", f"Bearer {shown}")] if shown else []
        return (*found, *([("x-gavel-as", acting_for)] if acting_for else []))

    async def submit(self, user: str, **fields: Any) -> str:
        """Submit a job, and return its id."""
        given: dict[str, Any] = {"command": ["train"], "workers": 1, "weight": 1.0, "steps": 10.0, **fields}
        reply = await self.call("Submit", pb.SubmitRequest(jobs=[pb.JobRequest(**given)]), user)
        return str(reply.ids[0])


@asynccontextmanager
async def secured_site(folder: Path, *, users: bool = True, **listening: Any) -> AsyncIterator[SecuredSite]:
    """Set up and start a secured scheduler, with all users unless told otherwise."""
    with tempfile.TemporaryDirectory(prefix="gavel-") as short:  # paths of sockets are limited
        wanted = Listening(socket=Path(short) / "gavel.sock", **listening)
        settings = ServeSettings(
            listen="127.0.0.1:0",
            folder=folder / "state",
            round_seconds=1.0,
            listening=wanted,
            fleet=FleetSettings(heartbeat_seconds=0.2, agent_timeout_seconds=5.0),
        )
        _set_up(settings)
        async with serving(settings) as running:
            site = SecuredSite(running, folder)
            site.tokens["root"] = (folder / "state" / "security" / "admin.token").read_text().strip()
            for name, user in USERS.items() if users else ():
                await site.call("AddUser", user, "root")
                site.tokens[name] = (await site.call("CreateToken", pb.CreateTokenRequest(user=name), "root")).token
            try:
                yield site
            finally:
                for channel in site.channels:
                    await channel.close(None)


def _set_up(settings: ServeSettings) -> None:
    settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open_journal(settings) as journal:
        set_up(settings.folder, journal, server_names(settings.listen, settings.listening), time.time)
