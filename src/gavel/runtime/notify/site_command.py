"""The site's own command: it reads one notification on its standard input. Nothing that users write is in its words."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Of the scheduler's environment, which may hold passwords of databases."""


async def run_command(command: Sequence[str], body: bytes, *, seconds: float) -> str:
    """Run the command with a body on its standard input; returns why it failed, empty if it did not."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, env=environment, start_new_session=True
        )
    except OSError as error:
        return f"{command[0]} cannot be run: {(error.strerror or 'unknown error').lower()}"
    try:
        async with asyncio.timeout(seconds):
            await process.communicate(body)
    except TimeoutError:
        return f"{command[0]} took longer than {seconds:g} s"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return f"{command[0]} ended with exit code {process.returncode}" if process.returncode else ""
