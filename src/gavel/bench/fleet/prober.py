"""Sends the scheduler cheap requests repeatedly: `python -m gavel.bench.fleet.prober`, started by the benchmark.

The longest wait for an answer is the longest stall of the scheduler's loop as a caller sees it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import grpc

from gavel.bench.fleet.login import Login
from gavel.bench.fleet.role import Answer, play
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

EVERY_SECONDS = 0.05
PATIENCE_SECONDS = 120.0


class Prober:
    """A caller that requests one job, which need not exist."""

    def __init__(self) -> None:
        self._job = "1"
        self._waits: list[float] = []
        self._asked_at: float | None = None
        self._failures = 0
        self._own_delay = 0.0
        self._probing: asyncio.Task[None] | None = None

    def answers(self) -> Mapping[str, Answer]:
        """Commands of the benchmark."""
        return {"begin": self.begin, "ask_for": self.ask_for, "report": self.report}

    async def begin(self, *, login: dict[str, str]) -> dict[str, Any]:
        """Probe from now on."""
        self._probing = asyncio.create_task(self._probe(Login(**login)))
        return {}

    async def ask_for(self, *, job: str) -> dict[str, Any]:
        """Ask for another job."""
        self._job = job
        return {}

    async def report(self) -> dict[str, Any]:
        """Report measurements since the last report; a pending call counts with its wait so far."""
        if self._asked_at is not None:
            self._waits.append(time.monotonic() - self._asked_at)
        answer = {"waits": self._waits, "failures": self._failures, "own_delay": self._own_delay}
        self._waits, self._failures, self._own_delay = [], 0, 0.0
        return answer

    async def _probe(self, login: Login) -> None:
        async with login.channel([("grpc.enable_http_proxy", 0)]) as channel:
            stub: Any = GavelStub(channel)  # type: ignore[no-untyped-call]
            while True:
                self._asked_at = asked = time.monotonic()
                await self._ask(stub, login)
                self._waits.append(time.monotonic() - asked)
                self._asked_at = None
                pause = max(EVERY_SECONDS - self._waits[-1], 0.0)
                due = time.monotonic() + pause
                await asyncio.sleep(pause)
                self._own_delay = max(self._own_delay, time.monotonic() - due)

    async def _ask(self, stub: Any, login: Login) -> None:
        try:
            await stub.List(pb.JobQuery(ids=[self._job]), timeout=PATIENCE_SECONDS, metadata=login.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:  # which is also an answer
                self._failures += 1


if __name__ == "__main__":
    play(lambda: Prober().answers())
