"""One attempt of a job on this server: all of its ranks here, their devices, their lease, and the end of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gavel.core.throughputs import Profile
from gavel.runtime.agent.ending import Verdict, ended
from gavel.runtime.agent.environment import Seat, job_environment, obstacle
from gavel.runtime.agent.logs import Log
from gavel.runtime.agent.meeting import Meeting, meeting_of
from gavel.runtime.agent.processes import Guarded, Program
from gavel.runtime.agent.site import Key, Site
from gavel.runtime.agent.task import Task
from gavel.wire import gavel_pb2 as pb


class NeverStartsError(Exception):
    """The same would happen again: there is no such command, or no such directory."""


@dataclass(eq=False)
class Attempt:
    """From its Start to the end of its last process here."""

    start: pb.Start
    site: Site
    lease_ends: float
    """By the clock of the event loop."""
    tasks: list[Task] = field(default_factory=list)
    asked: str | None = None
    """Why all of it was asked to leave."""
    at_once: bool = False
    """Whether no checkpoint is wanted."""
    broken: bool = False
    """One of its ranks has crashed here."""
    meeting: Meeting | None = None
    """Known when it runs."""
    _timer: asyncio.TimerHandle | None = None
    _neighbour: Profile | None = None
    _pace: float | None = None
    """Steps per second of emulated accelerators, once it runs on some."""

    @property
    def key(self) -> Key:
        """By what it is known."""
        return self.start.job, self.start.attempt

    @property
    def profile(self) -> Profile:
        """By what throughput tables know it."""
        return self.start.request.template, self.start.workers

    async def run(self) -> None:
        """Wait for devices, run every rank, report every end."""
        there = self.site.devices.total(self.start.type)
        if there < self.start.ranks:
            named = f"server {self.site.settings.name} has {there} accelerators of type {self.start.type}"
            self._never_began(Verdict(pb.TaskEnded.CRASHED, f"{named}, not {self.start.ranks}"))
            return
        self._watch_lease()
        try:
            devices = await self._devices()
            if devices is None:
                self._never_began(Verdict(pb.TaskEnded.LEFT, f"{self.asked}, before it began"))
            else:
                await self._run_on(devices)
        finally:
            self.site.devices.leaving.discard(self.key)
            if self._timer is not None:
                self._timer.cancel()

    # ---- what it is told ----

    def leave(self, reason: str, *, at_once: bool = False) -> None:
        """Ask all of its ranks to leave; nobody may move in with it from now on."""
        if self.asked is None:
            self.asked = reason
            self.site.devices.leaving.add(self.key)
        self.at_once = self.at_once or at_once
        for task in self.tasks:
            task.leave(self.asked, at_once=self.at_once)
        self.site.changed.ring()

    def extend(self, ends: float) -> None:
        """Let it go on until then; a lease is never made shorter, and nobody who leaves comes back."""
        if self.asked is None and ends > self.lease_ends:
            self.lease_ends = ends
            self._watch_lease()
            for task in self.tasks:
                task.tell(self._lease())
                task.keep(self._left())

    def set_neighbour(self, neighbour: Profile | None) -> None:
        """Tell its processes how fast their emulated accelerators are beside this one."""
        emulation, start = self.site.settings.emulation, self.start
        if emulation is None or (self._pace is not None and neighbour == self._neighbour):
            return
        self._neighbour = neighbour
        self._pace = emulation.pace(self.profile, start.type, consolidated=start.consolidated, beside=neighbour)
        for task in self.tasks:
            task.tell({"op": "pace", "rate": self._pace})

    def statuses(self) -> list[pb.TaskStatus]:
        """Say how far each rank is that has not ended, waiting ones included."""
        if not self.tasks:
            return [self._status(local) for local in range(self.start.ranks)]
        return [task.take_status() for task in self.tasks if not task.over]

    def started(self) -> list[pb.TaskStarted]:
        """Say which ranks run."""
        return [self._started(task) for task in self.tasks if task.running]

    # ---- what its processes ask ----

    def greeting(self) -> list[Mapping[str, Any]]:
        """Tell a process what it must know first."""
        pace = [] if self._pace is None else [{"op": "pace", "rate": self._pace}]
        return [*pace, self._lease()]  # whoever has heard the lease has heard all of it

    def wants_more(self) -> None:
        """Let the scheduler hear at once of a process whose lease is nearly over."""
        self.site.post.hurry()

    # ---- how it goes ----

    def _lease(self) -> Mapping[str, Any]:
        return {"op": "lease", "seconds": round(max(0.0, self._left()), 3)}

    def _left(self) -> float:
        return self.lease_ends - asyncio.get_running_loop().time()

    def _watch_lease(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._left() <= 0:
            self.leave("its lease was over")
        self._timer = asyncio.get_running_loop().call_at(self.lease_ends, self.leave, "its lease was over")

    async def _devices(self) -> tuple[int, ...] | None:
        """Wait for devices; None if it was asked to leave before it had them."""
        start, devices = self.start, self.site.devices
        while self.asked is None:
            if not self.site.others.earlier(self.key):
                taken = devices.take(self.key, start.type, start.ranks, start.beside)
                if taken is not None:
                    return taken
            await self.site.changed.heard()
        return None

    async def _run_on(self, devices: tuple[int, ...]) -> None:
        self.meeting = meeting_of(self.start, self.site.address, self.site.ports)
        self.tasks = [self._task(local, device) for local, device in enumerate(devices)]
        self.site.others.neighbours_changed()
        try:
            await asyncio.gather(*(self._run_task(task, self.meeting) for task in self.tasks))
        finally:
            if self.start.first_rank == 0:
                self.site.ports -= {self.meeting.master_port, self.meeting.gang_port}

    def _task(self, local: int, device: int) -> Task:
        status = self._status(local)
        log = Log(self.site.state.log(self.start.job, self.start.attempt, status.rank), self.site.settings.log_bytes)
        return Task(status, device, log, self.site.graces, self)

    async def _run_task(self, task: Task, meeting: Meeting) -> None:
        socket = self.site.state.socket(next(self.site.sockets))
        try:
            extra = await self._sharing()
            task.listen(socket)
            program = self._program(task, meeting, socket, extra)
            verdict = await task.run(lambda: self._launch(program), lambda: self._report_started(task))
            self.site.state.forget(task.pid)
        except NeverStartsError as error:
            verdict = Verdict(pb.TaskEnded.CRASHED, str(error), hopeless=True)
        except OSError as error:
            verdict = Verdict(pb.TaskEnded.CRASHED, f"it cannot be started: {error}")
        except Exception as error:  # noqa: BLE001 - what goes wrong with one rank must not be the end of others
            verdict = Verdict(pb.TaskEnded.CRASHED, f"a bug of the agent: {error!r}")
        finally:
            task.close()
            self.site.devices.give_back(self.key, task.device)
            self.site.others.neighbours_changed()
        self._report_ended(task, verdict)

    async def _sharing(self) -> Mapping[str, str]:
        if self.site.mps is None or not self.start.beside:
            return {}
        return await asyncio.to_thread(self.site.mps.start)

    def _program(self, task: Task, meeting: Meeting, socket: Path, extra: Mapping[str, str]) -> Program:
        settings, start = self.site.settings, self.start
        rank = task.status.rank
        checkpoints = settings.checkpoints / quote(start.job, safe="")
        seat = Seat(rank, rank - start.first_rank, task.device, str(socket), max(0.0, self._left()))
        real = settings.emulation is None
        environment = job_environment(
            settings.environment, start, seat, meeting, checkpoints=checkpoints, real=real, extra=extra
        )
        directory = start.request.working_directory or None
        grace = self.site.graces.terminate_seconds
        return Program(list(start.request.command), environment, directory, checkpoints, task.log, grace)

    def _launch(self, program: Program) -> Guarded:
        """Start a process; runs in a thread, since disks may be slow."""
        problem = obstacle(program.command, program.directory, program.environment)
        if problem is not None:
            raise NeverStartsError(problem)
        guarded = Guarded(program)
        with contextlib.suppress(OSError):  # a full disk; it is noted only for the case that we crash
            self.site.state.remember(guarded.pid, guarded.socket)
        return guarded

    # ---- what the scheduler hears ----

    def _status(self, local: int) -> pb.TaskStatus:
        return pb.TaskStatus(job=self.start.job, attempt=self.start.attempt, rank=self.start.first_rank + local)

    def _started(self, task: Task) -> pb.TaskStarted:
        started = pb.TaskStarted(job=self.start.job, attempt=self.start.attempt, rank=task.status.rank)
        if task.status.rank == 0 and self.start.workers > 1 and self.meeting is not None:
            started.master_address = self.meeting.address
            started.master_port = self.meeting.master_port
            started.gang_port = self.meeting.gang_port
        return started

    def _never_began(self, verdict: Verdict) -> None:
        for local in range(self.start.ranks):
            self.site.post.ended(ended(self._status(local), verdict), None)

    def _report_started(self, task: Task) -> None:
        task.keep(self._left())
        self.site.say(f"started {self._named(task)} on {self.start.type} {task.device}")
        self.site.post.started(self._started(task))

    def _report_ended(self, task: Task, verdict: Verdict) -> None:
        self.site.say(f"ended {self._named(task)}: {verdict.reason}")
        self.site.post.ended(ended(task.take_status(), verdict, task.log), task.log)
        if verdict.how == pb.TaskEnded.CRASHED:
            self.broken = True
            if not self.site.post.attached:
                self.give_up()

    def give_up(self) -> None:
        """Stop what is left of a broken gang, when there is no scheduler to say so."""
        if self.broken:
            self.leave("another rank of its gang has crashed", at_once=True)

    def _named(self, task: Task) -> str:
        rank = f", rank {task.status.rank}" if self.start.workers > 1 else ""
        return f"job {self.start.job}{rank}"
