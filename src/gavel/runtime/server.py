"""`gavel serve` as a function: journal, scheduler, engine and service put together, running until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from gavel.core.allocation import Allocation
from gavel.core.errors import GavelError, InputError
from gavel.core.jobs import Entity
from gavel.core.problem import Problem
from gavel.core.problem_file import parse_entities
from gavel.core.throughputs import Throughputs, ThroughputTable, find_table
from gavel.estimator.learned import LearnedTable
from gavel.policies.mechanisms import DEFAULT, check_mechanism, kind_of, mechanism_for, starts_mid_round
from gavel.policies.registry import allocate, find_policy
from gavel.runtime.clock import SteadyClock
from gavel.runtime.clockwork import Clockwork, Solver
from gavel.runtime.engine import Engine, recover
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.journal import Journal, sqlite_url
from gavel.runtime.logs import Logs
from gavel.runtime.service import Service
from gavel.scheduler import state
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.patience import Patience
from gavel.scheduler.rounds import Mechanism
from gavel.wire import DEFAULT_ADDRESS, SERVER_OPTIONS
from gavel.wire import gavel_pb2_grpc as stubs
from gavel.workload.rows import Source

MOST_CALLS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything that a scheduler is told when it starts."""

    listen: str = DEFAULT_ADDRESS
    folder: Path = Path("gavel-state")
    """Journal and logs."""
    journal: str | None = None
    """A database instead of the folder's own, as an SQLAlchemy address."""
    policy: str = "max_min_fairness"
    agnostic: bool = False
    space_sharing: bool = False
    mechanism: str = DEFAULT
    round_seconds: float = 360.0
    min_seconds_between_allocations: float = 0.0
    restart_seconds: float = 10.0
    """What a restart costs jobs of templates for which it has not been measured."""
    patience: Patience = field(default_factory=Patience)
    """How long jobs wait for each other; other than usual where time is compressed."""
    solve_limit_seconds: float = 60.0
    """A solve that takes longer is given up: the old allocation stays in force, and the next round asks again."""
    throughputs: str = "builtin"
    profiled: tuple[str, ...] = ()
    """Tables that `gavel profile` has written: what they say counts as measured."""
    entities: Mapping[str, Entity] = field(default_factory=dict)
    log_megabytes: float = 16.0
    fleet: FleetSettings = field(default_factory=FleetSettings)


def fresh_scheduler(settings: ServeSettings, table: Throughputs) -> Scheduler:
    """A scheduler to which nothing has happened yet."""
    return Scheduler(table, _mechanism(settings), _rounds(settings), entities=settings.entities)


def build_engine(
    settings: ServeSettings,
    journal: Journal,
    *,
    clock: Callable[[], float] | None = None,
    table: Throughputs | None = None,
    events_between_states: int = 5_000,
) -> Engine:
    """An engine with the state that the journal tells; a table is one to use instead of that of the settings.

    Without a clock it has a SteadyClock.
    """
    find_policy(settings.policy)
    check_mechanism(settings.mechanism, resumed_by="a scheduler")
    base = find_table(settings.throughputs)
    profiled = [find_table(name) for name in settings.profiled]

    def fresh() -> Scheduler:
        return fresh_scheduler(settings, table or _with(LearnedTable(base), profiled))

    def restored(document: Mapping[str, Any]) -> Scheduler:
        mechanism = _mechanism(settings)
        kind = document["scheduler"]["mechanism"]["kind"]
        if kind != kind_of(mechanism):
            raise InputError(
                f"what is in {settings.folder} was planned by {kind}, and --policy and --mechanism now ask for another "
                "way; start with what it was begun with, or with another --folder"
            )
        learned = table or _with(LearnedTable.of(base, document["learned"]), profiled)
        return state.restore(document["scheduler"], learned, mechanism, _rounds(settings), entities=settings.entities)

    here = recover(journal, fresh, restored)
    clock = clock or SteadyClock(not_before=here.time)
    return Engine(here, journal, settings.fleet, clock=clock, events_between_states=events_between_states)


def _with(table: LearnedTable, profiled: Sequence[ThroughputTable]) -> LearnedTable:
    for figures in profiled:
        table.begin_with(figures)
    return table


def _mechanism(settings: ServeSettings) -> Mechanism:
    policy = find_policy(settings.policy)
    return mechanism_for(
        policy, settings.mechanism, agnostic=settings.agnostic, forgiving=True, patience=settings.patience
    )


def _rounds(settings: ServeSettings) -> Settings:
    return Settings(
        round_seconds=settings.round_seconds,
        space_sharing=settings.space_sharing,
        min_seconds_between_allocations=settings.min_seconds_between_allocations,
        start_mid_round=starts_mid_round(settings.mechanism),
        solve_patience_seconds=min(1.0, settings.round_seconds / 4),
        restart_seconds=settings.restart_seconds,
        open_entities=not settings.entities,
    )


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
    """A scheduler that is up."""

    engine: Engine
    address: str
    work: asyncio.Task[None]
    """Ends only with an error."""


@asynccontextmanager
async def serving(
    settings: ServeSettings, solver: Solver | None = None, *, table: Throughputs | None = None
) -> AsyncIterator[Running]:
    """Start a scheduler; on leaving, its state is kept and everything is closed."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    with Journal(settings.journal or sqlite_url(settings.folder / "journal.sqlite")) as journal:
        engine = build_engine(settings, journal, table=table)
        clockwork = Clockwork(engine, solver or _solver(settings), solve_limit_seconds=settings.solve_limit_seconds)
        logs = Logs(settings.folder / "logs", limit=int(settings.log_megabytes * 2**20))
        options = [
            *SERVER_OPTIONS,
            ("grpc.server.max_pending_requests", MOST_CALLS_AT_ONCE),
            ("grpc.server.max_pending_requests_hard_limit", MOST_CALLS_AT_ONCE),
            ("grpc.so_reuseport", 0),
        ]
        server = grpc.aio.server(options=options)
        service = Service(clockwork, logs, find_policy(settings.policy))
        stubs.add_GavelServicer_to_server(service, server)  # type: ignore[no-untyped-call] # generated
        address = _bind(server, settings.listen)
        work = asyncio.create_task(clockwork.run())
        await server.start()
        try:
            yield Running(engine, address, work)
        finally:
            await server.stop(grace=0.2)
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, GavelError):
                await work
            engine.keep_state()


def _bind(server: grpc.aio.Server, listen: str) -> str:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"--listen {listen}: write HOST:PORT, for example {DEFAULT_ADDRESS}")
    try:
        bound = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise InputError(f"--listen {listen}: the port is taken or not ours to use") from error
    return f"{host}:{bound}"


def read_entities(path: Path) -> dict[str, Entity]:
    """Entities from a file of the form that problem files have."""
    source = Source.of(path)
    try:
        return dict(parse_entities(source.text).described)
    except InputError as error:
        raise InputError(f"{source.name}: {error}") from None
