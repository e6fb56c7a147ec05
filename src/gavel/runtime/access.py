"""What the service needs to know about access: identities, the audit, and how both reach the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from gavel.journal.audit import AuditEntry
from gavel.journal.errors import JournalError
from gavel.journal.queries import JournalReader
from gavel.journal.store import Write
from gavel.security.accounts import AccountChange, Accounts
from gavel.security.caller import current
from gavel.security.gate import Gate, Identities
from gavel.security.rates import Failures, Rates
from gavel.security.roles import Caller
from gavel.security.trail import Trail, written

FLUSH_SECONDS = 1.0
"""How often refusals and reads reach the audit."""
FORGOTTEN_SECONDS = 30 * 86_400.0
"""How long tokens that have expired are listed."""
USES_SECONDS = 60.0
"""How often the last uses of tokens are written."""

Changed = TypeVar("Changed")
Writing = Callable[[Sequence[Write]], Awaitable[None]]
"""Writes to the tables beside the facts, in the leader's thread, however long it takes."""


class Access:
    """Identities and the audit of one scheduler."""

    def __init__(
        self,
        identities: Identities,
        journal: JournalReader,
        clock: Callable[[], float],
        write: Writing,
        *,
        cluster: str = "",
        advertised: str = "",
        fingerprint: str = "",
    ) -> None:
        self.identities = identities
        self.journal = journal
        self.clock = clock
        self.cluster = cluster
        self.advertised = advertised
        """The address that others are told to use."""
        self.fingerprint = fingerprint
        self.trail = Trail(clock)
        self.gate = Gate(identities, clock, self.trail, rates=Rates(time.monotonic), failures=Failures(time.monotonic))
        self.turn = asyncio.Lock()
        """Held while a change of accounts is checked and written."""
        self._write = write
        self._flushing = asyncio.Lock()

    @property
    def accounts(self) -> Accounts | None:
        """None if the scheduler is open."""
        return self.identities.accounts

    def entry(self, method: str, subject: str = "", what: str = "") -> AuditEntry:
        """An entry about the current call."""
        return self.trail.entry(current(), method, subject=subject, what=what)

    def audited(self, method: str, subject: str = "", what: str = "") -> Write:
        """The entry about the current call, to be written with what it changes."""
        return written([self.entry(method, subject, what)])

    def describing(self, *, method: str, object: str, what: str) -> Write:  # noqa: A002 - the audit's own word
        """As `audited`, for calls about agents."""
        return self.audited(method, object, what)

    def note(self, method: str, subject: str = "", what: str = "") -> None:
        """Have an entry about the current call written soon: for reads of private things."""
        self.trail.note(self.entry(method, subject, what))

    def refused(self, method: str, sentence: str, subject: str = "") -> None:
        """Have it written soon that the current call was refused."""
        self.trail.refused(current(), method, sentence, subject=subject)

    async def carry_out(self, changes: Sequence[AccountChange], method: str, subject: str, what: str) -> None:
        """Write changes and their entry in the audit, then let them take effect; within `alone`."""
        await self._write([*(change.write for change in changes), self.audited(method, subject, what)])
        for change in changes:
            change.apply()

    async def alone(self, change: Callable[[], Awaitable[Changed]]) -> Changed:
        """Check and change accounts while no other call does, to the end even if the caller is gone."""

        async def changed() -> Changed:
            async with self.turn:
                return await change()

        working = asyncio.ensure_future(changed())
        working.add_done_callback(lambda done: done.cancelled() or done.exception())  # for a caller that is gone
        return await asyncio.shield(working)

    async def flush(self) -> None:
        """Write what waits for the audit; what another flush is writing has been written then, too."""
        async with self._flushing:
            if (write := self.trail.due()) is not None:
                await self._write([write])

    def end_streams(self, invalid: Callable[[Caller], bool]) -> None:
        """End the open streams of callers that may no longer call."""
        self.gate.end_streams(invalid)

    async def keep(self) -> None:
        """Write what waits, from time to time; ends only by cancellation."""
        since = 0.0
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            with suppress(JournalError):  # the driver raises the alarm
                await self.flush()
                since += FLUSH_SECONDS
                if since >= USES_SECONDS:
                    since = 0.0
                    await self._tidy()

    async def _tidy(self) -> None:
        """Write uses of tokens, forget old ones, and end streams of tokens and users that no longer count."""
        accounts, now = self.accounts, self.clock()
        if accounts is None:
            return
        async with self.turn:  # a revocation that is being written must not be undone
            if (write := accounts.used()) is not None:
                await self._write([write])
            if (forgotten := accounts.forget_tokens(now - FORGOTTEN_SECONDS)) is not None:
                await self._write([forgotten.write])
                forgotten.apply()
        self.end_streams(lambda caller: _is_over(caller, accounts, now))


def _is_over(caller: Caller, accounts: Accounts, now: float) -> bool:
    """Whether a caller's token has expired, or the account that calls was disabled."""
    user = accounts.users.get(caller.by or caller.user)
    return (bool(caller.token) and not accounts.valid(caller.token, now)) or (user is not None and user.disabled)
