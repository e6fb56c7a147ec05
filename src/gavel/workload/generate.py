"""Generated workloads as in the paper's evaluation: when jobs arrive, what they run, and for how long.

Every property of a job has its own random stream. A seed therefore gives the same jobs at every load, with the gaps
between them scaled; the same first jobs whatever their number; and the same durations with and without multi-worker
jobs, priorities or deadlines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gavel.client.field_checks import shortened
from gavel.core.errors import InputError
from gavel.core.jobs import is_path
from gavel.core.throughputs import ThroughputTable
from gavel.limits import LONGEST_SECONDS, MOST_JOBS, check_positive
from gavel.workload.reference import Reference, drawn
from gavel.workload.templates import nearest
from gavel.workload.trace import Trace, TraceJob

Floats = NDArray[np.float64]

WORKER_SHARES = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
"""Fraction of jobs by number of workers in a multi-worker workload."""
SHORT_SHARE = 0.8
"""The fraction of short jobs; the others are long."""
SHORT_MINUTES = (1.5, 3.0)
LONG_MINUTES = (3.0, 4.0)
"""Powers of ten between which the logarithm of a job's minutes is uniform."""
HIGH_PRIORITY_WEIGHT = 5.0


def generate(
    *,
    jobs: int,
    arrivals_per_hour: float | None,
    multi_worker: bool,
    table: ThroughputTable,
    seed: int,
    high_priority_share: float = 0.0,
    high_priority_weight: float = HIGH_PRIORITY_WEIGHT,
    slo_factors: Sequence[float] = (),
    entities: Sequence[str] = (),
    templates: Sequence[str] | None = None,
    durations: Sequence[float] | None = None,
    reference_type: str = "v100",
) -> Trace:
    """Generate a workload; with `arrivals_per_hour` None all jobs arrive at the start.

    `slo_factors` gives each job a deadline: a random factor times its duration. `entities` take turns.
    `templates` are names, or model names that stand for all their batch sizes. `durations` are seconds on the reference
    type to choose from, instead of the paper's distribution.

    >>> from gavel.core.throughputs import builtin_table
    >>> trace = generate(jobs=3, arrivals_per_hour=4.0, multi_worker=False, table=builtin_table(), seed=0)
    >>> [(job.id, job.workers, job.arrival) for job in trace.jobs][:1]
    [('job0', 1, 0.0)]
    """
    _check(jobs, seed, high_priority_share)
    check_positive("a high priority's weight", high_priority_weight)
    for factor in slo_factors:
        check_positive("an SLO factor", factor)
    for duration in durations or ():
        check_positive("a duration in seconds", duration, LONGEST_SECONDS)
    for name in entities:
        if not is_path(name):
            raise InputError(f'entity {name!r} is not a path of names such as "company/research"')
    reference = Reference.of(table, reference_type)
    streams = _Streams.of(seed)
    workers = _workers(streams.workers.random(jobs)) if multi_worker else [1] * jobs
    ran = _templates(streams.templates.random(jobs), workers, reference, _chosen(templates, table))
    seconds = _seconds(streams, jobs, durations)
    arrivals = _arrivals(streams.gaps.standard_exponential(jobs), arrivals_per_hour)
    important = streams.priorities.random(jobs) < high_priority_share
    factors = drawn(streams.deadlines.random(jobs), len(slo_factors)) if slo_factors else []
    return Trace(
        tuple(
            TraceJob(
                id=f"job{number}",
                template=ran[number],
                workers=workers[number],
                steps=reference.steps(ran[number], workers[number], seconds[number]),
                arrival=arrivals[number],
                weight=high_priority_weight if important[number] else 1.0,
                entity=entities[number % len(entities)] if entities else None,
                deadline_seconds=_deadline(slo_factors[factors[number]], seconds[number]) if slo_factors else None,
            )
            for number in range(jobs)
        )
    )


@dataclass(frozen=True, slots=True)
class _Streams:
    """One generator for each property. Add new ones at the end, so that old seeds give the same jobs."""

    gaps: np.random.Generator
    templates: np.random.Generator
    workers: np.random.Generator
    lengths: np.random.Generator
    minutes: np.random.Generator
    priorities: np.random.Generator
    deadlines: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> _Streams:
        return cls(*(np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(7)))


