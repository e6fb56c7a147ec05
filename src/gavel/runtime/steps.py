"""Work that takes long, in steps: other tasks of the loop get their turn between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from time import perf_counter
from typing import TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")
Steps = Generator[None, None, Result]
"""Yields after each step, and returns a result."""

TURN_SECONDS = 0.03
"""How long a task may keep the loop, as far as its steps allow."""


def all_steps(steps: Steps[Result]) -> Result:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            result: Result = stopped.value
            return result


async def in_turns(steps: Steps[Result]) -> Result:
    """Take all steps, and let other tasks run between them."""
    began = perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            result: Result = stopped.value
            return result
        if perf_counter() - began > TURN_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()


async def unhurried(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Iterate over items, and let other tasks run now and then."""
    began = perf_counter()
    for item in items:
        yield item
        if perf_counter() - began > TURN_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()
