"""Refusing a call that its caller may not make."""

from __future__ import annotations

from typing import Any

import grpc

from gavel.runtime.access import Access

Context = grpc.aio.ServicerContext[Any, Any]


class Denying:
    """Refuses calls."""

    _access: Access

    async def _deny(self, sentence: str, method: str, subject: str, context: Context) -> None:
        """Refuse the current call, and note that."""
        self._access.refused(method, sentence, subject)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, sentence)
