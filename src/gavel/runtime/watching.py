"""Job updates for all watchers: views are packed once and sent in batches, however many clients watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from gavel.client.messages import to_job
from gavel.runtime.engine import Engine
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.selecting import matcher, selects
from gavel.runtime.views import job_view, reason_of, steps_done
from gavel.wire import gavel_pb2 as pb

REFRESH_SECONDS = 1.0
"""How often watchers hear about the progress of running jobs."""
SHARED_SECONDS = 1.0
"""A first answer serves every client that asks the same within this time; what changed since then follows."""
BATCH = 500
"""Most jobs in one message."""
LONGEST_GATHERING = 0.25
"""Changes are gathered for at most this long, one millisecond per watcher, and sent together."""

Matching = Callable[[pb.JobQuery], Awaitable[Sequence[LiveJobRecord]]]


class _Answer:
    """Jobs in messages: packed once while they are shared, later one at a time for readers that are still there."""

    def __init__(
        self,
        records: Sequence[LiveJobRecord],
        pack: Callable[[Sequence[LiveJobRecord]], pb.JobUpdate],
        changed: set[str],
    ) -> None:
        self._records = records
        self._pack = pack
        self._packed: dict[int, pb.JobUpdate] | None = {}
        self.changed = changed
        """The jobs that changed while it was shared: a client that comes later has not heard of them."""

    @property
    def batches(self) -> int:
        return -(-len(self._records) // BATCH)

    def batch(self, number: int) -> pb.JobUpdate:
        """One message."""
        if self._packed is not None and number in self._packed:
            return self._packed[number]
        update = self._pack(self._records[number * BATCH : (number + 1) * BATCH])
        if self._packed is not None:
            self._packed[number] = update
        return update

    def unshare(self) -> None:
        """Keep no message any longer."""
        self._packed = None


class Watching:
    """All clients that watch jobs."""

    def __init__(self, engine: Engine, matching: Matching) -> None:
        self._engine = engine
        self._matching = matching
        self._packed: dict[str, tuple[LiveJobRecord, pb.JobView]] = {}
        """Views of jobs that do not run: they change only with their records."""
        self._first: dict[bytes, tuple[float, asyncio.Task[_Answer]]] = {}
        """By query: when it was first answered, and the answer."""
        self._steps: dict[str, float] = {}
        self._progress: asyncio.Task[None] | None = None

    def view(self, record: LiveJobRecord) -> pb.JobView:
        """A job as clients see it."""
        running = self._engine.executor.attempt(record.id) is not None
        if not running and (known := self._known(record)) is not None:
            return known
        packed = to_job(job_view(self._engine, record))
        if not running:
            self._packed[record.id] = record, packed
        return packed

    def _known(self, record: LiveJobRecord) -> pb.JobView | None:
        """The cached view, if it is still valid; the reason why a job waits may change without its record."""
        before, packed = self._packed.get(record.id, (None, None))
        if before is not record or packed is None:
            return None
        return packed if record.finished or packed.reason == reason_of(self._engine, record) else None

    async def watch(self, query: pb.JobQuery) -> AsyncIterator[pb.JobUpdate]:
        """Everything that matches, a message that says so, then every change."""
        changed: set[str] = set()
        something = asyncio.Event()

        def notice(jobs: set[str]) -> None:
            changed.update(jobs)
            something.set()

        self._engine.listeners.add(notice)
        self._keep_counting()
        try:
            told: set[str] = set()
            answer = await self._everything(query)
            changed.update(answer.changed)
            for number in range(answer.batches):
                update = answer.batch(number)
                yield update
                if selects(query):
                    told.update(job.id for job in update.jobs)
            del answer
            yield pb.JobUpdate(caught_up=True)
            if changed:
                something.set()
            while True:
                await something.wait()
                await asyncio.sleep(min(LONGEST_GATHERING, 0.001 * len(self._engine.listeners)))
                something.clear()
                due = sorted(changed, key=int)
                changed.clear()
                for start in range(0, len(due), BATCH):  # a slow reader has one message in memory
                    if records := self._wanted(due[start : start + BATCH], query, told):
                        yield self._update(records)
        finally:
            self._engine.listeners.discard(notice)

    async def _everything(self, query: pb.JobQuery) -> _Answer:
        """The first answer, shared by all clients that ask the same at about the same time."""
        now, key = self._engine.clock(), query.SerializeToString(deterministic=True)
        known = self._first.get(key)
        if known is None or now - known[0] > SHARED_SECONDS:
            self._first = {each: old for each, old in self._first.items() if now - old[0] <= SHARED_SECONDS}
            known = self._first[key] = now, asyncio.create_task(self._answer(query))
        return await asyncio.shield(known[1])

    async def _answer(self, query: pb.JobQuery) -> _Answer:
        changed: set[str] = set()
        self._engine.listeners.add(changed.update)
        try:
            answer = _Answer(await self._matching(query), self._update, changed)
        except BaseException:
            self._engine.listeners.discard(changed.update)
            raise
        for number in range(answer.batches):
            answer.batch(number)
            await asyncio.sleep(0)
        self._forget()
        asyncio.get_running_loop().call_later(SHARED_SECONDS, self._unshare, answer)
        return answer

    def _unshare(self, answer: _Answer) -> None:
        self._engine.listeners.discard(answer.changed.update)
        answer.unshare()

    def _update(self, records: Sequence[LiveJobRecord]) -> pb.JobUpdate:
        return pb.JobUpdate(jobs=[self.view(record) for record in records])

    def _wanted(self, jobs: Iterable[str], query: pb.JobQuery, told: set[str]) -> list[LiveJobRecord]:
        """The jobs that match a query, or did when the watcher was last told."""
        records = [record for job in jobs if (record := self._engine.record(job)) is not None]
        if query.ids and not (query.arrays or query.ranges):
            ids = set(query.ids)
            return [record for record in records if record.id in ids]
        if not selects(query):
            return records
        wanted = matcher(query)
        found = [record for record in records if record.id in told or wanted(record)]
        told.update(record.id for record in found)
        return found

    def _forget(self) -> None:
        """Drop views of jobs that the engine no longer has in memory."""
        if len(self._packed) > 2 * len(self._engine.records) + BATCH:
            self._packed = {job: made for job, made in self._packed.items() if job in self._engine.records}

    def _keep_counting(self) -> None:
        if self._progress is None or self._progress.done():
            self._progress = asyncio.create_task(self._count())

    async def _count(self) -> None:
        """Tell watchers the progress of running jobs, while there are watchers."""
        while self._engine.listeners:
            await asyncio.sleep(REFRESH_SECONDS)
            records = self._engine.records
            running = self._engine.executor.running()
            now = {job: steps_done(self._engine, records[job]) for job in running if job in records}
            moved = {job for job, steps in now.items() if self._steps.get(job) != steps}
            self._steps = now
            if moved:
                for listener in list(self._engine.listeners):
                    listener(moved)
