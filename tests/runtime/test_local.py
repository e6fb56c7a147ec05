"""A whole live system in one process, as the demo, the benchmarks and the live study start it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from gavel.core.cluster import Server
from gavel.core.throughputs import builtin_table
from gavel.runtime.local import local_cluster
from gavel.runtime.server import ServeSettings


def test_it_begins_when_all_servers_are_there(tmp_path: Path) -> None:
    async def servers() -> list[Server]:
        async with local_cluster(
            ServeSettings(), {"new": "v100=2", "old": "k80=3", "older": "k80=1"}, tmp_path
        ) as live:
            return list(live.engine.scheduler.servers())

    found = {(server.name, server.type, server.accelerators) for server in asyncio.run(servers())}
    assert found == {("new", "v100", 2), ("old", "k80", 3), ("older", "k80", 1)}


def test_where_time_is_compressed_the_scheduler_begins_with_rates_in_that_time(tmp_path: Path) -> None:
    """A first measurement then says what is believed already, and asks for no new allocation."""
    alone, kinds = [("A3C", 1), ("CycleGAN", 1)], ["v100", "k80"]

    async def believed() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        async with local_cluster(ServeSettings(), {"new": "v100=1"}, tmp_path, time_scale=60.0) as live:
            return live.engine.scheduler.table.rates(alone, kinds)

    np.testing.assert_allclose(asyncio.run(believed()), 60.0 * builtin_table().rates(alone, kinds))
