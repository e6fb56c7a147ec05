"""The call that connects a user to the terminal of a job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]


class TerminalService:
    """Connects users to the terminals of their jobs."""

    async def Terminal(  # noqa: N802
        self,
        requests: AsyncIterator[pb.TerminalInput],  # noqa: ARG002
        context: Context,
    ) -> AsyncIterator[pb.TerminalOutput]:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not built yet")
        yield pb.TerminalOutput()
