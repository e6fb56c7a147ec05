"""Settings as the journal stores them, and the scheduler built from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gavel.core.errors import InputError
from gavel.core.jobs import Entity
from gavel.core.serialization import from_plain, to_plain
from gavel.core.throughputs import Throughputs, ThroughputTable, find_table
from gavel.estimator.learned import LearnedTable
from gavel.policies.mechanisms import DEFAULT, mechanism_for, suited
from gavel.policies.registry import find_policy
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.housekeeping import Keep
from gavel.runtime.listening import Listening
from gavel.runtime.notify.settings import NotifySettings
from gavel.scheduler import state
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.patience import Patience
from gavel.scheduler.rounds import Mechanism
from gavel.scheduler.rules import Rules
from gavel.wire import DEFAULT_ADDRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """The settings that decisions depend on; they are stored in the journal."""

    policy: str = "max_min_fairness"
    agnostic: bool = False
    space_sharing: bool = False
    mechanism: str = DEFAULT
    round_seconds: float = 360.0
    min_seconds_between_allocations: float = 0.0
    restart_seconds: float = 10.0
    """Cost of a restart for templates without a measurement."""
    patience: Patience = field(default_factory=Patience)
    """How long jobs wait for each other; changed only where time is compressed."""
    throughputs: str = "builtin"
    profiled: tuple[str, ...] = ()
    """Tables written by `gavel profile`; their figures count as measured."""
    entities: Mapping[str, Entity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything a scheduler is told when it starts."""

    listen: str = DEFAULT_ADDRESS
    folder: Path = Path("gavel-state")
    """Journal and logs."""
    journal: str | None = None
    """A database instead of the folder's own, as an SQLAlchemy address."""
    wait_seconds: float = 0.0
    """How long to wait for another scheduler on the same journal to stop."""
    policy: str = "max_min_fairness"
    agnostic: bool = False
    space_sharing: bool = False
    mechanism: str = DEFAULT
    round_seconds: float = 360.0
    min_seconds_between_allocations: float = 0.0
    restart_seconds: float = 10.0
    patience: Patience = field(default_factory=Patience)
    solve_limit_seconds: float = 60.0
    """A solve that takes longer is abandoned: the old allocation stays in force, and the next round asks again."""
    throughputs: str = "builtin"
    profiled: tuple[str, ...] = ()
    entities: Mapping[str, Entity] = field(default_factory=dict)
    log_megabytes: float = 16.0
    keep: Keep = field(default_factory=Keep)
    listening: Listening = field(default_factory=Listening)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)

    @property
    def scheduling(self) -> Scheduling:
        """The settings that decisions depend on."""
        return Scheduling(**{name: getattr(self, name) for name in Scheduling.__slots__})


def settings_document(settings: Scheduling) -> dict[str, Any]:
    """Settings as plain data, including defaults: a later version may have other defaults."""
    return {name: to_plain(getattr(settings, name)) for name in Scheduling.__slots__}


def settings_of(document: Mapping[str, Any]) -> Scheduling:
    """Read settings; fields that only another version knows are dropped."""
    return from_plain(Scheduling, {name: part for name, part in document.items() if name in Scheduling.__slots__})


class Configurator:
    """Builds schedulers from settings in the journal.

    A table's file or a mechanism's module that those settings name may no longer exist. Then the one from the current
    settings is used instead: recovery decides nothing, so this cannot change the past.
    """

    def __init__(self, present: Scheduling, table: Throughputs | None = None) -> None:
        self._present = present
        self._table = table
        """A table to use instead of those that settings name."""

    def fresh(self, settings: Mapping[str, Any]) -> Scheduler:
        wanted = settings_of(settings)
        table = self._table or _with_profiles(LearnedTable(self._base(wanted)), self._profiled(wanted))
        return Scheduler(table, self._mechanism(wanted), rounds(wanted), entities=wanted.entities)

    def restored(self, settings: Mapping[str, Any], document: Mapping[str, Any]) -> Scheduler:
        wanted = settings_of(settings)
        # Types are identified by name: another table may list different types, or in another order.
        types = document["scheduler"]["types"]
        learned = self._table or _with_profiles(
            LearnedTable.of(self._base(wanted), document["learned"], types), self._profiled(wanted)
        )
        return state.restore(
            document["scheduler"], learned, self._mechanism(wanted), rounds(wanted), entities=wanted.entities
        )

    def _base(self, wanted: Scheduling) -> ThroughputTable:
        try:
            return find_table(wanted.throughputs)
        except InputError:
            return find_table(self._present.throughputs)

    def _profiled(self, wanted: Scheduling) -> list[ThroughputTable]:
        try:
            return [find_table(name) for name in wanted.profiled]
        except InputError:
            return [find_table(name) for name in self._present.profiled]

    def _mechanism(self, wanted: Scheduling) -> Mechanism:
        try:
            return mechanism(wanted)
        except InputError:
            return mechanism(self._present)


def _with_profiles(table: LearnedTable, profiled: Sequence[ThroughputTable]) -> LearnedTable:
    for figures in profiled:
        table.begin_with(figures)
    return table


def mechanism(settings: Scheduling) -> Mechanism:
    """A new mechanism for these settings."""
    policy, rules = find_policy(settings.policy), Rules(patience=settings.patience)
    return mechanism_for(policy, settings.mechanism, agnostic=settings.agnostic, forgiving=True, rules=rules)


def solve_patience(round_seconds: float) -> float:
    """How long a round waits for the policy: a small part of the round, and never more than a second.

    >>> [solve_patience(seconds) for seconds in (0.4, 1.0, 8.0, 360.0)]
    [0.1, 0.25, 0.5, 1.0]
    """
    return min(1.0, max(0.25, round_seconds / 16), round_seconds / 4)


def rounds(settings: Scheduling) -> Settings:
    """The scheduler's own settings."""
    chosen = Settings(
        round_seconds=settings.round_seconds,
        space_sharing=settings.space_sharing,
        min_seconds_between_allocations=settings.min_seconds_between_allocations,
        solve_patience_seconds=solve_patience(settings.round_seconds),
        restart_seconds=settings.restart_seconds,
        open_entities=not settings.entities,
    )
    return suited(chosen, find_policy(settings.policy), settings.mechanism)
