"""Carries deliveries to their targets, in a thread with its own event loop: nothing here can delay a lease.

Deliveries of one lane go one at a time and in order, so a receiver that is away is asked once per pause, however much
waits for it. The courier remembers nothing beyond its own life: what was not delivered is in the journal.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gavel.runtime.notify.deliveries import Delivery, Lane

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

AT_ONCE = 16
"""Deliveries under way at the same time."""
AT_ONE_PLACE = 4
"""Of these, at one place, such as a host: a slow one must not hold up the others."""
LOOKUPS_AT_ONCE = 32
"""Names of hosts that are looked up at the same time: slow answers outlast the calls that wait for them."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """How one attempt to deliver went."""

    over: bool
    """Whether it was the last attempt."""
    trouble: str = ""
    """Why it was not delivered, as a clause; empty: it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """How long a lane pauses after a failure."""

    first_seconds: float = 5.0
    """Doubles with each failure."""
    longest_seconds: float = 600.0

    def after(self, failures: int, chance: float) -> float:
        """The pause after a number of failures in a row; `chance`, from 0 to 1, spreads receivers that fail together.

        >>> [Pauses().after(failures, 1.0) for failures in (1, 2, 20)]
        [5.0, 10.0, 600.0]
        """
        most = min(self.first_seconds * 2.0 ** min(failures - 1, 60), self.longest_seconds)
        return most * (0.5 + chance / 2)


PAUSES = Pauses()


@dataclass(slots=True)
class _Queue:
    """What waits in one lane."""

    waiting: deque[Delivery] = field(default_factory=deque)
    failures: int = 0
    """In a row."""


class Courier:
    """Carries deliveries until it is stopped."""

    def __init__(
        self,
        attempt: Callable[[Delivery], Awaitable[DeliveryResult]],
        place_of: Callable[[Delivery], str],
        settled: Callable[[Delivery, DeliveryResult], None],
        pauses: Pauses | None = None,
        *,
        at_places: Mapping[str, int] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._attempt = attempt
        self._place_of = place_of
        self._settled = settled
        """Called in the courier's thread after every attempt."""
        self._at_places = at_places or {}
        """Deliveries under way at certain places; at others: AT_ONE_PLACE."""
        self._pauses = pauses or PAUSES
        self._random = rng or random.Random()  # noqa: S311 - for pauses
        self._lanes: dict[Lane, _Queue] = {}
        self._places: dict[str, asyncio.Semaphore] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._early: list[Delivery] = []
        """Accepted before the start."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; what was accepted before goes first."""
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="notifications", daemon=True)
        self._thread.start()
        early, self._early = self._early, []
        self.accept(early)

    def accept(self, deliveries: Iterable[Delivery]) -> None:
        """Take deliveries over; those that come too late stay in the journal."""
        taken = list(deliveries)
        if self._loop is None:
            self._early += taken
        elif taken:
            with suppress(RuntimeError):  # it has been stopped
                self._loop.call_soon_threadsafe(self._take, taken, self._loop)

    def perform(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine in the courier's loop, once it has started; any thread may call it."""
        assert self._loop is not None, "a courier works once it has started"  # noqa: S101
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self, seconds: float = 2.0) -> None:
        """End at once what is under way: it is delivered again by the next scheduler."""
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(seconds)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="notifications-names"))
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            loop.close()

    def _take(self, deliveries: list[Delivery], loop: asyncio.AbstractEventLoop) -> None:
        for delivery in deliveries:
            queue = self._lanes.get(delivery.lane)
            if queue is None:
                queue = self._lanes[delivery.lane] = _Queue()
                task = loop.create_task(self._carry(delivery.lane, queue))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            queue.waiting.append(delivery)

    async def _carry(self, lane: Lane, queue: _Queue) -> None:
        """Deliver what waits in a lane; what fails goes to its end, so that one bad delivery stops no others."""
        while queue.waiting:
            delivery = queue.waiting.popleft()
            outcome = await self._try(delivery)
            self._settled(delivery, outcome)
            if not outcome.over:
                queue.waiting.append(delivery)
            if not outcome.trouble:
                queue.failures = 0
                continue
            queue.failures += 1
            if queue.waiting:
                await asyncio.sleep(self._pauses.after(queue.failures, self._random.random()))
        del self._lanes[lane]

    async def _try(self, delivery: Delivery) -> DeliveryResult:
        place = self._place_of(delivery)
        most = self._at_places.get(place, AT_ONE_PLACE)
        async with self._places.setdefault(place, asyncio.Semaphore(most)), self._slots:
            try:
                return await self._attempt(delivery)
            except Exception:  # one delivery must not end its lane
                logger.exception("a bug in the delivery of notification %s", delivery.id)
                return DeliveryResult(over=False, trouble="a bug in Gavel; the scheduler's log has it")
