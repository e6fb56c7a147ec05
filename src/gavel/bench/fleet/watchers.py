"""Many watchers of all jobs in one process: `python -m gavel.bench.fleet.watchers`, started by the benchmark."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

import grpc

from gavel.bench.fleet.login import Login
from gavel.bench.fleet.role import Answer, play
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

MARKER = "marker-"
"""Prefix of marker jobs; the name also holds the monotonic submission time, to measure how late it is seen."""
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class Watchers:
    """Watch streams, when each had caught up, and how late it saw the markers."""

    def __init__(self) -> None:
        self._streams: list[asyncio.Task[None]] = []
        self._caught_up: list[float] = []
        self._delays: dict[str, list[float]] = {}
        self._lost = 0

    def answers(self) -> Mapping[str, Answer]:
        """Commands of the benchmark."""
        return {"begin": self.begin, "report": self.report}

    async def begin(self, *, login: dict[str, str], watchers: int) -> dict[str, Any]:
        """Open all streams at once."""
        self._streams = [asyncio.create_task(self._watch(Login(**login))) for _ in range(watchers)]
        return {}

    async def report(self) -> dict[str, Any]:
        """Report how many have caught up and when, and how late each marker was seen."""
        return {"caught_up": self._caught_up, "delays": self._delays, "lost": self._lost}

    async def _watch(self, login: Login) -> None:
        began = time.monotonic()
        async with login.channel(_OPTIONS) as channel:
            stub: Any = GavelStub(channel)  # type: ignore[no-untyped-call]
            seen: set[str] = set()
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for update in stub.Watch(pb.JobQuery(), metadata=login.metadata):
                    self._take(update, began, seen)
            self._lost += 1

    def _take(self, update: pb.JobUpdate, began: float, seen: set[str]) -> None:
        now = time.monotonic()
        if update.caught_up:
            self._caught_up.append(now - began)
        for job in (update.job, *update.jobs) if self._caught_up else ():
            name = job.request.name
            if name.startswith(MARKER) and name not in seen:
                seen.add(name)
                self._delays.setdefault(name, []).append(now - float(name.removeprefix(MARKER)))


if __name__ == "__main__":
    play(lambda: Watchers().answers())
