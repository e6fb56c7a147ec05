"""Needs beside accelerators with a real scheduler and agents: figures, placement, reasons, also after a restart."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import LiveCluster, eventually

from gavel.client.requests import JobRequest
from gavel.client.views import JobState

WAITS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path) as live:
        yield live


def start_agent(cluster: LiveCluster, *options: str) -> None:
    where = ("--state", str(cluster.folder / "a"), "--checkpoints", str(cluster.folder / "checkpoints"))
    cluster.agents["a"] = cluster._start(
        "a", ("worker", "--scheduler", cluster.address, "--name", "a", "--emulate", "v100=4", *where, *options)
    )


def test_cores_and_memory_are_counted_and_said_also_after_a_restart_of_the_scheduler(cluster: LiveCluster) -> None:
    start_agent(cluster, "--cpus", "16", "--memory", "64G")
    client = cluster.client()
    large, second = client.submit(
        [JobRequest(WAITS, name=name, cpus=10, memory="20G", gpu_memory="16G") for name in ("large", "second")]
    )
    [never] = client.submit([JobRequest(WAITS, gpu_memory="80G", types=["v100"])])
    [small] = client.submit(JobRequest(WAITS, cpus=2, memory="1G"))

    def settled() -> bool:
        states = {job: client.job(job).job.state for job in (large, second, small)}
        return states == {large: JobState.RUNNING, second: JobState.QUEUED, small: JobState.RUNNING}

    for _ in range(2):
        eventually(settled, "one large and the small job run")
        eventually(lambda: client.cluster().servers[0].state == "connected", "the agent is back")
        [server] = client.cluster().servers
        assert (server.cpus, server.free_cpus, server.free) == (16.0, 4.0, 2)
        assert (server.memory_bytes, server.free_memory_bytes) == (64 * 2**30, 43 * 2**30)
        assert server.accelerator_memory_bytes == 16 * 2**30
        waiting = "waits for a server with 10 free CPU cores, 20G of free RAM and accelerators of 16G"
        assert client.job(second).job.reason == waiting
        too_large = "it needs 80G of accelerator memory, and the largest type it may use, v100, has 16G"
        assert client.job(never).job.reason == too_large
        cluster.kill_scheduler()
        cluster.start_scheduler()
    client.cancel(large)
    eventually(lambda: client.job(second).job.state is JobState.RUNNING, "the second runs once there are cores")
