"""What the scheduler believes about each profile: its rates, and the cost of its restarts.

The throughput table does the learning. This module caches what was looked up in the table and updates the roster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np

from gavel.core.events import RateMeasured, RatesProfiled
from gavel.core.jobs import NO_NEEDS, JobSpec, Needs
from gavel.core.locality import Locality
from gavel.core.problem import Bools, Floats
from gavel.core.throughputs import Condition, Throughputs
from gavel.scheduler.placement import ServerPool
from gavel.scheduler.room import can_host, load_of
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import Run

Profile = tuple[str, int, tuple[str, ...] | None, Needs]
"""What jobs with the same rates have in common: template, workers, the types they may run on (None: all), and needs."""

RESTART_WEIGHT = 0.25
"""The weight of the newest restart in the moving average of a template's restart costs."""

SPARE_PROFILES = 64
"""Profiles without jobs are forgotten once there are more profiles than this, and more than twice as many as jobs."""

PLACEMENT_MATTERS = 1.05
"""Other runs are moved for a gang only if it is faster by this factor on as few servers as possible."""


def profile_of(job: JobSpec) -> Profile:
    """The profile of a job."""
    return (job.template, job.workers, job.types, job.needs)


class Beliefs:
    """Rates and restart costs, as looked up and measured. Changes that matter are reported to the caller."""

    def __init__(self, table: Throughputs, server_pools: Callable[[], Sequence[ServerPool]] = tuple) -> None:
        self.table = table
        self._server_pools = server_pools
        """The servers by type, which decide on which types the needs of a job can be met."""
        self.types: tuple[str, ...] = table.types
        self.profiles: dict[Profile, int] = {}
        """The number of each profile, in order."""
        self.stated: dict[int, Needs] = {}
        """The needs of those profiles whose users state any."""
        self.rates: list[Floats] = []
        """By profile: (types, localities)."""
        self.restarts: dict[str, float] = {}
        """By template: the moving average of its measured restart costs, in seconds."""
        self.restarts_in_use: dict[str, float] = {}
        """The costs that the mechanism uses: updated only with an allocation, because settled plans rely on them."""

    @property
    def templates(self) -> list[str]:
        """By profile: the template."""
        return [template for template, *_ in self.profiles]

    def profile_at(self, number: int) -> Profile:
        """The profile with a number."""
        return next(islice(self.profiles, number, None))

    def check(self, profile: Profile) -> None:
        """Refuse a profile whose template is unknown."""
        if profile not in self.profiles:
            self._rates_of([profile])

    def add(self, profile: Profile, roster: Roster) -> None:
        """Add a profile."""
        rates = self._rates_of([profile])
        if len(self.profiles) > SPARE_PROFILES + 2 * len(roster):
            self._forget_unused(roster)
        self.rates += list(rates)
        self._number(profile)

    def restore(self, profiles: Iterable[Profile]) -> None:
        """Number these profiles, in this order."""
        self.profiles, self.stated = {}, {}
        for profile in profiles:
            self._number(profile)

    def _number(self, profile: Profile) -> None:
        number = self.profiles[profile] = len(self.profiles)
        if profile[3] != NO_NEEDS:
            self.stated[number] = profile[3]

    def fit_again(self, roster: Roster) -> None:
        """Look up on which types the needs of jobs can be met, after servers have come or gone."""
        if self.stated:
            self._look_up(list(self.stated), roster)

    def needs(self, roster: Roster, slot: int) -> Needs:
        """What each worker of a job needs beside its accelerator."""
        return self.stated.get(int(roster.profile[slot]), NO_NEEDS)

    def may_bind(self, roster: Roster) -> bool:
        """Whether servers with idle accelerators may lack something else that an active job needs."""
        binding = [number for number, needs in self.stated.items() if self._may_bind(needs)]
        return bool(binding) and bool(np.isin(roster.profile[roster.active], binding).any())

    def _may_bind(self, needs: Needs) -> bool:
        """Whether needs are more than a question of the type."""
        if needs.millicores or needs.memory:
            return True
        memories = (pool.accelerator_memories() for pool in self._server_pools())
        return any(least < needs.gpu_memory <= most for least, most in memories)

    def add_type(self, roster: Roster) -> None:
        """Extend all rates by the next type of the table."""
        self.types = self.table.types[: len(self.types) + 1]
        self.rates = [np.empty(0)] * len(self.profiles)
        self._look_up(range(len(self.profiles)), roster)

    def look_up(self, template: str, roster: Roster) -> None:
        """Look up the rates of a template in the table again."""
        self._look_up([number for profile, number in self.profiles.items() if profile[0] == template], roster)

    def learn(self, event: RateMeasured, roster: Roster) -> Condition | None:
        """Record a measured rate; return its condition if the rate changed by much, else None."""
        missing = next((job for job in (event.job, event.beside) if job and job not in roster), None)
        if missing is not None:
            self.table.ignore(
                f"job {event.job} on {event.type}: {event.rate:g} steps a second, but job {missing} is gone"
            )
            return None
        condition = self.condition(roster, event.job, event.type, event.beside, event.locality)
        return condition if self.table.learn(condition, event.rate) else None

    def learn_profiled(self, event: RatesProfiled) -> bool:
        """Record the profiled rates of a template and of the one beside it; return whether they changed by much."""
        own = Condition(event.template, 1, event.type, beside=event.beside)
        if event.beside is None:
            return self.table.learn(own, event.rate)
        if event.rate == 0 and event.rate_beside == 0:
            return self.table.fail(own, "they do not fit together")
        other = Condition(event.beside, 1, event.type, beside=event.template)
        changed = self.table.learn(own, event.rate)
        return self.table.learn(other, event.rate_beside or 0.0) or changed

    def condition(
        self, roster: Roster, job: str, type_name: str, beside: str | None, locality: Locality = Locality.SERVER
    ) -> Condition:
        """The condition under which a job runs on a type."""
        profiles = list(self.profiles)
        template, workers, *_ = profiles[roster.profile[roster.slot_of[job]]]
        other = None if beside is None else profiles[roster.profile[roster.slot_of[beside]]][0]
        return Condition(template, workers, type_name, locality, other)

    def measure_restart(self, template: str, seconds: float) -> float:
        """Update the moving average of a template's restart cost, and return it."""
        before = self.restarts.get(template, seconds)
        now = self.restarts[template] = before + RESTART_WEIGHT * (seconds - before)
        return now

    def forget(self, templates: Iterable[str], roster: Roster) -> dict[str, float]:
        """Forget templates without jobs; return their measured restart costs."""
        costs = {name: self.restarts.pop(name) for name in templates if name in self.restarts}
        for name in costs:
            self.restarts_in_use.pop(name, None)
        self._forget_unused(roster)
        return costs

    def restart_costs(self, roster: Roster, unmeasured: float) -> Floats:
        """By slot: the assumed cost of a restart, in seconds."""
        if not self.restarts_in_use:
            return _alike(unmeasured, len(roster.workers))
        costs = np.array([self.restarts_in_use.get(template, unmeasured) for template in self.templates])
        return np.asarray(costs[roster.profile])

    def cares(self, run: Run, roster: Roster) -> bool:
        """Whether a gang runs noticeably faster on as few servers as possible."""
        rates = self.rates[int(roster.profile[run.members[0]])][run.type_index]
        return bool(rates[Locality.SERVER] > rates[Locality.CLUSTER] * PLACEMENT_MATTERS)

    def allowed(self) -> Bools:
        """By profile and type: whether its jobs may run on the type."""
        return self._allowed(self.profiles)

    def _rates_of(self, profiles: Sequence[Profile]) -> Floats:
        """By profile: rates as (types, localities); 0 where its jobs may not run."""
        rates = self.table.rates([(template, workers) for template, workers, *_ in profiles], self.types)
        return np.where(self._allowed(profiles)[:, :, None], rates, 0.0)

    def _allowed(self, profiles: Iterable[Profile]) -> Bools:
        allowed = [
            [types is None or type_name in types for type_name in self.types]
            if needs == NO_NEEDS
            else [
                (types is None or type_name in types) and can_host(pool, load_of((needs,)), workers)
                for type_name, pool in zip(self.types, self._server_pools(), strict=False)
            ]
            for _, workers, types, needs in profiles
        ]
        return np.array(allowed, dtype=bool).reshape(len(allowed), len(self.types))

    def _look_up(self, numbers: Sequence[int], roster: Roster) -> None:
        """Look up the rates of these profiles in the table again, and update the roster."""
        profiles = list(self.profiles)
        for number, rates in zip(numbers, self._rates_of([profiles[number] for number in numbers]), strict=True):
            self.rates[number] = rates
        active = roster.active
        theirs = active[np.isin(roster.profile[active], numbers)]
        if len(theirs):
            rates_now = np.array([self.rates[number][:, Locality.SERVER] for number in roster.profile[theirs].tolist()])
            roster.set_rates(theirs, rates_now)

    def _forget_unused(self, roster: Roster) -> None:
        """Drop profiles without jobs; what was learned about their templates stays in the table."""
        active = roster.active
        used = np.unique(roster.profile[active])
        profiles = list(self.profiles)
        self.restore(profiles[old] for old in used.tolist())
        self.rates = [self.rates[old] for old in used.tolist()]
        now = np.searchsorted(used, roster.profile[active])
        roster.profile[:] = 0  # including unused slots
        roster.profile[active] = now


@lru_cache(maxsize=8)
def _alike(value: float, size: int) -> Floats:
    """The same value for every slot; shared, so it must not be written to."""
    values = np.full(size, value)
    values.flags.writeable = False
    return values
