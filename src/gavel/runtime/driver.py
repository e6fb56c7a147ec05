"""Drives an engine in real time: one asyncio task handles events, a timer starts rounds, threads write and solve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gavel.client.requests import Submission
from gavel.core.allocation import Allocation
from gavel.core.errors import GavelError, InputError
from gavel.core.events import AllocationReady, Solve, SolveFailed
from gavel.core.problem import Problem
from gavel.journal.errors import TemporaryJournalError
from gavel.journal.store import Write
from gavel.runtime.engine import Beside, Engine
from gavel.runtime.events import Event
from gavel.runtime.executor import Done, Executor
from gavel.runtime.journal_retry import RETRY_SECONDS
from gavel.runtime.steps import in_turns
from gavel.runtime.templates import Learned

Solver = Callable[[Problem], Allocation]
Result = TypeVar("Result")
logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
STANDSTILL_SECONDS = 1.0
"""A scheduler this late for a tick was itself suspended, and could hear no agent meanwhile."""
GIVING_UP_SECONDS = 1.0
"""How long after its time limit a policy may still stop by itself."""
LEAD_SECONDS = 5.0
"""How often an idle scheduler checks that it still leads."""


class Driver:
    """Drives an engine; everything but the policy and the journal runs in one event loop, so nothing needs a lock."""

    def __init__(
        self, engine: Engine, executor: Executor, solver: Solver, *, solve_limit_seconds: float = 60.0
    ) -> None:
        self.engine = engine
        self.executor = executor
        self._solver = solver
        self._limit = solve_limit_seconds
        self._policy = _thread("policy")
        self._writer = _thread("journal")
        self._follower = _thread("state-keeper")
        self._keeping: asyncio.Task[None] | None = None
        self._something = asyncio.Event()
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._asked: set[asyncio.Future[None]] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        """Callers that wait for something to be written."""

    async def run(self) -> None:
        """Work until `stop`; raises if the journal can never be written again."""
        self.engine.begin(self, self.executor)
        work = asyncio.create_task(self._work())
        tasks = {work, asyncio.create_task(self._tick()), asyncio.create_task(self._watch_lead())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._give_up_waiting()
            if self._timer is not None:
                self._timer.cancel()
            self._policy.shutdown(wait=False, cancel_futures=True)
            self._follower.shutdown(wait=False, cancel_futures=True)
            self._writer.shutdown(wait=True)

    def stop(self) -> None:
        """Stop after the batch that is being written; the state is kept."""
        self._stopping = True
        self._something.set()

    async def _work(self) -> None:
        while not self._stopping:
            await self._something.wait()
            self._something.clear()
            batch = await in_turns(self.engine.preparing())
            if batch is not None:
                if batch.facts or batch.beside:
                    await self._written(lambda: self.engine.write(batch))  # noqa: B023 - awaited here
                await in_turns(self.engine.performing(batch))
            if self.engine.state_due and self._keeping is None:
                self._keeping = asyncio.create_task(self._keep())
                self._keeping.add_done_callback(self._kept)
            await asyncio.sleep(0)  # let other callers post, so that many events share one transaction
        if self._keeping is not None:
            await asyncio.wait({self._keeping})
        await self._keep()

    async def _keep(self) -> None:
        """Keep a state: computed in a thread beside the loop, written where everything is written."""
        engine = self.engine
        kept = await asyncio.get_running_loop().run_in_executor(
            self._follower, engine.state_keeper.catch_up, engine.journal.last
        )
        await self._written(lambda: engine.state_keeper.write(kept))
        engine.kept(kept)

    def _kept(self, keeping: asyncio.Task[None]) -> None:
        self._keeping = None
        error = None if keeping.cancelled() else keeping.exception()
        if error is not None:
            logger.error("the state could not be kept: %r", error)
            self.engine.alarms["state"] = f"the state could not be kept, so a restart will take longer: {error}"
        else:
            self.engine.alarms.pop("state", None)

    async def _written(self, write: Callable[[], Result]) -> Result:
        """Write to the journal, however long it takes: until then nothing is acknowledged, started or stopped."""
        pause, longest = RETRY_SECONDS
        while True:
            try:
                result = await asyncio.get_running_loop().run_in_executor(self._writer, write)
            except TemporaryJournalError as error:
                if self._stopping:
                    raise
                if "journal" not in self.engine.alarms:
                    logger.error("the journal cannot be written, trying again: %s", error)  # noqa: TRY400 - no trace
                self.engine.alarms["journal"] = str(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                if self.engine.alarms.pop("journal", None):
                    logger.warning("the journal can be written again")
                return result

    async def _watch_lead(self) -> None:
        """Notice that another scheduler took over, even while there is nothing to write."""
        journal = self.engine.journal
        while True:
            await asyncio.sleep(LEAD_SECONDS)
            try:
                await asyncio.to_thread(journal.check_lead)
            except TemporaryJournalError:
                continue  # the next write finds out, and raises the alarm

    def _give_up_waiting(self) -> None:
        """Fail the calls that wait for something that will no longer be written."""
        for future in self._waiting:
            if not future.done():
                future.set_exception(InputError("the scheduler stopped before this was recorded; try again"))

    async def recalled(self, requests: Sequence[Submission]) -> Mapping[str, Learned]:
        """What the journal's table says about the templates of jobs; waits while the journal cannot be read."""
        unknown = self.engine.state.unknown_templates(requests)
        try:
            return await self._written(lambda: self.engine.recalled(unknown)) if unknown else {}
        except TemporaryJournalError:
            raise InputError("the scheduler is stopping; try again when another one is running") from None

    async def write(self, writes: Sequence[Write]) -> None:
        """Write to the tables beside the facts, however long it takes."""
        try:
            await self._written(lambda: self.engine.journal.write(writes))
        except TemporaryJournalError:
            raise InputError("the scheduler is stopping; try again when another one is running") from None

    async def post(self, *events: Event, beside: Beside | None = None) -> None:
        """Post events, and wait until they have taken effect; InputError if one is refused.

        What `beside` returns for their facts is written with them.
        """
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        self.engine.post_together(events, _resolving(future), beside)
        try:
            await future
        finally:
            self._waiting.discard(future)

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
        """Ask the policy in its own thread: a slow one delays no round, and one without an answer is abandoned.

        Solvers stop by themselves at the time limit; only a policy that does not use them takes longer.
        """
        engine, loop = self.engine, asyncio.get_running_loop()
        thread = self._policy
        try:
            asked = loop.run_in_executor(thread, self._solver, solve.problem)
            allocation = await asyncio.wait_for(asked, self._limit + GIVING_UP_SECONDS)
        except TimeoutError:
            if self._policy is thread:
                thread.shutdown(wait=False, cancel_futures=True)
                self._policy = _thread("policy")
            reason = f"no answer within the time limit of {self._limit:g} s"
            engine.post(SolveFailed(engine.clock(), solve.number, reason))
        except GavelError as error:
            engine.post(SolveFailed(engine.clock(), solve.number, str(error)))
        except Exception as error:  # noqa: BLE001 - a bug in a policy must not stop the cluster
            engine.post(SolveFailed(engine.clock(), solve.number, f"a bug in the policy: {error!r}"))
        else:
            engine.post(AllocationReady(engine.clock(), solve.number, allocation))

    async def _tick(self) -> None:
        last = self.engine.clock()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.engine.clock()
            late = now - last - TICK_SECONDS
            if late > STANDSTILL_SECONDS:
                logger.warning("the scheduler did not run for %.1f s", late)
                self.executor.excuse(late)
            last = now
            self.engine.tick()


def _thread(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=name)


def _resolving(future: asyncio.Future[None]) -> Done:
    def done(error: InputError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return done
