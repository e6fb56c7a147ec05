"""The stream between an agent and its scheduler: reconnects forever, and loses no report of an ending.

Endings are sent before the rest of their logs: a scheduler that cannot keep a log must still hear of the ending.
"""

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
from gavel.runtime.agent.identity import AgentIdentity, OlderSchedulerError, OtherClusterError
from gavel.runtime.agent.logs import LogFile
from gavel.runtime.agent.settings import AgentSettings
from gavel.runtime.agent_wire import pack_from_agent, unpack_to_agent
from gavel.runtime.messages import (
    Ack,
    AttachRefused,
    FromAgent,
    FromAgentFrame,
    Heartbeat,
    Hello,
    TaskEnded,
    TaskLog,
    TaskStarted,
    TaskStatus,
    ToAgent,
    ToAgentFrame,
    Welcome,
)
from gavel.wire import CHANNEL_OPTIONS
from gavel.wire.gavel_pb2_grpc import GavelStub

WELCOME_SECONDS = 10.0
"""How long a scheduler may take to answer a Hello."""
LOG_SECONDS = 0.2
"""How often logs are sent."""
LOG_CHUNKS = 8
"""How many chunks of one log are sent each time."""
HURRY_SECONDS = 0.02
TERMINAL_CHUNKS = 4
"""How many chunks of a terminal's output are sent before the next terminal has its turn."""
MISSED = 5
"""An agent reconnects at least once in this many heartbeats: the scheduler waits longer than that for it."""
COMPLAIN_SECONDS = 60.0
"""How often an agent repeats that it cannot reach the scheduler."""

REMEMBERED = 10_000
"""How many messages' send times are remembered: the scheduler is not further behind."""
KEPT_LOGS = 1_000
"""How many ended tasks have their logs resent when the connection breaks before an acknowledgement."""

_OPTIONS = (
    *CHANNEL_OPTIONS,
    # We decide ourselves when to reconnect, with a new channel.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_http_proxy", 0),  # schedulers are on the local network; proxies are not
)


class AgentRefusedError(InputError):
    """The scheduler rejects this agent; trying again does not help."""


class _RefusedError(Exception):
    def __init__(self, refused: AttachRefused) -> None:
        super().__init__(refused.reason or "it does not say why")
        self.retry = refused.retry


class _LostError(Exception):
    """The stream has ended."""


_LOST = (_LostError, grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError, OSError)
_UNACCEPTED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_RANDOM = SystemRandom()
"""Random pauses, so that agents do not all reconnect at the same moment."""


class Desk(Protocol):
    """The agent's side of the stream."""

    async def hello(self) -> Hello:
        """Introduce the agent."""
        ...

    def attached(self, welcome: Welcome) -> Iterable[FromAgent]:
        """Note that the scheduler is connected, and return what it must hear first."""
        ...

    def lost(self) -> None:
        """Note that the connection is lost."""
        ...

    def busy(self) -> bool:
        """Whether tasks run here, or wait to."""
        ...

    def heartbeat(self) -> Heartbeat:
        """Report on all tasks."""
        ...

    def logs(self) -> Iterable[Printed]:
        """Name the logs that may have grown."""
        ...

    def take(self, message: ToAgent, sent_after: float) -> None:
        """Carry out an order that was sent after this time, by the clock of the event loop."""
        ...

    def say(self, sentence: str) -> None:
        """Tell the agent's operator."""
        ...


@dataclass(frozen=True, slots=True)
class Printed:
    """The log of a task, and the task's ids in the protocol."""

    job: str
    attempt: int
    rank: int
    log: LogFile
    terminal: bool = False
    """Whether a user may be waiting for it."""

    def news(self) -> TaskLog | None:
        """The next chunk that the scheduler has not got yet; None: it has everything."""
        begin, data = self.log.news()
        if not data:
            return None
        return TaskLog(job=self.job, attempt=self.attempt, rank=self.rank, data=data, begin=begin)


