"""The inside of a helper process: answers each JSON line on standard input with one JSON line.

It ends when its standard input does, so that helpers never outlive the process that started them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Answer = Callable[..., Awaitable[dict[str, Any]]]


def play(make_answers: Callable[[], Mapping[str, Answer]]) -> None:
    """Answer requests until standard input ends; answers are computed in the event loop."""
    _raise_file_limit()
    with contextlib.suppress(KeyboardInterrupt):  # the parent process ends it in an orderly way
        asyncio.run(_serve(make_answers))


async def _serve(make_answers: Callable[[], Mapping[str, Answer]]) -> None:
    answers = make_answers()
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        question = json.loads(line)
        answer = await answers[question.pop("do")](**question)
        print(json.dumps(answer), flush=True)


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
