"""The calls about where users are notified."""

from __future__ import annotations

from typing import Any

import grpc

from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]


class NotificationsService:
    """The calls about where users are notified."""

    async def ShowNotifications(self, request: pb.NotificationsRequest, context: Context) -> pb.Notifications:  # noqa: ARG002, N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not built yet")
        raise AssertionError

    async def SetNotifications(self, request: pb.Notifications, context: Context) -> pb.Notifications:  # noqa: ARG002, N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not built yet")
        raise AssertionError
