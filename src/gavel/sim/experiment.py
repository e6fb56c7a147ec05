"""An experiment: every setting of one simulation as plain data, and how to run it.

Sweeps, the command line and tests all use this module, so the same settings mean the same run everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import LIST_PRICES, Cluster, parse_prices
from gavel.core.errors import InputError
from gavel.core.events import Event
from gavel.core.jobs import Entity
from gavel.core.problem import Problem, job_arrays
from gavel.core.throughputs import ThroughputTable, find_table
from gavel.core.user_code import file_of, is_user_defined
from gavel.limits import check_options, check_positive
from gavel.policies.mechanisms import DEFAULT, check_mechanism, mechanism_for, suited
from gavel.policies.registry import allocate, check_adds_up, check_needs, find_policy
from gavel.scheduler.machine import Settings
from gavel.scheduler.rounds import Mechanism
from gavel.sim.entities import WorkloadEntities, names_a_file, read_entities
from gavel.sim.failures import random_failures, read_failures, together
from gavel.sim.ideal import simulate_ideally
from gavel.sim.outcome import Outcome
from gavel.sim.profiling import known_part, profile
from gavel.sim.recorder import Recorder
from gavel.sim.records import fastest_rate
from gavel.sim.report import Report
from gavel.sim.rounds import RoundLog
from gavel.sim.simulate import Attendant, Observer, check_fits, simulate
from gavel.workload.formats import read_trace
from gavel.workload.generate import generate
from gavel.workload.nodes import find_cluster, names_a_node_list
from gavel.workload.trace import Trace, TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The settings of one simulation. Either `trace` names a file, or a workload is generated."""

    cluster: str
    policy: str = "max_min_fairness"
    agnostic: bool = False
    space_sharing: bool = False
    normalised: bool = False
    """Whether policies that add up throughputs use normalised ones."""
    mechanism: str = DEFAULT
    trace: str | None = None
    trace_format: str | None = None
    """None: detected from the content."""
    jobs: int | None = None
    arrivals_per_hour: float | None = None
    """None if all `jobs` arrive at once."""
    multi_worker: bool = False
    slo: tuple[float, ...] = ()
    """The deadlines of generated jobs, as multiples of their durations."""
    high_priority: float = 0.0
    """The share of generated jobs with a higher weight."""
    templates: tuple[str, ...] = ()
    """The templates of generated jobs; empty: all."""
    durations: tuple[float, ...] = ()
    """The durations of generated jobs, in seconds on the reference type; empty: as in the paper."""
    entities: str | None = None
    """Entities that own the generated jobs in turn, or a file that describes entities."""
    reference: str = "v100"
    """The type that durations refer to."""
    seed: int = 0
    throughputs: str = "builtin"
    throughputs_known: float = 1.0
    """The share of templates, chosen by the seed, whose throughputs the scheduler knows; it estimates the others."""
    profiling_share: float = 0.1
    """The share of each type's accelerators that profile unknown templates when they first arrive."""
    profiling_minutes: float = 3.0
    """How long one measurement takes."""
    prices: str = ""
    """Dollars per hour that differ from the list prices, as in "a100=3.67"."""
    per_server: int = 4
    round_seconds: float = 360.0
    restart_seconds: float = 10.0
    """The cost of saving and loading a checkpoint; the paper measures less than 5 s each."""
    min_seconds_between_allocations: float = 0.0
    recompute_every_seconds: float | None = None
    ideal: bool = False
    """Grant every job its allocation exactly instead of running rounds."""
    failures: str | None = None
    """A file that lists when servers are lost and join."""
    failures_per_server_day: float = 0.0
    repair_hours: float = 4.0
    window: tuple[int, int] | None = None
    limit_days: float = 1000.0
    """The simulation stops after this time even if jobs are left."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Create an experiment from settings read from JSON."""
        tuples = {name: tuple(value) for name, value in settings.items() if isinstance(value, list)}
        return cls(**{**settings, **tuples})

    def files(self) -> dict[str, str]:
        """The files whose content is part of the experiment, by setting."""
        named = {
            "cluster": self.cluster if names_a_node_list(self.cluster) else None,
            "trace": self.trace,
            "throughputs": None if self.throughputs == "builtin" else self.throughputs,
            "entities": self.entities if self.entities and names_a_file(self.entities) else None,
            "failures": self.failures,
            "policy": _module_file(self.policy),
            "mechanism": _module_file(self.mechanism),
        }
        return {setting: file for setting, file in named.items() if file is not None}


def _module_file(name: str) -> str | None:
    """The file of a user-defined policy or mechanism; None for a built-in one."""
    file = file_of(name) if is_user_defined(name) else None
    return str(file) if file else None


