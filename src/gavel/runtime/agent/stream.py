"""The stream between an agent and its scheduler: dialled again for ever, and no word of an end is lost on the way."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any, Protocol

import grpc

from gavel.errors import InputError
from gavel.runtime.agent.logs import Log
from gavel.runtime.agent.settings import AgentSettings
from gavel.wire import CHANNEL_OPTIONS
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

WELCOME_SECONDS = 10.0
"""How long a scheduler may take to answer a Hello."""
LOG_SECONDS = 0.2
"""How often logs are sent."""
HURRY_SECONDS = 0.02
MISSED = 5
"""An agent dials again at least once in so many heartbeats: the scheduler waits longer than that for it."""
COMPLAIN_SECONDS = 60.0
"""How often an agent says that there is no scheduler."""

REMEMBERED = 10_000
"""Of how many messages it is known when they were sent: the scheduler is not further behind."""

_OPTIONS = (
    *CHANNEL_OPTIONS,
    # We decide ourselves when to dial again, with a connection of our own.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_http_proxy", 0),  # schedulers are near; proxies are for what is far
)


class AgentRefusedError(InputError):
    """The scheduler will not have this agent; trying again does not help."""


class _RefusedError(Exception):
    def __init__(self, refused: pb.Refused) -> None:
        super().__init__(refused.reason or "it does not say why")
        self.retry = refused.retry


class _LostError(Exception):
    """The stream is over."""


_LOST = (_LostError, grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError, OSError)
_RANDOM = SystemRandom()
"""So that agents do not all dial at the same moment."""


class Desk(Protocol):
    """Who speaks over the stream."""

    async def hello(self) -> pb.Hello:
        """Introduce the agent."""
        ...

    def attached(self, welcome: pb.Welcome) -> Iterable[pb.FromAgent]:
        """Hear that the scheduler is there, and say what it must know first."""
        ...

    def lost(self) -> None:
        """Hear that it is gone."""
        ...

    def heartbeat(self) -> pb.Heartbeat:
        """Say how all is."""
        ...

    def logs(self) -> Iterable[tuple[pb.TaskStatus, Log]]:
        """Name the logs that may have grown."""
        ...

    def take(self, message: pb.ToAgent, sent_after: float) -> None:
        """Do as the scheduler says; it said so after this time by the clock of the event loop."""
        ...

    def say(self, sentence: str) -> None:
        """Tell whoever looks after the agent."""
        ...


@dataclass
class _Ending:
    """An end of which the scheduler has not yet said that it knows."""

    message: pb.FromAgent
    log: Log | None


@dataclass
class _Connection:
    """One stream while it lasts."""

    call: Any
    clock: asyncio.AbstractEventLoop
    sent: dict[int, float] = field(default_factory=dict)
    """When each message was sent that the scheduler may say it has heard, by number."""
    unheard: deque[tuple[pb.FromAgent, Log, int]] = field(default_factory=deque)
    """Parts of logs that were sent, with how far each goes, as long as the scheduler may not have heard them."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(self, message: pb.FromAgent) -> None:
        async with self.turn:
            if len(self.sent) >= REMEMBERED:
                del self.sent[next(iter(self.sent))]
            self.sent[message.number] = self.clock.time()
            await self.call.write(message)

    async def read(self) -> pb.ToAgent:
        message = await self.call.read()
        if not isinstance(message, pb.ToAgent):
            raise _LostError(await self.call.details() or "it hung up")
        if message.HasField("refused"):
            raise _RefusedError(message.refused)
        return message

    def heard(self, number: int) -> float:
        """Find when the message was sent that the scheduler had heard; the present if it does not say."""
        return self.sent.get(number, 0.0) if number else self.clock.time()

    def confirm(self, number: int) -> None:
        """Take note of what the scheduler has heard."""
        while self.unheard and self.unheard[0][0].number <= number:
            _, log, end = self.unheard.popleft()
            log.sure = end

    def rewind(self) -> None:
        """Say the rest of all logs again, in another connection."""
        for _, log, _ in self.unheard:
            log.rewind()


