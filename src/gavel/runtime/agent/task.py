"""One process of a job: starts under its guard, talks over its link, is asked to leave, and is made to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from gavel.runtime.agent.exit_verdict import ExitVerdict, LastWords, for_memory, judge, never_began
from gavel.runtime.agent.link import JobSocket, figure
from gavel.runtime.agent.logs import LogFile
from gavel.runtime.agent.processes import Guarded
from gavel.runtime.agent.terminal import TerminalLine, TerminalWatch
from gavel.runtime.messages import Ending, TaskStatus, TerminalKeys
from gavel.runtime.terminal_rules import keys_fault

LONGEST_NOTICE = 400
"""Characters of a reason that a terminal shows."""
SLACK_SECONDS = 5.0
"""How long a guard may take beyond the grace before it is killed itself."""


@dataclass
class Graces:
    """How long a task may take to leave: to save its work, and to end after SIGTERM."""

    checkpoint_seconds: float = 60.0
    terminate_seconds: float = 10.0


@dataclass
class TaskProgress:
    """Current progress of a task."""

    job: str
    attempt: int
    rank: int
    counts: bool = False
    steps: float = 0.0
    saved_steps: float = 0.0
    measured_steps: float = 0.0
    measured_seconds: float = 0.0
    """Measured since the last status was taken."""

    def reach(self, steps: float | None) -> None:
        """Record how many steps are done."""
        if steps is not None:
            self.counts, self.steps = True, steps

    def save(self, steps: float | None) -> None:
        """Record how many steps a checkpoint holds."""
        if steps is not None:
            self.saved_steps = max(self.saved_steps, steps)

    def measure(self, steps: float | None, seconds: float | None) -> None:
        """Add a measurement."""
        if steps is not None and seconds is not None:
            self.measured_steps += steps
            self.measured_seconds += seconds

    def take(self) -> TaskStatus:
        """Return the progress; each measurement is reported once."""
        status = TaskStatus(**asdict(self))
        self.measured_steps = self.measured_seconds = 0.0
        return status


class Voice(Protocol):
    """The attempt's side of a task: what to tell the job process, and what it asks for."""

    def greeting(self) -> list[Mapping[str, Any]]:
        """The first messages for a job process."""
        ...

    def wants_more(self) -> None:
        """Note that its lease is about to end."""
        ...

    def makes_steps(self) -> None:
        """Note that it has made its first steps."""
        ...

    def shows(self) -> None:
        """Note that its terminal shows more."""
        ...

    def attached(self) -> bool:
        """Whether the scheduler is connected."""
        ...