LEAST: dict[str, float] = {
    "jobs": 1,
    "seed": 0,
    "per_server": 1,
    "round_seconds": 1.0,
    "restart_seconds": 0.0,
    "min_seconds_between_allocations": 0.0,
    "recompute_every_seconds": 1.0,
    "failures_per_server_day": 0.0,
    "repair_hours": 0.0,
    "limit_days": 0.01,
}
"""The minimum of some settings."""
GENERATED = ("arrivals_per_hour", "multi_worker", "slo", "high_priority", "templates", "durations")
"""Settings that matter only if the workload is generated."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What an experiment's settings mean: everything that a simulation starts from."""

    cluster: Cluster
    table: ThroughputTable
    trace: Trace
    entities: Mapping[str, Entity]
    failures: tuple[Event, ...]
    prices: Mapping[str, float]
    known: ThroughputTable | None = None
    """The part of the table that the scheduler knows; None: all of it."""
    notes: tuple[str, ...] = ()
    """Sentences about nodes of a list that are not part of the cluster."""


def prepare(experiment: Experiment, *, table: ThroughputTable | None = None, trace: Trace | None = None) -> Scene:
    """Read or generate what an experiment names. All input errors are raised here, before any time is spent.

    A table or a trace is used instead of what the experiment names.
    """
    check_settings(experiment, has_trace=experiment.trace is not None or trace is not None)
    table = table or find_table(experiment.throughputs)
    cluster, unlike = find_cluster(experiment.cluster, per_server=experiment.per_server, types=table.types)
    entities = read_entities(experiment.entities)
    trace = entities.resolved(trace or _workload(experiment, table, entities))
    table = table.scaled((job.template, job.workers) for job in trace.jobs)
    check_fits(trace, experiment.window, cluster, table)
    failures = tuple(_failures(experiment, trace, cluster))
    prices = _prices(experiment, cluster)
    scene = Scene(cluster, table, trace, entities.named_by(trace), failures, prices, notes=unlike)
    check_policy(experiment, scene)
    return scene if experiment.throughputs_known == 1.0 else _half_known(experiment, scene)


def _half_known(experiment: Experiment, scene: Scene) -> Scene:
    """The scene for a scheduler that knows only a part of the table."""
    known = known_part(scene.table, experiment.throughputs_known, experiment.seed)
    share, seconds = experiment.profiling_share, experiment.profiling_minutes * 60.0
    profiling = profile(scene.trace, scene.cluster, scene.table, known, share=share, seconds=seconds)
    events = (*scene.failures, *profiling.events)
    return replace(scene, cluster=profiling.cluster, failures=events, known=known)


def check_policy(experiment: Experiment, scene: Scene) -> None:
    """Raise InputError if the policy cannot work with the scene."""
    policy = find_policy(experiment.policy)
    if experiment.normalised:
        check_adds_up(policy)
    check_needs(policy, _all_at_once(scene))


def run(
    experiment: Experiment,
    *,
    scene: Scene | None = None,
    disturbances: Sequence[Event] = (),
    observers: Sequence[Observer] = (),
    rounds: RoundLog | None = None,
    recorder: Recorder | None = None,
    attendants: Sequence[Attendant] = (),
    start: Mapping[str, Any] | None = None,
) -> Report:
    """Simulate an experiment. `scene` is the result of `prepare` for this experiment, if the caller already has it.

    A log of rounds and a recorder, if given, become part of the report, for `rounds()` and for plots.
    `start` is a state of the same experiment that an attendant saved; the simulation continues from there.
    """
    scene = scene or prepare(experiment)
    recordings = [one for one in (rounds, recorder) if one is not None]
    if experiment.ideal and recordings:
        raise InputError(f"an ideal run has no rounds to record; leave out {recordings[0].name}")
    happening: dict[str, Any] = {
        "entities": scene.entities,
        "prices": scene.prices,
        "window": experiment.window,
        "until_seconds": experiment.limit_days * 86_400.0,
        "disturbances": (*disturbances, *scene.failures),
        "attendants": attendants,
        "start": start,
    }
    outcome = _simulate(experiment, scene, happening, [*observers, *recordings])
    counted = scene.trace.jobs[slice(*experiment.window)] if experiment.window else scene.trace.jobs
    left = [job for job in counted if job.id not in outcome.jobs]
    dated = [job for job in counted if job.deadline_seconds is not None]
    lightest = min(job.weight for job in counted) if counted else 0.0
    return Report(
        experiment,
        outcome,
        scene,
        window=tuple(job.id for job in counted),
        notes=(*scene.trace.notes, *scene.notes, *_unpriced(scene), *_why_not_done(left, scene, experiment.limit_days)),
        deadlines=len(dated),
        overdue=sum(_is_overdue(job, outcome) for job in dated),
        heavy=frozenset(job.id for job in counted if job.weight > lightest),
        round_log=rounds,
        recorder=recorder,
    )


