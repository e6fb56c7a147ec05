"""The processes of a benchmark: a scheduler to measure and helpers to query, all reliably ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gavel.errors import GavelError

Result = TypeVar("Result")

ENDING_SECONDS = 20.0
START_SECONDS = 60.0
STATE = "state"
"""The scheduler's folder, below that of the benchmark."""
LONGEST_LINE = 2**27
GAVEL = """
import ctypes, signal
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # ends with the benchmark, however that ends
from gavel.cli.app import main
"""
RUN = "main()"
PROFILE = "import cProfile; cProfile.run('main()', {path!r})"


def run_to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a benchmark; SIGTERM interrupts it like Ctrl-C, so that its processes and files are removed."""

    async def interruptible() -> Result:
        if threading.current_thread() is threading.main_thread():
            task = asyncio.current_task()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: task and task.cancel())
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@dataclass(frozen=True, slots=True)
class SchedulerProcess:
    """A `gavel serve` process started by the benchmark."""

    process: asyncio.subprocess.Process
    address: str
    agents_address: str
    log: Path

    def check(self) -> None:
        """Raise if it has ended."""
        if self.process.returncode is not None:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-3:]
            raise GavelError(f"the scheduler ended with code {self.process.returncode}: {' / '.join(tail)}")

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far."""
        return cpu_seconds_of(self.process.pid)

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Memory in use now; with VmHWM, the peak."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024.0 for line in lines if line.startswith(f"{field}:"))


def cpu_seconds_of(pid: int) -> float:
    """CPU time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def scheduler_process(
    folder: Path, options: dict[str, float | str], profile: Path | None = None, *, secured: bool = False
) -> AsyncIterator[SchedulerProcess]:
    """Start `gavel serve` on a free port of the loopback interface; it is ended on exit.

    A secured one was set up before, in its folder; it listens for agents at another port.
    With a profile, cProfile's figures of its main thread are written there at the end; that makes it slower.
    """
    address, agents_address = (f"127.0.0.1:{port}" for port in _free_ports(2))
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    if secured:  # the default place of the socket may belong to another scheduler
        flags += ["--agents-listen", agents_address, "--socket", str(folder / "gavel.sock")]
    else:
        agents_address = address
    log = folder / "scheduler.log"
    arguments = ("serve", "--folder", str(folder / STATE), "--listen", address, *flags)
    async with gavel_process(log, *arguments, profile=profile) as process:
        scheduler = SchedulerProcess(process, address, agents_address, log)
        await _until_it_listens(scheduler)
        yield scheduler


@asynccontextmanager
async def gavel_process(
    log: Path, *arguments: str, profile: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a `gavel` command as a process that is ended on exit; its output goes to a file."""
    program = GAVEL + (RUN if profile is None else PROFILE.format(path=str(profile)))
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, *arguments), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        await _end(process)


async def _until_it_listens(scheduler: SchedulerProcess) -> None:
    host, _, port = scheduler.address.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        scheduler.check()
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise GavelError(f"the scheduler did not listen within {START_SECONDS:.0f} s; is the machine busy?")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:  # all are open at once, so that they differ
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@dataclass(slots=True)
class Helper:
    """A helper process that answers requests."""

    process: asyncio.subprocess.Process
    role: str

    def cpu_seconds(self) -> float:
        """CPU time so far; a helper that uses nearly a whole core measures itself, not the scheduler."""
        return cpu_seconds_of(self.process.pid)

    async def ask(self, do: str, patience: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Send one request and wait for the answer."""
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise GavelError(f"the {self.role} process has no pipes")
        stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        async with asyncio.timeout(patience):
            line = await stdout.readline()
        if not line:
            raise GavelError(f"the {self.role} process of the benchmark has ended unexpectedly")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def helper(role: str) -> AsyncIterator[Helper]:
    """Start a module of this package as a process; it is ended on exit."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"gavel.bench.fleet.{role}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE,
    )
    try:
        yield Helper(process, role)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate a process, and kill it if that does not help."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
