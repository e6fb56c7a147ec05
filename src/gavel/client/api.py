"""The API client: submit, watch and cancel jobs from a program. Synchronous; safe to share between threads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from gavel.client.access import Wishes, access_now
from gavel.client.administration import Administration
from gavel.client.arrays import size_of
from gavel.client.connection import Away, Connection
from gavel.client.dependencies import Dependency
from gavel.client.errors import NoSuchJob, Refused
from gavel.client.job_changes import JobChanges
from gavel.client.messages import (
    from_checkpoints,
    from_cluster,
    from_detail,
    from_drain,
    from_event,
    from_job,
    from_submission,
    from_update,
    to_query,
    to_request,
)
from gavel.client.requests import JobRequest
from gavel.client.secret_values import SecretValues, check_values, from_environment
from gavel.client.selection import Selection
from gavel.client.terminal import Terminal
from gavel.client.views import (
    AgentView,
    CheckpointsView,
    ClusterView,
    EventView,
    JobDetail,
    JobState,
    JobUpdate,
    JobView,
    by_id,
)
from gavel.errors import InputError
from gavel.limits import MOST_JOBS_IN_A_CALL
from gavel.wire import gavel_pb2 as pb

BATCH_JOBS = 1000
BATCH_BYTES = 3_000_000
"""Size limit of one request; servers accept up to 4 MB."""
PAGE = 1000
"""Finished jobs per page."""
LINE_BYTES = 200
"""Estimated length of a log line."""


class Client(JobChanges, Administration):
    """A connection to a scheduler, for programs.

    `address` is HOST:PORT, unix:PATH or the name of a context (default: GAVEL_SCHEDULER, then the context of the last
    `gavel login`, then this machine). A call that gets no answer within `timeout` seconds fails. If a scheduler that
    has answered before goes away, for example to restart, calls are repeated and streams reopened for up to `patience`
    seconds; each submission takes effect once.

    Who we are and whom we trust comes from the context of that address. Programs without one give a `token` and the
    `fingerprint` of the scheduler's authority, or set GAVEL_TOKEN and GAVEL_FINGERPRINT. Operators may act for another
    user: `acting_for`.
    """

    def __init__(
        self,
        address: str | None = None,
        timeout: float = 30.0,
        *,
        patience: float = 60.0,
        token: str = "",
        fingerprint: str = "",
        acting_for: str = "",
    ) -> None:
        wishes = Wishes(address=address, token=token, fingerprint=fingerprint, acting_for=acting_for)
        self._connection = Connection(access_now(wishes), timeout, patience)

    @property
    def address(self) -> str:
        return self._connection.address

    def close(self) -> None:
        """Disconnect; jobs keep running."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, jobs: JobRequest | Iterable[JobRequest]) -> list[str]:
        """Submit jobs and return their ids, in order. All jobs are checked before anything is sent.

        Secrets without a value are read from the environment of this process.
        More than 1,000 jobs are sent in several requests, unless one waits for another by its name; if a later request
        is refused, the error's `submitted` has the ids of the jobs that were accepted.
        """
        requests = [jobs] if isinstance(jobs, JobRequest) else list(jobs)
        for request in requests:
            request.check()
        ids: list[str] = []
        for batch in _batches([(to_request(request), _secrets(request)) for request in requests]):
            batch.key = uuid.uuid4().hex
            try:
                ids += self._connection.ask("Submit", batch).ids
            except Refused as error:
                error.submitted = tuple(ids)
                raise
        return ids

    def cancel(self, ids: str | Iterable[str]) -> list[JobView]:
        """Cancel jobs, all or none; a finished job stays as it is."""
        reply = self._connection.ask("Cancel", pb.CancelRequest(ids=_listed(ids)))
        return [from_job(job) for job in reply.jobs]

    def hold(self, ids: str | Iterable[str]) -> list[JobView]:
        """Keep jobs from running until they are released, all or none; those that run save and leave."""
        return self._change("Hold", ids)

    def release(self, ids: str | Iterable[str]) -> list[JobView]:
        """Hold jobs no longer, all or none; raise Refused unless a user holds each of them."""
        return self._change("Release", ids)

    def requeue(self, ids: str | Iterable[str]) -> list[JobView]:
        """Have running jobs save, leave and wait again, and pausing jobs pause no longer; all or none.

        Raise Refused if any of them neither runs nor pauses after a failure.
        """
        return self._change("Requeue", ids, repeat=False)

    def _change(self, method: str, ids: str | Iterable[str], *, repeat: bool = True) -> list[JobView]:
        reply = self._connection.ask(method, pb.JobsRequest(ids=_listed(ids)), repeat=repeat)
        return [from_job(job) for job in reply.jobs]

    def jobs(
        self,
        states: Iterable[JobState | str] = (),
        ids: Iterable[str] = (),
        limit: int = 0,
        *,
        ended_after: float = 0.0,
        finished: bool | None = None,
        names: Iterable[str] = (),
        entity: str = "",
        user: str = "",
        patterns: Iterable[str] = (),
        tags: Mapping[str, str] | None = None,
        arrays: Iterable[str] = (),
        ranges: Iterable[tuple[int, int]] = (),
    ) -> list[JobView]:
        """Jobs filtered by state or id, or all jobs; the newest `limit` of them.

        `ended_after` (seconds since 1970) drops jobs that ended earlier. `finished` keeps only finished (True) or only
        unfinished (False) jobs; `names` (or `patterns` for names, as in a shell), `tags`, `entity` and `user` keep only
        jobs that match, `arrays` and `ranges` of ids only jobs that are in one of them. Finished jobs are fetched in
        pages.
        """
        query = to_query(
            ids,
            states,
            limit,
            ended_after,
            names=names,
            entity=entity,
            user=user,
            name_patterns=patterns,
            tags=tags,
            arrays=arrays,
            ranges=ranges,
        )
        if query.ids:
            reply = self._connection.ask("List", query)
            return [from_job(job) for job in reply.jobs if not 0 < job.ended < ended_after]
        # A job that finishes between the two requests appears in both; the finished record wins.
        parts = {False: self._unfinished, True: self._finished}
        found = {job.id: job for kind, part in parts.items() if finished in (None, kind) for job in part(query)}
        newest_last = sorted(found.values(), key=by_id)
        return newest_last[-limit:] if limit else newest_last

    def select(
        self, selection: Selection, *, limit: int = 0, ended_after: float = 0.0, finished: bool | None = None
    ) -> list[JobView]:
        """The jobs of a selection, oldest first; raise NoSuchJob if it names a job or an array that does not exist.

        `limit`, `ended_after` and `finished` are as in `jobs` and do not concern jobs that are named by their ids.
        """
        found = self.jobs(ids=selection.ids) if selection.ids else []
        if arrays := dict.fromkeys([*selection.arrays, *(member.array for member in selection.members)]):
            members = [job for job in self.jobs(arrays=arrays) if job.request.array_id in arrays]
            _check_arrays(selection, members)
            found += members
        if selection.ranges or not selection.placed:
            found += self.jobs(
                selection.states,
                limit=limit,
                ended_after=ended_after,
                finished=finished,
                patterns=selection.names,
                tags=selection.tags,
                user=selection.user,
                ranges=selection.ranges,
            )
        wanted = selection.test()  # also: a scheduler of an earlier version knows fewer filters
        jobs = {job.id: job for job in found if wanted(job.id, job.request, job.state)}
        return sorted(jobs.values(), key=by_id)

    def _unfinished(self, query: pb.JobQuery) -> Iterator[JobView]:
        query.without_finished, query.without_unfinished = True, False
        return map(from_job, self._connection.ask("List", query).jobs)

    def _finished(self, query: pb.JobQuery) -> Iterator[JobView]:
        """Finished jobs, a page at a time."""
        query.without_finished, query.without_unfinished = False, True
        wanted, came = query.limit, 0
        while True:
            query.limit = min(PAGE, wanted - came) if wanted else PAGE
            reply = self._connection.ask("List", query)
            yield from map(from_job, reply.jobs)
            came += len(reply.jobs)
            if not reply.next or (wanted and came >= wanted):
                return
            query.after = reply.next

    def job(self, id: str) -> JobDetail:  # noqa: A002 - the word for it everywhere else
        """Everything about one job."""
        return from_detail(self._connection.ask("Describe", pb.DescribeRequest(id=id)))

    def watch(
        self,
        states: Iterable[JobState | str] = (),
        ids: Iterable[str] = (),
        limit: int = 0,
        *,
        ended_after: float = 0.0,
        most_finished: int = 0,
        user: str = "",
        patterns: Iterable[str] = (),
        tags: Mapping[str, str] | None = None,
        arrays: Iterable[str] = (),
        ranges: Iterable[tuple[int, int]] = (),
        timeout: float | None = None,
    ) -> Iterator[JobUpdate]:
        """Yield all jobs that match, then an update with `caught_up` set, then every change.

        With `most_finished`, only that many of the jobs that had already finished are sent. If the scheduler goes away,
        an update says so, and everything is sent again once it is back.
        """
        query = to_query(
            ids,
            states,
            limit,
            ended_after,
            most_finished=most_finished,
            user=user,
            name_patterns=patterns,
            tags=tags,
            arrays=arrays,
            ranges=ranges,
        )
        until = None if timeout is None else time.monotonic() + timeout
        for message in self._connection.listen("Watch", query, until=until, again=lambda: True):
            if isinstance(message, Away):
                yield JobUpdate(away=message.reason)
            else:
                yield from from_update(message, ended_after)

    def wait(
        self,
        ids: str | Iterable[str],
        timeout: float | None = None,
        *,
        on_change: Callable[[Mapping[str, JobView]], None] | None = None,
    ) -> list[JobView]:
        """Wait until all the jobs finish and return them, in order; raise TimedOut after `timeout` seconds.

        `on_change` is called with the current view of all jobs: first when all are known, then at every change.
        """
        wanted = _listed(ids)
        seen: dict[str, JobView] = {}
        waiting = set(wanted)
        known = False
        if not wanted:
            return []
        for update in self.watch(ids=wanted, timeout=timeout):
            if update.job is not None:
                seen[update.job.id] = update.job
                waiting -= {update.job.id} if update.job.finished else set()
            if update.caught_up and (missing := [each for each in wanted if each not in seen]):
                raise NoSuchJob(_no_such(missing))
            known |= update.caught_up
            if known and on_change is not None and not update.away:
                on_change(seen)
            if known and not waiting:
                break
        return [seen[each] for each in wanted]

    def logs(
        self,
        id: str,  # noqa: A002
        *,
        follow: bool = False,
        rank: int = 0,
        tail: int | None = None,
    ) -> Iterator[bytes]:
        """Output of one rank: all of it, or the last `tail` lines. `follow` continues until the job finishes."""
        if rank < 0 or (tail is not None and tail < 0):
            raise InputError("rank and tail must be at least 0")
        request = pb.LogsRequest(id=id, rank=rank, follow=follow)
        if tail is not None:
            last, request.offset = self._last_lines(id, rank, tail)
            yield last
        if follow:
            yield from self._log(request)
            request.follow = False
        if follow or tail is None:  # also after following: a scheduler that shuts down may end the stream early
            yield from self._log(request)

    def terminal(
        self,
        id: str,  # noqa: A002
        rows: int,
        columns: int,
        *,
        linger_seconds: float = 0.0,
        offset: int = 0,
        tail: int = 0,
    ) -> Terminal:
        """Connect to the terminal of a running job, for programs that draw one.

        It shows what was printed from an offset, or at most the last `tail` bytes of that. The job outlives its last
        connection by `linger_seconds` (default: a minute).
        """
        return Terminal(
            self._connection,
            id,
            rows=rows,
            columns=columns,
            linger_seconds=linger_seconds,
            offset=offset,
            tail=tail,
        )

    def remove_checkpoints(self, ids: str | Iterable[str]) -> list[CheckpointsView]:
        """Remove the checkpoints of finished jobs, all or none; raise Refused if any of them has not finished.

        Agents that are not connected remove them when they return. This cannot be undone.
        """
        reply = self._connection.ask("RemoveCheckpoints", pb.RemoveCheckpointsRequest(ids=_listed(ids)))
        return [from_checkpoints(job) for job in reply.jobs]

    def cluster(self) -> ClusterView:
        """The current servers, types, policy and round."""
        return from_cluster(self._connection.ask("Cluster", pb.ClusterRequest()))

    def drain(self, agent: str, *, now: bool = False) -> AgentView:
        """Stop giving an agent work until `undrain`; its jobs leave at the end of the round, or at once if `now`."""
        return self._operate("Drain", pb.DrainRequest(agent=agent, now=now))

    def undrain(self, agent: str) -> AgentView:
        """Let a drained agent take work again."""
        return self._operate("Undrain", pb.DrainRequest(agent=agent))

    def remove_server(self, agent: str) -> AgentView:
        """Forget an agent that is lost, or drained and empty."""
        return self._operate("RemoveServer", pb.DrainRequest(agent=agent))

    def _operate(self, method: str, request: pb.DrainRequest) -> AgentView:
        try:
            return from_drain(request.agent, self._connection.ask(method, request))
        except NoSuchJob as error:
            raise Refused(str(error)) from None  # what does not exist is the agent, not a job

    def events(
        self,
        *,
        job: str = "",
        server: str = "",
        since: float = 0.0,
        limit: int = 0,
        routine: bool = False,
        follow: bool = False,
    ) -> Iterator[EventView]:
        """Events, oldest first: about a job or a server, since a time (seconds since 1970); the newest `limit`.

        `routine` adds events that happen all the time. `follow` continues with new events; after a broken connection
        it resumes where it stopped, without repeating or missing any.
        """
        if limit < 0:
            raise InputError("limit must be at least 0")
        request = pb.EventsRequest(
            job=job, server=server, since=max(since, 0.0), limit=limit, routine=routine, follow=follow
        )
        for message in self._connection.listen("Events", request, again=lambda: follow):
            if not isinstance(message, Away):
                request.after, request.limit = message.number, 0
                yield from_event(message)

    def _log(self, request: pb.LogsRequest) -> Iterator[bytes]:
        """The log from an offset, which advances as it is read, so a broken connection resumes where it stopped."""
        for chunk in self._connection.listen("Logs", request, again=lambda: self._goes_on(request)):
            if isinstance(chunk, Away):
                continue
            fresh = chunk.data[max(0, request.offset - chunk.offset) :]
            request.offset = max(request.offset, chunk.offset + len(chunk.data))
            if fresh:
                yield fresh

    def _goes_on(self, request: pb.LogsRequest) -> bool:
        return request.follow and not self.job(request.id).job.finished

    def _last_lines(self, id: str, rank: int, lines: int) -> tuple[bytes, int]:  # noqa: A002
        """The last lines of a log, and the offset of its end."""
        size = max(1, (lines + 1) * LINE_BYTES)
        while True:
            request = pb.LogsRequest(id=id, rank=rank, tail=size)
            start, text = _joined(self._connection.listen("Logs", request, again=lambda: False))
            found = text.splitlines(keepends=True)
            if len(found) > lines or len(text) < size:
                return b"".join(found[len(found) - lines :] if lines < len(found) else found), start + len(text)
            size *= 8


