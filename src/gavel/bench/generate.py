"""Problems of any size for benchmarks: the 26 built-in templates on a cluster that grows with the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from gavel.core.cluster import LIST_PRICES, AcceleratorType
from gavel.core.errors import InputError
from gavel.core.jobs import Entity
from gavel.core.locality import Locality
from gavel.core.problem import Floats, Ints, Pairs, Problem, ProblemJobs, Profiles, job_arrays
from gavel.core.throughputs import builtin_table

ENTITIES = 5
DISTINCT_PAIRS = 1_000
"""More jobs than this with their own rates have too many pairs to store."""


def generated_problem(
    jobs: int,
    *,
    distinct: bool = False,
    space_sharing: bool = False,
    own_rates: bool | None = None,
    accelerators: int | None = None,
    seed: int = 0,
) -> Problem:
    """Single-worker jobs of random templates; by default a quarter as many accelerators of each type as jobs.

    Jobs of a template are identical. With `distinct` every job has its own steps, arrival, age and deadline, and with
    `own_rates` its own rates too. The default is own rates unless jobs share accelerators, which is measured by
    template.

    >>> problem = generated_problem(1000)
    >>> len(problem.jobs), len(problem.classes()), [t.count for t in problem.types]
    (1000, 26, [250, 250, 250])
    """
    if jobs < 1:
        raise InputError(f"a generated problem needs at least one job, not {jobs}; give --jobs a positive number")
    rng = np.random.default_rng(seed)
    table = builtin_table()
    count = max(jobs // 4, 1) if accelerators is None else accelerators
    types = [AcceleratorType(name, count, LIST_PRICES[name]) for name in table.types]
    profiles = [(template, 1) for template in table.templates]
    template = rng.integers(len(profiles), size=jobs)
    fastest = table.rates(profiles, table.types)[..., Locality.SERVER].max(axis=1)
    minutes = 10.0 ** rng.uniform(1.5, 4.0, size=jobs if distinct else len(profiles))
    steps = (minutes if distinct else minutes[template]) * 60.0 * fastest[template]
    entity = rng.integers(ENTITIES, size=jobs)
    entities = {f"team-{number}": Entity(weight=float(number + 1)) for number in range(ENTITIES)}
    age = rng.uniform(0.0, 36_000.0, size=jobs) if distinct else 0.0
    arrays = job_arrays(
        _NumberedIds(jobs),
        template,
        steps=steps,
        arrival=np.sort(rng.uniform(0.0, 3600.0, size=jobs)) if distinct else 0.0,
        age=age,
        isolated_age=age,
        deadline=minutes * 600.0 if distinct else np.inf,
        entity=entity,
    )
    problem = Problem.from_table(types, table, profiles, arrays, entities=entities)
    if not space_sharing if own_rates is None and distinct else own_rates:
        problem = _with_own_rates(problem, rng.uniform(0.8, 1.25, size=(jobs, len(types))), space_sharing)
    return problem if space_sharing else problem.without_pairs()


def _with_own_rates(problem: Problem, factor: Floats, space_sharing: bool) -> Problem:
    """The problem with a profile for each job: the template's rates times a random factor for each type."""
    jobs, template = problem.jobs, problem.jobs.profile
    profiles = Profiles(problem.profiles.workers[template], problem.profiles.rates[template] * factor)
    own = ProblemJobs(jobs.ids, np.arange(len(jobs)), *(getattr(jobs, name) for name in ProblemJobs.__slots__[2:]))
    pairs = problem.without_pairs().pairs
    if space_sharing:
        if len(jobs) > DISTINCT_PAIRS:
            raise InputError(
                f"{len(jobs)} jobs with their own rates make {len(jobs) ** 2 // 2:,} pairs; with --space-sharing "
                f"and --own-rates use --jobs up to {DISTINCT_PAIRS}"
            )
        pairs = _pairs_of_jobs(problem, template, factor)
    return Problem(problem.types, problem.columns, profiles, own, pairs, problem.entities)


def _pairs_of_jobs(problem: Problem, template: Ints, factor: Floats) -> Pairs:
    n = len(problem.profiles.workers)
    number = np.full((n, n), -1)
    number[problem.pairs.first, problem.pairs.second] = np.arange(len(problem.pairs))
    number = np.maximum(number, number.T)
    first, second = np.triu_indices(len(template), k=1)
    first, second = np.where(
        template[first] <= template[second], (first, second), (second, first)
    )  # in the table's order
    row = number[template[first], template[second]]
    first, second, row = first[row >= 0], second[row >= 0], row[row >= 0]
    rates = problem.pairs.rates[row] * np.stack([factor[first], factor[second]], axis=1)
    return Pairs(first, second, rates)


@dataclass(frozen=True, slots=True)
class _NumberedIds(Sequence[str]):
    """job0, job1, ...: created only on access."""

    size: int

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(f"job{number}" for number in range(self.size)[index])
        return f"job{range(self.size)[index]}"
