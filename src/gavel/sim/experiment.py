"""An experiment: every setting of one simulation as plain data, and the report that it gives.

Sweeps, the command line and tests all come through here, so that the same settings mean the same run everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import Cluster, parse_cluster
from gavel.core.errors import InputError
from gavel.core.events import Event
from gavel.core.jobs import Entity
from gavel.core.problem import Problem
from gavel.core.throughputs import ThroughputTable, builtin_table, read_table
from gavel.policies.registry import allocate, find_policy
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Settings
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism
from gavel.sim.failures import random_failures, read_failures
from gavel.sim.ideal import simulate_ideally
from gavel.sim.simulate import Observer, Outcome, check_fits, dollars, simulate
from gavel.workload.formats import read_trace
from gavel.workload.generate import generate
from gavel.workload.trace import Trace, TraceJob

MechanismName = Literal["credits", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The settings of one simulation. Either `trace` names a file, or a workload is generated."""

    cluster: str
    policy: str = "max_min_fairness"
    agnostic: bool = False
    space_sharing: bool = False
    mechanism: MechanismName = "credits"
    trace: str | None = None
    jobs: int | None = None
    arrivals_per_hour: float | None = None
    """None with `jobs`: all of them arrive at once."""
    multi_worker: bool = False
    seed: int = 0
    throughputs: str = "builtin"
    per_server: int = 4
    round_seconds: float = 360.0
    restart_seconds: float = 10.0
    """Saving and loading a checkpoint; the paper measures less than 5 s each."""
    min_seconds_between_allocations: float = 0.0
    recompute_every_seconds: float | None = None
    ideal: bool = False
    """Grant every job its allocation exactly instead of running rounds."""
    failures: str | None = None
    """A file of servers that are lost and join."""
    failures_per_server_day: float = 0.0
    repair_hours: float = 4.0
    window: tuple[int, int] | None = None
    limit_days: float = 1000.0
    """Stop here if the cluster has not drained by then."""


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What an experiment measured, over the jobs of the window."""

    experiment: Experiment
    outcome: Outcome
    window: tuple[str, ...]
    """The jobs that count, by order of arrival."""
    types: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def completion_seconds(self) -> list[float]:
        """Job completion times of the window, by order of arrival; jobs that did not finish are left out."""
        return [self.outcome.jobs[name].seconds for name in self.window if name in self.outcome.jobs]

    def document(self) -> dict[str, Any]:
        """The figures as JSON."""
        finished = [self.outcome.jobs[name] for name in self.window if name in self.outcome.jobs]
        seconds = np.array([job.seconds for job in finished]) if finished else np.zeros(1)
        offered = self.outcome.accelerators * self.outcome.end
        fairness = [job.fairness for job in finished if np.isfinite(job.fairness)]
        return {
            "policy": self.experiment.policy,
            "jobs_completed": len(finished),
            "average_jct_seconds": float(seconds.mean()),
            "median_jct_seconds": float(np.median(seconds)),
            "p99_jct_seconds": float(np.percentile(seconds, 99)),
            "makespan_seconds": self.outcome.end,
            "utilization": self.outcome.busy_seconds / offered if offered else 0.0,
            "rounds": self.outcome.rounds,
            "allocations": self.outcome.solves,
            "restarts_per_job": float(np.mean([job.restarts for job in finished])) if finished else 0.0,
            "average_finish_time_fairness": float(np.mean(fairness)) if fairness else 0.0,
            "cost_dollars": dollars(self.outcome),
            "slo_violations": sum(job.late for job in finished),
            "solver_seconds": self.outcome.solver_seconds,
            "wall_seconds": self.outcome.wall_seconds,
            "drained": self.outcome.drained,
            "notes": list(self.notes),
            "experiment": asdict(self.experiment),
        }


def run(
    experiment: Experiment,
    *,
    entities: dict[str, Entity] | None = None,
    disturbances: Sequence[Event] = (),
    observers: Sequence[Observer] = (),
) -> Report:
    """Simulate an experiment."""
    find_policy(experiment.policy)
    cluster = parse_cluster(experiment.cluster, per_server=experiment.per_server)
    table = builtin_table() if experiment.throughputs == "builtin" else read_table(Path(experiment.throughputs))
    trace = _workload(experiment, table)
    check_fits(trace, experiment.window, cluster, table)
    settings = Settings(
        round_seconds=experiment.round_seconds,
        space_sharing=experiment.space_sharing,
        min_seconds_between_allocations=experiment.min_seconds_between_allocations,
        recompute_every_seconds=experiment.recompute_every_seconds or np.inf,
    )
    # Entities that nobody described share equally, as in problem files.
    named = {job.entity: Entity() for job in trace.jobs if job.entity} | (entities or {})
    outcome = _simulate(experiment, trace, cluster, table, settings, named, (*disturbances,), observers)
    counted = trace.jobs[slice(*experiment.window)] if experiment.window else trace.jobs
    notes = trace.notes
    if not outcome.drained:
        left = [job for job in counted if job.id not in outcome.jobs]
        stuck = [job for job in left if not _fits(job, cluster)]
        notes += (_why_not_done(left, stuck, experiment.limit_days),)
    return Report(experiment, outcome, tuple(job.id for job in counted), table.types, notes)


def _simulate(
    experiment: Experiment,
    trace: Trace,
    cluster: Cluster,
    table: ThroughputTable,
    settings: Settings,
    entities: dict[str, Entity] | None,
    disturbances: tuple[Event, ...],
    observers: Sequence[Observer],
) -> Outcome:
    def solver(problem: Problem) -> Allocation:
        return allocate(problem, experiment.policy, heterogeneity_agnostic=experiment.agnostic, seed=experiment.seed)

    limit = experiment.limit_days * 86_400.0
    if experiment.ideal:
        return simulate_ideally(trace, cluster, table, solver, settings, window=experiment.window, until_seconds=limit)
    return simulate(
        trace,
        cluster,
        table,
        solver,
        mechanism_of(experiment),
        settings,
        restart_seconds=experiment.restart_seconds,
        entities=entities,
        window=experiment.window,
        until_seconds=limit,
        disturbances=(*disturbances, *_failures(experiment, trace, cluster)),
        observers=observers,
    )


def _failures(experiment: Experiment, trace: Trace, cluster: Cluster) -> list[Event]:
    events = read_failures(Path(experiment.failures), cluster) if experiment.failures else []
    if experiment.failures_per_server_day > 0:
        last = trace.jobs[-1].arrival if trace.jobs else 0.0
        events += random_failures(
            cluster,
            per_server_day=experiment.failures_per_server_day,
            repair_hours=experiment.repair_hours,
            until_seconds=min(experiment.limit_days * 86_400.0, 2.0 * last + 60.0 * 86_400.0),
            seed=experiment.seed,
        )
    return events


def _why_not_done(left: list[TraceJob], stuck: list[TraceJob], days: float) -> str:
    if stuck:
        return f"jobs that want more workers than any type has never ran: {', '.join(job.id for job in stuck[:5])}"
    return f"{len(left)} jobs were not done after {days:g} days; raise --limit-days or lower the load"


def _fits(job: TraceJob, cluster: Cluster) -> bool:
    return any(job.workers <= kind.count for kind in cluster.types())


def mechanism_of(experiment: Experiment) -> Mechanism:
    """The mechanism that an experiment names."""
    return Priorities() if experiment.mechanism == "plain" else Credits()


def _workload(experiment: Experiment, table: ThroughputTable) -> Trace:
    if experiment.trace is not None:
        return read_trace(Path(experiment.trace), table=table, seed=experiment.seed)
    if experiment.jobs is None:
        raise InputError("there is nothing to run; give --trace FILE, --jobs N --arrivals-per-hour L, or --static N")
    return generate(
        jobs=experiment.jobs,
        arrivals_per_hour=experiment.arrivals_per_hour,
        multi_worker=experiment.multi_worker,
        table=table,
        seed=experiment.seed,
    )