def _joined(chunks: Iterable[Any]) -> tuple[int, bytes]:
    """The offset at which a log begins, and its contents; starts over whenever the connection breaks."""
    start = 0
    parts: list[bytes] = []
    for chunk in chunks:
        if isinstance(chunk, Away):
            parts.clear()
        else:
            start = chunk.offset if not parts else start
            parts.append(chunk.data)
    return start, b"".join(parts)


Job = tuple[pb.JobRequest, pb.Secrets]
"""A job as it is sent, and its secrets, which travel beside it."""


def _secrets(request: JobRequest) -> pb.Secrets:
    values = request.secrets if isinstance(request.secrets, SecretValues) else from_environment(request.secrets)
    check_values(values)
    return pb.Secrets(values=dict(values))


def _batches(jobs: Sequence[Job]) -> Iterator[pb.SubmitRequest]:
    """Calls that the scheduler accepts; a single one if names must be found in it."""
    if any(not Dependency.of(text).by_id for request, _ in jobs for text in request.after):
        yield _together(jobs)
        return
    batch: list[Job] = []
    size = stands_for = 0
    for job in jobs:
        bytes_of_it, members = _bytes_of(job), size_of(from_submission(job[0]))
        full = (
            len(batch) == BATCH_JOBS or size + bytes_of_it > BATCH_BYTES or stands_for + members > MOST_JOBS_IN_A_CALL
        )
        if batch and full:
            yield _call(batch)
            batch, size, stands_for = [], 0, 0
        batch.append(job)
        size, stands_for = size + bytes_of_it, stands_for + members
    if batch:
        yield _call(batch)


