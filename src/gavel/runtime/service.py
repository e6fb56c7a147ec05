"""The gRPC service: checks and answers clients' requests, and passes agents' messages to the fleet."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import grpc

from gavel.client.messages import from_states, to_cluster, to_detail
from gavel.client.request_rules import PER_SERVER
from gavel.client.views import FINISHED
from gavel.core.errors import InputError
from gavel.journal.facts import Entry
from gavel.journal.finished import FinishedQuery
from gavel.policies.policy import Policy
from gavel.runtime.access import Access
from gavel.runtime.accounts_service import AccountsService
from gavel.runtime.agent_wire import pack_to_agent, unpack_from_agent
from gavel.runtime.agents import identity_of
from gavel.runtime.driver import Driver
from gavel.runtime.enrolment_service import EnrolmentCalls, EnrolmentDesk
from gavel.runtime.event_lines import Wanted, names_of, public
from gavel.runtime.events import DrainAsked, Event, ForgetAsked, RemovalAsked, UndrainAsked
from gavel.runtime.facts import CheckpointsRemoved, Fact, document_of
from gavel.runtime.fleet import Fleet, RefusedError
from gavel.runtime.following import Follower, Following
from gavel.runtime.job_calls import by
from gavel.runtime.job_edits_service import JobEdits
from gavel.runtime.job_verbs_service import JobVerbs
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.limits_service import LimitsService
from gavel.runtime.logs import Logs
from gavel.runtime.messages import (
    Ack,
    AttachRefused,
    CheckpointsHandled,
    Draining,
    FromAgentFrame,
    Heartbeat,
    Hello,
    TaskEnded,
    TaskLog,
    TaskStarted,
    ToAgent,
    ToAgentFrame,
)
from gavel.runtime.notifications_service import NotificationsService
from gavel.runtime.notify.notifier import Notifier
from gavel.runtime.offers import size_fault
from gavel.runtime.selecting import among_finished, check_query, exact, matcher
from gavel.runtime.streams import Streams, TooManyStreamsError
from gavel.runtime.terminal_service import TerminalService
from gavel.runtime.terminals import Terminals
from gavel.runtime.timeline import sentence
from gavel.runtime.views import agent_state, cluster_view, job_detail, server_views
from gavel.runtime.watching import Watching
from gavel.security.caller import current
from gavel.security.ownership import logs_denied
from gavel.security.roles import Caller, may_read
from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]
logger = logging.getLogger(__name__)

CHUNK = 64 * 2**10
"""Bytes of a log in one message; a reader that does not read keeps a few of them in memory."""
FOLLOW_SECONDS = 0.2
LAST_WORDS = 5
"""Agents report an end before the last lines of the log, so a log is followed for this many more looks."""
PAGE = 1_000
"""Finished jobs read at a time."""
LINES = 100
"""Events read at a time."""
AT_ONCE = 100
"""Jobs added to an answer before other tasks get their turn."""
MOST_UNREAD = 50_000
"""Messages that wait for an agent to read them; beyond that its connection is closed, and it is told all again."""
HELLO_SECONDS = 30.0
"""How long an agent may take to say who it is."""
REMOVING_SECONDS = 10.0
"""How long a call waits for agents to remove checkpoints; a longer removal continues without it."""


class AgentStream:
    """The outgoing queue to one agent."""

    def __init__(self, term: int) -> None:
        self.heard = 0
        """The highest number read from the agent."""
        self.overflown = False
        """Whether the agent does not read: its connection must end, because messages to it were dropped."""
        self._term = term
        self._queue: asyncio.Queue[pb.ToAgent | None] = asyncio.Queue()

    def send(self, message: ToAgent) -> None:
        if self.overflown or self._queue.qsize() >= MOST_UNREAD:
            self.overflown = True
            return
        # Leases count from what has been heard now, however long the queue is.
        self._queue.put_nowait(pack_to_agent(ToAgentFrame(message, self._term, self.heard)))

    def close(self) -> None:
        self._queue.put_nowait(None)

    def unread(self) -> int:
        return self._queue.qsize()

    async def messages(self) -> AsyncIterator[pb.ToAgent]:
        while (message := await self._queue.get()) is not None:
            yield message


class Service(
    JobEdits, JobVerbs, TerminalService, NotificationsService, EnrolmentCalls, LimitsService, AccountsService
):
    """The scheduler as clients and agents see it."""

    def __init__(
        self,
        driver: Driver,
        fleet: Fleet,
        logs: Logs,
        policy: Policy,
        access: Access,
        desk: EnrolmentDesk | None = None,
        *,
        notifier: Notifier,
    ) -> None:
        self._notifier = notifier
        self._desk = desk
        self._audit = access.describing
        self._driver = driver
        self._access = access
        self._engine = engine = driver.engine
        self._fleet = fleet
        self._logs = logs
        self._policy = policy
        self._started = engine.clock()
        self._watching = Watching(engine, self._listed)
        self._following = Following(engine, _new_line)
        self._streams = Streams()
        self._terminals = Terminals(engine, fleet, logs)

    # ---- jobs ----

    async def List(self, request: pb.JobQuery, context: Context) -> pb.JobList:  # noqa: N802
        await self._check_query(request, context)
        records, following = await self._matching(request)
        reply = pb.JobList(next=following)
        for part in _parts(records):
            reply.jobs.extend([self._view(record) for record in part])
            await asyncio.sleep(0)
        return reply

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.JobDetail:  # noqa: N802
        record, caller = await self._find(request.id, context), current()
        shown = not caller.open and may_read(caller, record.request)
        return to_detail(job_detail(self._engine, record, environment=shown))

    async def _listed(self, query: pb.JobQuery) -> Sequence[LiveJobRecord]:
        return (await self._matching(query))[0]

    async def Watch(self, request: pb.JobQuery, context: Context) -> AsyncIterator[pb.JobUpdate]:  # noqa: N802
        await self._check_query(request, context)
        async with self._stream(context):
            async for update in self._watching.watch(request):
                yield update

    async def Logs(self, request: pb.LogsRequest, context: Context) -> AsyncIterator[pb.LogChunk]:  # noqa: N802
        record = await self._find(request.id, context)
        if not may_read(current(), record.request):
            await self._deny(logs_denied(record.id, record.request), "Logs", record.id, context)
        if current().user != record.request.user:
            self._access.note("Logs", record.id, f"rank {request.rank}")
        workers = record.request.workers
        if request.rank >= workers:
            sizes = f"{workers} workers, ranks 0 to {workers - 1}" if workers > 1 else "one worker, rank 0"
            if record.request.launcher == PER_SERVER:
                sizes = "one process for each of its servers, numbered from 0"
            told = f"job {request.id} has {sizes}; there is no rank {request.rank}"
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, told)
        async with self._stream(context):
            async for chunk in self._log(request):
                yield chunk

    async def _log(self, request: pb.LogsRequest) -> AsyncIterator[pb.LogChunk]:
        """A log, one chunk in memory at a time."""
        offset, tail, quiet = request.offset, request.tail, 0
        while True:
            record = self._engine.record(request.id)
            finished = record is None or record.finished
            begin, data = self._logs.read(request.id, request.rank, offset=offset, tail=tail, most=CHUNK)
            if data:
                yield pb.LogChunk(data=data, offset=begin)
            offset, tail = begin + len(data), 0
            if len(data) == CHUNK:
                continue
            quiet = 0 if data or not finished else quiet + 1
            if not request.follow or quiet > LAST_WORDS:
                return
            await asyncio.sleep(FOLLOW_SECONDS)

    def _teams_of(self, user: str) -> tuple[str, ...]:
        accounts = self._access.accounts
        record = None if accounts is None else accounts.users.get(user)
        return () if record is None else record.teams

    async def _check_query(self, query: pb.JobQuery, context: Context) -> None:
        try:
            check_query(query)
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        for job in query.ids:
            await self._find(job, context)

    async def _matching(self, query: pb.JobQuery) -> tuple[list[LiveJobRecord], str]:
        """The jobs that a query matches, oldest first, and where the next page of finished ones begins."""
        states = from_states(query.states)
        if query.ids and not (query.arrays or query.ranges):
            return [record for job in query.ids if (record := self._engine.record(job)) is not None], ""
        here = [*filter(matcher(query), self._engine.records.values())]
        here = [record for record in here if not states or record.state in states]
        found = [] if query.after or query.without_unfinished else [record for record in here if not record.finished]
        following = ""
        if not query.without_finished and (not states or states & FINISHED):
            kept, following = await self._finished(query, [record for record in here if record.finished])
            found += kept
        ordered = sorted(found, key=lambda record: int(record.id))
        return (ordered[-query.limit :] if query.limit else ordered), following

    async def _finished(self, query: pb.JobQuery, fresh: list[LiveJobRecord]) -> tuple[list[LiveJobRecord], str]:
        """The last jobs to finish, and the key of the next page; all of them if there is no limit.

        Jobs in `fresh` are not in the journal's table yet, or have only just been added.
        """
        after, most = _key(query.after), _least(query.limit, query.most_finished)
        wanted = among_finished(query, most if most and exact(query) else PAGE, after)
        found = {record.id: record for record in fresh if after is None or _rank(record) < after}
        matches = matcher(query)
        while True:
            records, following = await asyncio.to_thread(self._page, wanted)
            found |= {record.id: record for record in records if matches(record)}
            # Older ones than the page may not be all.
            known = [record for record in found.values() if following is None or _rank(record) >= following]
            if following is None or (most and len(known) >= most):
                break
            wanted = replace(wanted, after=following)
        newest = sorted(known, key=_rank, reverse=True)
        kept = newest[: most or None]
        more = following is not None or len(kept) < len(newest)
        return kept, f"{kept[-1].changed!r}:{kept[-1].id}" if more else ""

    def _page(self, wanted: FinishedQuery) -> tuple[list[LiveJobRecord], tuple[float, int] | None]:
        page = self._engine.journal.finished(wanted)
        return [LiveJobRecord.of(job.document) for job in page.jobs], page.next

    # ---- checkpoints ----

    async def RemoveCheckpoints(  # noqa: N802
        self, request: pb.RemoveCheckpointsRequest, context: Context
    ) -> pb.RemoveCheckpointsReply:
        await self._changeable(request.ids, "RemoveCheckpoints", context)
        kept: dict[str, str] = {}
        changed = asyncio.Event()

        def notice(facts: Sequence[Fact]) -> None:
            for fact in facts:
                if isinstance(fact, CheckpointsRemoved):
                    kept.update(fact.kept)
                    changed.set()

        self._engine.witnesses.append(notice)
        try:
            asked = RemovalAsked(self._engine.clock(), tuple(request.ids), by(current()))
            await self._driver.post(asked, beside=self._audited("RemoveCheckpoints", request.ids))
            with suppress(TimeoutError):
                async with asyncio.timeout(REMOVING_SECONDS):
                    while any(self._asked_agents(job) for job in request.ids):
                        await changed.wait()
                        changed.clear()
        except InputError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        finally:
            self._engine.witnesses.remove(notice)
        return pb.RemoveCheckpointsReply(jobs=[self._checkpoints(job, kept) for job in request.ids])

    def _asked_agents(self, job: str) -> list[str]:
        """The connected agents that have not answered yet."""
        presences = {agent: self._fleet.presence(agent) for agent in self._silent_agents(job)}
        return [agent for agent, presence in presences.items() if presence is not None and presence.attached]

    def _silent_agents(self, job: str) -> list[str]:
        state = self._engine.state
        number = state.removals.numbers().get(job)
        if number is None:
            return []
        return [record.agent for record in state.agents if state.removals.done.get(record.agent, 0) < number]

    def _checkpoints(self, job: str, kept: Mapping[str, str]) -> pb.CheckpointsView:
        """The state of a job's checkpoints after their removal was requested."""
        state = self._engine.state
        names = [state.agents.records[agent].name for agent in self._silent_agents(job)]
        if job in kept:
            return pb.CheckpointsView(job=job, state="kept", reason=kept[job])
        if job in state.removals.numbers():
            return pb.CheckpointsView(job=job, state="waiting", reason=", ".join(names) or "there is no agent")
        return pb.CheckpointsView(job=job, state="removed")

    # ---- servers ----

    async def Cluster(self, request: pb.ClusterRequest, context: Context) -> pb.ClusterView:  # noqa: ARG002, N802
        identity = self._fleet.identity
        view = cluster_view(self._engine, started=self._started, cluster=identity.cluster, term=identity.term)
        return to_cluster(view)

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainReply:  # noqa: N802
        now = self._engine.clock()
        drain = DrainAsked(now, request.agent, by(current()), request.now)
        return await self._operate(drain, request.agent, "Drain", context)

    async def Undrain(self, request: pb.DrainRequest, context: Context) -> pb.DrainReply:  # noqa: N802
        undrain = UndrainAsked(self._engine.clock(), request.agent, by(current()))
        return await self._operate(undrain, request.agent, "Undrain", context)

    async def RemoveServer(self, request: pb.DrainRequest, context: Context) -> pb.DrainReply:  # noqa: N802
        record = self._engine.state.agents.named(request.agent)
        presence = None if record is None else self._fleet.presence(record.agent)
        if presence is not None and presence.attached:
            told = f"agent {request.agent!r} is still connected; stop it first"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, told)
        forget = ForgetAsked(self._engine.clock(), request.agent, by(current()))
        return await self._operate(forget, request.agent, "RemoveServer", context)

    async def _operate(self, event: Event, agent: str, method: str, context: Context) -> pb.DrainReply:
        await self._check_label("the agent's name", agent, context)
        known = self._engine.state.agents.named(agent) is not None
        try:
            await self._driver.post(event, beside=self._audited(method, [agent]))
        except InputError as error:
            code = grpc.StatusCode.FAILED_PRECONDITION if known else grpc.StatusCode.NOT_FOUND
            await context.abort(code, str(error))
        servers = [server for server in server_views(self._engine) if server.agent == agent]
        jobs = {job: None for server in servers for job in server.jobs}
        return pb.DrainReply(jobs=list(jobs), state=servers[0].state if servers else "removed")

    async def Events(self, request: pb.EventsRequest, context: Context) -> AsyncIterator[pb.EventLine]:  # noqa: N802
        wanted = Wanted(
            job=request.job,
            servers=names_of(request.server, self._engine.state.agents),
            since=request.since,
            after=request.after,
            limit=request.limit,
            routine=request.routine,
        )
        async with self._stream(context):
            following = self._following.follower(wanted) if request.follow else nullcontext(Follower(wanted))
            with following as follower:
                async for line in self._events(wanted, follower, follow=request.follow):
                    yield line

    async def _events(self, wanted: Wanted, follower: Follower, *, follow: bool) -> AsyncIterator[pb.EventLine]:
        """Past facts from the journal, then new ones; from the journal again whenever the reader is behind."""
        while True:
            last = self._engine.journal.last
            follower.begin(last)
            past = wanted.until(self._engine.journal, last)
            while lines := await asyncio.to_thread(_lines, past):
                for line in lines:
                    yield line
            while follow and (new := await follower.next()) is not None:
                last = new.number
                yield new
            if not follow:
                return
            wanted = replace(wanted, after=max(wanted.after, last), limit=0)

    @asynccontextmanager
    async def _stream(self, context: Context) -> AsyncIterator[None]:
        """Count a stream of the caller, and tell the client that it is accepted, even if nothing happens."""
        with ExitStack() as counted:
            try:
                counted.enter_context(self._streams.one(current()))
            except TooManyStreamsError as error:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            await context.send_initial_metadata(())
            yield

    # ---- agents ----

    async def Attach(self, requests: AsyncIterator[pb.FromAgent], context: Context) -> AsyncIterator[pb.ToAgent]:  # noqa: N802
        packed = None
        with suppress(TimeoutError):
            async with asyncio.timeout(HELLO_SECONDS):
                packed = await anext(aiter(requests), None)
        if packed is None:
            return  # it disconnected before its hello, or said nothing
        if (fault := size_fault(packed)) is not None:
            yield pack_to_agent(ToAgentFrame(AttachRefused(reason=fault), self._fleet.identity.term))
            return
        first = unpack_from_agent(packed)
        if first is None or not isinstance(first.message, Hello):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of an agent must be its hello")
            return
        hello, stream = first.message, AgentStream(self._fleet.identity.term)
        hello = hello if hello.agent else replace(hello, agent=identity_of(hello.name))
        stream.heard = first.number
        try:
            self._check_identity(hello)
            self._fleet.attach(hello, stream, confidential=_is_confidential(current()))
        except RefusedError as refusal:
            refused = AttachRefused(reason=str(refusal), retry=refusal.retry)
            yield pack_to_agent(ToAgentFrame(refused, self._fleet.identity.term))
            return
        reader = asyncio.create_task(self._listen(hello.agent, requests, stream))
        try:
            async for message in stream.messages():
                yield message
        finally:
            reader.cancel()
            self._fleet.detached(hello.agent, stream)

    def _check_identity(self, hello: Hello) -> None:
        """Let an agent speak for itself only."""
        record = self._engine.state.agents.get(hello.agent)
        if (fault := self.hello_fault(hello, None if record is None else record.name)) is not None:
            raise RefusedError(fault)

    def agent_state(self, agent: str) -> str:
        return agent_state(self._engine, agent)

    def disconnect(self, agent: str) -> None:
        self._fleet.disconnect(agent)

    def refused_call(self, method: str, sentence: str, *, proof: bool) -> str | None:
        self._access.refused(method, sentence)
        return self._access.gate.note_failure(current().address) if proof else None

    async def _listen(self, agent: str, requests: AsyncIterator[pb.FromAgent], stream: AgentStream) -> None:
        """Handle an agent's messages until the stream ends."""
        try:
            async for packed in requests:
                if stream.overflown or (fault := size_fault(packed)) is not None:
                    reason = "it does not read its messages" if stream.overflown else fault
                    logger.warning("the connection of agent %.200s is closed: %s", agent, reason)
                    return
                frame = unpack_from_agent(packed)
                stream.heard = max(stream.heard, packed.number)
                member = self._fleet.members.get(agent)
                if frame is not None and member is not None and member.link is stream:
                    self._hear(agent, frame, stream)
        finally:
            stream.close()

    def _hear(self, agent: str, frame: FromAgentFrame, stream: AgentStream) -> None:
        match frame.message:
            case Heartbeat() as heartbeat:
                self._fleet.heartbeat(agent, heartbeat)
            case TaskStarted() as started:
                self._fleet.started(agent, started)
            case TaskEnded() as ended:
                self._fleet.ended(agent, ended, lambda: stream.send(Ack(frame.number)))
            case TaskLog() as log:
                self._keep_log(agent, log)
            case Draining():
                self._fleet.draining(agent)
            case CheckpointsHandled() as handled:
                self._fleet.handled(agent, handled)
            case Hello():
                pass  # once is enough

    def _keep_log(self, agent: str, log: TaskLog) -> None:
        if self._fleet.takes_log(agent, log):
            self._logs.append(log.job, log.rank, log.attempt, log.begin, log.data)
            self._terminals.printed(log)
            if self._logs.trouble:
                self._engine.alarms["logs"] = f"job output is not kept: {self._logs.trouble}"
            else:
                self._engine.alarms.pop("logs", None)


