"""Wall time for an engine: one asyncio task takes events in, a timer calls rounds, a thread asks the policy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gavel.core.allocation import Allocation
from gavel.core.errors import GavelError, InputError
from gavel.core.events import AllocationReady, Event, Solve, SolveFailed
from gavel.core.problem import Problem
from gavel.runtime.book import Note
from gavel.runtime.engine import Done, Engine

Solver = Callable[[Problem], Allocation]
TICK_SECONDS = 0.25
STANDSTILL_SECONDS = 1.0
"""A scheduler that comes so much too late to a tick stood still itself, and heard nobody meanwhile."""
GIVING_UP_SECONDS = 1.0
"""How long after its time limit a policy may still come to an end by itself."""


class Clockwork:
    """Drives an engine; everything but the policy happens in one event loop, so nothing needs a lock."""

    def __init__(self, engine: Engine, solver: Solver, *, solve_limit_seconds: float = 60.0) -> None:
        self.engine = engine
        self._solver = solver
        self._limit = solve_limit_seconds
        self._thread = _policy_thread()
        self._something = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._asked: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Work until cancelled."""
        self.engine.begin(self)
        ticker = asyncio.create_task(self._tick())
        try:
            while True:
                await self._something.wait()
                self._something.clear()
                self.engine.take_in()
                await asyncio.sleep(0)  # let others speak, so that many events share one transaction
        finally:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticker
            if self._timer is not None:
                self._timer.cancel()
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def post(self, *entries: tuple[Event, Note]) -> None:
        """Have events taken in, and wait until they have taken effect; InputError if one is refused."""
        futures = [asyncio.get_running_loop().create_future() for _ in entries]
        for (event, note), future in zip(entries, futures, strict=True):
            self.engine.post(event, note, _resolving(future))
        await asyncio.gather(*futures)

    def hurry(self) -> None:
        self._something.set()

    def wake(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(at - self.engine.clock(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay, self.engine.round_due)

    def ask(self, solve: Solve) -> None:
        task = asyncio.ensure_future(self._answer(solve))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _answer(self, solve: Solve) -> None:
        """Ask the policy in its thread: a slow one delays no round, and one without an answer is left behind.

        Solvers end by themselves when time is up; what is waited for longer is a policy that does not ask them.
        """
        engine, loop = self.engine, asyncio.get_running_loop()
        thread = self._thread
        try:
            asked = loop.run_in_executor(thread, self._solver, solve.problem)
            allocation = await asyncio.wait_for(asked, self._limit + GIVING_UP_SECONDS)
        except TimeoutError:
            if self._thread is thread:
                thread.shutdown(wait=False, cancel_futures=True)
                self._thread = _policy_thread()
            reason = f"no answer within the time limit of {self._limit:g} s"
            engine.post(SolveFailed(engine.clock(), solve.number, reason), {})
        except GavelError as error:
            engine.post(SolveFailed(engine.clock(), solve.number, str(error)), {})
        except Exception as error:  # noqa: BLE001 - a bug in a policy must not stop the cluster
            engine.post(SolveFailed(engine.clock(), solve.number, f"a bug in the policy: {error!r}"), {})
        else:
            engine.post(AllocationReady(engine.clock(), solve.number, allocation), {})

    async def _tick(self) -> None:
        last = self.engine.clock()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.engine.clock()
            late = now - last - TICK_SECONDS
            if late > STANDSTILL_SECONDS:
                self.engine.fleet.excuse(late)
            last = now
            self.engine.fleet.tick()


def _policy_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="policy")


def _resolving(future: asyncio.Future[None]) -> Done:
    def done(error: InputError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return done
