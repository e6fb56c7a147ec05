"""The calls that change jobs: cancel, hold, release and requeue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from gavel.core.errors import InputError
from gavel.core.events import JobCancelled
from gavel.runtime.events import HoldAsked, ReleaseAsked, RequeueAsked
from gavel.runtime.job_calls import Context, user_of
from gavel.runtime.submission_service import SubmissionService
from gavel.security.caller import current
from gavel.wire import gavel_pb2 as pb

Asked = HoldAsked | ReleaseAsked | RequeueAsked


class JobVerbs(SubmissionService):
    """The calls that change jobs: cancel, hold, release and requeue."""

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.JobList:  # noqa: N802
        records = await self._changeable(request.ids, "Cancel", context)
        going = [record for record in records if not record.finished]
        if going:
            cancelled = (JobCancelled(self._engine.clock(), record.id, user_of(current())) for record in going)
            await self._driver.post(*cancelled, beside=self._audited("Cancel"))
        return await self._views(request.ids, context)

    async def Hold(self, request: pb.JobsRequest, context: Context) -> pb.JobList:  # noqa: N802
        return await self._ask(request, "Hold", HoldAsked, context)

    async def Release(self, request: pb.JobsRequest, context: Context) -> pb.JobList:  # noqa: N802
        return await self._ask(request, "Release", ReleaseAsked, context)

    async def Requeue(self, request: pb.JobsRequest, context: Context) -> pb.JobList:  # noqa: N802
        return await self._ask(request, "Requeue", RequeueAsked, context)

    async def _ask(
        self,
        request: pb.JobsRequest,
        method: str,
        asked: Callable[[float, tuple[str, ...], str], Asked],
        context: Context,
    ) -> pb.JobList:
        """Ask for one change of all these jobs, which happens to all or is refused."""
        records = await self._changeable(request.ids, method, context)
        event = asked(self._engine.clock(), tuple([record.id for record in records]), user_of(current()))
        try:
            await asyncio.shield(self._driver.post(event, beside=self._audited(method)))
        except InputError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return await self._views(request.ids, context)
