"""The work of one server: carries out the scheduler's orders, and reports over the stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from itertools import count
from uuid import uuid4

from gavel.runtime.abilities import ABILITIES
from gavel.runtime.agent.attempt import LocalAttempt
from gavel.runtime.agent.devices import Devices
from gavel.runtime.agent.exit_verdict import ExitVerdict, ended
from gavel.runtime.agent.mps import Mps
from gavel.runtime.agent.removing import Remover
from gavel.runtime.agent.rendezvous import own_address
from gavel.runtime.agent.server_context import Key, ServerContext
from gavel.runtime.agent.settings import AgentSettings
from gavel.runtime.agent.state import StateDirectory
from gavel.runtime.agent.stream import Printed, SchedulerStream
from gavel.runtime.messages import (
    Draining,
    Ending,
    FromAgent,
    Heartbeat,
    Hello,
    Lease,
    RemoveCheckpoints,
    StartAttempt,
    StopAttempt,
    TaskStatus,
    TerminalKeys,
    ToAgent,
    Welcome,
)
from gavel.version import __version__
from gavel.wire import PROTOCOL

TRIM_SECONDS = 1.0
"""How often the sizes of logs are checked."""
PRUNE_TICKS = 60
"""After how many checks old logs are deleted."""


class Work:
    """Every attempt on this server, from the order to start it to the end of its last process."""

    def __init__(self, settings: AgentSettings, state: StateDirectory, say: Callable[[str], None]) -> None:
        self.stream = SchedulerStream(settings, state.identity, self)
        mps = Mps(state.path / "mps", settings.environment) if settings.emulation is None else None
        self.context = ServerContext(settings, state, Devices(settings.accelerators), self.stream, say, self, mps=mps)
        self.draining = False
        self.closing: str | None = None
        """Why nothing is started any more."""
        self.attempts: dict[Key, LocalAttempt] = {}
        self._incarnation = uuid4().hex
        self._runs: set[asyncio.Task[None]] = set()
        self._remover = Remover(self.context, self._has)
        self._removing: set[asyncio.Task[None]] = set()

    # ---- reports ----

    async def hello(self) -> Hello:
        """Introduce the agent."""
        settings = self.context.settings
        self.context.address = await asyncio.to_thread(own_address, settings.scheduler)
        if settings.address is not None:
            self.context.address = settings.address
        identity = self.context.state.identity
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            name=settings.name,
            agent=identity.agent,
            incarnation=self._incarnation,
            accelerators=settings.counts(),
            address=self.context.address,
            tasks=self._statuses(),
            draining=self.draining,
            cluster=identity.cluster,
            term=identity.term,
            encrypts_gangs=True,
            accelerator_memory=settings.accelerator_memory,
            cpus=settings.cpus,
            memory_bytes=settings.memory_bytes,
            abilities=ABILITIES,
        )

    def heartbeat(self) -> Heartbeat:
        """Report the progress of all tasks."""
        return Heartbeat(self._statuses())

    def logs(self) -> Iterable[Printed]:
        """Name the logs that may have grown."""
        return [
            Printed(*attempt.key, task.progress.rank, task.log, terminal=attempt.has_terminal(task))
            for attempt in self.attempts.values()
            for task in attempt.tasks
            if task.running
        ]

    def say(self, sentence: str) -> None:
        """Tell the agent's operator."""
        self.context.say(sentence)

    def _statuses(self) -> tuple[TaskStatus, ...]:
        return tuple(status for attempt in self.attempts.values() for status in attempt.statuses())

    # ---- orders ----

    def attached(self, welcome: Welcome) -> Iterable[FromAgent]:
        """Adopt the scheduler's identity and graces; tell it again what runs."""
        self.context.cluster = welcome.cluster
        self.context.graces.checkpoint_seconds = welcome.checkpoint_grace_seconds
        self.context.graces.terminate_seconds = welcome.terminate_grace_seconds
        self.say(f"attached to {self.context.settings.scheduler} as {self.context.settings.name}")
        running = [message for attempt in self.attempts.values() for message in attempt.started()]
        return [*([Draining()] if self.draining else []), *running]

    def lost(self) -> None:
        """Stop what is left of broken gangs: there is no scheduler to order it."""
        for attempt in list(self.attempts.values()):
            attempt.give_up()

    def busy(self) -> bool:
        """Whether tasks run here, or wait to."""
        return bool(self.attempts)

    def take(self, message: ToAgent, sent_after: float) -> None:
        """Carry out an order; its leases count from the given time."""
        match message:
            case StartAttempt():
                self._start(message, sent_after + message.lease_seconds)
            case Lease():
                self._extend(message, sent_after + message.seconds)
            case StopAttempt():
                attempt = self.attempts.get((message.job, message.attempt))
                if attempt is not None:
                    attempt.leave(message.reason or "it was stopped", at_once=message.at_once)
            case TerminalKeys():
                attempt = self.attempts.get((message.job, message.attempt))
                if attempt is not None:
                    attempt.typed(message)
            case RemoveCheckpoints():
                removing = asyncio.create_task(self._remove(message))
                self._removing.add(removing)
                removing.add_done_callback(self._removing.discard)

    async def _remove(self, order: RemoveCheckpoints) -> None:
        self.stream.post(await self._remover.follow(order))

    def _has(self, job: str) -> bool:
        """Whether a job has processes here, or is about to."""
        return any(job == key[0] for key in self.attempts)

    def _start(self, start: StartAttempt, lease_ends: float) -> None:
        key = (start.job, start.attempt)
        if key in self.attempts:
            for started in self.attempts[key].started():
                self.stream.started(started)
        elif not self.stream.is_ending(key):
            attempt = LocalAttempt(start, self.context, lease_ends)
            self.attempts[key] = attempt
            if self.closing is not None:
                attempt.leave(self.closing)
            run = asyncio.create_task(self._run(attempt))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    async def _run(self, attempt: LocalAttempt) -> None:
        try:
            await attempt.run()
        except Exception as error:  # noqa: BLE001 - a failure of one job must not affect others
            self.say(f"job {attempt.start.job}: a bug in the agent: {error!r}")
            for status in attempt.statuses():
                verdict = ExitVerdict(Ending.CRASHED, f"a bug in the agent: {error!r}")
                self.stream.ended(ended(status, verdict), None)
        finally:
            del self.attempts[attempt.key]
            self.context.changed.ring()

    def _extend(self, lease: Lease, ends: float) -> None:
        named = set(lease.jobs)
        for attempt in self.attempts.values():
            if not named or attempt.start.job in named:
                attempt.extend(ends)

    # ---- ending ----

    def drain(self) -> None:
        """Announce that no new work is wanted."""
        if not self.draining:
            self.draining = True
            self.stream.post(Draining())

    def close(self, reason: str, *, at_once: bool = False) -> None:
        """Start nothing more, and ask all attempts to leave."""
        self.drain()
        self.closing = reason
        for attempt in list(self.attempts.values()):
            attempt.leave(reason, at_once=at_once)

    async def over(self) -> None:
        """Wait for the last process."""
        while self._runs:
            await asyncio.wait(self._runs)

    async def abandon(self) -> None:
        """Let go of everything: the guards end what still runs."""
        going = [*self._runs, *self._removing]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)

    async def keep_logs_small(self) -> None:
        """Check the sizes of logs, forever."""
        for tick in count():
            for printed in self.logs():
                printed.log.trim()
            if tick % PRUNE_TICKS == 0:
                with contextlib.suppress(OSError):  # another program removed it
                    self.context.state.prune_logs({printed.log.path for printed in self.logs()})
            await asyncio.sleep(TRIM_SECONDS)

    # ---- requests of attempts ----

    def earlier(self, key: Key) -> bool:
        """Whether an earlier attempt of the same job is still here."""
        return any(job == key[0] and attempt < key[1] for job, attempt in self.attempts)

    def neighbours_changed(self) -> None:
        """Wake attempts that wait for devices; update the pace of those whose neighbour came or went."""
        self.context.changed.ring()
        if self.context.settings.emulation is None:
            return
        for attempt in self.attempts.values():
            self._set_pace(attempt)

    def _set_pace(self, attempt: LocalAttempt) -> None:
        device = next((task.devices[0] for task in attempt.tasks if not task.over), None)
        if device is None:
            return
        key = self.context.devices.neighbour(attempt.key, device)
        other = None if key is None else self.attempts.get(key)
        attempt.set_neighbour(None if other is None else other.profile)