def _is_confidential(caller: Caller) -> bool:
    """Whether an agent may be sent secrets: it has a certificate, or the scheduler recognises no one at all."""
    return caller.open or bool(caller.agent or caller.agent_name)


def _key(text: str) -> tuple[float, int] | None:
    """Where a page of finished jobs begins, from the page before it."""
    ended, _, job = text.partition(":")
    try:
        return (float(ended), int(job)) if text else None
    except ValueError:
        return None


def _least(*limits: int) -> int:
    """The strictest of several limits; 0 means none."""
    return min((limit for limit in limits if limit), default=0)


def _parts(records: Sequence[LiveJobRecord]) -> Iterator[Iterable[LiveJobRecord]]:
    for start in range(0, len(records), AT_ONCE):
        yield records[start : start + AT_ONCE]


def _rank(record: LiveJobRecord) -> tuple[float, int]:
    """The order of finished jobs."""
    return record.changed, int(record.id)


def _lines(entries: Iterator[Entry]) -> list[pb.EventLine]:
    return [_line(entry.number, entry.time, entry.document) for entry in islice(entries, LINES)]


def _new_line(number: int, fact: Fact) -> pb.EventLine:
    return _line(number, fact.time, document_of(fact))


def _line(number: int, time: float, document: Any) -> pb.EventLine:
    text = sentence(document["kind"], document["fact"])
    return pb.EventLine(
        number=number,
        time=time,
        kind=document["kind"],
        text=text,
        document=json.dumps(public(document), allow_nan=False),
    )
