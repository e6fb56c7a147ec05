"""The calls about limits: who may see and set them. What limits do is decided in the state."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from gavel.client.field_checks import label_fault, shortened
from gavel.core.errors import InputError
from gavel.core.jobs import is_path
from gavel.runtime.access import Access
from gavel.runtime.driver import Driver
from gavel.runtime.events import LimitsGiven
from gavel.security.caller import current
from gavel.security.quotas import EVERYBODY, Kind, Limits, Quotas, Subject
from gavel.security.roles import Caller, within
from gavel.wire import gavel_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]


def set_fault(caller: Caller, subject: Subject, limits: Limits, quotas: Quotas, teams: tuple[str, ...]) -> str | None:
    """Why a caller may not set these limits, in a sentence; None if it may. `teams` are those of a user.

    Operators set all limits. The lead of a team may set those of the teams below it, of its team and of users in it,
    but none above the limits that are in force for them, nor above those of the team that it leads.
    """
    if caller.operates:
        return None
    if subject.kind is Kind.DEFAULT:
        return "only operators set the default of every user; ask one"
    about = (subject.name,) if subject.kind is Kind.TEAM else teams
    led = [team for team in about if caller.leads_team(team)]
    if not led:
        return f"only operators and the leads of its team set the limits of {subject}; ask one of them"
    caps = [(subject, quotas.limits_of(subject))]
    above = {lead for lead in caller.leads for team in led if within(team, lead)}
    caps += [(Subject(Kind.TEAM, team), quotas.limits_of(Subject(Kind.TEAM, team))) for team in sorted(above)]
    for who, cap in caps:
        if not limits.within(cap):
            return f"a lead may only lower limits: {told(cap)} in force for {who}; ask an operator to raise them"
    return None


def told(limits: Limits) -> str:
    """Limits as a list for people.

    >>> told(Limits(unfinished_jobs=10, running_accelerators=8))
    '10 unfinished jobs, 8 accelerators'
    """
    parts = (
        (limits.unfinished_jobs, "unfinished jobs"),
        (limits.running_accelerators, "accelerators"),
        (limits.submissions_per_minute, "submissions a minute"),
    )
    return ", ".join(f"{number:g} {what}" for number, what in parts if number) or "no limits"


class LimitsService:
    """Answers ListLimits and SetLimits."""

    _driver: Driver
    _access: Access

    async def ListLimits(self, request: pb.ListLimitsRequest, context: Context) -> pb.LimitList:  # noqa: ARG002, N802
        return self._limits()

    async def SetLimits(self, request: pb.LimitsOf, context: Context) -> pb.LimitList:  # noqa: N802
        caller, engine = current(), self._driver.engine
        try:
            subject, limits = _subject(request), _limits(request.limits)
            limits.check()
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        fault = set_fault(caller, subject, limits, engine.state.quotas, self._teams_of(subject.name))
        if fault is not None:
            self._access.refused("SetLimits", fault, subject.name)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, fault)
        event = LimitsGiven(engine.clock(), caller.by or caller.user, subject, limits)
        try:
            audit = self._access.audited("SetLimits", subject.name or str(subject.kind), told(limits))
            await asyncio.shield(self._driver.post(event, beside=lambda _: [audit]))
        except InputError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return self._limits()

    def _teams_of(self, user: str) -> tuple[str, ...]:  # noqa: ARG002
        """The teams of a user, for the rights of their leads; a server that knows its users overrides it."""
        return ()

    def _limits(self) -> pb.LimitList:
        """The limits that the caller may see: operators all, others their own and those of their teams."""
        caller, engine = current(), self._driver.engine
        quotas, now = engine.state.quotas, engine.clock()
        subjects = sorted({*quotas.subjects(), EVERYBODY, *_own(caller)})
        return pb.LimitList(
            limits=[
                pb.LimitsOf(
                    kind=subject.kind,
                    name=subject.name,
                    limits=_packed(quotas.limits.get(subject, Limits())),
                    used=_packed(quotas.used_by(subject, now)),
                )
                for subject in subjects
                if _sees(caller, subject)
            ]
        )


def _own(caller: Caller) -> list[Subject]:
    return [Subject(Kind.USER, caller.user)] if caller.user else []


def _sees(caller: Caller, subject: Subject) -> bool:
    if caller.operates or subject.kind is Kind.DEFAULT:
        return True
    if subject.kind is Kind.USER:
        return subject.name == caller.user
    above = any(within(team, subject.name) for team in (*caller.teams, *caller.leads))
    return above or caller.in_team(subject.name) or caller.leads_team(subject.name)


def _subject(request: pb.LimitsOf) -> Subject:
    try:
        kind = Kind(request.kind)
    except ValueError:
        raise InputError(f"limits are of a user, a team or default, not of {shortened(request.kind)}") from None
    if (fault := label_fault(request.name)) is not None:
        raise InputError(f"the name of a {kind} {fault}: {shortened(request.name)}")
    if kind is Kind.DEFAULT and request.name:
        raise InputError(f"the default is that of every user; leave out the name {shortened(request.name)}")
    if kind is not Kind.DEFAULT and not request.name:
        raise InputError(f"name the {kind} whose limits are set")
    if kind is Kind.TEAM and not is_path(request.name):
        raise InputError(f"{shortened(request.name)} cannot name a team; write parts with / between them")
    return Subject(kind, request.name)


def _limits(packed: pb.Limits) -> Limits:
    return Limits(
        unfinished_jobs=packed.unfinished_jobs,
        running_accelerators=packed.running_accelerators,
        submissions_per_minute=packed.submissions_per_minute,
    )


def _packed(limits: Limits) -> pb.Limits:
    return pb.Limits(
        unfinished_jobs=limits.unfinished_jobs,
        running_accelerators=limits.running_accelerators,
        submissions_per_minute=limits.submissions_per_minute,
    )
