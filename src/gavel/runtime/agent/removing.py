"""Removes checkpoints of finished jobs on request: only directories marked as this cluster's and the job's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gavel.runtime.agent.ownership import NotOursError, Owner, remove
from gavel.runtime.agent.server_context import ServerContext
from gavel.runtime.messages import CheckpointsHandled, RemoveCheckpoints


class Remover:
    """Carries out orders to remove checkpoints, one at a time and off the event loop."""

    def __init__(self, context: ServerContext, runs_here: Callable[[str], bool]) -> None:
        self._context = context
        self._runs_here = runs_here
        self._turn = asyncio.Lock()

    async def follow(self, order: RemoveCheckpoints) -> CheckpointsHandled:
        """Remove in order, and stop at a failure that may pass: the scheduler will ask again."""
        through, removed, kept = 0, [], {}
        async with self._turn:
            for number, job in order.removals:
                if self._runs_here(job):
                    break
                owner = Owner(self._context.cluster, job)
                try:
                    if await asyncio.to_thread(remove, self._context.settings.checkpoints, owner):
                        removed.append(job)
                except (NotOursError, PermissionError) as error:
                    kept[job] = f"{self._context.settings.name}: {error}"
                except OSError as error:
                    self._context.say(f"the checkpoints of job {job} cannot be removed yet: {error}")
                    break
                through = number
        return CheckpointsHandled(through=through, removed=tuple(removed), kept=kept)
