"""What a simulation keeps in memory does not grow with its length, except for the figures of finished jobs."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from gavel.core.cluster import parse_cluster
from gavel.core.events import JobFinished, JobSubmitted, ServerJoined
from gavel.core.jobs import JobSpec
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism
from gavel.sim.usage import UsageMeter
from gavel.sim.world import SimulatedWorld

TABLE = builtin_table()
TEMPLATES = [template for template, workers in TABLE.profiles if workers == 1][:8]
SHORT, LONG = 75, 300
LEAK = 100 * (LONG - SHORT)
"""Bytes: far less than one small object per job."""
SOME, LOTS = 30, 2**60
"""Temporary objects come and go, so memory is the minimum over this many samples."""


def expected(world: SimulatedWorld) -> None:
    """One job every ten minutes, each with about nineteen minutes of work: a steady load."""
    for server in parse_cluster("v100=2,k80=2").servers:
        world.expect(ServerJoined(0.0, server))
    for number in range(LONG + 10):
        template = TEMPLATES[number * 7 % len(TEMPLATES)]
        steps = 1150.0 * float(TABLE.rates([(template, 1)], ["v100"])[0, 0, 0])
        world.expect(JobSubmitted(600.0 * number, JobSpec(f"job{number:04}", template, 1, steps)))


def finished(world: SimulatedWorld, scheduler: Scheduler, meter: UsageMeter) -> Iterator[int]:
    """Drive a simulation and yield the number of finished jobs as they finish."""
    done = 0
    for event in world:
        meter.hear(event)
        for command in scheduler.handle(event):
            meter.see(command, event.time)
            world.perform(command)
        if isinstance(event, JobFinished):
            done += 1
            yield done


@pytest.mark.parametrize(("mechanism", "space_sharing"), [(Credits, False), (Credits, True), (Priorities, True)])
def test_a_stream_four_times_as_long_takes_no_more_memory(
    mechanism: Callable[[], Mechanism], space_sharing: bool
) -> None:
    scheduler = Scheduler(TABLE, mechanism(), Settings(space_sharing=space_sharing))
    world = SimulatedWorld(TABLE, allocate, 10.0)
    expected(world)
    live: dict[int, int] = {}
    gc.collect()
    gc.freeze()  # what other tests left in memory need not be looked at again
    tracemalloc.start()
    try:
        for done in finished(world, scheduler, UsageMeter(10.0)):
            if (mark := SHORT if done <= SHORT else LONG) - SOME < done:
                gc.collect()
                live[mark] = min(live.get(mark, LOTS), tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert live[LONG] < live[SHORT] + LEAK
