"""One modelled agent: obeys the scheduler, counts steps by the clock, and runs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from gavel.bench.fleet import agent_messages as messages
from gavel.bench.fleet.load import speed
from gavel.bench.fleet.login import Login, ShownKey
from gavel.wire import CHANNEL_OPTIONS
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

WELCOME_SECONDS = 30.0
SAVING_SECONDS = 0.05
"""From an order to stop until the task has left."""
REMEMBERED = 10_000
"""Number of messages whose send times are kept."""
PAUSE_SECONDS = 0.5, 1.5
"""Between two attempts to connect."""

_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # every agent has its own connection
    ("grpc.enable_retries", 0),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
)


@dataclass(slots=True)
class FleetTally:
    """What the agents of one process have seen since the last report."""

    attached: int = 0
    starts: int = 0
    completed: int = 0
    left: int = 0
    expired: int = 0
    """Tasks whose lease ended before it was renewed."""
    connections_lost: int = 0
    refusals: int = 0
    leases: list[tuple[float, float]] = field(default_factory=list)
    """Arrival of a renewal, and the end of the round that it announces, both on the monotonic clock."""
    acks: list[float] = field(default_factory=list)
    """Seconds from the end of a task to its acknowledgement."""

    def reset(self) -> None:
        """Reset the counts; agents stay attached."""
        attached = self.attached
        self.__init__()  # type: ignore[misc]
        self.attached = attached


@dataclass(slots=True)
class ModelledTask:
    """The ranks of one attempt that run at this agent."""

    start: pb.Start
    speed: float
    began: float
    lease_until: float
    reported: float
    leaving: bool = False
    timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.start.job, self.start.attempt

    @property
    def seconds_left(self) -> float:
        """How long it takes without interruption."""
        return max(self.start.request.steps - self.start.steps_done, 0.0) / self.speed

    def steps(self, now: float) -> float:
        done = self.start.steps_done + (now - self.began) * self.speed
        return min(done, self.start.request.steps)

    def progress(self, now: float, *, saved: bool = False) -> messages.ModelledProgress:
        """Its progress, and what was measured since the last call."""
        seconds, self.reported = now - self.reported, now
        steps = self.steps(now)
        return messages.ModelledProgress(
            job=self.start.job,
            attempt=self.start.attempt,
            first_rank=self.start.first_rank,
            ranks=self.start.ranks,
            steps=steps,
            saved_steps=steps if saved else self.start.steps_done,
            measured_steps=seconds * self.speed,
            measured_seconds=seconds,
        )


class ModelledAgent:
    """Speaks the agent protocol and keeps its promises: ends are repeated until acknowledged, leases are obeyed."""

    def __init__(
        self, name: str, type_name: str, accelerators: int, slack: float, tally: FleetTally, random: np.random.Generator
    ) -> None:
        self._identity = messages.ModelledIdentity(name, uuid.uuid4().hex, type_name, accelerators)
        self._slack = slack
        self._tally = tally
        self._random = random
        self._clock = asyncio.get_running_loop().time
        self._tasks: dict[tuple[str, int], ModelledTask] = {}
        self._number = 0
        self._unacknowledged: dict[int, tuple[pb.FromAgent, float]] = {}
        self._outbox: asyncio.Queue[pb.FromAgent] = asyncio.Queue()
        self._sent: dict[int, float] = {}
        self._greeted_with_tasks = False

    async def run(self, login: Login, shown: ShownKey | None = None) -> None:
        """Stay connected until cancelled or refused for good."""
        while True:
            async with login.channel(_OPTIONS, shown) as channel:
                call = GavelStub(channel).Attach()  # type: ignore[no-untyped-call]
                lost = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError, EOFError)
                try:
                    with contextlib.suppress(*lost):
                        await self._converse(call)
                finally:
                    call.cancel()
            await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))

    async def _converse(self, call: Any) -> None:
        """Introduce the agent, then speak and listen until the stream breaks."""
        self._sent = {}
        await self._write(call, messages.hello(self._identity, self._running()))
        async with asyncio.timeout(WELCOME_SECONDS):
            answer = await _read(call)
        if not answer.HasField("welcome"):
            self._tally.refusals += 1
            return
        self._outbox = asyncio.Queue()
        for number in sorted(self._unacknowledged):
            self._outbox.put_nowait(self._unacknowledged[number][0])
        self._greeted_with_tasks = bool(self._tasks)
        self._tally.attached += 1
        try:
            beats = self._heartbeats(answer.welcome.heartbeat_seconds)
            await _until_one_ends(self._listen(call), self._speak(call), beats)
        finally:
            self._tally.attached -= 1
            self._tally.connections_lost += 1

    # ---- messages to the scheduler ----

    def _running(self) -> list[messages.ModelledProgress]:
        now = self._clock()
        return [task.progress(now) for task in self._tasks.values()]

    async def _speak(self, call: Any) -> None:
        while True:
            await self._write(call, await self._outbox.get())

    async def _write(self, call: Any, message: pb.FromAgent) -> None:
        if not message.number:
            self._number += 1
            message.number = self._number
        if len(self._sent) >= REMEMBERED:
            del self._sent[next(iter(self._sent))]
        self._sent[message.number] = self._clock()
        await call.write(message)

    async def _heartbeats(self, seconds: float) -> None:
        await asyncio.sleep(self._random.uniform(0.0, seconds))  # agents do not all send at once
        while True:
            self._expire()
            self._outbox.put_nowait(messages.heartbeat(self._running()))
            await asyncio.sleep(seconds)

    def _expire(self) -> None:
        """End tasks whose lease has expired."""
        now = self._clock()
        for task in [task for task in self._tasks.values() if now > task.lease_until]:
            self._tally.expired += 1
            self._end(task, done=False, reason="its lease ended")

    def _end(self, task: ModelledTask, *, done: bool, reason: str, saved: bool = True) -> None:
        if self._tasks.pop(task.key, None) is None:
            return
        if task.timer is not None:
            task.timer.cancel()
        now = self._clock()
        if done:
            self._tally.completed += 1
        else:
            self._tally.left += 1
        for message in messages.ended(task.progress(now, saved=saved), done=done, reason=reason):
            self._number += 1
            message.number = self._number
            self._unacknowledged[self._number] = message, now
            self._outbox.put_nowait(message)

    # ---- messages from the scheduler ----

    async def _listen(self, call: Any) -> None:
        while True:
            message = await _read(call)
            match message.WhichOneof("message"):
                case "ack":
                    self._acknowledged(message.ack.number)
                case "start":
                    self._start(message.start, self._since(message.heard) + message.start.lease_seconds)
                case "lease":
                    self._renew(message.lease, self._since(message.heard) + message.lease.seconds)
                case "stop":
                    self._stop(message.stop)

    def _since(self, heard: int) -> float:
        """When the last message that the scheduler had read was sent: leases count from then."""
        return self._sent.get(heard, 0.0) if heard else self._clock()

    def _acknowledged(self, number: int) -> None:
        _, ended_at = self._unacknowledged.pop(number, (None, None))
        if ended_at is not None:
            self._tally.acks.append(self._clock() - ended_at)

    def _start(self, start: pb.Start, lease_until: float) -> None:
        if (start.job, start.attempt) in self._tasks:
            return
        now = self._clock()
        task = ModelledTask(start, speed(self._identity.type), now, lease_until, now)
        self._tasks[task.key] = task
        self._tally.starts += 1
        for message in messages.started(start):
            self._outbox.put_nowait(message)
        task.timer = asyncio.get_running_loop().call_later(task.seconds_left, self._complete, task)

    def _complete(self, task: ModelledTask) -> None:
        self._end(task, done=True, reason="all steps are done")

    def _renew(self, lease: pb.Lease, until: float) -> None:
        now = self._clock()
        jobs = set(lease.jobs)
        for task in self._tasks.values():
            if not task.leaving and (not jobs or task.start.job in jobs):
                task.lease_until = max(task.lease_until, until)
        if self._greeted_with_tasks:
            self._greeted_with_tasks = False  # an answer to a hello, not the renewal of a round
        else:
            self._tally.leases.append((now, now + lease.seconds - self._slack))

    def _stop(self, stop: pb.Stop) -> None:
        task = self._tasks.get((stop.job, stop.attempt))
        if task is None or task.leaving:
            return
        task.leaving = True
        if task.timer is not None:
            task.timer.cancel()
        delay = 0.0 if stop.at_once else SAVING_SECONDS
        task.timer = asyncio.get_running_loop().call_later(delay, self._leave, task, not stop.at_once)

    def _leave(self, task: ModelledTask, saved: bool) -> None:
        self._end(task, done=False, reason="preempted", saved=saved)


async def _read(call: Any) -> pb.ToAgent:
    message = await call.read()
    if not isinstance(message, pb.ToAgent):
        raise EOFError("the scheduler closed the connection")  # noqa: TRY004 - the library's marker for the end of a stream
    return message


async def _until_one_ends(*talks: Coroutine[Any, Any, None]) -> None:
    """Run several tasks until the first ends, and raise its error."""
    tasks = [asyncio.create_task(talk) for talk in talks]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
