"""`gavel serve` as a function: assembles journal, state, engine and service, and runs them until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from gavel.core.allocation import Allocation
from gavel.core.errors import GavelError, InputError
from gavel.core.jobs import Entity
from gavel.core.problem import Problem
from gavel.core.problem_file import parse_entities
from gavel.core.throughputs import Throughputs
from gavel.journal.database import sqlite_url
from gavel.journal.leader import PULSE_SECONDS
from gavel.journal.store import Journal
from gavel.policies.mechanisms import check_mechanism
from gavel.policies.registry import allocate, find_policy
from gavel.runtime.access import Access
from gavel.runtime.clock import SteadyClock
from gavel.runtime.configuration import Configurator, Scheduling, ServeSettings, settings_document
from gavel.runtime.driver import Driver, Solver
from gavel.runtime.engine import Clock, Engine
from gavel.runtime.enrolment_service import AccountJoinTokens, EnrolmentDesk
from gavel.runtime.events import Began, SettingsGiven
from gavel.runtime.fleet import Fleet, FleetSettings, SchedulerIdentity
from gavel.runtime.housekeeping import keep_house
from gavel.runtime.job_secrets import JobSecrets
from gavel.runtime.journal_retry import Insist, insisting
from gavel.runtime.listening import (
    BoundPorts,
    Listener,
    Listening,
    Mode,
    advertised,
    insecure_sentence,
    keep_warning,
    mode_of,
    server_names,
)
from gavel.runtime.logs import Logs
from gavel.runtime.notify.notifier import Notifier, Writing
from gavel.runtime.recovery import last_kept, recover
from gavel.runtime.scheduler_log import BlackBox
from gavel.runtime.service import Service
from gavel.runtime.state import Retries
from gavel.runtime.state_keeper import StateKeeper
from gavel.runtime.streams import CONNECTION_OPTIONS
from gavel.runtime.upgrade import upgrading
from gavel.security.gate import Identities
from gavel.security.local_login import LocalLogin
from gavel.security.setup import Secured, set_up
from gavel.security.vault import Vault
from gavel.version import __version__
from gavel.wire import gavel_pb2_grpc as stubs
from gavel.workload.rows import Source

__all__ = ["FleetSettings", "Running", "Scheduling", "ServeSettings", "build_engine", "read_entities", "serving"]


def open_journal(settings: ServeSettings, *, table: Throughputs | None = None) -> Journal:
    """The journal that settings name, in a new term; an earlier format is upgraded."""
    url = settings.journal or sqlite_url(settings.folder / "journal.sqlite")
    upgrade = upgrading(settings.scheduling, Configurator(settings.scheduling, table))
    silence = max(settings.fleet.lease_slack_seconds, 3 * PULSE_SECONDS)  # jobs can run that long without a leader
    return Journal.open(
        url, holder=holder(), wait_seconds=settings.wait_seconds, upgrade=upgrade, silence_seconds=silence
    )


def holder() -> str:
    """How we identify ourselves to other schedulers on the same journal."""
    return f"{socket.gethostname()} (process {os.getpid()})"


def build_engine(
    settings: ServeSettings,
    journal: Journal,
    *,
    clock: Clock | None = None,
    table: Throughputs | None = None,
    facts_between_states: int = 10_000,
    insist: Insist | None = None,
) -> Engine:
    """An engine with the state recorded in the journal; settings that differ from those in force are its first event.

    `table` replaces the one that the settings name. Without a clock it uses a SteadyClock. Unless `insist` says
    otherwise, writes to a temporarily unavailable journal are repeated for a while.
    """
    find_policy(settings.policy)
    check_mechanism(settings.mechanism, resumed_by="a scheduler")
    scheduling = settings.scheduling
    retries = Retries(
        first_seconds=settings.fleet.retry_seconds,
        longest_seconds=settings.fleet.longest_retry_seconds,
        blocked_seconds=min(6 * settings.fleet.retry_seconds, settings.fleet.longest_retry_seconds),
    )
    configurator = Configurator(scheduling, table)
    state = recover(journal, configurator, retries)
    state_keeper = StateKeeper(journal, partial(last_kept, journal, configurator, retries))
    clock = clock or SteadyClock(not_before=state.time)
    engine = Engine(state, journal, clock, state_keeper, facts_between_states=facts_between_states)
    engine.post(Began(clock(), __version__, journal.term, holder()))
    engine.post(SettingsGiven(clock(), holder(), settings_document(scheduling)), _raise)
    engine.take_up(insist or insisting())
    return engine


def _raise(error: InputError | None) -> None:
    """Have a start end when its settings do not fit what the journal has."""
    if error is not None:
        raise error


def fleet_for(engine: Engine, settings: FleetSettings, secrets: JobSecrets | None = None) -> Fleet:
    """The executor that works through agents."""
    identity = SchedulerIdentity(engine.journal.cluster, engine.journal.term)
    return Fleet(settings, identity, engine.clock, engine.post, engine.records, secrets or JobSecrets())


def secrets_for(engine: Engine, folder: Path, insist: Insist | None = None) -> JobSecrets:
    """The secrets of unfinished jobs; the engine removes them with the fact that ends a job."""
    secrets = JobSecrets(Vault.open(folder, engine.journal.cluster))
    secrets.take_up(engine.journal, engine.state.jobs.active(), insist or insisting())
    engine.companions.append(secrets.removal)
    return secrets


def notifier_for(engine: Engine, settings: ServeSettings, logs: Logs, write: Writing) -> Notifier:
    """What tells users about their jobs; the engine writes what is pending with the facts."""
    vault = Vault.open(settings.folder, engine.journal.cluster)
    notifier = Notifier(engine, settings.notify, vault, logs, write)
    notifier.take_up(insisting())
    return notifier


def _solver(settings: ServeSettings) -> Solver:
    def solve(problem: Problem) -> Allocation:
        return allocate(
            problem,
            settings.policy,
            heterogeneity_agnostic=settings.agnostic,
            limit_seconds=settings.solve_limit_seconds,
        )

    return solve


@dataclass(slots=True)
class Running:
    """A scheduler that is running."""

    engine: Engine
    fleet: Fleet
    service: Service
    bound: BoundPorts
    work: asyncio.Task[None]
    """Ends only with an error."""
    access: Access
    mode: Mode
    secured: Secured | None = None
    """None unless callers are recognised."""

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return self.bound.address


@asynccontextmanager
async def serving(
    settings: ServeSettings, solver: Solver | None = None, *, table: Throughputs | None = None
) -> AsyncIterator[Running]:
    """Start a scheduler; on exit, its state is kept and everything is closed."""
    wanted, mode = settings.listening, mode_of(settings.listen, settings.folder, settings.listening)
    settings.folder.mkdir(parents=True, exist_ok=True)
    with open_journal(settings, table=table) as journal:
        engine = build_engine(settings, journal, table=table)
        engine.witnesses.append(BlackBox(engine))
        fleet = fleet_for(engine, settings.fleet, secrets_for(engine, settings.folder))
        driver = Driver(engine, fleet, solver or _solver(settings), solve_limit_seconds=settings.solve_limit_seconds)
        logs = Logs(settings.folder / "logs", limit=int(settings.log_megabytes * 2**20))
        notifier = notifier_for(engine, settings, logs, driver.write)
        secured = _secured(settings, journal, engine) if mode is Mode.SECURE else None
        access = Access(_identities(secured, wanted), journal, engine.clock, driver.write, cluster=journal.cluster)
        server = grpc.aio.server(interceptors=[access.gate], options=CONNECTION_OPTIONS)
        listener = Listener(server, settings.listen, settings.folder, wanted)
        bound = listener.bind(secured)
        desk = None if secured is None else _desk(secured, listener, bound, driver, access.turn)
        service = Service(driver, fleet, logs, find_policy(settings.policy), access, desk, notifier=notifier)
        stubs.add_GavelServicer_to_server(service, server)  # type: ignore[no-untyped-call] # generated
        access.advertised = advertised(bound.address, wanted)
        access.fingerprint = "" if secured is None else listener.fingerprint(secured)
        work = asyncio.create_task(driver.run())
        beside = [asyncio.create_task(keep_house(settings.keep, engine, driver.post, logs))]
        beside.append(asyncio.create_task(access.keep()))
        notifier.start()
        beside.append(asyncio.create_task(notifier.keep()))
        if insecurity := insecure_sentence(mode, bound):
            beside.append(asyncio.create_task(keep_warning(insecurity)))
        await server.start()
        if secured is not None:
            logins = LocalLogin(secured.accounts, access.identities.sessions, engine.clock, secured.owner)
            await listener.start_logins(logins)
        try:
            yield Running(engine, fleet, service, bound, work, access, mode, secured)
        finally:
            for task in beside:
                task.cancel()
            await listener.stop()
            await server.stop(grace=0.2)
            with contextlib.suppress(GavelError):
                await access.flush()
            await notifier.stop()
            driver.stop()
            with contextlib.suppress(asyncio.CancelledError, GavelError):
                await work


def _secured(settings: ServeSettings, journal: Journal, engine: Engine) -> Secured:
    wanted = settings.listening
    return set_up(
        settings.folder,
        journal,
        server_names(settings.listen, wanted),
        engine.clock,
        own_client_authority=wanted.client_ca is not None,
    )


def _desk(secured: Secured, listener: Listener, bound: BoundPorts, driver: Driver, turn: asyncio.Lock) -> EnrolmentDesk:
    authority, name = listener.trust(secured)
    return EnrolmentDesk(
        turn=turn,
        enrolment=secured.enrolment,
        join_tokens=AccountJoinTokens(secured.accounts),
        write=driver.write,
        agents_port=bound.agents_port,
        authority=authority,
        server_name=name,
        clock=driver.engine.clock,
    )


def _identities(secured: Secured | None, wanted: Listening) -> Identities:
    if secured is None:
        return Identities()
    return Identities(
        accounts=secured.accounts,
        certificates=secured.enrolment,
        plaintext_agents=wanted.insecure_listen is not None,
    )


def read_entities(path: Path) -> dict[str, Entity]:
    """Entities from a file in the format of problem files."""
    source = Source.of(path)
    try:
        return dict(parse_entities(source.text).described)
    except InputError as error:
        raise InputError(f"{source.name}: {error}") from None
