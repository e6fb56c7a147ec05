"""How quick the live system is on this machine: submitting, preempting, renewing leases, and doing nothing."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from gavel.client.api import Client
from gavel.client.requests import JobRequest
from gavel.core.errors import GavelError
from gavel.core.facts import RoundPlanned
from gavel.core.problem import Floats
from gavel.runtime.facts import Fact
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.local import local_cluster
from gavel.runtime.server import Running, ServeSettings

PREEMPTED = """
import sys, time
from gavel import GavelIterator
trail = open(sys.argv[1], "a", buffering=1)
def save(folder):
    print("saved", time.time(), file=trail)
steps = GavelIterator(range(10**9), load_checkpoint=lambda folder: None, save_checkpoint=save)
first = True
while not steps.done:
    for _ in steps:
        if first:
            print("first", time.time(), file=trail)
            first = False
"""

LISTENING = """
import json, os, socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["GAVEL_SOCKET"])
link.sendall(b'{"op":"hello","protocol":1,"rank":0,"asks":true}\\n')
trail = open(sys.argv[1], "a", buffering=1)
for line in link.makefile():
    message = json.loads(line)
    if message["op"] == "lease":
        print(time.time(), file=trail)
    elif message["op"] == "stop":
        break
"""


def submit(jobs: int) -> dict[str, float]:
    """Submit jobs in batches, and one by one, over the network."""

    async def measure() -> dict[str, float]:
        async with _system(ServeSettings()) as (running, _), _client(running) as client:
            requests = [JobRequest(["train"], steps=1e6, name=f"job{number}") for number in range(jobs)]
            started = time.perf_counter()
            await asyncio.to_thread(client.submit, requests)
            together = time.perf_counter() - started
            singles = min(jobs, 500)
            started = time.perf_counter()
            await asyncio.to_thread(lambda: [client.submit(request) for request in requests[:singles]])
            return {
                f"submit_{jobs}_jobs_seconds": together,
                "single_submissions_per_second": singles / (time.perf_counter() - started),
            }

    return asyncio.run(measure())


def preemption(rounds: int) -> dict[str, float]:
    """From the end of one job's checkpoint to the next job's first step on the same accelerator."""

    async def measure() -> dict[str, float]:
        settings = ServeSettings(round_seconds=1.0, mechanism="priorities")
        async with _system(settings, {"v100": 1}) as (running, folder), _client(running) as client:
            program = folder / "preempted.py"
            program.write_text(PREEMPTED)
            trail = folder / "trail"
            command = [sys.executable, str(program), str(trail)]
            await asyncio.to_thread(client.submit, [JobRequest(command, steps=1e9) for _ in range(2)])
            await _until(lambda: len(_gaps(trail)) >= rounds)
            return _spread("preemption", _gaps(trail))

    return asyncio.run(measure())


def _gaps(trail: Path) -> list[float]:
    """Seconds between a save and the first step that follows."""
    gaps, saved = [], None
    for line in trail.read_text().splitlines() if trail.exists() else ():
        kind, at = line.split()
        if kind == "saved":
            saved = float(at)
        elif saved is not None:
            gaps.append(float(at) - saved)
            saved = None
    return gaps


def renewals(accelerators: int, rounds: int) -> dict[str, float]:
    """From the scheduler's decision to renew until job processes know, with every accelerator busy."""

    async def measure() -> dict[str, float]:
        settings = ServeSettings(round_seconds=2.0)
        decided: list[float] = []

        def notice(facts: Sequence[Fact]) -> None:
            decided.extend(fact.time for fact in facts if isinstance(fact, RoundPlanned) and not fact.mid_round)

        async with _system(settings, {"v100": accelerators}) as (running, folder), _client(running) as client:
            running.engine.witnesses.append(notice)
            program = folder / "listening.py"
            program.write_text(LISTENING)
            trails = [folder / f"trail{number}" for number in range(accelerators)]
            jobs = [JobRequest([sys.executable, "-S", str(program), str(trail)], steps=1e9) for trail in trails]
            await asyncio.to_thread(client.submit, jobs)
            await _until(lambda: all(trail.exists() and trail.read_text() for trail in trails))
            del decided[:]
            await _until(lambda: len(decided) > rounds)
            heard = np.sort([float(line) for trail in trails for line in trail.read_text().split()])
            return _spread("renewal", _delays(heard, decided[:rounds], settings.round_seconds))

    return asyncio.run(measure())


def _delays(heard: Floats, decided: Iterable[float], within: float) -> list[float]:
    """How long after each decision processes heard of it."""
    return [float(at - time_) for time_ in decided for at in heard[(heard >= time_) & (heard < time_ + within / 2)]]


def idle(seconds: float) -> dict[str, float]:
    """What a scheduler costs that has nothing to do: a process of its own, with no jobs and no agents."""

    async def measure() -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="gavel-bench-") as folder:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", "from gavel.cli.app import main; main()"),
                *("serve", "--folder", folder, "--listen", "127.0.0.1:0"),
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                assert process.stderr is not None  # noqa: S101 - asked for above
                if not (await process.stderr.readline()).startswith(b"gavel "):
                    raise GavelError("the scheduler did not start")
                await asyncio.sleep(1.0)
                before = _cpu_seconds(process.pid)
                await asyncio.sleep(seconds)
                share = (_cpu_seconds(process.pid) - before) / seconds
                return {"idle_share_of_a_core": share, "idle_memory_mb": _memory_mb(process.pid)}
            finally:
                process.terminate()
                await process.communicate()

    return asyncio.run(measure())


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024.0 for line in lines if line.startswith("VmRSS:"))


def _spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_median_seconds": float(np.median(seconds)),
        f"{name}_p99_seconds": float(np.quantile(seconds, 0.99)),
        f"{name}s": float(len(seconds)),
    }


@asynccontextmanager
async def _system(
    settings: ServeSettings, accelerators: dict[str, int] | None = None
) -> AsyncIterator[tuple[Running, Path]]:
    """A scheduler and perhaps one emulated server in this process; jobs are processes of their own."""
    with tempfile.TemporaryDirectory(prefix="gavel-bench-") as name:
        fleet = FleetSettings(heartbeat_seconds=1.0, terminate_grace_seconds=1.0, checkpoint_grace_seconds=5.0)
        text = ",".join(f"{kind}={count}" for kind, count in (accelerators or {}).items())
        servers = {"bench": text} if text else {}
        async with local_cluster(replace(settings, fleet=fleet), servers, Path(name)) as running:
            yield running, Path(name)


async def _until(ready: Callable[[], bool]) -> None:
    """Wait for something that other processes do."""
    while not ready():  # noqa: ASYNC110 - they do not tell us
        await asyncio.sleep(0.2)


@asynccontextmanager
async def _client(running: Running) -> AsyncIterator[Client]:
    client = Client(running.address, timeout=120.0)
    try:
        yield client
    finally:
        await asyncio.to_thread(client.close)