def _simulate(
    experiment: Experiment, scene: Scene, happening: Mapping[str, Any], observers: Sequence[Observer]
) -> Outcome:
    def solver(problem: Problem) -> Allocation:
        return allocate(
            problem,
            experiment.policy,
            heterogeneity_agnostic=experiment.agnostic,
            normalised=experiment.normalised,
            seed=experiment.seed,
            compare=False,
        )

    settings = Settings(
        round_seconds=experiment.round_seconds,
        space_sharing=experiment.space_sharing,
        min_seconds_between_allocations=experiment.min_seconds_between_allocations,
        recompute_every_seconds=experiment.recompute_every_seconds or np.inf,
        restart_seconds=experiment.restart_seconds,
    )
    settings = suited(settings, find_policy(experiment.policy), experiment.mechanism)
    if experiment.ideal:
        return simulate_ideally(scene.trace, scene.cluster, scene.table, solver, settings, **happening)
    return simulate(
        scene.trace,
        scene.cluster,
        scene.table,
        solver,
        mechanism_of(experiment),
        settings,
        known=scene.known,
        restart_seconds=experiment.restart_seconds,
        observers=observers,
        **happening,
    )


def check_settings(experiment: Experiment, *, has_trace: bool | None = None) -> None:
    """Raise InputError for settings that make no sense or contradict each other; `has_trace`: a trace is in memory."""
    find_policy(experiment.policy)
    check_mechanism(experiment.mechanism)
    check_options(asdict(experiment))
    _check_least(experiment)
    if has_trace or experiment.trace is not None:
        _check_trace_settings(experiment)
    elif experiment.jobs is None:
        raise InputError("there is nothing to run; give --trace FILE, --jobs N --arrivals-per-hour L, or --static N")
    elif experiment.trace_format is not None:
        raise InputError("--format says how to read a trace; give --trace FILE too, or leave it out")
    by_priorities = experiment.mechanism in {"plain", "priorities"} and not experiment.ideal
    if by_priorities and experiment.restart_seconds >= experiment.round_seconds:
        raise InputError(
            f"--restart-seconds {experiment.restart_seconds:g} is not less than --round-seconds "
            f"{experiment.round_seconds:g}: under --mechanism {experiment.mechanism}, a job that is moved every round "
            "would never make a step"
        )
    _check_what_is_known(experiment)
    if experiment.ideal and experiment.mechanism != DEFAULT:
        raise InputError(
            f"--ideal grants every job its allocation exactly, without a mechanism; leave out {experiment.mechanism}"
        )


def _check_least(experiment: Experiment) -> None:
    """Raise InputError for numbers that are too small; the command line has its own check."""
    for name, least in LEAST.items():
        value = getattr(experiment, name)
        if value is not None and value < least:
            raise InputError(f"{_option(name)} must be at least {least:g}, not {value:g}")


def _check_what_is_known(experiment: Experiment) -> None:
    """Raise InputError for shares out of range, and for settings that require all throughputs to be known."""
    if not 0.0 < experiment.throughputs_known <= 1.0:
        given = f"--throughputs-known {experiment.throughputs_known:g}"
        raise InputError(f"{given}: give the share of templates that are known, more than 0 and at most 1")
    if not 0.0 <= experiment.profiling_share < 1.0:
        given = f"--profiling-share {experiment.profiling_share:g}"
        raise InputError(f"{given}: give the share of accelerators that profile, from 0 to less than 1")
    if experiment.profiling_minutes <= 0.0:
        raise InputError(f"--profiling-minutes {experiment.profiling_minutes:g}: give more than 0")
    if experiment.throughputs_known < 1.0 and experiment.ideal:
        raise InputError("--ideal knows all throughputs; leave out --throughputs-known")


def _check_trace_settings(experiment: Experiment) -> None:
    """Raise InputError for settings that are only for generated jobs."""
    for field in fields(experiment):
        if field.name in GENERATED and getattr(experiment, field.name) != field.default:
            raise InputError(
                f"{_option(field.name)} is for generated jobs, but --trace already has jobs; leave one out"
            )
    if experiment.entities and not names_a_file(experiment.entities):
        raise InputError(
            f"--entities {experiment.entities}: the trace names the owners of its jobs; to give these entities weights "
            "and policies, name a JSON file"
        )


def _option(setting: str) -> str:
    """The command-line option of a setting."""
    return f"--{setting.replace('_', '-')}"