@dataclass
class Task:
    """One process of one attempt, from its start to its end: a rank, or what starts the ranks of this server."""

    progress: TaskProgress
    devices: tuple[int, ...]
    log: LogFile
    graces: Graces
    voice: Voice
    grace_seconds: float | None = None
    """How long its job may take to save; None: as long as the cluster allows."""
    starts_ranks: bool = False
    """Whether it may start several ranks, all of which use its link."""
    words: LastWords = field(default_factory=LastWords)
    asked: str | None = None
    """Why it was asked to leave."""
    link: JobSocket | None = None
    running: bool = False
    pid: int = 0
    """The process id of its guard."""
    over: bool = False
    heard_stop: bool = False
    """Whether the order to leave was written to its link while it was connected."""
    line: TerminalLine | None = None
    """To its terminal, if it has one."""
    abandoned: str = ""
    """Why it was hung up: its user is gone."""
    _makes_steps: bool = False
    _guarded: Guarded | None = None
    _terminal_watch: TerminalWatch | None = None
    _leave: asyncio.Event = field(default_factory=asyncio.Event)
    _now: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self, path: Path, owner: tuple[int, int] | None = None) -> None:
        """Open the link to processes of our own user, or of another."""
        self.link = JobSocket(path, self._hear, self._greet, owner)

    async def run(self, launch: Callable[[], Guarded], started: Callable[[], None]) -> ExitVerdict:
        """Start the process and follow it to its end."""
        guarded = self._guarded = await _launched(launch)
        self.running, self.pid = True, guarded.pid
        with self._at_terminal(guarded):
            started()
            code = await self._watch(guarded)
        self.close()
        overlooked = self.words.unaware and code == 0
        reached = guarded.asked or (self.heard_stop and not overlooked)
        verdict = for_memory(judge(code, self.words, self.asked, reached=reached), guarded.memory_exceeded)
        if guarded.line is not None:
            verdict = self._verdict_at_terminal(verdict, code)
        return never_began(code, self.log.tail()) or replace(verdict, exit_code=code)

    def typed(self, keys: TerminalKeys) -> None:
        """Type at its terminal what a user sent."""
        if self.line is None or self._terminal_watch is None or keys_fault(keys) is not None:
            return
        self._terminal_watch.heard(keys.linger_seconds)
        if keys.rows:
            self.line.resize(keys.rows, keys.columns)
        if keys.notice:
            self.line.notice(keys.notice)
        if keys.data:
            self.line.type(keys.data)

    @contextmanager
    def _at_terminal(self, guarded: Guarded) -> Iterator[None]:
        """Serve its terminal, if it has one, while it runs."""
        if guarded.line is None:
            yield
            return
        line = self.line = TerminalLine(guarded.line, self.voice.shows)
        watch = self._terminal_watch = TerminalWatch(self.voice.attached, self._abandon)
        watch.begin()
        try:
            yield
        finally:
            watch.end()
            line.close()
            self.line = self._terminal_watch = None

    def _abandon(self, reason: str) -> None:
        """Hang up: accelerators must not wait for a user who is gone."""
        self.abandoned = reason
        self.leave(reason, at_once=True)

    def _verdict_at_terminal(self, verdict: ExitVerdict, code: int) -> ExitVerdict:
        """A session ends as its user wants, whatever the code of its last command; the next would be another one."""
        if self.abandoned:
            return replace(verdict, ending=Ending.CRASHED, reason=self.abandoned, hopeless=True)
        if verdict.ending is Ending.CRASHED and code >= 0 and not self.words.spoken:
            return replace(verdict, ending=Ending.DONE, reason=f"its terminal session ended: {verdict.reason}")
        return verdict

    def close(self) -> None:
        """Read what is left, and close the link."""
        self.over, self.running = True, False
        if self.link is not None:
            self.link.close()
            self.link = None

    def leave(self, reason: str, *, at_once: bool = False) -> None:
        """Ask it to leave, or make it leave without a checkpoint."""
        if self.asked is None:
            self.asked = reason
            if self.line is not None:
                self.line.notice(self._farewell(reason, at_once=at_once))
        self._leave.set()
        if at_once:
            self._now.set()

    def keep(self, seconds: float) -> None:
        """Have its guard end it once saving could have finished after the lease, whatever happens to us."""
        if self._guarded is not None:
            self._guarded.keep(seconds + self._checkpoint_seconds)

    def tell(self, message: Mapping[str, Any]) -> bool:
        """Send a message to the job process; return whether it was connected."""
        return self.link is not None and self.link.send(message)

    @property
    def _checkpoint_seconds(self) -> float:
        return self.graces.checkpoint_seconds if self.grace_seconds is None else self.grace_seconds

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
        """Ask, wait, SIGTERM, wait, SIGKILL: it ends somewhere along the way."""
        # A process that announced its end may still be writing its results.
        if not self._now.is_set():
            waits = self._ask() or self.words.spoken or self.line is not None
            if not waits and self.grace_seconds is not None:  # its own grace is for SIGTERM, too
                guarded.ask()
                waits = True
            if waits:
                await _first(ending, self._now, seconds=self._checkpoint_seconds)
        guarded.terminate()
        await asyncio.wait([ending], timeout=self.graces.terminate_seconds + SLACK_SECONDS)
        if not ending.done():
            await asyncio.to_thread(guarded.kill)

    def _farewell(self, reason: str, *, at_once: bool) -> str:
        """What the user at its terminal should know."""
        reason = "".join(character if character.isprintable() else " " for character in reason)[:LONGEST_NOTICE]
        if at_once:
            return f"this terminal ends now: {reason}"
        return f"this terminal ends in {self._checkpoint_seconds:g} s: {reason}; save your work and leave"

    def _ask(self) -> bool:
        """Ask over the link; return whether the process was connected. One that just disconnected may have said why."""
        if self.tell(self._stop()):
            self.heard_stop = True
        elif self.link is not None:
            self.link.catch_up()
        return self.heard_stop

    def _stop(self) -> Mapping[str, Any]:
        return {"op": "stop", "seconds": self._checkpoint_seconds}

    def _greet(self) -> list[Mapping[str, Any]]:
        return [*self.voice.greeting(), *([] if self.asked is None else [self._stop()])]

    def _hear(self, message: Mapping[str, Any], rank: int) -> None:
        """Handle a message of the job process or, if it started several ranks, of one of them."""
        if not self.starts_ranks or rank == 0:  # the first rank speaks for the job
            self._count(message)
        match message.get("op"):
            case "hello":
                self.words.unaware = False
            case "unaware":
                self.words.unaware = True
            case "stopped":
                self.words.stopped = True
                self.words.why_stopped = str(message.get("reason") or "")[:2000]
            case "done":
                self.words.done = True
            case "failed":
                self._failed(message)
            case "renew":
                self.voice.wants_more()

    def _count(self, message: Mapping[str, Any]) -> None:
        """Take the steps from a message."""
        match message.get("op"):
            case "progress":
                self.progress.reach(figure(message, "steps"))
                self.progress.save(figure(message, "saved"))
                self._measure(figure(message, "measured_steps"), figure(message, "measured_seconds"))
            case "saved" | "stopped":
                self._saved(message)
            case "done":
                self.progress.reach(figure(message, "steps"))

    def _failed(self, message: Mapping[str, Any]) -> None:
        """Note why it fails: of several ranks the first says why, but others fail because one is blocked."""
        blameless = message.get("blameless") is True
        if not self.starts_ranks or self.words.failed is None or (blameless and not self.words.blameless):
            self.words.failed = str(message.get("reason") or "it reported a failure")[:2000]
            self.words.blameless = blameless

    def _measure(self, steps: float | None, seconds: float | None) -> None:
        self.progress.measure(steps, seconds)
        if steps and not self._makes_steps:
            self._makes_steps = True
            self.voice.makes_steps()

    def _saved(self, message: Mapping[str, Any]) -> None:
        steps = figure(message, "steps")
        self.progress.reach(steps)
        self.progress.save(steps)


async def _launched(launch: Callable[[], Guarded]) -> Guarded:
    """Start a process off the event loop, which a slow disk would block."""
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
    """Wait for the first of the two, or for the time limit."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([ending, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