@dataclass
class _Connection:
    """One stream, while it lasts."""

    call: Any
    clock: asyncio.AbstractEventLoop
    sent: dict[int, float] = field(default_factory=dict)
    """By number: when each message was sent that the scheduler may acknowledge."""
    unheard: deque[tuple[int, LogFile, int]] = field(default_factory=deque)
    """Parts of logs that the scheduler may not have received: the number of each, and how far it goes."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(self, frame: FromAgentFrame) -> None:
        async with self.turn:
            if len(self.sent) >= REMEMBERED:
                del self.sent[next(iter(self.sent))]
            self.sent[frame.number] = self.clock.time()
            await self.call.write(pack_from_agent(frame))

    async def read(self) -> ToAgentFrame:
        """Wait for the next frame of a known kind."""
        while True:
            packed = await self.call.read()
            if packed is grpc.aio.EOF:  # type: ignore[attr-defined] # its stubs lack it
                raise _LostError(await self.call.details() or "it closed the connection")
            frame = unpack_to_agent(packed)
            if frame is not None:
                return frame

    def heard(self, number: int) -> float:
        """When the last message that the scheduler had heard was sent; now, if it does not say."""
        return self.sent.get(number, 0.0) if number else self.clock.time()

    def confirm(self, number: int) -> bool:
        """Record what the scheduler has heard; return whether that included log data."""
        before = len(self.unheard)
        while self.unheard and self.unheard[0][0] <= number:
            _, log, end = self.unheard.popleft()
            log.sure = end
        return len(self.unheard) < before

    def rewind(self) -> None:
        """Send the rest of all logs again, in another connection."""
        for _, log, _ in self.unheard:
            log.rewind()


class SchedulerStream:
    """Keeps the connection, numbers messages, and repeats endings until they are acknowledged."""

    def __init__(self, settings: AgentSettings, identity: AgentIdentity, desk: Desk) -> None:
        self._identity = identity
        self._scheduler = settings.scheduler
        self._credentials = settings.credentials
        self._pauses = settings.first_pause_seconds, settings.longest_pause_seconds
        self._patience = settings.patience_seconds
        self._desk = desk
        self._number = 0
        self._endings: dict[int, TaskEnded] = {}
        """By number: endings that the scheduler has not acknowledged yet."""
        self._rests: dict[int, Printed] = {}
        """By number of the ending: logs of ended tasks that the scheduler may not have completely."""
        self._queue: deque[FromAgentFrame] = deque()
        self._more = asyncio.Event()
        self._beat = asyncio.Event()
        self._shown = asyncio.Event()
        self._told = asyncio.Event()
        self._told.set()
        self._refused_since: float | None = None
        self._complained = -COMPLAIN_SECONDS
        self._ignored: set[str] = set()
        """Messages about ignored schedulers: each is printed once."""
        self.attached = False

    # ---- messages of the agent ----

    def started(self, message: TaskStarted) -> None:
        """Report that a task runs."""
        self.post(message)

    def post(self, message: FromAgent, number: int = 0) -> None:
        """Send a message once, if connected; otherwise the scheduler hears the current state when it connects."""
        if self.attached:
            self._queue.append(FromAgentFrame(number, message))
            self._more.set()

    def ended(self, message: TaskEnded, log: LogFile | None) -> None:
        """Report that a task has ended until the scheduler acknowledges it; then send the rest of its log."""
        self._number += 1
        self._endings[self._number] = message
        if log is not None:
            status = message.status
            self._rests[self._number] = Printed(status.job, status.attempt, status.rank, log)
            if len(self._rests) > KEPT_LOGS:
                self._finish_log(next(iter(self._rests)))
        self._told.clear()
        self.post(message, self._number)

    def is_ending(self, key: tuple[str, int]) -> bool:
        """Whether this attempt has an ending that the scheduler may not know yet."""
        return any((ending.status.job, ending.status.attempt) == key for ending in self._endings.values())

    def hurry(self) -> None:
        """Send a heartbeat now."""
        self._beat.set()

    def show(self) -> None:
        """Send what terminals show now."""
        self._shown.set()

    async def all_told(self) -> None:
        """Wait until the scheduler knows every ending and was sent every log."""
        await self._told.wait()

    def _acknowledge(self, number: int) -> None:
        """Forget an ending that the scheduler knows."""
        self._endings.pop(number, None)
        if number in self._rests and self._rests[number].log.is_sure:
            self._finish_log(number)
        self._look_if_told()

    def _look_if_told(self) -> None:
        if not self._endings and not self._queue and all(rest.log.is_sent for rest in self._rests.values()):
            self._told.set()

    def _finish_log(self, number: int) -> None:
        """Send no more of a log."""
        rest = self._rests.pop(number, None)
        if rest is not None:
            rest.log.tidy()

    def tidy(self) -> None:
        """Drop what could not be sent."""
        self._endings.clear()
        for number in list(self._rests):
            self._finish_log(number)
        self._told.set()

    # ---- keeping the connection ----

    async def run(self) -> None:
        """Connect, and reconnect; ends only by AgentRefusedError or cancellation."""
        pause, _ = self._pauses
        while True:
            was_attached, sentence = await self._connect()
            if sentence:
                self._complain(f"{sentence}; trying again", at_once=was_attached)
            first, longest = self._pauses
            pause = first if was_attached else min(longest, 2 * pause)
            await asyncio.sleep(pause * _RANDOM.uniform(0.8, 1.2))

    async def _connect(self) -> tuple[bool, str]:
        """Hold one connection to its end; return whether it was established, and a message if there is one to print."""
        if self._credentials is not None and (fault := self._credentials.fault()) is not None:
            return False, fault
        async with self._channel() as channel:
            call = GavelStub(channel).Attach()  # type: ignore[no-untyped-call]
            connection = _Connection(call, asyncio.get_running_loop())
            try:
                await self._converse(connection, await self._introduce(connection))
            except OlderSchedulerError as older:
                self._say_once(str(older))
                return self.attached, ""
            except OtherClusterError as other:
                self._say_once(f"the scheduler at {self._scheduler} is ignored: {other}")
                return self.attached, ""
            except _RefusedError as refused:
                self._refused(refused)
                return self.attached, f"the scheduler at {self._scheduler} does not accept this agent yet: {refused}"
            except _LOST as error:
                if await _code(error, call) in _UNACCEPTED:
                    return self.attached, self._unaccepted(await _in_words(error, call))
                what = "lost the scheduler" if self.attached else "no scheduler answers"
                return self.attached, f"{what} at {self._scheduler} ({await _in_words(error, call)})"
            finally:
                call.cancel()
                connection.rewind()
                if self.attached:
                    self.attached = False
                    self._desk.lost()
        raise AssertionError  # a conversation ends only with an error

    def _channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._scheduler, options=_OPTIONS)
        return self._credentials.channel(_OPTIONS)

    def _unaccepted(self, reason: str) -> str:
        """Show an earlier certificate if there is one; otherwise give up, unless that has not lasted long."""
        if self._credentials is not None and self._credentials.rejected():
            return f"the scheduler at {self._scheduler} does not accept the new certificate ({reason}); using the last"
        self._refused(_RefusedError(AttachRefused(reason=reason, retry=True)))
        return f"the scheduler at {self._scheduler} does not accept this agent: {reason}"

    async def _introduce(self, connection: _Connection) -> Welcome:
        await self._send(connection, await self._desk.hello())
        async with asyncio.timeout(WELCOME_SECONDS):  # wait_for may lose a cancellation
            answer = (await self._receive(connection)).message
        if not isinstance(answer, Welcome):
            raise _LostError("it does not answer like a scheduler")
        return answer

    async def _receive(self, connection: _Connection) -> ToAgentFrame:
        """Wait for a frame that may be obeyed; its cluster and term are on disk by then."""
        frame = await connection.read()
        if self._identity.is_news(frame):
            left = await asyncio.to_thread(self._identity.follow, frame, busy=self._desk.busy())
            if left:
                self._change_over(left)
        if isinstance(frame.message, AttachRefused):
            raise _RefusedError(frame.message)
        return frame

    def _change_over(self, left: str) -> None:
        """Serve another cluster, which must not hear about jobs of the previous one: they may have the same ids."""
        untold = f", which was not told about {len(self._endings)} ended tasks" if self._endings else ""
        self.tidy()
        self._desk.say(f"this agent now serves cluster {self._identity.cluster}; it has left cluster {left}{untold}")

    async def _converse(self, connection: _Connection, welcome: Welcome) -> None:
        self._refused_since = None
        self.attached = True
        if self._credentials is not None:
            self._credentials.accepted()
        first, longest = self._pauses
        self._pauses = first, min(longest, MISSED * (welcome.heartbeat_seconds or 1.0))
        endings = [FromAgentFrame(number, self._endings[number]) for number in sorted(self._endings)]
        self._queue = deque([*(FromAgentFrame(0, message) for message in self._desk.attached(welcome)), *endings])
        self._more.set()
        await _until_one_ends(
            self._read(connection),
            self._heartbeats(connection, welcome.heartbeat_seconds or 1.0),
            self._deliver(connection),
            self._send_logs(connection),
            self._send_terminals(connection),
        )

    async def _send(self, connection: _Connection, message: FromAgent, number: int = 0) -> None:
        if not number:
            self._number += 1
            number = self._number
        await connection.send(FromAgentFrame(number, message))

    async def _read(self, connection: _Connection) -> None:
        while True:
            frame = await self._receive(connection)
            if connection.confirm(frame.heard):
                self._drop_heard_logs()
            if isinstance(frame.message, Ack):
                self._acknowledge(frame.message.number)
            else:
                self._desk.take(frame.message, connection.heard(frame.heard))

    def _drop_heard_logs(self) -> None:
        """Drop logs that the scheduler has completely."""
        for number in [number for number, rest in self._rests.items() if rest.log.is_sure]:
            self._finish_log(number)

    async def _heartbeats(self, connection: _Connection, seconds: float) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._beat.wait()
                    await asyncio.sleep(HURRY_SECONDS)  # gather other tasks that hurry for the same reason
            self._beat.clear()
            heartbeat = self._desk.heartbeat()
            # A task is listed until its ending is on its way: a task that disappears without an ending counts as lost.
            await self._send(connection, Heartbeat((*heartbeat.tasks, *self._ending_tasks())))

    def _ending_tasks(self) -> list[TaskStatus]:
        return [frame.message.status for frame in self._queue if isinstance(frame.message, TaskEnded)]

    async def _deliver(self, connection: _Connection) -> None:
        """Send what waits; after all endings, the rest of their logs."""
        while True:
            while self._queue:
                frame = self._queue.popleft()
                await self._send(connection, frame.message, frame.number)
            self._more.clear()
            for rest in list(self._rests.values()):
                await self._send_log(connection, rest)
            self._look_if_told()
            await self._more.wait()

    async def _send_logs(self, connection: _Connection) -> None:
        while True:
            await asyncio.sleep(LOG_SECONDS)
            for printed in list(self._desk.logs()):
                await self._send_log(connection, printed, chunks=LOG_CHUNKS)

    async def _send_terminals(self, connection: _Connection) -> None:
        """Send what terminals show as soon as it is there; each in its turn."""
        while True:
            await self._shown.wait()
            self._shown.clear()
            for printed in [each for each in self._desk.logs() if each.terminal]:
                await self._send_log(connection, printed, chunks=TERMINAL_CHUNKS)
                if not printed.log.is_sent:
                    self._shown.set()

    async def _send_log(self, connection: _Connection, printed: Printed, chunks: int = sys.maxsize) -> None:
        while chunks and (news := printed.news()) is not None:
            # Numbered here, so that no acknowledgement can arrive before it is recorded.
            self._number += 1
            connection.unheard.append((self._number, printed.log, printed.log.sent))
            await self._send(connection, news, self._number)
            chunks -= 1

    def _refused(self, refused: _RefusedError) -> None:
        """Give up, unless the refusal may pass and has not lasted long."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        if not refused.retry or now - self._refused_since >= self._patience:
            raise AgentRefusedError(f"the scheduler at {self._scheduler} refuses this agent: {refused}") from None

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._ignored:
            self._ignored.add(sentence)
            self._desk.say(sentence)

    def _complain(self, sentence: str, *, at_once: bool) -> None:
        """Say that the scheduler is unreachable: when it disappears, and then once a minute."""
        now = asyncio.get_running_loop().time()
        if at_once or now - self._complained >= COMPLAIN_SECONDS:
            self._complained = now
            self._desk.say(sentence)