def _all_at_once(scene: Scene) -> Problem:
    """The problem that all jobs of the trace would pose together."""
    jobs = scene.trace.jobs
    classes = list(dict.fromkeys((job.template, job.workers, job.types) for job in jobs))
    number = {alike: index for index, alike in enumerate(classes)}
    types = [
        replace(accelerator_type, price=scene.prices.get(accelerator_type.name))
        for accelerator_type in scene.cluster.types()
    ]
    return Problem.from_table(
        types,
        scene.table,
        [(template, workers) for template, workers, _ in classes],
        job_arrays(
            tuple(job.id for job in jobs),
            np.array([number[job.template, job.workers, job.types] for job in jobs], dtype=np.intp),
            steps=np.array([job.steps for job in jobs]),
        ),
        allowed=np.array(
            [[only is None or accelerator_type.name in only for accelerator_type in types] for _, _, only in classes]
        ),
    )


def _prices(experiment: Experiment, cluster: Cluster) -> dict[str, float]:
    """By type: dollars per hour."""
    given = parse_prices(experiment.prices)
    for name in given:
        if name not in {accelerator_type.name for accelerator_type in cluster.types()}:
            known = ", ".join(accelerator_type.name for accelerator_type in cluster.types())
            raise InputError(f"--prices {experiment.prices}: the cluster has no {name}; its types are: {known}")
        check_positive(f"the price of {name}", given[name])
    return LIST_PRICES | given


def _failures(experiment: Experiment, trace: Trace, cluster: Cluster) -> list[Event]:
    listed = read_failures(Path(experiment.failures), cluster) if experiment.failures else []
    drawn = random_failures(
        cluster,
        per_server_day=experiment.failures_per_server_day,
        repair_hours=experiment.repair_hours,
        until_seconds=min(experiment.limit_days * 86_400.0, 2.0 * trace.jobs[-1].arrival + 60.0 * 86_400.0),
        seed=experiment.seed,
    )
    return together(listed, drawn)


def _unpriced(scene: Scene) -> tuple[str, ...]:
    names = [
        accelerator_type.name
        for accelerator_type in scene.cluster.types()
        if accelerator_type.count and accelerator_type.name not in scene.prices
    ]
    if not names:
        return ()
    given = ",".join(f"{name}=..." for name in names)
    return (f"the cost leaves out {', '.join(names)}, whose prices are unknown; give --prices {given}",)


def _why_not_done(left: list[TraceJob], scene: Scene, days: float) -> list[str]:
    """Sentences that explain why jobs did not finish."""
    types = scene.cluster.types()
    stuck = [job for job in left if not fastest_rate(job, types, scene.table)]
    late = sum(job.arrival > days * 86_400.0 for job in left)
    said = []
    if stuck:
        named = ", ".join(f"{job.id} ({job.workers} worker{'s' * (job.workers > 1)})" for job in stuck[:5])
        more = f" and {len(stuck) - 5:,} more" if len(stuck) > 5 else ""
        said.append(f"no type of the cluster can run {named}{more}; the simulation does not wait for them")
    if len(left) > len(stuck):
        unborn = f", of which {late:,} had not arrived" if late else ""
        number = len(left) - len(stuck)
        were = "1 job was" if number == 1 else f"{number:,} jobs were"
        said.append(f"{were} not done after {days:g} days{unborn}; raise --limit-days or lower the load")
    return said


def _is_overdue(job: TraceJob, outcome: Outcome) -> bool:
    """Whether a job missed its deadline, finished or not."""
    if finished := outcome.jobs.get(job.id):
        return finished.late
    return job.deadline_seconds is not None and job.arrival + job.deadline_seconds < outcome.stopped


def mechanism_of(experiment: Experiment) -> Mechanism:
    """The mechanism that an experiment names."""
    return mechanism_for(find_policy(experiment.policy), experiment.mechanism, agnostic=experiment.agnostic)


def _workload(experiment: Experiment, table: ThroughputTable, entities: WorkloadEntities) -> Trace:
    if experiment.trace is not None:
        return read_trace(
            Path(experiment.trace),
            table=table,
            format=experiment.trace_format,
            seed=experiment.seed,
            reference_type=experiment.reference,
        )
    return generate(
        jobs=experiment.jobs or 0,
        arrivals_per_hour=experiment.arrivals_per_hour,
        multi_worker=experiment.multi_worker,
        table=table,
        seed=experiment.seed,
        high_priority_share=experiment.high_priority,
        slo_factors=experiment.slo,
        entities=entities.names,
        templates=experiment.templates or None,
        durations=experiment.durations or None,
        reference_type=experiment.reference,
    )
