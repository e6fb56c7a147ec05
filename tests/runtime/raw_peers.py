"""A real scheduler on loopback, and peers that say whatever a test wants: messages are made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from gavel.runtime.server import FleetSettings, Running, ServeSettings, serving
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

LONGEST = 60.0
"""Nothing here takes this long unless it hangs."""


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run an asynchronous test."""
    asyncio.run(asyncio.wait_for(scene, LONGEST))


@dataclass
class RawAgent:
    """An agent without processes."""

    call: Any
    name: str
    received: list[pb.ToAgent] = field(default_factory=list)
    number: int = 0

    async def say(self, **message: Any) -> None:
        """Send one message."""
        self.number += 1
        await self.call.write(pb.FromAgent(number=self.number, **message))

    async def hear(self, kind: str, which: Callable[[Any], bool] = lambda _: True) -> Any:
        """Read until a message of this kind comes."""
        while True:
            message = await self.call.read()
            assert isinstance(message, pb.ToAgent), f"the stream of {self.name} ended"
            self.received.append(message)
            if message.WhichOneof("message") == kind and which(getattr(message, kind)):
                return getattr(message, kind)

    async def in_order(self) -> None:
        """Wait until the scheduler has read everything that was said: an end of an unknown task is acknowledged."""
        await self.say(ended=pb.TaskEnded(status=pb.TaskStatus(job="none")))
        number = self.number
        await self.hear("ack", lambda ack: ack.number == number)


@dataclass
class Site:
    """A scheduler, and the way to it."""

    running: Running
    channel: grpc.aio.Channel
    folder: Path

    @property
    def stub(self) -> Any:
        return GavelStub(self.channel)  # type: ignore[no-untyped-call]

    async def agent(self, name: str, count: int = 1, **fields: Any) -> RawAgent:
        """Attach an agent, and wait for its welcome."""
        agent = RawAgent(self.stub.Attach(), name)
        kinds = [pb.Accelerators(type="v100", count=count)]
        hello = {"accelerators": kinds, "agent": f"id-{name}", "incarnation": "1", "protocol": PROTOCOL, **fields}
        await agent.say(hello=pb.Hello(name=name, **hello))
        await agent.hear("welcome")
        return agent

    async def submit(self, **fields: Any) -> str:
        """Submit a job, and return its id."""
        request = {"command": ["train"], "template": "mine", "steps": 1e6, "workers": 1, "retries": 3, **fields}
        reply = await self.stub.Submit(pb.SubmitRequest(jobs=[pb.JobRequest(**request)]))
        return str(reply.ids[0])


@asynccontextmanager
async def site(folder: Path, **settings: Any) -> AsyncIterator[Site]:
    """Serve on loopback, with rounds that a test need not wait for."""
    fleet = FleetSettings(heartbeat_seconds=30.0, agent_timeout_seconds=600.0)
    told = {"round_seconds": 600.0, "fleet": fleet, **settings}
    async with (
        serving(ServeSettings(folder=folder / "state", listen="127.0.0.1:0", **told)) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        yield Site(running, channel, folder)
