"""A fake scheduler: the whole service over a real socket, with jobs whose states a test sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from gavel.client.arrays import expanded
from gavel.client.messages import from_submission, to_submission
from gavel.client.selection import has_tags, matches
from gavel.wire import gavel_pb2 as pb
from gavel.wire import gavel_pb2_grpc as stubs

OVER = (pb.COMPLETED, pb.FAILED, pb.CANCELLED)
START = 1_700_000_000.0


class FakeScheduler(stubs.GavelServicer):
    """State that survives `stop` and `start`, as that of the real one does."""

    def __init__(self) -> None:
        self.jobs: dict[str, pb.JobView] = {}
        self.keys: dict[str, list[str]] = {}
        self.batches: list[int] = []
        """How many jobs each effective request submitted."""
        self.log: dict[tuple[str, int], bytes] = {}
        self.dropped = 0
        """How many bytes of every log are no longer kept."""
        self.detail = pb.JobDetail()
        self.view = pb.ClusterView(policy="max_min_fairness", version="9.9", time=START, started=START - 3600)
        self.refuses = ""
        """The refusal for every submission; empty: accept."""
        self.break_after_submitting = 0
        """How many submissions take effect before the connection breaks."""
        self.mute = False
        """Whether streams are left without any answer."""
        self.streams = 0
        """Streams opened so far."""
        self.lists: list[int] = []
        """How many jobs each answer to List had."""
        self.at_once = False
        """Whether watchers get many jobs in one message."""
        self.checkpoints: dict[str, pb.CheckpointsView] = {}
        """The answer for each job whose checkpoints are to be removed; default: removed."""
        self.happened: list[pb.EventLine] = []
        """With numbers from 1 on."""
        self.asked_events: list[pb.EventsRequest] = []
        self.edits: list[pb.EditRequest] = []
        self.resubmitted: list[pb.ResubmitRequest] = []
        self.changed = threading.Condition()
        self._server: grpc.Server | None = None
        self.port = 0
        self.start()

    # ---- start and stop ----

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        # SO_REUSEPORT would let a second server take the port while the first still has it.
        self._server = grpc.server(
            ThreadPoolExecutor(16), interceptors=self.interceptors(), options=[("grpc.so_reuseport", 0)]
        )
        stubs.add_GavelServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self.add_port(self._server, f"127.0.0.1:{self.port}")
        self._server.start()

    def interceptors(self) -> list[grpc.ServerInterceptor[Any, Any]]:
        return []

    def add_port(self, server: grpc.Server, address: str) -> int:
        return server.add_insecure_port(address)

    def stop(self) -> None:
        """End at once, as if killed: calls break."""
        server, self._server = self._server, None
        if server is not None:
            with self.changed:
                self.changed.notify_all()
            assert server.stop(0).wait(60), "a call did not end"

    def restart(self) -> None:
        self.stop()
        self.start()

    # ---- controls for tests ----

    def move(self, job: str, state: pb.JobState, reason: str = "", **changes: Any) -> None:
        with self.changed:
            view = self.jobs[job]
            view.state, view.reason = state, reason
            if state in OVER:
                view.ended = view.submitted + 100.0
            for name, value in changes.items():
                setattr(view, name, value)
            self.changed.notify_all()

    def prints(self, job: str, text: bytes, rank: int = 0) -> None:
        with self.changed:
            self.log[job, rank] = self.log.get((job, rank), b"") + text
            self.changed.notify_all()

    def happens(self, text: str, kind: str = "job_ended", document: str = "{}") -> None:
        with self.changed:
            number = len(self.happened) + 1
            line = pb.EventLine(number=number, time=START + number, kind=kind, text=text, document=document)
            self.happened.append(line)
            self.changed.notify_all()

    def await_streams(self, count: int) -> None:
        """Wait until this many streams have been opened."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.streams >= count, timeout=20)

    # ---- the service ----

    def Submit(self, request: pb.SubmitRequest, context: grpc.ServicerContext) -> pb.SubmitReply:
        with self.changed:
            if self.refuses:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuses)
            if request.key not in self.keys:
                self.keys[request.key] = [self._add(one) for job in request.jobs for one in self._expanded(job)]
                self.batches.append(len(request.jobs))
                self.changed.notify_all()
            if self.break_after_submitting:
                self.break_after_submitting -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return pb.SubmitReply(ids=self.keys[request.key])

    def _expanded(self, job: pb.JobRequest) -> list[pb.JobRequest]:
        if not (job.array or job.grid):
            return [job]
        members = expanded(from_submission(job), f"a{len(self.jobs) + 1}")
        return [to_submission(member) for member in members]

    def _add(self, request: pb.JobRequest) -> str:
        name = str(len(self.jobs) + 1)
        self.jobs[name] = pb.JobView(
            id=name, request=request, state=pb.QUEUED, reason="waiting", submitted=START, changed=START
        )
        return name

    def Cancel(self, request: pb.CancelRequest, context: grpc.ServicerContext) -> pb.JobList:
        self._check(request.ids, context)
        for job in request.ids:
            if self.jobs[job].state not in OVER:
                self.move(job, pb.CANCELLED, "cancelled")
        return pb.JobList(jobs=[self.jobs[job] for job in request.ids])

    def Hold(self, request: pb.JobsRequest, context: grpc.ServicerContext) -> pb.JobList:
        return self._all_or_none(
            request.ids, context, lambda job: self.move(job, pb.QUEUED, "held by you", code="held")
        )

    def Release(self, request: pb.JobsRequest, context: grpc.ServicerContext) -> pb.JobList:
        return self._all_or_none(request.ids, context, lambda job: self.move(job, pb.QUEUED, "waiting", code=""))

    def Requeue(self, request: pb.JobsRequest, context: grpc.ServicerContext) -> pb.JobList:
        return self._all_or_none(request.ids, context, lambda job: self.move(job, pb.QUEUED, "requeued by you"))

    def Edit(self, request: pb.EditRequest, context: grpc.ServicerContext) -> pb.JobList:
        self.edits.append(pb.EditRequest.FromString(request.SerializeToString()))
        return self._all_or_none(request.ids, context, lambda job: self._edit(job, request.changes, request.fields))

    def _edit(self, job: str, changes: pb.JobRequest, names: Iterable[str]) -> None:
        """Replace the named fields."""
        wanted = pb.JobRequest.FromString(changes.SerializeToString())
        view = self.jobs[job].request
        for name in names:
            view.ClearField(name)
        for field, _ in wanted.ListFields():
            if field.name not in names:
                wanted.ClearField(field.name)
        view.MergeFrom(wanted)

    def Resubmit(self, request: pb.ResubmitRequest, context: grpc.ServicerContext) -> pb.SubmitReply:
        self._check(request.ids, context)
        self.resubmitted.append(pb.ResubmitRequest.FromString(request.SerializeToString()))
        with self.changed:
            new = [self._add(self.jobs[job].request) for job in request.ids]
            for job in new:
                self._edit(job, request.changes, request.fields)
        return pb.SubmitReply(ids=new)

    def _all_or_none(
        self, ids: Iterable[str], context: grpc.ServicerContext, change: Callable[[str], None]
    ) -> pb.JobList:
        listed = list(ids)
        self._check(listed, context)
        for job in listed:
            if self.jobs[job].state in OVER:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"job {job} has already finished")
        for job in listed:
            change(job)
        return pb.JobList(jobs=[self.jobs[job] for job in listed])

    def List(self, request: pb.JobQuery, context: grpc.ServicerContext) -> pb.JobList:
        self._check(request.ids, context)
        found = self._matching(request)
        reply = pb.JobList(jobs=found)
        if request.without_unfinished and request.limit:  # newest first, a page at a time
            rest = [job for job in found[::-1] if not request.after or int(job.id) < int(request.after)]
            page = rest[: request.limit]
            reply = pb.JobList(jobs=page, next=page[-1].id if len(rest) > len(page) else "")
        self.lists.append(len(reply.jobs))
        return reply

    def Describe(self, request: pb.DescribeRequest, context: grpc.ServicerContext) -> pb.JobDetail:
        self._check([request.id], context)
        detail = pb.JobDetail()
        detail.CopyFrom(self.detail)
        detail.job.CopyFrom(self.jobs[request.id])
        return detail

    def _take_up(self, context: grpc.ServicerContext) -> None:
        """Tell the client that its stream has arrived."""
        while self.mute and context.is_active():
            time.sleep(0.01)
        if context.is_active():
            context.send_initial_metadata(())

    def Watch(self, request: pb.JobQuery, context: grpc.ServicerContext) -> Iterator[pb.JobUpdate]:
        self._check(request.ids, context)
        self._take_up(context)
        server = self._opened()
        told: dict[str, bytes] = {}
        caught_up = False
        while context.is_active() and self._server is server is not None:
            with self.changed:
                news = [job for job in self._matching(request) if told.get(job.id) != job.SerializeToString()]
                if not news and caught_up:
                    self.changed.wait(timeout=0.2)
                copies = [pb.JobView.FromString(job.SerializeToString()) for job in news]
            told |= {job.id: job.SerializeToString() for job in copies}
            if self.at_once and copies:
                yield pb.JobUpdate(jobs=copies)
            else:
                yield from (pb.JobUpdate(job=job) for job in copies)
            if not caught_up:
                caught_up = True
                yield pb.JobUpdate(caught_up=True)

    def Logs(self, request: pb.LogsRequest, context: grpc.ServicerContext) -> Iterator[pb.LogChunk]:
        self._check([request.id], context)
        self._take_up(context)
        server = self._opened()
        log = self.log.get((request.id, request.rank), b"")
        offset = max(self.dropped, request.offset, len(log) - request.tail if request.tail else 0)
        while context.is_active() and self._server is server is not None:
            with self.changed:
                log = self.log.get((request.id, request.rank), b"")
                over = self.jobs[request.id].state in OVER
                if offset >= len(log) and request.follow and not over:
                    self.changed.wait(timeout=0.2)
                    continue
            data = log[offset : offset + 7]
            if data:
                yield pb.LogChunk(data=data, offset=offset)
                offset += len(data)
            elif over or not request.follow:
                return

    def Cluster(self, request: pb.ClusterRequest, context: grpc.ServicerContext) -> pb.ClusterView:  # noqa: ARG002
        return self.view

    def WhoAmI(self, request: pb.WhoAmIRequest, context: grpc.ServicerContext) -> pb.WhoAmIReply:  # noqa: ARG002
        return pb.WhoAmIReply(user="you", role="admin", cluster="c1")

    def Drain(self, request: pb.DrainRequest, context: grpc.ServicerContext) -> pb.DrainReply:
        servers = self._servers(request.agent, context)
        jobs = [job for server in servers for job in server.jobs]
        for server in servers:
            server.state = server.state if server.state == "lost" else "draining" if jobs else "drained"
        return pb.DrainReply(jobs=jobs, state=servers[0].state)

    def Undrain(self, request: pb.DrainRequest, context: grpc.ServicerContext) -> pb.DrainReply:
        servers = self._servers(request.agent, context)
        for server in servers:
            server.state = server.state if server.state == "lost" else "connected"
        return pb.DrainReply(state=servers[0].state)

    def RemoveServer(self, request: pb.DrainRequest, context: grpc.ServicerContext) -> pb.DrainReply:
        servers = self._servers(request.agent, context)
        if servers[0].state not in ("lost", "drained"):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"agent {request.agent!r} is neither lost nor drained")
        for server in servers:
            self.view.servers.remove(server)
        return pb.DrainReply(state="removed")

    def RemoveCheckpoints(
        self, request: pb.RemoveCheckpointsRequest, context: grpc.ServicerContext
    ) -> pb.RemoveCheckpointsReply:
        self._check(request.ids, context)
        for job in request.ids:
            if self.jobs[job].state not in OVER:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"job {job} is running; only finished ones")
        views = [self.checkpoints.get(job, pb.CheckpointsView(state="removed")) for job in request.ids]
        for job, view in zip(request.ids, views, strict=True):
            view.job = job
        return pb.RemoveCheckpointsReply(jobs=views)

    def _servers(self, agent: str, context: grpc.ServicerContext) -> list[pb.ServerView]:
        found = [server for server in self.view.servers if server.agent == agent]
        if not found:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no agent {agent!r}")
        return found

    def Events(self, request: pb.EventsRequest, context: grpc.ServicerContext) -> Iterator[pb.EventLine]:
        self._take_up(context)
        self.asked_events.append(pb.EventsRequest.FromString(request.SerializeToString()))
        server = self._opened()
        past = [line for line in self.happened if line.number > request.after]
        yield from past[-request.limit :] if request.limit else past
        last = self.happened[-1].number if self.happened else 0
        while request.follow and context.is_active() and self._server is server is not None:
            with self.changed:
                fresh = [line for line in self.happened if line.number > last]
                if not fresh:
                    self.changed.wait(timeout=0.2)
            yield from fresh
            last = max([last, *(line.number for line in fresh)])

    def _opened(self) -> grpc.Server | None:
        with self.changed:
            self.streams += 1
            self.changed.notify_all()
            return self._server

    def _matching(self, query: pb.JobQuery) -> list[pb.JobView]:
        jobs = [
            job
            for job in self.jobs.values()
            if (not (query.ids or query.arrays or query.ranges) or self._placed(job, query))
            and (not query.name_patterns or any(matches(job.request.name, each) for each in query.name_patterns))
            and has_tags(job.request.tags, query.tags)
            and (not query.states or job.state in query.states)
            and (not query.user or job.request.user == query.user)
            and (not query.names or job.request.name in query.names)
            and not 0 < job.ended < query.ended_after
            and not (query.without_finished and job.state in OVER)
            and not (query.without_unfinished and job.state not in OVER)
        ]
        return jobs[-query.limit :] if query.limit and not query.without_unfinished else jobs

    def _placed(self, job: pb.JobView, query: pb.JobQuery) -> bool:
        return (
            job.id in query.ids
            or job.request.array_id in query.arrays
            or any(each.first <= int(job.id) <= each.last for each in query.ranges)
        )

    def _check(self, ids: Iterable[str], context: grpc.ServicerContext) -> None:
        for job in ids:
            if job not in self.jobs:
                context.abort(grpc.StatusCode.NOT_FOUND, f"there is no job {job!r}")