class Stream:
    """Keeps the connection, numbers what is said, and repeats ends until they are acknowledged."""

    def __init__(self, settings: AgentSettings, desk: Desk) -> None:
        self._scheduler = settings.scheduler
        self._pauses = settings.first_pause_seconds, settings.longest_pause_seconds
        self._patience = settings.patience_seconds
        self._desk = desk
        self._number = 0
        self._endings: dict[int, _Ending] = {}
        self._queue: deque[pb.FromAgent] = deque()
        self._more = asyncio.Event()
        self._beat = asyncio.Event()
        self._told = asyncio.Event()
        self._told.set()
        self._refused_since: float | None = None
        self._complained = -COMPLAIN_SECONDS
        self.attached = False

    # ---- what the agent says ----

    def started(self, message: pb.TaskStarted) -> None:
        """Say that a task runs."""
        self.post(pb.FromAgent(started=message))

    def post(self, message: pb.FromAgent) -> None:
        """Say something once, if the scheduler is there; otherwise it hears the state of things when it comes."""
        if self.attached:
            self._queue.append(message)
            self._more.set()

    def ended(self, message: pb.TaskEnded, log: Log | None) -> None:
        """Say that a task has ended, until the scheduler knows."""
        self._number += 1
        numbered = pb.FromAgent(ended=message, number=self._number)
        self._endings[self._number] = _Ending(numbered, log)
        self._told.clear()
        self.post(numbered)

    def is_ending(self, key: tuple[str, int]) -> bool:
        """Whether an end of this attempt was said that the scheduler may not know."""
        statuses = (ending.message.ended.status for ending in self._endings.values())
        return any((status.job, status.attempt) == key for status in statuses)

    def hurry(self) -> None:
        """Send a heartbeat now."""
        self._beat.set()

    async def all_told(self) -> None:
        """Wait until the scheduler knows of every end."""
        await self._told.wait()

    def acknowledge(self, number: int) -> None:
        """Forget an end that the scheduler knows."""
        ending = self._endings.pop(number, None)
        if ending is not None and ending.log is not None:
            ending.log.tidy()
        if not self._endings:
            self._told.set()

    def tidy(self) -> None:
        """Give up what could not be said."""
        for number in list(self._endings):
            self.acknowledge(number)

    # ---- how the connection is kept ----

    async def run(self) -> None:
        """Dial, and dial again; ends only by AgentRefusedError or cancellation."""
        pause, _ = self._pauses
        while True:
            was_attached, sentence = await self._connect()
            self._complain(f"{sentence}; trying again", at_once=was_attached)
            first, longest = self._pauses
            pause = first if was_attached else min(longest, 2 * pause)
            await asyncio.sleep(pause * _RANDOM.uniform(0.8, 1.2))

    async def _connect(self) -> tuple[bool, str]:
        """Hold one connection to its end: whether it came about, and a sentence about its end."""
        async with grpc.aio.insecure_channel(self._scheduler, options=_OPTIONS) as channel:
            call = GavelStub(channel).Attach()  # type: ignore[no-untyped-call]
            connection = _Connection(call, asyncio.get_running_loop())
            try:
                await self._converse(connection, await self._introduce(connection))
            except _RefusedError as refused:
                self._refused(refused)
                return self.attached, f"the scheduler at {self._scheduler} does not take this agent yet: {refused}"
            except _LOST as error:
                what = "lost the scheduler" if self.attached else "no scheduler answers"
                return self.attached, f"{what} at {self._scheduler} ({await _in_words(error, call)})"
            finally:
                call.cancel()
                connection.rewind()
                if self.attached:
                    self.attached = False
                    self._desk.lost()
        raise AssertionError  # a conversation ends by an error only

    async def _introduce(self, connection: _Connection) -> pb.Welcome:
        await self._send(connection, pb.FromAgent(hello=await self._desk.hello()))
        async with asyncio.timeout(WELCOME_SECONDS):  # wait_for may lose a cancellation
            answer = await connection.read()
        if not answer.HasField("welcome"):
            raise _LostError("it does not answer as a scheduler does")
        return answer.welcome

    async def _converse(self, connection: _Connection, welcome: pb.Welcome) -> None:
        self._refused_since = None
        self.attached = True
        first, longest = self._pauses
        self._pauses = first, min(longest, MISSED * (welcome.heartbeat_seconds or 1.0))
        endings = [self._endings[number].message for number in sorted(self._endings)]
        self._queue = deque([*self._desk.attached(welcome), *endings])
        self._more.set()
        await _until_one_ends(
            self._read(connection),
            self._heartbeats(connection, welcome.heartbeat_seconds or 1.0),
            self._deliver(connection),
            self._send_logs(connection),
        )

    async def _send(self, connection: _Connection, message: pb.FromAgent) -> None:
        if not message.number:
            self._number += 1
            message.number = self._number
        await connection.send(message)

    async def _read(self, connection: _Connection) -> None:
        while True:
            message = await connection.read()
            if message.HasField("ack"):
                self.acknowledge(message.ack.number)
            else:
                connection.confirm(message.heard)
                self._desk.take(message, connection.heard(message.heard))

    async def _heartbeats(self, connection: _Connection, seconds: float) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._beat.wait()
                    await asyncio.sleep(HURRY_SECONDS)  # others may be in a hurry for the same reason
            self._beat.clear()
            heartbeat = self._desk.heartbeat()
            # A task is listed until its end is on its way: one that is missing without a word counts as lost.
            heartbeat.tasks.extend(message.ended.status for message in self._queue if message.HasField("ended"))
            await self._send(connection, pb.FromAgent(heartbeat=heartbeat))

    async def _deliver(self, connection: _Connection) -> None:
        while True:
            while self._queue:
                message = self._queue[0]
                ending = self._endings.get(message.number)
                if ending is not None and ending.log is not None:
                    await self._send_log(connection, message.ended.status, ending.log)
                self._queue.popleft()
                await self._send(connection, message)
            self._more.clear()
            await self._more.wait()

    async def _send_logs(self, connection: _Connection) -> None:
        while True:
            await asyncio.sleep(LOG_SECONDS)
            for status, log in list(self._desk.logs()):
                await self._send_log(connection, status, log, chunks=1)

    async def _send_log(
        self, connection: _Connection, status: pb.TaskStatus, log: Log, chunks: int = sys.maxsize
    ) -> None:
        while chunks and (news := log.news())[1]:
            begin, data = news
            line = pb.TaskLog(job=status.job, attempt=status.attempt, rank=status.rank, begin=begin, data=data)
            message = pb.FromAgent(log=line)
            connection.unheard.append((message, log, log.sent))
            await self._send(connection, message)
            chunks -= 1

    def _refused(self, refused: _RefusedError) -> None:
        """Give up, unless the refusal may pass and has not lasted long."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        if not refused.retry or now - self._refused_since >= self._patience:
            raise AgentRefusedError(f"the scheduler at {self._scheduler} refuses this agent: {refused}") from None

    def _complain(self, sentence: str, *, at_once: bool) -> None:
        """Say that the scheduler is not there: when it goes, and then once a minute."""
        now = asyncio.get_running_loop().time()
        if at_once or now - self._complained >= COMPLAIN_SECONDS:
            self._complained = now
            self._desk.say(sentence)


async def _until_one_ends(*talks: Coroutine[Any, Any, None]) -> None:
    """Run several until one is over, which only an error ends; that is raised."""
    tasks = [asyncio.create_task(talk) for talk in talks]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _in_words(error: Exception, call: Any) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, asyncio.InvalidStateError) and call.done():
        # It was over before we could write; why is known to the call alone.
        return _shortened(await call.code(), await call.details())
    if isinstance(error, grpc.aio.AioRpcError):
        return _shortened(error.code(), error.details())
    return str(error) or type(error).__name__


def _shortened(code: grpc.StatusCode, details: str | None) -> str:
    """Leave the essential of what the library says.

    >>> text = "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: connect: Refused (111)"
    >>> _shortened(grpc.StatusCode.UNAVAILABLE, text)
    'Refused'
    """
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return "what listens there is not a scheduler"
    last = (details or code.name.lower().replace("_", " ")).rpartition(": ")[2]
    return re.sub(r" \(\d+\)$", "", last)
