"""Live profiling: runs commands on accelerators set aside for it, alone and in pairs, and measures their rates.

It runs its own scheduler, whose table claims that all jobs are equally fast and that every pair is faster together:
so two jobs that may run on one type always share an accelerator there, whatever their real rates.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gavel.client.api import Client
from gavel.client.requests import JobRequest
from gavel.client.views import JobState
from gavel.core.errors import GavelError
from gavel.core.locality import Locality
from gavel.core.problem import Floats, Ints
from gavel.core.throughputs import Condition, Profile, ThroughputTable
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.server import ServeSettings, serving

ROUNDS = 6
"""A figure covers at least this many rounds; the first report of a job is warm-up."""
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """What to measure, where, and for how long."""

    job: JobRequest
    beside: tuple[JobRequest, ...] = ()
    types: tuple[str, ...]
    seconds: float = 60.0
    """How long jobs run for one figure."""
    patience_seconds: float = 600.0
    """How long to wait for servers, and for a job's first steps."""
    listen: str
    folder: Path
    fleet: FleetSettings = field(default_factory=FleetSettings)


class TrialTable:
    """A table that makes the scheduler pack every pair, and records what is reported."""

    def __init__(self) -> None:
        self.types: tuple[str, ...] = ()
        self.reports: dict[Condition, list[float]] = {}

    def admit(self, type_name: str) -> None:
        """Accept any type."""
        if type_name not in self.types:
            self.types = (*self.types, type_name)

    def rates(self, profiles: Sequence[Profile], types: Sequence[str]) -> Floats:
        """All are equally fast."""
        return np.ones((len(profiles), len(types), len(Locality)))

    def pairs(self, profiles: Sequence[Profile], types: Sequence[str]) -> tuple[Ints, Ints, Floats]:
        """Every pair is faster together."""
        first, second = np.triu_indices(len(profiles))
        return first, second, np.full((len(first), 2, len(types)), 2.0)

    def learn(self, condition: Condition, rate: float) -> bool:
        """Record a report; nothing else changes."""
        if rate > 0 and math.isfinite(rate):
            self.reports.setdefault(replace(condition, locality=Locality.SERVER), []).append(rate)
        return False

    def fail(self, condition: Condition, reason: str) -> bool:  # noqa: ARG002 - the signature of all tables
        """Do nothing: the trial that waits for the job sees the failure itself."""
        return False

    def ignore(self, sentence: str) -> None:
        """Do nothing: rejected measurements do not matter here."""

    @property
    def ignored(self) -> Sequence[str]:
        """Nothing is rejected."""
        return ()

    def document(self) -> dict[str, Any]:
        """Nothing to store."""
        return {}


@dataclass(slots=True)
class Found:
    """What was measured."""

    rates: dict[Condition, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Why a figure is missing, one sentence each."""

    def table(self, templates: Sequence[str], types: Sequence[str]) -> ThroughputTable:
        """The results as a throughput table; a missing figure means that the job cannot run there."""

        def rate(one: str, type_name: str, beside: str | None = None) -> float:
            return self.rates.get(Condition(one, 1, type_name, beside=beside), 0.0)

        names = list(dict.fromkeys(templates))
        alone = np.array([[rate(name, type_name) for type_name in types] for name in names])
        shared = np.array([[[rate(one, type_name, other) for type_name in types] for other in names] for one in names])
        both = np.where((shared > 0) & (shared.transpose(1, 0, 2) > 0), shared, 0.0)
        anywhere = np.repeat(alone[..., None], len(Locality), axis=-1)
        return ThroughputTable(tuple(types), tuple((name, 1) for name in names), anywhere, both)


async def profile(settings: ProfileSettings, say: Callable[[str], None]) -> Found:
    """Measure everything, and report progress."""
    table = TrialTable()
    serve = ServeSettings(
        listen=settings.listen,
        folder=settings.folder,
        space_sharing=True,
        round_seconds=max(settings.seconds / ROUNDS, 0.6),
        fleet=settings.fleet,
    )
    async with serving(serve, table=table) as running:
        say(f"waiting for `gavel worker --scheduler {running.address}` with {', '.join(settings.types)}")
        with Client(running.address) as client:
            await asyncio.to_thread(_await_types, client, settings)
            found = Found()
            for type_name in settings.types:
                for trial in trials(settings):
                    await asyncio.to_thread(_measure, client, table, settings, trial, type_name, found, say)
    return found


def trials(settings: ProfileSettings) -> Iterator[tuple[JobRequest, ...]]:
    """Each job alone, then the job beside each partner."""
    everyone = {job.template: job for job in (settings.job, *settings.beside)}
    yield from ((job,) for job in everyone.values())
    yield from ((settings.job, partner) for partner in settings.beside)


def _await_types(client: Client, settings: ProfileSettings) -> None:
    end = time.monotonic() + settings.patience_seconds
    while missing := set(settings.types) - {accelerator_type.name for accelerator_type in client.cluster().types}:
        if time.monotonic() > end:
            raise GavelError(
                f"no server with {', '.join(sorted(missing))} joined within {settings.patience_seconds:g} s; start "
                f"`gavel worker --scheduler {client.address}` there, or leave the type out of --types"
            )
        time.sleep(POLL_SECONDS)


def _measure(
    client: Client,
    table: TrialTable,
    settings: ProfileSettings,
    jobs: Sequence[JobRequest],
    type_name: str,
    found: Found,
    say: Callable[[str], None],
) -> None:
    """Run one job, or two together, and record their rates."""
    named = " beside ".join(job.template for job in jobs) + f" on {type_name}"
    others = [job.template for job in jobs[::-1]] if len(jobs) == 2 else [None]
    conditions = [Condition(job.template, 1, type_name, beside=other) for job, other in zip(jobs, others, strict=True)]
    ids = client.submit([replace(job, types=(type_name,), steps=None, retries=0) for job in jobs])
    try:
        trouble = _wait(client, table, settings, ids, conditions)
    finally:
        client.cancel(ids)
        client.wait(ids, timeout=settings.fleet.ending_seconds + settings.patience_seconds)
    if trouble:
        found.notes.append(f"{named}: {trouble}")
    else:
        for condition in conditions:
            reports = table.reports[condition]
            found.rates[condition] = float(np.mean(reports[1:] or reports))
    measured = [f"{found.rates[condition]:.4g} steps/s" for condition in conditions if condition in found.rates]
    say(f"{named}: {trouble or ' and '.join(measured)}")


def _wait(
    client: Client, table: TrialTable, settings: ProfileSettings, ids: Sequence[str], conditions: Sequence[Condition]
) -> str:
    """Wait until enough is measured; returns why that will never happen, or an empty string."""
    begun = first = time.monotonic()
    while True:
        views = client.jobs(ids=ids)
        if failed := next((job for job in views if job.state is JobState.FAILED), None):
            return failed.reason
        reports = min(len(table.reports.get(condition, ())) for condition in conditions)
        now = time.monotonic()
        if reports == 0:
            first = now
        ended = next((view for view in views if view.finished), None)
        if (reports > 1 and now - first >= settings.seconds) or (reports and ended):
            return ""
        if ended:
            return f"it ended ({ended.reason}) before a step was measured; give it more to do"
        if reports == 0 and now - begun > settings.patience_seconds:
            return f"no steps were counted within {settings.patience_seconds:g} s; does it use GavelIterator?"
        time.sleep(POLL_SECONDS)
