"""The terminals of jobs that users are connected to: passes on keys, and wakes those who wait for output.

What is typed is written nowhere; what a terminal shows is in the job's log.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gavel.client.views import JobState
from gavel.runtime.engine import Engine
from gavel.runtime.fleet import Fleet
from gavel.runtime.logs import Logs
from gavel.runtime.messages import TaskLog, TerminalKeys
from gavel.runtime.terminal_rules import LINGER_SECONDS, keys_fault
from gavel.wire import gavel_pb2 as pb

CHUNK = 64 * 2**10
"""Bytes of output in one message."""
KEYS_BYTES = 16 * 2**10
"""Bytes of keys in one message to an agent."""
LOOK_SECONDS = 0.2
"""How often a session looks whether its job has ended; output wakes it."""
LAST_LOOKS = 5
"""Agents report an end before the last output."""
AWAY_SECONDS = 0.1
"""How often keys are offered to an agent that does not take them."""
PRESENCE_SECONDS = 5.0
"""How often an agent hears that a user is connected."""
MOST_MESSAGES_A_SECOND = 500.0
"""Of one user; a paste makes few, large ones."""


class BadKeysError(Exception):
    """A user's message that no terminal can take, as a sentence."""


@dataclass(eq=False)
class TerminalSession:
    """One user at the terminal of one attempt of a job."""

    job: str
    attempt: int
    rows: int
    columns: int
    linger_seconds: float
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by output, by a fault, and when the user leaves."""
    fault: str = ""
    """Why the session must end."""
    left: bool = False
    """Whether the user has left."""

    def keys(self, data: bytes = b"", notice: str = "") -> TerminalKeys:
        """A message to the agent; every one says who is there, and how large the user's window is."""
        return TerminalKeys(
            job=self.job,
            attempt=self.attempt,
            data=data,
            rows=self.rows,
            columns=self.columns,
            linger_seconds=self.linger_seconds,
            notice=notice,
        )

    def apply(self, message: pb.TerminalInput) -> None:
        """Take over a new size; BadKeysError if there is no such terminal."""
        linger = message.linger_seconds or self.linger_seconds
        wanted = replace(self.keys(), linger_seconds=linger)
        if message.rows or message.columns:
            wanted = replace(wanted, rows=message.rows, columns=message.columns)
        if (fault := keys_fault(wanted)) is not None:
            raise BadKeysError(fault)
        self.rows, self.columns, self.linger_seconds = wanted.rows, wanted.columns, linger


class Terminals:
    """All sessions."""

    def __init__(self, engine: Engine, fleet: Fleet, logs: Logs) -> None:
        self._engine = engine
        self._fleet = fleet
        self._logs = logs
        self._sessions: dict[str, set[TerminalSession]] = defaultdict(set)
        """By job."""

    def printed(self, log: TaskLog) -> None:
        """Wake those who wait for this output."""
        if log.rank == 0:
            for session in self._sessions.get(log.job, ()):
                session.woken.set()

    def session(self, first: pb.TerminalInput) -> TerminalSession:
        """A session at the job's current attempt; BadKeysError if its first message is not valid."""
        record = self._engine.records.get(first.id)
        session = TerminalSession(first.id, record.attempts if record is not None else 0, 0, 0, LINGER_SECONDS)
        session.apply(first)
        return session

    async def converse(
        self, session: TerminalSession, first: pb.TerminalInput, requests: AsyncIterator[pb.TerminalInput], notice: str
    ) -> AsyncGenerator[pb.TerminalOutput, None]:
        """Pass on keys and yield output until the attempt has ended; BadKeysError for what cannot be typed."""
        self._sessions[session.job].add(session)
        talking = [
            asyncio.create_task(self._type(session, first, requests, notice)),
            asyncio.create_task(self._stay(session)),
        ]
        try:
            async for output in self._shown(session, offset=first.offset, tail=first.tail):
                yield output
        finally:
            for task in talking:
                task.cancel()
            self._sessions[session.job].discard(session)
            if not self._sessions[session.job]:
                del self._sessions[session.job]

    async def _shown(self, session: TerminalSession, *, offset: int, tail: int) -> AsyncIterator[pb.TerminalOutput]:
        """Output, one chunk in memory at a time; the first message comes at once, also without data."""
        quiet, first = 0, True
        while quiet <= LAST_LOOKS:
            over = self._over(session)
            if over and self._runs_again(session):
                break  # a session at the next attempt shows the rest
            session.woken.clear()
            begin, data = self._logs.read(session.job, 0, offset=offset, tail=tail, most=CHUNK)
            if data or first:
                yield pb.TerminalOutput(data=data, offset=begin)
            offset, tail, first = begin + len(data), 0, False
            if len(data) == CHUNK:
                continue
            quiet = 0 if data or not over else quiet + 1
            while not session.woken.is_set() and self._over(session) == over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await session.woken.wait()
                if over:
                    break
            if session.fault:
                raise BadKeysError(session.fault)
            if session.left:
                return
        record = self._engine.record(session.job)
        yield pb.TerminalOutput(offset=offset, ended=record is None or record.finished)

    def _over(self, session: TerminalSession) -> bool:
        """Whether the attempt has ended; one that was told to leave has not, until it has left."""
        attempt = self._fleet.attempts.get(session.job)
        if attempt is not None and attempt.number == session.attempt:
            record = self._engine.records.get(session.job)
            return record is None or record.finished
        record = self._engine.records.get(session.job)
        return record is None or record.state is not JobState.RUNNING or record.attempts != session.attempt

    def _runs_again(self, session: TerminalSession) -> bool:
        """Whether a later attempt has begun."""
        attempt = self._fleet.attempts.get(session.job)
        return attempt is not None and attempt.number > session.attempt

    async def _type(
        self,
        session: TerminalSession,
        first: pb.TerminalInput,
        requests: AsyncIterator[pb.TerminalInput],
        notice: str,
    ) -> None:
        """Pass on what a user types, as fast as the agent reads it."""
        await self._send(session.keys(notice=notice))
        await self._send_all(session, first.data)
        pace = _Pace(MOST_MESSAGES_A_SECOND, asyncio.get_running_loop().time)
        async for message in requests:
            try:
                session.apply(message)
            except BadKeysError as error:
                session.fault = str(error)
                session.woken.set()
                return
            if not message.data:
                await self._send(session.keys())
            await self._send_all(session, message.data)
            await asyncio.sleep(pace.rest())
        session.left = True
        session.woken.set()

    async def _send_all(self, session: TerminalSession, data: bytes) -> None:
        for start in range(0, len(data), KEYS_BYTES):
            await self._send(session.keys(data[start : start + KEYS_BYTES]))

    async def _send(self, keys: TerminalKeys) -> None:
        """Send when the agent can take it; meanwhile no further message of the user is read."""
        while not self._fleet.typed(keys):  # noqa: ASYNC110 - its connection may be another one by then
            await asyncio.sleep(AWAY_SECONDS)

    async def _stay(self, session: TerminalSession) -> None:
        """Tell the agent from time to time that the user is still there."""
        while True:
            await asyncio.sleep(min(PRESENCE_SECONDS, session.linger_seconds / 3))
            self._fleet.typed(session.keys())


class _Pace:
    """Slows down a user who sends more messages than people type."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._cost = 1.0 / per_second
        self._clock = clock
        self._paid_until = 0.0

    def rest(self) -> float:
        """How long to wait before the next message; up to a second's worth is free."""
        now = self._clock()
        self._paid_until = max(self._paid_until, now - 1.0) + self._cost
        return max(0.0, self._paid_until - now)
