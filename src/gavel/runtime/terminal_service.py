"""The call that connects a user to the terminal of a job: who may, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any

import grpc

from gavel.runtime.access import Access
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.terminals import BadKeysError, Terminals
from gavel.security.caller import current
from gavel.security.ownership import terminal_denied
from gavel.security.roles import may_type
from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]

FIRST_SECONDS = 30.0
"""How long a client may take to say which terminal it wants."""


class TerminalService:
    """Answers Terminal."""

    _access: Access
    _terminals: Terminals

    async def Terminal(  # noqa: N802
        self, requests: AsyncIterator[pb.TerminalInput], context: Context
    ) -> AsyncIterator[pb.TerminalOutput]:
        first = None
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                first = await anext(aiter(requests), None)
        if first is None:
            return  # it disconnected, or said nothing
        record, caller = await self._find(first.id, context), current()
        if not may_type(caller, record.request):
            told = terminal_denied(record.id, record.request)
            self._access.refused("Terminal", told, record.id)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, told)
        if not record.request.terminal:
            told = f"job {record.id} has no terminal; `gavel logs {record.id} --follow` shows what it prints"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, told)
        self._access.note("Terminal", record.id, "connected to its terminal")
        who = caller.by or caller.user
        notice = "" if caller.user == record.request.user and not caller.by else f"{who} is connected to this terminal"
        async with self._stream(context):
            try:
                session = self._terminals.session(first)
                async with aclosing(self._terminals.converse(session, first, requests, notice)) as outputs:
                    async for output in outputs:
                        yield output
            except BadKeysError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def _find(self, job: str, context: Context) -> LiveJobRecord:
        raise NotImplementedError

    def _stream(self, context: Context) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError
