"""Latency of the live system with real agents and job processes, and the table of all live benchmarks.

Everything is measured from outside: schedulers and agents are separate processes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gavel.bench.fleet.load import SCENARIOS
from gavel.bench.fleet.measure import Figures, Say, run
from gavel.bench.fleet.processes import gavel_process, run_to_the_end, scheduler_process
from gavel.client.api import Client
from gavel.client.requests import JobRequest

PREEMPTION_LIMIT_SECONDS = 120.0
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


@dataclass(frozen=True, slots=True)
class Target:
    """The target for a figure."""

    figure: str
    most: float | None = None
    least: float | None = None

    def met(self, figures: Figures) -> bool:
        """Whether the target is met; an unmeasured figure does not meet it."""
        value = figures.get(self.figure)
        if value is None:
            return False
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)

    def verdict(self, figures: Figures) -> tuple[str, str]:
        """The target and whether it is met, as the table shows them.

        >>> Target("stall", 0.25).verdict({"stall": 0.3}), Target("agents", least=3).verdict({"agents": 3})
        (('at most 0.25', 'no'), ('at least 3', 'yes'))
        """
        met = "yes" if self.met(figures) else "no"
        if self.most is not None:
            return f"at most {self.most:g}", met
        return ("", "") if self.least is None else (f"at least {self.least:g}", met)


_LIGHT = (
    Target("share_of_a_core", 0.15),
    Target("stall_longest_seconds", 0.25),
    Target("renewal_p99_seconds", 0.1),
    Target("missed_leases", 0),
    Target("starts_per_second"),
)
"""The share of a core grows with the number of starts and ends, so it is shown together with it."""

TARGETS: Mapping[str, tuple[Target, ...]] = MappingProxyType(
    {
        "250-agents": _LIGHT,
        "250-agents-churn": _LIGHT,
        "1000-agents": (
            Target("agents_connected", least=1000),
            Target("share_of_a_core", 0.6),
            Target("stall_longest_seconds", 0.5),
            Target("renewal_p99_seconds", 0.5),
            Target("missed_leases", 0),
        ),
        "10000-templates": (Target("rounds_on_time_share", least=1.0), Target("peak_memory_mb", 1000)),
        "100000-finished": (Target("jobs_command_seconds", 0.2), Target("jobs_others_longest_wait_seconds", 0.25)),
        "200-watchers": (
            Target("catch_up_seconds", 5.0),
            Target("change_longest_seconds", 1.0),
            Target("watchers_lost", 0),
        ),
        "submit-10000": (Target("submit_seconds", 1.3),),
        "preemption": (Target("preemption_median_seconds", 0.11),),
        "idle": (Target("idle_share_of_a_core"), Target("idle_memory_mb")),
    }
)
"""By scenario: the figures in the table and their targets; figures without a bound are only shown."""


def scenarios(seconds: float, say: Say) -> Iterator[tuple[str, Figures]]:
    """Measure every row of the table, each for the given seconds of steady load."""
    for name, load in SCENARIOS.items():
        say(f"--- {name}")
        yield name, run(replace(load, seconds=min(seconds, load.seconds)), say)
    say("--- preemption")
    yield "preemption", preemption(10)
    say("--- idle")
    yield "idle", idle(min(seconds, 10.0))


def preemption(rounds: int) -> Figures:
    """From the end of one job's checkpoint to the next job's first step on the same accelerator."""
    return run_to_the_end(_preemption(rounds))


async def _preemption(rounds: int) -> Figures:
    options: dict[str, float | str] = {"round-seconds": 1.0, "mechanism": "priorities", "heartbeat-seconds": 1.0}
    with tempfile.TemporaryDirectory(prefix="gavel-bench-") as name:
        folder = Path(name)
        (folder / "preempted.py").write_text(PREEMPTED)
        trail = folder / "trail"
        async with scheduler_process(folder, options) as scheduler:
            worker = ("worker", "--scheduler", scheduler.address, "--name", "bench", "--emulate", "v100=1")
            places = ("--state", str(folder / "agent"), "--checkpoints", str(folder / "checkpoints"))
            async with gavel_process(folder / "agent.log", *worker, *places):
                command = (sys.executable, str(folder / "preempted.py"), str(trail))
                with closing(Client(scheduler.address)) as client:
                    await asyncio.to_thread(client.submit, [JobRequest(command, steps=1e9) for _ in range(2)])
                return await _until_gaps(trail, rounds)


async def _until_gaps(trail: Path, rounds: int) -> Figures:
    try:
        async with asyncio.timeout(PREEMPTION_LIMIT_SECONDS):
            while len(_gaps(trail)) < rounds:  # noqa: ASYNC110 - other processes write it
                await asyncio.sleep(0.2)
    except TimeoutError:
        return {"trouble": f"{len(_gaps(trail))} of {rounds} preemptions within {PREEMPTION_LIMIT_SECONDS:.0f} s"}
    gaps = _gaps(trail)
    return {
        "preemption_median_seconds": float(np.median(gaps)),
        "preemption_p99_seconds": float(np.quantile(gaps, 0.99)),
        "preemptions": len(gaps),
    }


def _gaps(trail: Path) -> list[float]:
    """Seconds between a save and the next first step."""
    gaps, saved = [], None
    for line in trail.read_text().splitlines() if trail.exists() else ():
        kind, at = line.split()
        if kind == "saved":
            saved = float(at)
        elif saved is not None:
            gaps.append(float(at) - saved)
            saved = None
    return gaps


def idle(seconds: float) -> Figures:
    """Cost of an idle scheduler, without jobs or agents."""
    return run_to_the_end(_idle(seconds))


async def _idle(seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gavel-bench-") as name:
        async with scheduler_process(Path(name), {}) as scheduler:
            await asyncio.sleep(1.0)
            before = scheduler.cpu_seconds()
            await asyncio.sleep(seconds)
            share = (scheduler.cpu_seconds() - before) / seconds
            return {"idle_share_of_a_core": share, "idle_memory_mb": scheduler.memory_mb()}
