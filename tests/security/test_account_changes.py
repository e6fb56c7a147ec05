"""Changes of accounts: one at a time, to their end, and never undone by what was written meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gavel.journal.database import sqlite_url
from gavel.journal.store import Journal, Write
from gavel.runtime.access import Access
from gavel.security.accounts import Accounts, UnknownTokenError, UserRecord
from gavel.security.gate import Identities
from gavel.security.roles import Role

NOW = 1_000_000.0


class SlowJournal:
    """Writes in order, each when it is let through."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.open = asyncio.Event()
        self._turn = asyncio.Lock()

    async def write(self, writes: Sequence[Write]) -> None:
        async with self._turn:
            await self.open.wait()
            self.journal.write(writes)


def world(journal: Journal) -> tuple[Accounts, str, str]:
    """An operator with a join token of two uses: its text and id."""
    accounts = Accounts([UserRecord(name="oda", role=Role.OPERATOR)])
    text, record, change = accounts.create_token(user="oda", role=Role.AGENT, now=NOW, uses=2)
    change.apply()
    journal.write([change.write])
    return accounts, text, record.id


def test_a_revocation_is_not_undone_by_an_enrolment_at_the_same_time(tmp_path: Path) -> None:
    async def scene(journal: Journal) -> None:
        accounts, text, token = world(journal)
        slow = SlowJournal(journal)
        access = Access(Identities(accounts=accounts), journal, lambda: NOW, slow.write)

        async def revoke() -> None:
            await access.carry_out([accounts.revoke(token)], "RevokeToken", token, "")

        async def enrol() -> None:
            await access.carry_out([accounts.redeem(text, NOW)[1]], "Enrol", "a1", "")

        changes = [asyncio.create_task(access.alone(change)) for change in (revoke, enrol)]
        await asyncio.sleep(0.01)
        slow.open.set()
        outcomes = await asyncio.gather(*changes, return_exceptions=True)
        assert isinstance(outcomes[1], UnknownTokenError)
        assert accounts.tokens[token].revoked
        assert journal.documents("token")[token]["revoked"]

    with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="test") as journal:
        asyncio.run(scene(journal))


def test_a_revocation_is_not_undone_by_the_last_use_that_is_written_meanwhile(tmp_path: Path) -> None:
    async def scene(journal: Journal) -> None:
        accounts = Accounts([UserRecord(name="ann")])
        text, record, change = accounts.create_token(user="ann", role=Role.USER, now=NOW)
        change.apply()
        slow = SlowJournal(journal)
        access = Access(Identities(accounts=accounts), journal, lambda: NOW, slow.write)
        accounts.recognise(text, NOW)

        async def revoke() -> None:
            await access.carry_out([accounts.revoke(record.id)], "RevokeToken", record.id, "")

        both = [asyncio.create_task(access.alone(revoke)), asyncio.create_task(access._tidy())]
        await asyncio.sleep(0.01)
        slow.open.set()
        await asyncio.gather(*both)
        assert journal.documents("token")[record.id]["revoked"]

    with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="test") as journal:
        asyncio.run(scene(journal))


def test_a_change_reaches_its_end_although_its_caller_is_gone(tmp_path: Path) -> None:
    async def scene(journal: Journal) -> None:
        accounts, _, token = world(journal)
        slow, ended = SlowJournal(journal), asyncio.Event()
        access = Access(Identities(accounts=accounts), journal, lambda: NOW, slow.write)

        async def revoke() -> None:
            await access.carry_out([accounts.revoke(token)], "RevokeToken", token, "")
            ended.set()

        call = asyncio.create_task(access.alone(revoke))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        slow.open.set()
        await asyncio.wait_for(ended.wait(), 10)
        assert accounts.tokens[token].revoked

    with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="test") as journal:
        asyncio.run(scene(journal))