async def _until_one_ends(*talks: Coroutine[Any, Any, None]) -> None:
    """Run several coroutines until one raises, and raise that error."""
    tasks = [asyncio.create_task(talk) for talk in talks]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _code(error: Exception, call: Any) -> grpc.StatusCode | None:
    """The status of a call that has ended; None if it has not."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code()
    return await call.code() if call.done() else None


async def _in_words(error: Exception, call: Any) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, asyncio.InvalidStateError) and call.done():
        # The call ended before we could write; only the call itself knows why.
        return _shortened(await call.code(), await call.details())
    if isinstance(error, grpc.aio.AioRpcError):
        return _shortened(error.code(), error.details())
    return str(error) or type(error).__name__


def _shortened(code: grpc.StatusCode, details: str | None) -> str:
    """Reduce the library's message to the essential part.

    >>> text = "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:5: connect: Refused (111)"
    >>> _shortened(grpc.StatusCode.UNAVAILABLE, text)
    'Refused'
    """
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return "the server there is not a scheduler"
    if code in _UNACCEPTED:
        return details or "it does not say why"
    if "CERTIFICATE_VERIFY_FAILED" in (details or ""):
        return (
            "its certificate is not one of the authority that this agent trusts, or has expired: "
            "someone may be in between, or a clock is wrong"
        )
    if "WRONG_VERSION_NUMBER" in (details or ""):
        return "it does not answer with TLS"
    last = (details or code.name.lower().replace("_", " ")).rpartition(": ")[2]
    return re.sub(r" \(\d+\)$", "", last)
