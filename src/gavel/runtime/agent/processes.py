"""Job processes, each under a guard of its own that ends when the agent does, and takes the job with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gavel.client import guard
from gavel.runtime.agent.logs import Log
from gavel.runtime.agent.state import Mark, boot_id, end_marked, kill_all_with, start_time


@dataclass(frozen=True, slots=True)
class Program:
    """What to run."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str | None
    checkpoints: Path
    """Made if it is not there."""
    log: Log
    grace_seconds: float
    """Between SIGTERM and SIGKILL."""


class Guarded:
    """A job process with its guard: one thing that runs, can be told to end, and ends."""

    def __init__(self, program: Program) -> None:
        program.checkpoints.mkdir(parents=True, exist_ok=True)
        self.socket = program.environment["GAVEL_SOCKET"]
        self._process, self._leash = _start_guard(program)
        self.pid = self._process.pid

    async def wait(self) -> int:
        """Wait for the end; the exit code of the job, negative for the signal that ended it."""
        try:
            await _ended(self._process)
        except asyncio.CancelledError:
            threading.Thread(target=self._process.wait, daemon=True).start()  # it ends soon; leave no zombie
            raise
        finally:
            self.terminate()
        code = self._process.wait()
        if code < 0:
            # The guard itself was killed: nobody else is left to end the job.
            await asyncio.to_thread(kill_all_with, self.socket)
        return 128 - code if 128 < code <= 128 + signal.NSIG else code

    def keep(self, seconds: float) -> None:
        """Have it ended so long from now even if we are frozen then; a later call counts instead."""
        if self._leash >= 0:
            with suppress(OSError):  # it has just ended
                os.write(self._leash, f"{max(seconds, 0.0):.3f}\n".encode())

    def terminate(self) -> None:
        """Send SIGTERM, and SIGKILL when the grace is over: the guard does it when we let go."""
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1

    def kill(self) -> None:
        """Kill the guard and everything of the job, for a guard that does not do its work."""
        end_marked(Mark(self.pid, start_time(self.pid) or 0, boot_id(), self.socket))


def _start_guard(program: Program) -> tuple[subprocess.Popen[bytes], int]:
    """Start a guard and its job; returns it and the end of a pipe which it takes for our life."""
    output = program.log.open()
    theirs, ours = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - running commands is what agents are for
            guard.argv(list(program.command), pipe=theirs, grace_seconds=program.grace_seconds),
            env=program.environment,
            cwd=program.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs],
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
        os.close(output)
    return process, ours


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process without a thread, where the kernel can."""
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
