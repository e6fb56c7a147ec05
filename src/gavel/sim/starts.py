"""What starting a job costs, by template: the first time, and again from a checkpoint; measured from facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from gavel.core.events import RestartMeasured
from gavel.core.facts import JobEnded, JobQueued, RoundPlanned
from gavel.core.jobs import JobSpec
from gavel.core.throughputs import ThroughputTable


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCosts:
    """Seconds from a launch to the first step, as a live system measured them.

    >>> costs = StartCosts(first_seconds=2.0, restart_seconds=10.0, restart_of={"A3C": 30.0})
    >>> costs.of("A3C", restart=True), costs.of("LM", restart=True), costs.of("A3C", restart=False)
    (30.0, 10.0, 2.0)
    """

    first_seconds: float = 0.0
    """For templates that are not in `first_of`."""
    restart_seconds: float = 0.0
    """For templates that are not in `restart_of`; includes saving the checkpoint."""
    first_of: Mapping[str, float] = field(default_factory=dict)
    restart_of: Mapping[str, float] = field(default_factory=dict)

    def of(self, template: str, *, restart: bool) -> float:
        """The cost of starting a job of this template, in seconds."""
        if restart:
            return self.restart_of.get(template, self.restart_seconds)
        return self.first_of.get(template, self.first_seconds)

    def times(self, factor: float) -> StartCosts:
        """The same costs multiplied by a factor, for a clock that runs that many times as fast."""
        return StartCosts(
            first_seconds=self.first_seconds * factor,
            restart_seconds=self.restart_seconds * factor,
            first_of={template: cost * factor for template, cost in self.first_of.items()},
            restart_of={template: cost * factor for template, cost in self.restart_of.items()},
        )


def measured_starts(facts: Iterable[object], table: ThroughputTable) -> StartCosts:
    """Measure the cost of starts in a live system, from its facts and the true rates of its jobs.

    Restarts are measured one by one. First starts follow from jobs that ran alone on one type without a restart: they
    held it for their steps, their start and their end; if there were none, they are assumed to cost what restarts do.
    Templates without a measurement get the mean of all.
    """
    jobs: dict[str, JobSpec] = {}
    shared: set[str] = set()
    first: dict[str, list[float]] = {}
    restart: dict[str, list[float]] = {}
    for fact in facts:
        match fact:
            case JobQueued():
                jobs[fact.job.id] = fact.job
            case RoundPlanned():
                shared.update(job for run in fact.started if len(run.jobs) > 1 for job in run.jobs)
            case RestartMeasured() if fact.job in jobs:
                restart.setdefault(jobs[fact.job].template, []).append(fact.seconds)
            case JobEnded(outcome="completed", restarts=0) if fact.job in jobs and fact.job not in shared:
                job = jobs[fact.job]
                if (seconds := _idle_seconds(job, fact.received, table)) is not None:
                    first.setdefault(job.template, []).append(seconds)
            case _:
                pass
    return StartCosts(
        first_seconds=_mean(first or restart),
        restart_seconds=_mean(restart),
        first_of={template: fmean(costs) for template, costs in first.items()},
        restart_of={template: fmean(costs) for template, costs in restart.items()},
    )


def _idle_seconds(job: JobSpec, received: Mapping[str, float], table: ThroughputTable) -> float | None:
    """How long a job held its accelerators without making steps; None if the table does not tell."""
    if len(received) != 1 or job.workers not in table.workers(job.template) or job.workers > 1:
        return None
    ((type_name, seconds),) = received.items()
    rate = float(table.single_rates([job.template], [type_name])[0, 0])
    return max(seconds - job.steps / rate, 0.0) if rate > 0 else None


def _mean(costs: Mapping[str, list[float]]) -> float:
    """The mean over all templates; 0 if nothing was measured."""
    every = [cost for some in costs.values() for cost in some]
    return fmean(every) if every else 0.0