def _check(jobs: int, seed: int, high_priority_share: float) -> None:
    if jobs < 1:
        raise InputError(f"a workload needs at least one job, not {jobs}")
    if jobs > MOST_JOBS:
        raise InputError(f"a workload has at most {MOST_JOBS:,} jobs, not {shortened(jobs)}; ask for fewer")
    if seed < 0:
        raise InputError(f"the seed must be 0 or more, not {seed}")
    if not 0.0 <= high_priority_share <= 1.0:
        raise InputError(f"the share of jobs with high priority must be between 0 and 1, not {high_priority_share:g}")


def _chosen(templates: Sequence[str] | None, table: ThroughputTable) -> list[str] | None:
    """The templates to draw from, without repetitions; None for all."""
    if templates is None:
        return None
    found: dict[str, None] = {}
    for name in templates:
        matching = [template for template in table.templates if template == name or template.startswith(f"{name} (")]
        if not matching:
            near = nearest(name, table.templates)
            models = dict.fromkeys(template.partition(" (")[0] for template in table.templates)
            known = ", ".join(list(models)[:20]) + (", …" if len(models) > 20 else "")
            hint = f"the closest known names are: {', '.join(map(repr, near))}" if near else f"known are: {known}"
            raise InputError(f"there is no template {name!r}; {hint}")
        found |= dict.fromkeys(matching)
    if not found:
        raise InputError(
            "the list of templates is empty; name at least one, or leave it out to draw from the whole table"
        )
    return list(found)


def _workers(uniform: Floats) -> list[int]:
    counts = np.array(list(WORKER_SHARES))
    upto = np.cumsum(list(WORKER_SHARES.values()))
    found: list[int] = counts[np.minimum(np.searchsorted(upto, uniform, side="right"), len(counts) - 1)].tolist()
    return found


def _templates(uniform: Floats, workers: Sequence[int], reference: Reference, among: list[str] | None) -> list[str]:
    """A template for each job, uniform over those that run with its workers.

    This keeps the promised fractions of worker counts, and makes single-worker templates rarer. Drawing the template
    first, and then one worker if it supports no more, would give 78% single-worker jobs instead of 70%.
    """
    found = [""] * len(workers)
    for count in sorted(set(workers)):
        choices = reference.templates(count, among)
        if not choices:
            which = "no template" if among is None else f"none of {', '.join(map(repr, among))}"
            raise InputError(
                f"{which} has a rate with {count} worker{'' if count == 1 else 's'} on {reference.type}; "
                "choose other templates, leave out multi-worker jobs, or use another reference type"
            )
        jobs = [number for number, wanted in enumerate(workers) if wanted == count]
        for number, index in zip(jobs, drawn(uniform[jobs], len(choices)), strict=True):
            found[number] = choices[index]
    return found


def _seconds(streams: _Streams, jobs: int, durations: Sequence[float] | None) -> list[float]:
    length, position = streams.lengths.random(jobs), streams.minutes.random(jobs)
    if durations:
        return [float(durations[index]) for index in drawn(position, len(durations))]
    low = np.where(length < SHORT_SHARE, SHORT_MINUTES[0], LONG_MINUTES[0])
    high = np.where(length < SHORT_SHARE, SHORT_MINUTES[1], LONG_MINUTES[1])
    found: list[float] = (60.0 * 10.0 ** (low + (high - low) * position)).tolist()
    return found


def drawn_seconds(jobs: int, seed: int) -> list[float]:
    """The durations of a generated workload with this seed."""
    return _seconds(_Streams.of(seed), jobs, None)


def _deadline(factor: float, seconds: float) -> float:
    check_positive(
        f"the deadline of a job of {seconds:g} s with an SLO factor of {factor:g}", factor * seconds, LONGEST_SECONDS
    )
    return factor * seconds


def _arrivals(gaps: Floats, per_hour: float | None) -> list[float]:
    """The first job arrives at 0; gaps are exponential."""
    if per_hour is None:
        return [0.0] * len(gaps)
    check_positive("the number of arrivals per hour", per_hour)
    arrivals = [0.0, *np.cumsum(gaps[:-1] * (3600.0 / per_hour)).tolist()]
    if arrivals[-1] > LONGEST_SECONDS:
        raise InputError(
            f"at {per_hour:g} arrivals per hour, {len(gaps):,} jobs take more than 317 years; give a higher rate"
        )
    return arrivals
