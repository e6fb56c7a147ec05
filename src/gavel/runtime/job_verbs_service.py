"""The calls that hold, release and requeue jobs."""

from __future__ import annotations

from typing import Any

import grpc

from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]


class JobVerbs:
    """The calls that hold, release and requeue jobs."""

    async def Hold(self, request: pb.JobsRequest, context: Context) -> pb.JobList:  # noqa: ARG002, N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not built yet")
        raise AssertionError

    async def Release(self, request: pb.JobsRequest, context: Context) -> pb.JobList:  # noqa: ARG002, N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not built yet")
        raise AssertionError

    async def Requeue(self, request: pb.JobsRequest, context: Context) -> pb.JobList:  # noqa: ARG002, N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not built yet")
        raise AssertionError
