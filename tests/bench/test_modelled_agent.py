"""A modelled agent keeps the promises of the agent protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np

from gavel.bench.fleet.agent import FleetTally, ModelledAgent
from gavel.bench.fleet.login import Login
from gavel.wire import gavel_pb2 as pb
from gavel.wire import gavel_pb2_grpc as stubs

PATIENCE_SECONDS = 30.0
WELCOME = pb.ToAgent(welcome=pb.Welcome(heartbeat_seconds=0.05))


class ScriptedScheduler(stubs.GavelServicer):
    """Hands every stream of an agent to the test."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()

    async def Attach(self, requests: AsyncIterator[pb.FromAgent], context: Any) -> None:
        stream = Stream(requests, context)
        self.streams.put_nowait(stream)
        await stream.closed.wait()

    async def next_stream(self) -> Stream:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.streams.get()


class Stream:
    """One connection, as the test speaks over it."""

    def __init__(self, requests: AsyncIterator[pb.FromAgent], context: Any) -> None:
        self.requests = requests
        self.context = context
        self.closed = asyncio.Event()

    async def hear(self, kind: str) -> pb.FromAgent:
        """Wait for the next message of a kind; others are passed over."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for message in self.requests:
                if message.WhichOneof("message") == kind:
                    return message
        raise AssertionError(f"the agent hung up before it said {kind}")

    async def say(self, message: pb.ToAgent) -> None:
        await self.context.write(message)


@asynccontextmanager
async def agent_of(scheduler: ScriptedScheduler, tally: FleetTally) -> AsyncIterator[None]:
    server = grpc.aio.server()
    stubs.add_GavelServicer_to_server(scheduler, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    agent = ModelledAgent("agent0", "v100", 2, 30.0, tally, np.random.default_rng(0))
    running = asyncio.create_task(agent.run(Login(address=f"127.0.0.1:{port}")))
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await server.stop(0)


def start(*, steps: float, lease_seconds: float = 60.0, workers: int = 1, ranks: int = 1) -> pb.ToAgent:
    request = pb.JobRequest(steps=steps)
    return pb.ToAgent(
        start=pb.Start(
            job="7", attempt=3, ranks=ranks, workers=workers, type="v100", request=request, lease_seconds=lease_seconds
        )
    )


def test_an_end_is_repeated_with_its_number_after_a_reconnection_until_it_is_acknowledged() -> None:
    async def story() -> None:
        scheduler, tally = ScriptedScheduler(), FleetTally()
        async with agent_of(scheduler, tally):
            first = await scheduler.next_stream()
            await first.hear("hello")
            await first.say(WELCOME)
            await first.say(start(steps=1.0))
            said = await first.hear("ended")
            assert said.ended.how == pb.TaskEnded.DONE
            first.closed.set()
            second = await scheduler.next_stream()
            await second.hear("hello")
            await second.say(WELCOME)
            assert await second.hear("ended") == said
            assert tally.acks == []
            await second.say(pb.ToAgent(ack=pb.Ack(number=said.number)))
            await second.say(start(steps=1e6, lease_seconds=0.0))
            await second.hear("ended")
            assert len(tally.acks) == 1

    asyncio.run(story())


def test_a_task_whose_lease_ends_leaves_and_is_counted() -> None:
    async def story() -> None:
        scheduler, tally = ScriptedScheduler(), FleetTally()
        async with agent_of(scheduler, tally):
            stream = await scheduler.next_stream()
            await stream.hear("hello")
            await stream.say(WELCOME)
            await stream.say(start(steps=1e6, lease_seconds=0.01))
            assert (await stream.hear("ended")).ended.how == pb.TaskEnded.LEFT
            assert tally.expired == 1

    asyncio.run(story())


def test_a_renewed_task_outlives_its_first_lease_and_leaves_with_its_steps_saved_when_stopped() -> None:
    async def story() -> None:
        scheduler, tally = ScriptedScheduler(), FleetTally()
        async with agent_of(scheduler, tally):
            stream = await scheduler.next_stream()
            await stream.hear("hello")
            await stream.say(WELCOME)
            await stream.say(start(steps=1e6, lease_seconds=0.5))
            await stream.say(pb.ToAgent(lease=pb.Lease(seconds=35.0, jobs=["7"])))
            for _ in range(15):  # 0.75 s
                beat = await stream.hear("heartbeat")
            assert beat.heartbeat.tasks[0].steps > 50.0
            await stream.say(pb.ToAgent(stop=pb.Stop(job="7", attempt=3)))
            status = (await stream.hear("ended")).ended.status
            assert status.saved_steps == status.steps >= beat.heartbeat.tasks[0].steps
            assert tally.expired == 0
            assert len(tally.leases) == 1

    asyncio.run(story())


def test_the_first_rank_of_a_gang_says_where_the_others_find_it_and_every_rank_ends() -> None:
    async def story() -> None:
        scheduler, tally = ScriptedScheduler(), FleetTally()
        async with agent_of(scheduler, tally):
            stream = await scheduler.next_stream()
            await stream.hear("hello")
            await stream.say(WELCOME)
            await stream.say(start(steps=1.0, workers=2, ranks=2))
            ports = [(await stream.hear("started")).started.master_port for _ in range(2)]
            assert [bool(port) for port in ports] == [True, False]
            assert {(await stream.hear("ended")).ended.status.rank for _ in range(2)} == {0, 1}

    asyncio.run(story())
