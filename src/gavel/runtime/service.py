"""The gRPC service: what clients ask is checked and answered, what agents say goes to the fleet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict

from gavel.core.errors import InputError
from gavel.core.events import JobCancelled, JobSubmitted
from gavel.core.jobs import JobSpec
from gavel.limits import LARGEST, LONGEST_SECONDS, at_most
from gavel.policies.policy import Policy
from gavel.runtime.book import OVER, Record
from gavel.runtime.clockwork import Clockwork
from gavel.runtime.fleet import RefusedError
from gavel.runtime.logs import Logs
from gavel.runtime.template import default_template
from gavel.runtime.views import cluster_view, job_detail, job_view, steps_done
from gavel.wire import gavel_pb2 as pb
from gavel.wire import gavel_pb2_grpc as stubs

Context = grpc.aio.ServicerContext[Any, Any]

CHUNK = 256 * 2**10
FOLLOW_SECONDS = 0.2
REFRESH_SECONDS = 1.0


class Stream:
    """The way to one agent: messages wait here until they are sent."""

    def __init__(self) -> None:
        self.heard = 0
        """The highest number read from the agent."""
        self._queue: asyncio.Queue[pb.ToAgent | None] = asyncio.Queue()

    def send(self, message: pb.ToAgent) -> None:
        message.heard = self.heard  # leases count from here, however long the queue is
        self._queue.put_nowait(message)

    def close(self) -> None:
        self._queue.put_nowait(None)

    async def messages(self) -> AsyncIterator[pb.ToAgent]:
        while (message := await self._queue.get()) is not None:
            yield message


class Service(stubs.GavelServicer):
    """The scheduler as others see it."""

    def __init__(self, clockwork: Clockwork, logs: Logs, policy: Policy) -> None:
        self._clockwork = clockwork
        self._engine = engine = clockwork.engine
        self._logs = logs
        self._policy = policy
        self._started = engine.clock()
        self._submitting: dict[str, tuple[list[str], asyncio.Future[None]]] = {}
        """Requests by key that are being written down; one that is repeated meanwhile waits for the first."""

    # ---- clients ----

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitReply:  # noqa: N802
        engine, book = self._engine, self._engine.book
        if request.key in self._submitting:
            ids, written = self._submitting[request.key]
            await asyncio.shield(written)
            return pb.SubmitReply(ids=ids)
        if request.key and request.key in book.keys:
            return pb.SubmitReply(ids=book.keys[request.key])
        entities = None if engine.scheduler.settings.open_entities else engine.scheduler.entities
        try:
            jobs = [checked(job, self._policy, entities) for job in request.jobs]
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        first = book.next_number
        book.next_number += len(jobs)  # nobody else gets these numbers while the journal is written
        ids = [str(first + offset) for offset in range(len(jobs))]
        entries = [
            (JobSubmitted(engine.clock(), spec_of(name, job)), _note(job, request.key))
            for name, job in zip(ids, jobs, strict=True)
        ]
        written = asyncio.ensure_future(self._clockwork.post(*entries))
        if request.key:
            self._submitting[request.key] = ids, written
            written.add_done_callback(lambda _: self._submitting.pop(request.key, None))
        await asyncio.shield(written)  # a client that hangs up changes nothing
        return pb.SubmitReply(ids=ids)

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.JobList:  # noqa: N802
        engine = self._engine
        records = [await self._find(job, context) for job in request.ids]
        going = [record for record in records if not record.over]
        if going:
            await self._clockwork.post(*((JobCancelled(engine.clock(), record.id), {}) for record in going))
        return pb.JobList(jobs=[job_view(engine, record) for record in records])

    async def List(self, request: pb.JobQuery, context: Context) -> pb.JobList:  # noqa: N802
        for job in request.ids:
            await self._find(job, context)
        return pb.JobList(jobs=[job_view(self._engine, record) for record in self._matching(request)])

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.JobDetail:  # noqa: N802
        return job_detail(self._engine, await self._find(request.id, context))

    async def Watch(self, request: pb.JobQuery, context: Context) -> AsyncIterator[pb.JobUpdate]:  # noqa: N802
        for job in request.ids:
            await self._find(job, context)
        await context.send_initial_metadata(())  # the stream is taken up, however long nothing happens
        changed: set[str] = set()
        something = asyncio.Event()

        def notice(jobs: set[str]) -> None:
            changed.update(jobs)
            something.set()

        self._engine.listeners.add(notice)
        try:
            told: dict[str, float] = {}
            for record in self._matching(request):
                told[record.id] = steps_done(self._engine, record)
                yield pb.JobUpdate(job=job_view(self._engine, record))
            yield pb.JobUpdate(caught_up=True)
            while True:
                try:
                    await asyncio.wait_for(something.wait(), REFRESH_SECONDS)
                except TimeoutError:
                    changed |= self._further(told)
                something.clear()
                due, wanted = sorted(changed, key=int), set(request.ids)
                changed.clear()
                for job in due:
                    found = self._engine.record(job) if not wanted or job in wanted else None
                    if found is not None:
                        told[job] = steps_done(self._engine, found)
                        yield pb.JobUpdate(job=job_view(self._engine, found))
        finally:
            self._engine.listeners.discard(notice)

    def _further(self, told: dict[str, float]) -> set[str]:
        """Running jobs that have made steps since a watcher was last told."""
        book = self._engine.book
        return {
            job
            for job in self._engine.fleet.attempts
            if job in told and job in book and steps_done(self._engine, book[job]) != told[job]
        }

    async def Logs(self, request: pb.LogsRequest, context: Context) -> AsyncIterator[pb.LogChunk]:  # noqa: N802
        await self._find(request.id, context)
        await context.send_initial_metadata(())
        offset, tail = request.offset, request.tail
        while True:
            record = self._engine.record(request.id)
            over = record is None or record.over
            begin, data = self._logs.read(request.id, request.rank, offset=offset, tail=tail)
            for start in range(0, len(data), CHUNK):
                yield pb.LogChunk(data=data[start : start + CHUNK], offset=begin + start)
            offset, tail = begin + len(data), 0
            if not request.follow or (over and not data):
                return
            await asyncio.sleep(FOLLOW_SECONDS)

    async def Cluster(self, request: pb.ClusterRequest, context: Context) -> pb.ClusterView:  # noqa: ARG002, N802
        view = cluster_view(self._engine, self._started)
        view.policy = view.policy or self._policy.name
        return view

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainReply:  # noqa: N802
        try:
            return pb.DrainReply(jobs=self._engine.fleet.drain(request.agent))
        except RefusedError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))

    async def _find(self, job: str, context: Context) -> Record:
        record = self._engine.record(job)
        if record is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no job {job!r}; `gavel jobs --all` lists them")
        return record

    def _matching(self, query: pb.JobQuery) -> list[Record]:
        """Oldest first; of those that are over and no longer in the book, the journal knows."""
        engine = self._engine
        if query.ids:
            found: Iterable[Record] = filter(None, map(engine.record, query.ids))
        else:
            found = list(engine.book.records.values())
            if not query.states or set(query.states) & set(OVER):
                kept = engine.journal.over(states=query.states, limit=query.limit)
                found = [*map(Record.of, reversed(kept)), *found]
        chosen = {
            record.id: record
            for record in found
            if (not query.states or record.state in query.states)
            and (not record.over or record.history[-1].time >= query.ended_after)
        }
        ordered = sorted(chosen.values(), key=lambda record: int(record.id))
        return ordered[-query.limit :] if query.limit else ordered

    # ---- agents ----

    async def Attach(self, requests: AsyncIterator[pb.FromAgent], context: Context) -> AsyncIterator[pb.ToAgent]:  # noqa: ARG002, N802
        first = await anext(aiter(requests))
        stream, name = Stream(), first.hello.name
        stream.heard = first.number
        try:
            self._engine.fleet.attach(first.hello, stream)
        except RefusedError as refusal:
            yield pb.ToAgent(refused=pb.Refused(reason=str(refusal), retry=refusal.retry))
            return
        reader = asyncio.create_task(self._listen(name, requests, stream))
        try:
            async for message in stream.messages():
                yield message
        finally:
            reader.cancel()
            self._engine.fleet.detached(name, stream)

    async def _listen(self, name: str, requests: AsyncIterator[pb.FromAgent], stream: Stream) -> None:
        """Take in what an agent says until it says no more."""
        fleet = self._engine.fleet
        try:
            async for message in requests:
                stream.heard = max(stream.heard, message.number)
                if name in fleet.members:
                    self._hear(name, message, stream)
        finally:
            stream.close()

    def _hear(self, name: str, message: pb.FromAgent, stream: Stream) -> None:
        fleet, number = self._engine.fleet, message.number
        match message.WhichOneof("message"):
            case "heartbeat":
                fleet.heartbeat(name, message.heartbeat)
            case "started":
                fleet.started(name, message.started)
            case "ended":
                fleet.ended(name, message.ended, lambda: stream.send(pb.ToAgent(ack=pb.Ack(number=number))))
                self._clockwork.hurry()
            case "log":
                log = message.log
                self._logs.append(log.job, log.rank, log.attempt, log.begin, log.data)
            case "draining":
                fleet.drain(name)


def checked(request: pb.JobRequest, policy: Policy, entities: Sequence[str] | None) -> pb.JobRequest:
    """A request with its defaults filled in, or a sentence about what is wrong with it.

    `entities` are those that jobs may belong to; None: any.
    """
    job = pb.JobRequest()
    job.CopyFrom(request)
    name = f"job {job.name!r}" if job.name else "the job"
    if not job.command or not job.command[0]:
        raise InputError(f"{name} has no command; say what to run")
    job.workers = job.workers or 1
    job.weight = job.weight or 1.0
    job.template = job.template or default_template(job.command)
    for field in ("steps", "weight", "deadline_seconds"):
        value = getattr(job, field)
        most = LONGEST_SECONDS if field == "deadline_seconds" else LARGEST
        if not 0 <= value <= most:
            raise InputError(f"{name}: {field} is {value}; it must be a positive number, {at_most(most)}")
    if job.entity and entities is not None and job.entity not in entities:
        raise InputError(f"{name}: there is no entity {job.entity!r}; known: {', '.join(entities) or 'none'}")
    if "steps" in policy.needs and not job.steps:
        raise InputError(f"{name} does not say how many steps it makes, and the policy {policy.name} needs to know")
    return job


def spec_of(name: str, job: pb.JobRequest) -> JobSpec:
    """A job as the scheduler knows it."""
    return JobSpec(
        name,
        job.template,
        job.workers,
        job.steps or math.nan,
        job.weight,
        job.entity or None,
        job.deadline_seconds or None,
        tuple(job.types) or None,
    )


def _note(job: pb.JobRequest, key: str) -> dict[str, Any]:
    note: dict[str, Any] = {"request": MessageToDict(job)}
    return {**note, "key": key} if key else note
