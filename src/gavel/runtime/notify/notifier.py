"""Notifications of one scheduler: from facts to receivers. A failure here is logged and stops nothing else."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from gavel.client.requests import Submission
from gavel.client.webhooks import DELIVERY, EVENT, SIGNATURE, TIMESTAMP, host_only, signature_of
from gavel.core.errors import GavelError, InputError
from gavel.journal.store import Write
from gavel.runtime.engine import Engine
from gavel.runtime.facts import Fact
from gavel.runtime.journal_retry import Insist
from gavel.runtime.logs import Logs
from gavel.runtime.notify.calling import CallResult, call
from gavel.runtime.notify.courier import Courier, DeliveryResult, Pauses
from gavel.runtime.notify.deliveries import COMMAND, Delivery, Lane
from gavel.runtime.notify.memos import KIND, Memos
from gavel.runtime.notify.occasions import ARRAY, Occasions
from gavel.runtime.notify.outbox import Addition, Outbox
from gavel.runtime.notify.settings import NotifySettings
from gavel.runtime.notify.site_command import run_command
from gavel.runtime.notify.stuck import StuckWatch
from gavel.security.vault import Vault, VaultError

logger = logging.getLogger(__name__)

CALL_SECONDS = 10.0
"""How long a receiver may take."""
DAY = 86_400.0
"""How long a notification is tried."""
GONE = 410
"""The status by which a receiver says that it wants no more."""
FLUSH_SECONDS = 0.5
"""How often it is written what has been delivered."""
LOOKS = 10
"""Looks at jobs in the time after which one counts as stuck."""
LONGEST_LOOK_SECONDS = 30.0

Writing = Callable[[Sequence[Write]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Tested:
    """How the test of one URL went."""

    url: str
    answer: CallResult


class Notifier:
    """Derives, keeps and delivers notifications."""

    def __init__(
        self,
        engine: Engine,
        settings: NotifySettings,
        vault: Vault,
        logs: Logs,
        write: Writing,
        *,
        pauses: Pauses | None = None,
        context: ssl.SSLContext | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._engine = engine
        self._vault = vault
        self._write = write
        self._context = context or ssl.create_default_context()
        self._wall = wall
        """Receivers compare timestamps with their own clocks."""
        self._memos = Memos()
        self._outbox = Outbox()
        self._staged: list[Addition] = []
        self._over: list[Delivery] = []
        """Delivered or given up, still in the journal."""
        self._troubles: dict[Lane, str] = {}
        """Why the last attempt failed, by lane."""
        at_places = {COMMAND: settings.commands_at_once}
        self._courier = Courier(self._attempt, self._place, self._settled_elsewhere, pauses, at_places=at_places)
        self._occasions = Occasions(engine.state.jobs.get, self.targets_of, self._memos)
        seconds = settings.stuck_minutes * 60.0
        self._stuck = StuckWatch(engine, logs, self._occasions, self.targets_of, self._memos, seconds)
        self._look_seconds = min(seconds / LOOKS, LONGEST_LOOK_SECONDS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._testing: set[str] = set()

    # ---- what users ask ----

    def check(self, jobs: Sequence[Submission]) -> None:
        """Refuse jobs with URLs that may not be called."""
        for urls in {job.notify for job in jobs if job.notify}:
            self.settings.allowed.check(urls)

    def key_of(self, user: str) -> str:
        """With which this user's notifications are signed; VaultError if the scheduler has lost its keys."""
        return self._vault.derive("notifications", user).hex()

    def pending_of(self, user: str) -> int:
        """How many of a user's notifications have not been delivered; those for the site's command do not count."""
        lanes = self._outbox.lanes.items()
        return sum(len(ids) for (whose, target), ids in lanes if whose == user and target != COMMAND)

    def trouble_of(self, user: str) -> str:
        """Why the last attempt to deliver one of a user's notifications failed, as a sentence."""
        found = [
            f"{host_only(target)}: {trouble}"
            for (whose, target), trouble in self._troubles.items()
            if whose == user and target != COMMAND
        ]
        return "; ".join(found[:3])

    async def test(self, user: str) -> list[Tested]:
        """Send one notification to each of a user's URLs; InputError if a test is under way."""
        with self._only_test(user):
            made = [
                Delivery(
                    id=uuid4().hex,
                    user=user,
                    target=url,
                    event="test",
                    time=self._engine.clock(),
                    about={"text": "this is a test", "cluster": self._engine.journal.cluster},
                )
                for url in self._engine.state.notified.get(user, ())
            ]
            calls = [asyncio.wrap_future(self._courier.perform(self._call(each))) for each in made]
            answers = await asyncio.gather(*calls)
            return [Tested(each.target, answer) for each, answer in zip(made, answers, strict=True)]

    @contextmanager
    def _only_test(self, user: str) -> Iterator[None]:
        if user in self._testing:
            raise InputError("a test of these notifications is under way; wait until it has ended")
        self._testing.add(user)
        try:
            yield
        finally:
            self._testing.discard(user)

    # ---- facts ----

    def targets_of(self, job: Submission, event: str = "") -> tuple[str, ...]:
        """Who is told about a job: of one event, or of any."""
        settings = self.settings
        runs = settings.command and (not event or not settings.events or event in settings.events)
        command = (COMMAND,) if runs else ()
        own = self._engine.state.notified.get(job.user, ())
        return tuple(dict.fromkeys((*job.notify, *own, *command))) if job.notify or own else command

    def beside(self, facts: Sequence[Fact]) -> Sequence[Write]:
        """What is written with the facts of an event; one of the engine's companions."""
        if not self.settings.used:
            return []
        try:
            addition = self._outbox.add(self._occasions.of(facts))
            self._staged.append(addition)
            return [*addition.writes, *self._memos.writes()]
        except Exception:  # the scheduler must not stop because of notifications
            logger.exception("a bug in notifications; the scheduler continues")
            return []

    def witness(self, facts: Sequence[Fact]) -> None:  # noqa: ARG002 - additions are staged by themselves
        """Send what has just been written; one of the engine's witnesses."""
        staged, self._staged = self._staged, []
        self._courier.accept(self._outbox.written(staged))

    # ---- a scheduler's life ----

    def take_up(self, insist: Insist) -> None:
        """Take over what an earlier scheduler did not deliver, and note what happens from now on."""
        journal, jobs = self._engine.journal, self._engine.state.jobs
        insist(lambda: self._memos.load(journal.documents(KIND)))
        arrays = {record.request.array_id for record in jobs.active()}
        self._memos.keep_only(lambda kind, name: name in arrays if kind == ARRAY else name in arrays or name in jobs)
        found: list[Delivery] = []
        insist(lambda: found.extend(self._outbox.take_up(journal.notifications())))
        self._engine.companions.append(self.beside)
        self._engine.witnesses.append(self.witness)
        self._courier.accept(found)

    def start(self) -> None:
        """Begin to deliver, in a thread."""
        self._loop = asyncio.get_running_loop()
        self._courier.start()

    async def keep(self) -> None:
        """Write what was delivered, send summaries and look for stuck jobs; ends only by cancellation."""
        looked = self._engine.clock()
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                self._courier.accept(self._outbox.due(self._engine.clock()))
                await self.flush()
                if self.settings.used and self._engine.clock() - looked >= self._look_seconds:
                    looked = self._engine.clock()
                    await self.look()
            except GavelError as error:  # the driver raises the alarm
                logger.warning("notifications could not be noted: %s", error)
            except Exception:  # the scheduler must not stop because of notifications
                logger.exception("a bug in notifications; the scheduler continues")

    async def look(self) -> None:
        """Tell about jobs that are stuck."""
        async for happenings in self._stuck.look():
            addition = self._outbox.add(happenings)
            writes = [*addition.writes, *self._memos.writes()]
            if writes:
                await self._write(writes)
            self._courier.accept(self._outbox.written([addition]))

    async def flush(self) -> None:
        """Write what has been delivered or given up."""
        over, self._over = self._over, []
        if over:
            await self._write(self._outbox.remove(over))

    async def stop(self) -> None:
        """End deliveries; what is not delivered stays in the journal."""
        await asyncio.to_thread(self._courier.stop)
        await asyncio.sleep(0)  # what the courier has said last
        with suppress(GavelError):
            await self.flush()

    # ---- deliveries, in the courier's thread ----

    def _place(self, delivery: Delivery) -> str:
        if delivery.target == COMMAND:
            return COMMAND
        with suppress(InputError):
            return self.settings.allowed.permit(delivery.target).place
        return ""

    async def _attempt(self, delivery: Delivery) -> DeliveryResult:
        if delivery.target == COMMAND:
            if not self.settings.command:
                return DeliveryResult(over=True, trouble="the site has no command any more")
            body, seconds = delivery.body(), self.settings.command_seconds
            answer = CallResult(trouble=await run_command(self.settings.command, body, seconds=seconds))
        else:
            try:
                self.settings.allowed.permit(delivery.target)
            except InputError as error:  # it was, when the job was submitted
                return DeliveryResult(over=True, trouble=str(error))
            answer = await self._call(delivery)
        old = self._wall() - delivery.time >= DAY
        return DeliveryResult(over=not answer.trouble or answer.status == GONE or old, trouble=answer.trouble)

    async def _call(self, delivery: Delivery) -> CallResult:
        try:
            permission = self.settings.allowed.permit(delivery.target)
            key = self.key_of(delivery.user)
        except (InputError, VaultError) as error:
            return CallResult(trouble=str(error))
        body, timestamp = delivery.body(), f"{self._wall():.3f}"
        headers = {
            EVENT: delivery.event,
            DELIVERY: delivery.id,
            TIMESTAMP: timestamp,
            SIGNATURE: signature_of(key, timestamp, body),
        }
        return await call(permission, headers, body, seconds=CALL_SECONDS, context=self._context)

    def _settled_elsewhere(self, delivery: Delivery, outcome: DeliveryResult) -> None:
        """Pass an outcome on to the scheduler's thread."""
        assert self._loop is not None, "deliveries begin with a start"  # noqa: S101
        with suppress(RuntimeError):  # the scheduler has just ended
            self._loop.call_soon_threadsafe(self._settled, delivery, outcome)

    def _settled(self, delivery: Delivery, outcome: DeliveryResult) -> None:
        if outcome.over:
            self._over.append(delivery)
        if not outcome.trouble:
            self._troubles.pop(delivery.lane, None)
            return
        if delivery.lane not in self._troubles:
            logger.warning(
                "a notification of user %s to %s was not delivered: %s",
                delivery.user,
                delivery.target if delivery.target == COMMAND else host_only(delivery.target),
                outcome.trouble,
            )
        self._troubles[delivery.lane] = outcome.trouble
        if outcome.over:
            self._troubles.pop(delivery.lane, None)