def _together(jobs: Sequence[Job]) -> pb.SubmitRequest:
    count, size = sum(size_of(from_submission(job[0])) for job in jobs), sum(map(_bytes_of, jobs))
    if count > MOST_JOBS_IN_A_CALL or size > BATCH_BYTES:
        raise InputError(
            f"jobs that wait for others by name go in one call, and {count:,} jobs of {size:,} bytes are too many for"
            f" one: at most {MOST_JOBS_IN_A_CALL:,} jobs and {BATCH_BYTES:,} bytes; submit some first, and give ids"
        )
    return _call(jobs)


def _bytes_of(job: Job) -> int:
    size = sum(part.ByteSize() for part in job)
    if size > BATCH_BYTES:
        raise InputError(f"a job of {size:,} bytes is too large; keep data in files, not in the command")
    return size


def _call(batch: Sequence[Job]) -> pb.SubmitRequest:
    secrets = [values for _, values in batch]
    some = any(values.values for values in secrets)
    return pb.SubmitRequest(jobs=[job for job, _ in batch], secrets=secrets if some else [])


def _listed(ids: str | Iterable[str]) -> list[str]:
    return [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))


def _check_arrays(selection: Selection, members: Sequence[JobView]) -> None:
    """Refuse arrays, and members of arrays, of which no job was found."""
    known = {job.request.array_id for job in members}
    for array in [*selection.arrays, *(member.array for member in selection.members)]:
        if array not in known:
            raise NoSuchJob(f"there is no array {array}; `gavel jobs --all` lists arrays and jobs")
    for member in selection.members:
        if not any(member.has(job.request) for job in members):
            raise NoSuchJob(f"array {member.array} has no job {member}; `gavel jobs {member.array}` lists its jobs")


def _no_such(ids: Sequence[str]) -> str:
    named = ", ".join(ids[:5]) + (" and others" if len(ids) > 5 else "")
    return f"there is no job {named}" if len(ids) == 1 else f"there are no jobs {named}"
