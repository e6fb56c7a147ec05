"""One attempt of a job on this server: its ranks here, their devices, their lease, and the end of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gavel.client.field_checks import shortened
from gavel.client.guard import unusable
from gavel.core.throughputs import Profile
from gavel.runtime.agent.allotment import NO_DEVICES, device_variables, named_devices
from gavel.runtime.agent.container_runtimes import FAILED_TO_START, find_runtime, steering
from gavel.runtime.agent.containers import Container
from gavel.runtime.agent.disks import is_full, why_full
from gavel.runtime.agent.environment import Seat, job_variables, obstacle
from gavel.runtime.agent.exit_verdict import LEASE_OVER, ExitVerdict, ended
from gavel.runtime.agent.gang_certificate import make_certificate
from gavel.runtime.agent.job_command import Execution, NeverStartsError, TaskSetting, container_name, execution
from gavel.runtime.agent.logs import LogFile
from gavel.runtime.agent.ownership import NotOursError, Owner, check_private, claim, hand_over, make_for
from gavel.runtime.agent.processes import Guarded, ProcessSpec
from gavel.runtime.agent.rendezvous import Rendezvous, rendezvous_of
from gavel.runtime.agent.run_as import NoAccountError, SystemAccount, on_behalf
from gavel.runtime.agent.server_context import Key, ServerContext
from gavel.runtime.agent.state import Removal
from gavel.runtime.agent.task import Task, TaskProgress
from gavel.runtime.ids import file_name, is_file_name
from gavel.runtime.messages import Ending, StartAttempt, TaskStarted, TaskStatus, TerminalKeys
from gavel.runtime.privacy import OTHERS, write_private

MOST_EARLY_KEYS = 64
"""Messages for a terminal that are kept until it is there."""


@dataclass(eq=False)
class LocalAttempt:
    """An attempt from its StartAttempt to the end of its last process here."""

    start: StartAttempt
    context: ServerContext
    lease_ends: float
    """By the clock of the event loop."""
    tasks: list[Task] = field(default_factory=list)
    asked: str | None = None
    """Why the whole attempt was asked to leave."""
    at_once: bool = False
    """Whether no checkpoint is wanted."""
    broken: bool = False
    """Whether one of its ranks has crashed here."""
    rendezvous: Rendezvous | None = None
    """Known once it runs."""
    _early_keys: list[TerminalKeys] = field(default_factory=list)
    """What was typed before it had a terminal."""
    _timer: asyncio.TimerHandle | None = None
    _neighbour: Profile | None = None
    _pace: float | None = None
    """Steps per second, once it runs on emulated accelerators."""

    @property
    def key(self) -> Key:
        """The key by which it is known."""
        return self.start.job, self.start.attempt

    @property
    def profile(self) -> Profile:
        """The key of the job in throughput tables."""
        return self.start.request.template, self.start.workers

    async def run(self) -> None:
        """Wait for devices, run every rank, report every end."""
        if not is_file_name(self.start.job):
            named = f"the job id {shortened(self.start.job)} cannot name a directory"
            self._never_began(ExitVerdict(Ending.CRASHED, named, hopeless=True))
            return
        there = self.context.devices.total(self.start.type)
        if there < self.start.ranks:
            named = f"server {self.context.settings.name} has {there} accelerators of type {self.start.type}"
            self._never_began(ExitVerdict(Ending.CRASHED, f"{named}, not {self.start.ranks}"))
            return
        self._watch_lease()
        try:
            devices = await self._devices()
            if devices is None:
                self._never_began(ExitVerdict(Ending.LEFT, f"{self.asked}, before it began"))
            else:
                await self._run_on(devices)
        finally:
            self.context.devices.leaving.discard(self.key)
            if self._timer is not None:
                self._timer.cancel()

    # ---- orders ----

    def leave(self, reason: str, *, at_once: bool = False) -> None:
        """Ask all of its ranks to leave; from now on no job may share its devices."""
        if self.asked is None:
            self.asked = reason
            self.context.devices.leaving.add(self.key)
        self.at_once = self.at_once or at_once
        for task in self.tasks:
            task.leave(self.asked, at_once=self.at_once)
        self.context.changed.ring()

    def extend(self, ends: float) -> None:
        """Let it run until then; leases are never shortened, and an attempt that is leaving keeps leaving."""
        if self.asked is None and ends > self.lease_ends:
            self.lease_ends = ends
            self._watch_lease()
            for task in self.tasks:
                task.tell(self._lease())
                task.keep(self._left())

    def set_neighbour(self, neighbour: Profile | None) -> None:
        """Tell its processes the rate of their emulated accelerators beside this neighbour."""
        emulation, start = self.context.settings.emulation, self.start
        if emulation is None or (self._pace is not None and neighbour == self._neighbour):
            return
        self._neighbour = neighbour
        self._pace = emulation.pace(self.profile, start.type, locality=start.locality, beside=neighbour)
        for task in self.tasks:
            task.tell({"op": "pace", "rate": self._pace})

    def statuses(self) -> list[TaskStatus]:
        """Report the progress of each rank that has not ended, including waiting ones."""
        if not self.tasks:
            return [self._progress(rank).take() for rank in self.start.process_ranks]
        return [task.progress.take() for task in self.tasks if not task.over]

    def started(self) -> list[TaskStarted]:
        """Report which ranks run."""
        return [self._started(task) for task in self.tasks if task.running]

    def typed(self, keys: TerminalKeys) -> None:
        """Pass on what a user typed at its terminal."""
        task = next((task for task in self.tasks if task.line is not None), None)
        if task is not None:
            task.typed(keys)
        elif len(self._early_keys) < MOST_EARLY_KEYS:
            self._early_keys.append(keys)

    def has_terminal(self, task: Task) -> bool:
        """Whether a task has the job's terminal: the first rank has it."""
        return self.start.request.terminal and task.progress.rank == 0

    # ---- requests of its processes ----

    def greeting(self) -> list[Mapping[str, Any]]:
        """The first messages for a process."""
        pace = [] if self._pace is None else [{"op": "pace", "rate": self._pace}]
        return [*pace, self._lease()]  # the lease comes last: a process that has it has everything

    def wants_more(self) -> None:
        """Tell the scheduler at once that a process is near the end of its lease."""
        self.context.post.hurry()

    def shows(self) -> None:
        """Send what its terminal shows at once: a user waits for it."""
        self.context.post.show()

    def attached(self) -> bool:
        """Whether the scheduler, through which users reach a terminal, is connected."""
        return self.context.post.attached

    def makes_steps(self) -> None:
        """Tell the scheduler at once about the first steps: the time until it hears counts as part of the start."""
        self.context.post.hurry()

    # ---- running ----

    def _lease(self) -> Mapping[str, Any]:
        return {"op": "lease", "seconds": round(max(0.0, self._left()), 3)}

    def _left(self) -> float:
        return self.lease_ends - asyncio.get_running_loop().time()

    def _watch_lease(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._left() <= 0:
            self.leave(LEASE_OVER)
        self._timer = asyncio.get_running_loop().call_at(self.lease_ends, self.leave, LEASE_OVER)

    async def _devices(self) -> tuple[int, ...] | None:
        """Wait for devices; None if it was asked to leave before it got them."""
        start, devices = self.start, self.context.devices
        while self.asked is None:
            if not self.context.others.earlier(self.key):
                taken = devices.take(self.key, start.type, start.ranks, start.beside)
                if taken is not None:
                    return taken
            await self.context.changed.heard()
        return None

    async def _run_on(self, devices: tuple[int, ...]) -> None:
        certificate = await asyncio.to_thread(make_certificate) if self._leads else None
        self.rendezvous = rendezvous_of(self.start, self.context.address, self.context.ports, certificate)
        held = [devices] if self.start.nodes else [(device,) for device in devices]
        self.tasks = [self._task(rank, own) for rank, own in zip(self.start.process_ranks, held, strict=True)]
        self.context.others.neighbours_changed()
        try:
            await asyncio.gather(*(self._run_task(task, self.rendezvous) for task in self.tasks))
        finally:
            if self.start.first_rank == 0:
                self.context.ports -= {self.rendezvous.master_port, self.rendezvous.gang_port}

    @property
    def _leads(self) -> bool:
        """Whether rank 0 is here, and the others can recognise it by a certificate."""
        return self.start.workers > 1 and self.start.first_rank == 0 and not self.start.plain_gang

    def _task(self, rank: int, devices: tuple[int, ...]) -> Task:
        progress = self._progress(rank)
        log = LogFile(
            self.context.state.log(self.start.job, self.start.attempt, progress.rank), self.context.settings.log_bytes
        )
        return Task(
            progress, devices, log, self.context.graces, self, self.start.request.grace_seconds, self.start.nodes > 0
        )

    async def _run_task(self, task: Task, rendezvous: Rendezvous) -> None:
        number = next(self.context.sockets)
        try:
            program = await self._prepared(task, rendezvous, number)
            verdict = await task.run(
                lambda: self._launch(program, task, str(number)), lambda: self._report_started(task)
            )
            self.context.state.forget(task.pid)
            verdict = await self._with_disk(self._with_container(verdict), task, program.account)
        except (NeverStartsError, NotOursError, NoAccountError) as error:
            verdict = ExitVerdict(Ending.CRASHED, str(error), hopeless=True)
        except OSError as error:
            verdict = ExitVerdict(Ending.CRASHED, f"it cannot be started: {error}", blameless=is_full(error))
        except UnicodeError:  # it would quote a value
            told = "its command or environment has characters that the locale of this server's agent cannot encode"
            verdict = ExitVerdict(Ending.CRASHED, told, hopeless=True)
        except Exception as error:  # noqa: BLE001 - a failure of one rank must not end others
            verdict = ExitVerdict(Ending.CRASHED, f"a bug in the agent: {error!r}")
        finally:
            task.close()
            for path in (self.context.state.certificate(number), self.context.state.variables(number)):
                path.unlink(missing_ok=True)
            for device in task.devices:
                self.context.devices.give_back(self.key, device)
            self.context.others.neighbours_changed()
        self._report_ended(task, verdict)

    async def _prepared(self, task: Task, rendezvous: Rendezvous, number: int) -> ProcessSpec:
        """Find the account of a task, open its link and write its certificate."""
        account = await asyncio.to_thread(self.context.settings.run_as.account_of, self.start.request.user)
        owner = None if account is None else account.owner
        socket = self.context.state.socket(number)
        task.listen(socket, owner)
        rank, certificate = task.progress.rank, ""
        if rendezvous.certificate is not None:
            certificate = str(self.context.state.certificate(number))
            shown = rendezvous.certificate if rank == 0 else rendezvous.certificate.public
            shown.write(Path(certificate), owner)
        left = max(0.0, self._left())
        seat = Seat(rank, rank - self.start.process_ranks[0], task.devices, str(socket), left, certificate)
        place = self._place(task, seat, account, number)
        return await asyncio.to_thread(self._program, task, rendezvous, place, await self._sharing(account))

    def _place(self, task: Task, seat: Seat, account: SystemAccount | None, number: int) -> TaskSetting:
        settings, state = self.context.settings, self.context.state
        real = settings.emulation is None
        path = settings.environment.get("PATH")
        return TaskSetting(
            runtime=find_runtime(settings.container_runtimes, path) if self.start.request.container else None,
            seat=seat,
            devices=named_devices(task.devices, settings.device_names, settings.environment, settings.vendor)
            if real
            else (),
            checkpoints=self._checkpoints,
            account=account,
            name=container_name(state.identity.agent, *self.key, seat.rank),
            steering_file=state.variables(number),
            terminal=self.has_terminal(task),
            limits=settings.limits(self.start.request, len(task.devices)),
        )

    def _with_container(self, verdict: ExitVerdict) -> ExitVerdict:
        """Say in words that a container could not be started."""
        if not self.start.request.container or verdict.ending is not Ending.CRASHED:
            return verdict
        if verdict.exit_code != FAILED_TO_START:
            return verdict
        told = f"its container {shortened(self.start.request.container)} could not be started: see the end of its log"
        return replace(verdict, reason=told)

    async def _with_disk(self, verdict: ExitVerdict, task: Task, account: SystemAccount | None) -> ExitVerdict:
        """Excuse a crash if the disk of its checkpoints is full or read-only."""
        if verdict.ending is not Ending.CRASHED or verdict.hopeless or verdict.blameless:
            return verdict
        tail = task.log.tail()
        why = await asyncio.to_thread(on_behalf, account, lambda: why_full(self._checkpoints, tail))
        if why is None:
            return verdict
        told = f"{verdict.reason}; its checkpoint directory {self._checkpoints}: {why}"
        return replace(verdict, reason=told, blameless=True)

    @property
    def _checkpoints(self) -> Path:
        return self.context.settings.checkpoints.absolute() / file_name(self.start.job)

    async def _sharing(self, account: SystemAccount | None) -> Mapping[str, str]:
        """Variables for sharing a device; the daemon for that serves only our own user."""
        if self.context.mps is None or not self.start.beside or account is not None:
            return {}
        return await asyncio.to_thread(self.context.mps.start)

    def _program(self, task: Task, rendezvous: Rendezvous, place: TaskSetting, extra: Mapping[str, str]) -> ProcessSpec:
        settings, request, account = self.context.settings, self.start.request, place.account
        variables = job_variables(
            settings.environment,
            self.start,
            place.seat,
            rendezvous,
            checkpoints=self._checkpoints,
            devices=NO_DEVICES
            if settings.emulation is not None
            else device_variables(place.seat.devices, settings.device_names, settings.environment, settings.vendor),
            extra=extra,
            account=account,
        )
        made = execution(request, variables, place)
        return ProcessSpec(
            made.command,
            made.environment,
            request.working_directory or None,
            task.log,
            self.context.graces.terminate_seconds,
            umask=-1 if settings.umask is None else settings.umask,
            account=account,
            needed=str(self._checkpoints),
            searched=made.searched,
            removal=self._removal(made, account),
            terminal=self.has_terminal(task),
        )

    def _removal(self, made: Execution, account: SystemAccount | None) -> Removal | None:
        """Write the variables that a container's runtime must not find in its own environment; say how it is ended."""
        if made.container is None:
            return None
        started = made.container
        if started.steering:
            write_private(Path(started.steering_file), started.steering, None if account is None else account.owner)
        rights = () if account is None else (account.uid, *account.groups)
        return Removal(started.removal, steering(made.inherited), rights) if started.removal else None

    def _launch(self, program: ProcessSpec, task: Task, number: str) -> Guarded:
        """Start a process; runs in a thread, because disks may be slow."""
        if program.account is None and program.searched:  # otherwise its guard finds out, with other rights
            problem = obstacle(program.command, program.directory, program.environment)
            if problem is not None:
                raise NeverStartsError(problem)
        self._claim(program.account)
        guarded = Guarded(replace(program, container=self._container(number, len(task.devices))))
        with contextlib.suppress(OSError):  # a full disk; the note is needed only if we crash
            self.context.state.remember(guarded.mark)
        return guarded

    def _claim(self, account: SystemAccount | None) -> None:
        """Make the job's checkpoint directory its own; that of another user's job is closed to all others."""
        owner, attempt = Owner(self.context.cluster, self.start.job), self.start.attempt
        if account is None:
            claim(self._checkpoints, owner, attempt, self.context.settings.umask)
            return
        try:
            make_for(self._checkpoints, account)
            hand_over(self._checkpoints, owner, account)
            check_private(self._checkpoints, account)
            on_behalf(account, lambda: claim(self._checkpoints, owner, attempt, OTHERS))
        except PermissionError as error:
            raise NeverStartsError(unusable(account.name, str(self._checkpoints))) from error

    def _container(self, number: str, accelerators: int) -> Container | None:
        """Make a control group for a task; without one, processes are found in other ways and not limited."""
        containers = self.context.state.containers
        if containers is None:
            return None
        try:
            name = f"{file_name(self.start.job)[:100]}.{self.start.attempt}-{number}"
            return containers.make(name, self.context.settings.limits(self.start.request, accelerators))
        except OSError as error:
            self.context.say(f"job {self.start.job}: it runs without a control group ({error})")
            return None

    # ---- reports to the scheduler ----

    def _progress(self, rank: int) -> TaskProgress:
        return TaskProgress(self.start.job, self.start.attempt, rank)

    def _started(self, task: Task) -> TaskStarted:
        started = TaskStarted(job=self.start.job, attempt=self.start.attempt, rank=task.progress.rank)
        rendezvous = self.rendezvous
        if task.progress.rank > 0 or self.start.workers <= 1 or rendezvous is None:
            return started
        return replace(
            started,
            master_address=rendezvous.address,
            master_port=rendezvous.master_port,
            gang_port=rendezvous.gang_port,
            gang_token=rendezvous.token,
            gang_certificate="" if rendezvous.certificate is None else rendezvous.certificate.certificate,
        )

    def _never_began(self, verdict: ExitVerdict) -> None:
        for rank in self.start.process_ranks:
            self.context.post.ended(ended(self._progress(rank).take(), verdict), None)

    def _report_started(self, task: Task) -> None:
        task.keep(self._left())
        if task.line is not None:
            for keys in self._early_keys:
                task.typed(keys)
            self._early_keys.clear()
        devices = ", ".join(map(str, task.devices))
        self.context.say(f"started {self._named(task)} on {self.start.type} {devices}")
        self.context.post.started(self._started(task))

    def _report_ended(self, task: Task, verdict: ExitVerdict) -> None:
        self.context.say(f"ended {self._named(task)}: {verdict.reason}")
        self.context.post.ended(ended(task.progress.take(), verdict, task.log), task.log)
        if verdict.ending is Ending.CRASHED:
            self.broken = True
            if not self.context.post.attached:
                self.give_up()

    def give_up(self) -> None:
        """Stop what is left of a broken gang when there is no scheduler to order it."""
        if self.broken:
            self.leave("another rank of its gang has crashed", at_once=True)

    def _named(self, task: Task) -> str:
        what = "node" if self.start.nodes else "rank"
        several = self.start.nodes > 1 if self.start.nodes else self.start.workers > 1
        return f"job {self.start.job}" + (f", {what} {task.progress.rank}" if several else "")
