"""The agent of one server, as a class that can be embedded.

It installs no signal handlers and prints nothing, and several can run in one process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from gavel.runtime.agent.containers import Containers
from gavel.runtime.agent.settings import AgentSettings
from gavel.runtime.agent.state import StateDirectory
from gavel.runtime.agent.work import Work

_LEAVING = "its server is leaving the cluster"


def _quiet(sentence: str) -> None:
    """Say nothing."""


class Agent:
    """One server's agent: call `await agent.run()` once; it runs until `stop` or a refusal."""

    def __init__(self, settings: AgentSettings, say: Callable[[str], None] = _quiet) -> None:
        self.settings = settings
        self._say = say
        self._work: Work | None = None
        self._draining = False
        self._at_once = False
        self._stopping = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Serve the scheduler until told to stop; AgentRefusedError if the scheduler rejects this agent."""
        self.settings.check()
        try:
            settings = self.settings
            others = bool(settings.run_as.accounts)
            with StateDirectory(
                settings.state, kept_logs=settings.kept_logs, contain=settings.contain, others=others
            ) as state:
                self._introduce(state)
                self._work = Work(self.settings, state, self._say)
                await self._serve(self._work)
        finally:
            self._over.set()

    def _introduce(self, state: StateDirectory) -> None:
        self._say(f"agent {self.settings.name} has id {state.identity.agent}")
        if state.containers is None:
            self._say(
                "jobs run without control groups, because this agent may not create any: a process that leaves its "
                "session and clears its environment survives if the job's guard is killed, and jobs may use more "
                "memory and CPU time than they state"
            )
        else:
            self._say_what_is_not_limited(state.containers)
        if state.leftovers:
            self._say(f"ended {state.leftovers} tasks that an earlier agent left behind")

    def _say_what_is_not_limited(self, containers: Containers) -> None:
        confinement = containers.confinement
        missing = ("memory", "cpu") if confinement is None else confinement.missing
        if missing:
            what = " and ".join({"memory": "memory", "cpu": "CPU time"}[name] for name in missing)
            self._say(
                f"jobs may use more {what} than they state, because this agent may not limit it: "
                "it needs a control group with these controllers (with systemd: Delegate=yes)"
            )

    def drain(self) -> None:
        """Take no new work from now on; the scheduler moves the jobs."""
        self._draining = True
        if self._work is not None:
            self._work.drain()

    async def stop(self, *, at_once: bool = False) -> None:
        """Stop all jobs, with a checkpoint unless `at_once`, tell the scheduler, and end `run`."""
        self._at_once = self._at_once or at_once
        self._stopping.set()
        if self._work is not None:
            self._work.close(_LEAVING, at_once=self._at_once)
            await self._over.wait()

    async def _serve(self, work: Work) -> None:
        if self._draining:
            work.drain()
        if work.context.mps is not None:
            await asyncio.to_thread(work.context.mps.quit)  # a daemon that an earlier agent left
        streaming = asyncio.create_task(work.stream.run())
        others = [asyncio.create_task(self._stopping.wait()), asyncio.create_task(work.keep_logs_small())]
        if self.settings.credentials is not None:
            others.append(asyncio.create_task(self.settings.credentials.keep_fresh(self._say)))
        try:
            await asyncio.wait([streaming, *others], return_when=asyncio.FIRST_COMPLETED)
            await self._take_leave(work, streaming)
        finally:
            for task in (streaming, *others):
                task.cancel()
            await asyncio.gather(streaming, *others, return_exceptions=True)
            await work.abandon()
            work.stream.tidy()
            if work.context.mps is not None and work.context.mps.running:
                await asyncio.to_thread(work.context.mps.quit)

    async def _take_leave(self, work: Work, streaming: asyncio.Task[None]) -> None:
        """End all jobs and report their ends; if time runs out, at least end them."""
        work.close(_LEAVING, at_once=self._at_once)
        await work.over()
        if not streaming.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.farewell_seconds):
                    await work.stream.all_told()
        if streaming.done():
            streaming.result()
