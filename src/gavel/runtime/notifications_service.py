"""The calls about where users are notified: who may see and set that, and which URLs are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from gavel.client.field_checks import check_label, label_fault, shortened
from gavel.client.webhooks import host_only
from gavel.core.errors import InputError
from gavel.limits import LONGEST_PATH, MOST_NOTIFIED
from gavel.runtime.access import Access
from gavel.runtime.driver import Driver
from gavel.runtime.events import NotificationsGiven
from gavel.runtime.notify.hosts import AllowedHosts
from gavel.runtime.notify.notifier import Notifier
from gavel.security.caller import current
from gavel.security.roles import Caller
from gavel.security.vault import VaultError
from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]


def user_fault(caller: Caller, user: str) -> str | None:
    """Why a caller may not see or set where a user is notified, in a sentence; None if it may."""
    if user == caller.user or caller.operates:
        return None
    return f"notifications of {shortened(user)} are for that user and operators; ask one of them"


def urls_of(texts: list[str], allowed: AllowedHosts) -> tuple[str, ...]:
    """URLs that may be called, each once; InputError for the first that may not."""
    urls = tuple(dict.fromkeys(texts))
    if len(urls) > MOST_NOTIFIED:
        raise InputError(f"{len(urls):,} URLs; give at most {MOST_NOTIFIED}")
    for url in urls:
        check_label("the URL", url, longest=LONGEST_PATH)
    allowed.check(urls)
    return urls


class NotificationsService:
    """Answers ShowNotifications, SetNotifications and TestNotifications."""

    _driver: Driver
    _access: Access
    _notifier: Notifier

    async def ShowNotifications(self, request: pb.NotificationsRequest, context: Context) -> pb.Notifications:  # noqa: N802
        user = await self._user(request.user, "ShowNotifications", context)
        if user != current().user:
            self._access.note("ShowNotifications", user)
        return await self._notifications(user, context)

    async def SetNotifications(self, request: pb.Notifications, context: Context) -> pb.Notifications:  # noqa: N802
        user, caller = await self._user(request.user, "SetNotifications", context), current()
        try:
            urls = urls_of(list(request.urls), self._notifier.settings.allowed)
            given = NotificationsGiven(self._driver.engine.clock(), caller.by or caller.user, user, urls)
            what = ", ".join(map(host_only, urls)) or "none"
            audit = self._access.audited("SetNotifications", user, what)
            await asyncio.shield(self._driver.post(given, beside=lambda _: [audit]))
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return await self._notifications(user, context)

    async def TestNotifications(self, request: pb.NotificationsRequest, context: Context) -> pb.NotificationTests:  # noqa: N802
        user = await self._user(request.user, "TestNotifications", context)
        try:
            tested = await self._notifier.test(user)
        except InputError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.NotificationTests(
            tests=[
                pb.NotificationTest(url=each.url, status=each.answer.status, trouble=each.answer.trouble)
                for each in tested
            ]
        )

    async def _user(self, asked: str, method: str, context: Context) -> str:
        """Whose notifications a call is about."""
        caller = current()
        user = asked or caller.user
        if (fault := label_fault(user)) is not None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the name of a user {fault}: {shortened(user)}")
        if (fault := user_fault(caller, user)) is not None:
            self._access.refused(method, fault, user)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, fault)
        accounts = self._access.accounts
        known = user == caller.user if accounts is None else user in accounts.users
        if not known:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no user {shortened(user)}")
        return user

    async def _notifications(self, user: str, context: Context) -> pb.Notifications:
        notifier = self._notifier
        try:
            key = notifier.key_of(user)
        except VaultError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.Notifications(
            user=user,
            urls=self._driver.engine.state.notified.get(user, ()),
            signing_key=key,
            allowed_hosts=notifier.settings.hosts,
            pending=notifier.pending_of(user),
            trouble=notifier.trouble_of(user),
        )
