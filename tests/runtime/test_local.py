"""A whole live system in one process, as the demo, the benchmarks and the live study start it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gavel.core.cluster import Server
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
