"""What reaches the audit, and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from gavel.journal.database import sqlite_url
from gavel.journal.store import Journal, Write
from gavel.runtime.access import Access
from gavel.security.gate import Identities


def test_a_reader_of_the_audit_waits_for_refusals_that_are_being_written(tmp_path: Path) -> None:
    """A flush takes what waits before it writes it; another that finds nothing must not end earlier."""

    async def scene() -> list[str]:
        happened: list[str] = []
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def write(writes: Sequence[Write]) -> None:
            assert writes
            begun.set()
            await may_end.wait()
            happened.append("written")

        with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="test") as journal:
            access = Access(Identities(), journal, time.time, write)
            access.refused("WhoAmI", "who are you?")
            periodic = asyncio.create_task(access.flush())
            await begun.wait()

            async def read() -> None:
                await access.flush()
                happened.append("read")

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            may_end.set()
            await asyncio.gather(periodic, reading)
        return happened

    assert asyncio.run(scene()) == ["written", "read"]
