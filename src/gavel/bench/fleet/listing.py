"""How long `gavel jobs` takes with a long history, and how long other callers wait meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from gavel.bench.fleet.processes import Helper
from gavel.client.api import Client
from gavel.errors import GavelError

REPEATS = 3
HOURS_LATER = 2.0
"""Clock offset: `gavel jobs` leaves out jobs that ended more than an hour ago, but the history is a minute old."""
LATER = f"""
import time
now = time.time
time.time = lambda: now() + {HOURS_LATER * 3600.0}
"""
GAVEL = "from gavel.cli.app import main; main()"


async def measure_listing(client: Client, prober: Helper, environment: Mapping[str, str]) -> dict[str, Any]:
    """Time the command, the underlying call, and the waits of another caller."""
    command = LATER + GAVEL, "jobs", "--scheduler", client.address
    await prober.ask("report")
    runs = [await asyncio.to_thread(_run, *command, environment=environment) for _ in range(REPEATS)]
    calls = [await asyncio.to_thread(_list, client) for _ in range(REPEATS)]
    others = (await prober.ask("report"))["waits"]
    bare, _ = await asyncio.to_thread(_run, GAVEL, "--version")
    return {
        "jobs_command_seconds": float(np.median([wall for wall, _ in runs])),
        "jobs_command_cpu_seconds": float(np.median([cpu for _, cpu in runs])),
        "jobs_call_seconds": float(np.median(calls)),
        "gavel_version_seconds": bare,
        "jobs_others_longest_wait_seconds": max(others, default=0.0),
    }


def _run(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[float, float]:
    """Run a Python program to its end, with additional variables: elapsed seconds and CPU seconds."""
    began, variables = time.perf_counter(), {**os.environ, **(environment or {})}
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=variables)  # noqa: S603 - ours
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise GavelError(f"`gavel {' '.join(arguments)}` ended with code {process.returncode}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def _list(client: Client) -> float:
    began = time.perf_counter()
    client.jobs(ended_after=time.time() + HOURS_LATER * 3600.0)
    return time.perf_counter() - began
