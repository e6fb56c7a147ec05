"""Job processes, each under its own guard, which ends when the agent does and takes the job with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from gavel.client import guard
from gavel.runtime.agent.containers import Container
from gavel.runtime.agent.logs import LogFile
from gavel.runtime.agent.run_as import SystemAccount
from gavel.runtime.agent.state import Mark, Removal, end_marked, kill_all_with, mark_of


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    """With secrets."""
    directory: str | None
    log: LogFile
    grace_seconds: float
    """Time between SIGTERM and SIGKILL."""
    container: Container | None = None
    umask: int = -1
    """-1: that of the agent."""
    account: SystemAccount | None = None
    """None: the agent's own user."""
    needed: str = ""
    """A directory that the account must be able to use."""
    searched: bool = True
    """Whether the command is looked for before it is started."""
    removal: Removal | None = None
    """Ends what runs outside of its processes; None: nothing does."""
    terminal: bool = False
    """Whether it gets a terminal."""


class Guarded:
    """A job process with its guard: it runs, can be told to end, and ends."""

    def __init__(self, program: ProcessSpec) -> None:
        self._process, self._leash, self.line = _start_guard(program)
        self._container = program.container
        self._removal = program.removal
        self._killed = False
        self._asked = False
        self.memory_exceeded = 0
        """The limit in bytes for which the kernel has killed a process of it; 0: none was."""
        self.mark: Mark = mark_of(
            self._process.pid, program.environment["GAVEL_SOCKET"], program.container, program.removal
        )

    @property
    def pid(self) -> int:
        """The process id of the guard."""
        return self._process.pid

    @property
    def asked(self) -> bool:
        """Whether the job was still running when its guard, or we, made it leave; known once it has ended."""
        return self._asked or self._killed

    async def wait(self) -> int:
        """Wait for the end; return the job's exit code, negative for the signal that ended it."""
        try:
            await _ended(self._process)
        except asyncio.CancelledError:
            # It ends soon; leave neither a zombie nor a container.
            threading.Thread(target=self._bury, daemon=True).start()
            raise
        finally:
            self.terminate()
        code = self._process.wait()
        self._hear_guard()
        self.memory_exceeded = self._exceeded()
        await asyncio.to_thread(self._end_the_rest, guard_was_killed=code < 0)
        return 128 - code if 128 < code <= 128 + signal.NSIG else code

    def keep(self, seconds: float) -> None:
        """Have it ended this many seconds from now, even if we are frozen by then; a later call replaces this one."""
        with suppress(OSError):  # it has just ended
            self._leash.send(f"{max(seconds, 0.0):.3f}\n".encode(), socket.MSG_DONTWAIT)

    def ask(self) -> None:
        """Send SIGTERM and nothing else."""
        with suppress(OSError):  # it has just ended
            self._leash.send(guard.TERMINATE, socket.MSG_DONTWAIT)

    def terminate(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace: the guard does so when we close our end."""
        with suppress(OSError):  # it has just ended
            self._leash.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """Kill the guard and all processes of the job, for a guard that does not respond."""
        self._killed = True
        end_marked(self.mark)

    def _exceeded(self) -> int:
        confined = None if self._container is None else self._container.confined
        return 0 if confined is None or not confined.out_of_memory() else confined.limits.memory

    def _hear_guard(self) -> None:
        with suppress(OSError):
            self._asked = guard.ASKED in self._leash.recv(64, socket.MSG_DONTWAIT)
        self._leash.close()

    def _bury(self) -> None:
        code = self._process.wait()
        self._leash.close()
        self._end_the_rest(guard_was_killed=code < 0)
        if self._container is not None:
            with suppress(OSError):  # other tasks of the agent are still ending
                self._container.path.parent.rmdir()

    def _end_the_rest(self, *, guard_was_killed: bool) -> None:
        """End what the guard has missed: nothing, unless it was killed itself."""
        if self._container is not None:
            self._container.end()
        if guard_was_killed:
            kill_all_with(self.mark.socket)
            if self._removal is not None:
                self._removal.run()


def _start_guard(program: ProcessSpec) -> tuple[subprocess.Popen[bytes], socket.socket, socket.socket | None]:
    """Start a guard and its job.

    Returns it, our end of a connection that the guard takes as our sign of life, and the line to its terminal, if any.
    """
    output = program.log.open()
    ours, theirs = socket.socketpair()
    line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if program.terminal else (None, None)
    account = _described(program)
    guarded = guard.argv(
        list(program.command),
        pipe=theirs.fileno(),
        grace_seconds=program.grace_seconds,
        output=1,
        container="\n".join(map(str, program.container.groups)) if program.container else None,
        account=None if account is None else account.fileno(),
        last=list(program.removal.command) if program.removal else None,
        terminal=None if far is None else far.fileno(),
    )
    inherited = [each.fileno() for each in (theirs, far, account) if each is not None]
    try:
        process = subprocess.Popen(  # noqa: S603 - running commands is what agents are for
            guarded,
            env=program.environment if account is None else _own_environment(program.environment),
            cwd=program.directory if account is None else "/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherited,
            start_new_session=True,
            umask=program.umask,
        )
    except BaseException:
        ours.close()
        if line is not None:
            line.close()
        raise
    finally:
        theirs.close()
        if far is not None:
            far.close()
        os.close(output)
        if account is not None:
            account.close()
    return process, ours, line


def _described(program: ProcessSpec) -> BinaryIO | None:
    """A file in memory that tells a guard as which user to run its command; None: as ours."""
    if program.account is None:
        return None
    account = program.account
    directory = program.directory or account.directory
    told = guard.AssumedUser([account.uid, *account.groups], directory, program.needed, dict(program.environment))
    file = os.fdopen(os.memfd_create("gavel-account"), "w+b")
    file.write(told.packed())
    file.seek(0)  # flushes, too
    return file


def _own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the guard of another user's job gets: nothing that could change how it runs, as root."""
    return {"PATH": os.defpath, "GAVEL_SOCKET": environment["GAVEL_SOCKET"]}


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process without a thread, where the kernel supports it."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        await asyncio.to_thread(process.wait)
        return
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def in_words(code: int) -> str:
    """Say how a process ended.

    >>> in_words(3), in_words(-15)
    ('exit code 3', 'killed by signal SIGTERM')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    hint = ", perhaps out of memory" if name == "SIGKILL" else ""
    return f"killed by signal {name}{hint}"
