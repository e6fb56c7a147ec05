"""One process of a job: started under its guard, heard over its link, asked to leave, made to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gavel.runtime.agent.ending import LastWords, Verdict, judge, never_began
from gavel.runtime.agent.link import Link, figure
from gavel.runtime.agent.logs import Log
from gavel.runtime.agent.processes import Guarded
from gavel.wire import gavel_pb2 as pb

SLACK_SECONDS = 5.0
"""What a guard may take for its work beyond the grace, before it is killed itself."""


@dataclass
class Graces:
    """How long a task may take to leave: to save its work, and to end after SIGTERM."""

    checkpoint_seconds: float = 60.0
    terminate_seconds: float = 10.0


class Voice(Protocol):
    """Who speaks through a task to the job process, and listens to what it wants."""

    def greeting(self) -> list[Mapping[str, Any]]:
        """Say what a job process must know first."""
        ...

    def wants_more(self) -> None:
        """Hear that its lease is nearly over."""
        ...


@dataclass
class Task:
    """One rank of one attempt, from its process's start to its end."""

    status: pb.TaskStatus
    device: int
    log: Log
    graces: Graces
    voice: Voice
    words: LastWords = field(default_factory=LastWords)
    asked: str | None = None
    """Why it was asked to leave."""
    link: Link | None = None
    running: bool = False
    pid: int = 0
    """Of its guard."""
    over: bool = False
    _guarded: Guarded | None = None
    _leave: asyncio.Event = field(default_factory=asyncio.Event)
    _now: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self, path: Path) -> None:
        """Open the link."""
        self.link = Link(path, self._hear, self._greet)

    async def run(self, launch: Callable[[], Guarded], started: Callable[[], None]) -> Verdict:
        """Start the process and see it to its end."""
        guarded = self._guarded = await _launched(launch)
        self.running, self.pid = True, guarded.pid
        started()
        code = await self._watch(guarded)
        self.close()
        return never_began(code, self.log.tail()) or judge(code, self.words, self.asked)

    def close(self) -> None:
        """Hear what is left to hear, and listen no more."""
        self.over, self.running = True, False
        if self.link is not None:
            self.link.close()
            self.link = None

    def leave(self, reason: str, *, at_once: bool = False) -> None:
        """Ask it to leave, or make it leave without a checkpoint."""
        if self.asked is None:
            self.asked = reason
        self._leave.set()
        if at_once:
            self._now.set()

    def keep(self, seconds: float) -> None:
        """Let its guard end it when its lease has been over for as long as saving may take, whatever becomes of us."""
        if self._guarded is not None:
            self._guarded.keep(seconds + self.graces.checkpoint_seconds)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Say something to the job process."""
        if self.link is not None:
            self.link.send(message)

    def take_status(self) -> pb.TaskStatus:
        """Say how far it is; what was measured is said once."""
        status = pb.TaskStatus()
        status.CopyFrom(self.status)
        self.status.measured_steps = self.status.measured_seconds = 0.0
        return status

    async def _watch(self, guarded: Guarded) -> int:
        ending = asyncio.create_task(guarded.wait())
        try:
            await _first(ending, self._leave)
            if not ending.done():
                await self._part(guarded, ending)
            return await ending
        finally:
            guarded.terminate()
            ending.cancel()

    async def _part(self, guarded: Guarded, ending: asyncio.Task[int]) -> None:
        """Ask, wait, SIGTERM, wait, SIGKILL: it ends somewhere on the way."""
        # One that has said its last words may still be writing its results.
        if self._can_ask() and not self._now.is_set():
            self.tell({"op": "stop"})
            await _first(ending, self._now, seconds=self.graces.checkpoint_seconds)
        guarded.terminate()
        await asyncio.wait([ending], timeout=self.graces.terminate_seconds + SLACK_SECONDS)
        if not ending.done():
            await asyncio.to_thread(guarded.kill)

    def _can_ask(self) -> bool:
        return self.words.spoken or (self.link is not None and self.link.can_ask)

    def _greet(self) -> list[Mapping[str, Any]]:
        stop: list[Mapping[str, Any]] = [{"op": "stop"}] if self.asked is not None else []
        return [*self.voice.greeting(), *stop]

    def _hear(self, message: Mapping[str, Any]) -> None:
        """Take in what the job process says."""
        match message.get("op"):
            case "progress":
                self._progress(message)
            case "saved":
                self._count(message, saved=True)
            case "stopped":
                self._count(message, saved=True)
                self.words.stopped = True
            case "done":
                self._count(message)
                self.words.done = True
            case "failed":
                self.words.failed = str(message.get("reason") or "it said that it failed")[:2000]
            case "renew":
                self.voice.wants_more()

    def _progress(self, message: Mapping[str, Any]) -> None:
        self._count(message)
        saved, steps, seconds = (figure(message, name) for name in ("saved", "measured_steps", "measured_seconds"))
        if saved is not None:
            self.status.saved_steps = max(self.status.saved_steps, saved)
        if steps is not None and seconds is not None:
            self.status.measured_steps += steps
            self.status.measured_seconds += seconds

    def _count(self, message: Mapping[str, Any], *, saved: bool = False) -> None:
        steps = figure(message, "steps")
        if steps is None:
            return
        self.status.counts = True
        self.status.steps = steps
        if saved:
            self.status.saved_steps = max(self.status.saved_steps, steps)


async def _launched(launch: Callable[[], Guarded]) -> Guarded:
    """Start a process away from the event loop, which a slow disk would hold up."""
    launching = asyncio.ensure_future(asyncio.to_thread(launch))
    try:
        return await asyncio.shield(launching)
    except asyncio.CancelledError:
        launching.add_done_callback(_let_go)
        raise


def _let_go(launching: asyncio.Future[Guarded]) -> None:
    if not launching.cancelled() and launching.exception() is None:
        launching.result().terminate()


async def _first(ending: asyncio.Task[int], event: asyncio.Event, seconds: float | None = None) -> None:
    """Wait for whichever comes first."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([ending, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
