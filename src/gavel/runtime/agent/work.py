"""The work of one server: the scheduler's orders carried out, and all that is said of it over the stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from itertools import count
from uuid import uuid4

from gavel.runtime.agent.attempt import Attempt
from gavel.runtime.agent.devices import Devices
from gavel.runtime.agent.ending import Verdict, ended
from gavel.runtime.agent.logs import Log
from gavel.runtime.agent.meeting import own_address
from gavel.runtime.agent.mps import Mps
from gavel.runtime.agent.settings import AgentSettings
from gavel.runtime.agent.site import Key, Site
from gavel.runtime.agent.state import StateDirectory
from gavel.runtime.agent.stream import Stream
from gavel.version import __version__
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb

TRIM_SECONDS = 1.0
"""How often the sizes of logs are looked at."""
PRUNE_TICKS = 60
"""After how many looks old logs are deleted."""


class Work:
    """Every attempt that is here, from the order to start it to the end of its last process."""

    def __init__(self, settings: AgentSettings, state: StateDirectory, say: Callable[[str], None]) -> None:
        self.stream = Stream(settings, self)
        mps = Mps(state.path / "mps", settings.environment) if settings.emulation is None else None
        self.site = Site(settings, state, Devices(settings.accelerators), self.stream, say, self, mps=mps)
        self.draining = False
        self.closing: str | None = None
        """Why nothing is started any more."""
        self.attempts: dict[Key, Attempt] = {}
        self._incarnation = uuid4().hex
        self._runs: set[asyncio.Task[None]] = set()

    # ---- what is said ----

    async def hello(self) -> pb.Hello:
        """Introduce the agent."""
        settings = self.site.settings
        self.site.address = await asyncio.to_thread(own_address, settings.scheduler)
        if settings.address is not None:
            self.site.address = settings.address
        return pb.Hello(
            protocol=PROTOCOL,
            version=__version__,
            name=settings.name,
            incarnation=self._incarnation,
            accelerators=[pb.Accelerators(type=kind, count=count) for kind, count in settings.counts().items()],
            address=self.site.address,
            tasks=self._statuses(),
            draining=self.draining,
        )

    def heartbeat(self) -> pb.Heartbeat:
        """Say how far all tasks are."""
        return pb.Heartbeat(tasks=self._statuses())

    def logs(self) -> Iterable[tuple[pb.TaskStatus, Log]]:
        """Name the logs that may have grown."""
        return [(task.status, task.log) for attempt in self.attempts.values() for task in attempt.tasks if task.running]

    def say(self, sentence: str) -> None:
        """Tell whoever looks after the agent."""
        self.site.say(sentence)

    def _statuses(self) -> list[pb.TaskStatus]:
        return [status for attempt in self.attempts.values() for status in attempt.statuses()]

    # ---- what is heard ----

    def attached(self, welcome: pb.Welcome) -> Iterable[pb.FromAgent]:
        """Take over what the scheduler says of graces; tell it again what runs."""
        self.site.graces.checkpoint_seconds = welcome.checkpoint_grace_seconds
        self.site.graces.terminate_seconds = welcome.terminate_grace_seconds
        self.say(f"attached to {self.site.settings.scheduler} as {self.site.settings.name}")
        running = [message for attempt in self.attempts.values() for message in attempt.started()]
        draining = [pb.FromAgent(draining=pb.Draining())] if self.draining else []
        return [*draining, *(pb.FromAgent(started=message) for message in running)]

    def lost(self) -> None:
        """Stop what is left of broken gangs: the scheduler is not there to say so."""
        for attempt in list(self.attempts.values()):
            attempt.give_up()

    def take(self, message: pb.ToAgent, sent_after: float) -> None:
        """Do as the scheduler says; its leases count from the given time."""
        match message.WhichOneof("message"):
            case "start":
                self._start(message.start, sent_after + message.start.lease_seconds)
            case "lease":
                self._extend(message.lease, sent_after + message.lease.seconds)
            case "stop":
                attempt = self.attempts.get((message.stop.job, message.stop.attempt))
                if attempt is not None:
                    attempt.leave(message.stop.reason or "it was stopped", at_once=message.stop.at_once)

    def _start(self, start: pb.Start, lease_ends: float) -> None:
        key = (start.job, start.attempt)
        if key in self.attempts:
            for started in self.attempts[key].started():
                self.stream.started(started)
        elif not self.stream.is_ending(key):
            attempt = Attempt(start, self.site, lease_ends)
            self.attempts[key] = attempt
            if self.closing is not None:
                attempt.leave(self.closing)
            run = asyncio.create_task(self._run(attempt))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    async def _run(self, attempt: Attempt) -> None:
        try:
            await attempt.run()
        except Exception as error:  # noqa: BLE001 - one job's trouble must not be that of others
            self.say(f"job {attempt.start.job}: a bug of ours: {error!r}")
            for status in attempt.statuses():
                verdict = Verdict(pb.TaskEnded.CRASHED, f"a bug of the agent: {error!r}")
                self.stream.ended(ended(status, verdict), None)
        finally:
            del self.attempts[attempt.key]
            self.site.changed.ring()

    def _extend(self, lease: pb.Lease, ends: float) -> None:
        named = set(lease.jobs)
        for attempt in self.attempts.values():
            if not named or attempt.start.job in named:
                attempt.extend(ends)

    # ---- how it ends ----

    def drain(self) -> None:
        """Say that no new work is wanted."""
        if not self.draining:
            self.draining = True
            self.stream.post(pb.FromAgent(draining=pb.Draining()))

    def close(self, reason: str, *, at_once: bool = False) -> None:
        """Start nothing more, and ask all to leave."""
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
        for run in list(self._runs):
            run.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)

    async def keep_logs_small(self) -> None:
        """Look after the sizes of logs, for ever."""
        for tick in count():
            for _, log in self.logs():
                log.trim()
            if tick % PRUNE_TICKS == 0:
                with contextlib.suppress(OSError):  # someone else tidies up
                    self.site.state.prune_logs({log.path for _, log in self.logs()})
            await asyncio.sleep(TRIM_SECONDS)

    # ---- what the attempts ask ----

    def earlier(self, key: Key) -> bool:
        """Whether an earlier attempt of the same job is still here."""
        return any(job == key[0] and attempt < key[1] for job, attempt in self.attempts)

    def neighbours_changed(self) -> None:
        """Wake those who wait for devices; tell those whose neighbour came or went how fast they are now."""
        self.site.changed.ring()
        if self.site.settings.emulation is None:
            return
        for attempt in self.attempts.values():
            self._set_pace(attempt)

    def _set_pace(self, attempt: Attempt) -> None:
        device = next((task.device for task in attempt.tasks if not task.over), None)
        if device is None:
            return
        key = self.site.devices.neighbour(attempt.key, device)
        other = None if key is None else self.attempts.get(key)
        attempt.set_neighbour(None if other is None else other.profile)
