"""A complete live system on this machine: a scheduler and agents in this process, jobs as separate processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from gavel.core.throughputs import builtin_table
from gavel.estimator.learned import LearnedTable
from gavel.runtime.agent import Agent, AgentSettings, emulated
from gavel.runtime.server import Running, ServeSettings, serving

JOINING_SECONDS = 60.0
"""How long servers on this machine may take to join."""

EMULATED_PROGRAM = '''
"""A placeholder for a training: counts steps at the pace of the emulated accelerator."""
from gavel import GavelIterator

counted = {"steps": 0}
steps = GavelIterator(
    range(1_000),
    load_checkpoint=lambda folder: counted.update(steps=int((folder / "count").read_text())),
    save_checkpoint=lambda folder: (folder / "count").write_text(str(counted["steps"])),
)
print(f"begins at step {steps.step}", flush=True)
while not steps.done:
    for _ in steps:
        counted["steps"] += 1
print(f"ends at step {steps.step}, {'to continue later' if steps.preempted else 'done'}", flush=True)
'''


@asynccontextmanager
async def local_cluster(
    settings: ServeSettings, servers: Mapping[str, str], folder: Path, *, time_scale: float = 1.0
) -> AsyncIterator[Running]:
    """A scheduler and emulated servers, by name, each as in "v100=2,k80=2"; everything is removed at the end.

    It begins when all servers have joined, so that the first job does not go to the first one by accident. The
    scheduler's table is that of the emulated hardware, in its time. A table in uncompressed time would make every
    template look slow by the time scale until it has run, and every first measurement would trigger a new allocation.
    """
    async with AsyncExitStack() as stack:
        here = replace(settings, listen="127.0.0.1:0", folder=folder / "scheduler")
        hardware = builtin_table().faster(time_scale)
        running = await stack.enter_async_context(serving(here, table=LearnedTable(hardware)))
        for name, accelerators in servers.items():
            indices, emulation = emulated(accelerators, table=hardware)
            agent = Agent(
                AgentSettings(
                    accelerators=indices,
                    emulation=emulation,
                    state=folder / name,
                    checkpoints=folder / "checkpoints",
                    scheduler=running.address,
                    name=name,
                )
            )
            work = asyncio.create_task(agent.run())
            stack.push_async_callback(_ended, work)
            stack.push_async_callback(agent.stop, at_once=True)
        await _whole(running, len(servers))
        yield running


async def _whole(running: Running, servers: int) -> None:
    async with asyncio.timeout(JOINING_SECONDS):
        while sum(1 for _ in running.engine.scheduler.servers()) < servers:  # noqa: ASYNC110 - the engine does not tell us
            await asyncio.sleep(0.02)


async def _ended(work: asyncio.Task[None]) -> None:
    await work
