"""The live system in compressed time, beside the simulator on the same jobs."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import grpc
import numpy as np

from gavel.client.views import JobState, JobView
from gavel.core.cluster import parse_cluster
from gavel.core.errors import GavelError
from gavel.core.throughputs import ThroughputTable, builtin_table
from gavel.plots.figures import Plot, colour, new_figure, styled
from gavel.plots.page import NumberTable
from gavel.policies.mechanisms import mechanism_for, suited
from gavel.policies.registry import allocate, find_policy
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Scope, Study
from gavel.runtime.facts import Fact
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.local import EMULATED_PROGRAM, local_cluster
from gavel.runtime.server import Running, ServeSettings
from gavel.runtime.views import job_view
from gavel.scheduler.machine import Settings
from gavel.scheduler.patience import Patience
from gavel.sim.simulate import simulate
from gavel.sim.starts import StartCosts, measured_starts
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub
from gavel.workload.trace import Trace, TraceJob

CLUSTER = {"v100": 2, "p100": 4, "k80": 6}
"""A quarter of the paper's 8, 16 and 24: on a small machine, more processes would slow each other's start."""
ROUND_SECONDS = 360.0
"""Of the trace."""
COST_FACTORS = (0.9, 0.925, 0.95, 0.975, 1.0, 1.025, 1.05, 1.075, 1.1)
"""Simulations in which starts cost a little more or less than measured: the figures are the mean of all.

Milliseconds decide which of two jobs ends first, and thus what runs next. One simulation is one of many possible
outcomes, and the live run is another.
"""
START_SECONDS = 0.3
"""Initial guess of the time to stop a process at a checkpoint and start another, until it is measured."""


@dataclass(frozen=True, slots=True)
class PhysicalContender:
    """A policy, and the paper's measurements with it: on real accelerators and in simulation."""

    label: str
    policy: str
    paper: tuple[str, str]
    agnostic: bool = False
    space_sharing: bool = False


@dataclass(frozen=True, slots=True)
class TrialSize:
    """How much to run."""

    jobs: int
    time_scale: float
    """Seconds of the trace per second of real time."""
    limit_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One trace, run under two contenders, to measure how much better the first is."""

    figure: str
    contenders: tuple[PhysicalContender, PhysicalContender]
    quick: TrialSize
    full: TrialSize
    static: bool = False
    """Whether all jobs arrive at the start and the makespan counts; otherwise the average completion time does."""

    def hours(self, seconds: Sequence[float]) -> float:
        """The figure, from the completion times."""
        return float(np.max(seconds) if self.static else np.mean(seconds)) / 3600


CONTINUOUS = Trial(
    "average JCT (h)",
    (
        PhysicalContender("LAS", "max_min_fairness", ("3.6", "3.4")),
        PhysicalContender("LAS, agnostic", "max_min_fairness", ("5.0", "5.2"), agnostic=True),
    ),
    TrialSize(36, 200.0),
    TrialSize(48, 60.0, 3600.0),
)
STATIC = Trial(
    "makespan (h)",
    (
        PhysicalContender("makespan", "makespan", ("17.7", "17.9")),
        PhysicalContender("Gandiva's packing", "gandiva", ("21.3", "21.9"), space_sharing=True),
    ),
    TrialSize(60, 200.0),
    TrialSize(100, 150.0, 3600.0),
    static=True,
)


@dataclass(frozen=True, slots=True)
class Live:
    """The measurements of a live run, in trace seconds."""

    seconds: list[float]
    """Completion times."""
    starts: StartCosts


@dataclass(frozen=True, slots=True)
class PhysicalOutcome:
    """Completion times by contender, live and simulated."""

    trial: Trial
    live: list[list[float]]
    simulated: list[list[list[float]]]
    """Completion times of several simulations."""
    starts: list[StartCosts] = field(default_factory=list)
    """By contender: the cost of starts in the live run, also used in simulation."""

    @property
    def hours(self) -> list[tuple[float, float]]:
        """The figure by contender, live and on average in simulation."""
        live = [self.trial.hours(seconds) for seconds in self.live]
        return [(here, float(np.mean(there))) for here, there in zip(live, self.simulated_hours, strict=True)]

    @property
    def simulated_hours(self) -> list[list[float]]:
        """The figure by contender and simulation."""
        return [[self.trial.hours(seconds) for seconds in courses] for courses in self.simulated]

    @property
    def differences(self) -> list[float]:
        return [abs(simulated / live - 1.0) for live, simulated in self.hours]

    def values(self, name: str) -> dict[str, float]:
        """The values that claims refer to."""
        (live, simulated), (worse_live, worse_simulated) = self.hours
        return {
            f"{name}_difference": max(self.differences),
            f"{name}_live_gain": worse_live / live,
            f"{name}_simulated_gain": worse_simulated / simulated,
        }

    def notes(self) -> list[str]:
        """Notes on the cost of starts in the live run, which simulations use by template."""
        return [
            f"{contender.label}: in seconds of the trace a first start took {costs.first_seconds:.0f} and a restart "
            f"{costs.restart_seconds:.0f} on average; simulations used the cost of each template, and "
            f"{COST_FACTORS[0]:g} to {COST_FACTORS[-1]:g} times that."
            for contender, costs in zip(self.trial.contenders, self.starts, strict=True)
        ]

    def table(self) -> NumberTable:
        rows = [
            [
                contender.label,
                *contender.paper,
                f"{live:.2f}",
                f"{simulated:.2f}",
                f"{min(every):.2f}-{max(every):.2f}",
                f"{difference:.1%}",
            ]
            for contender, (live, simulated), every, difference in zip(
                self.trial.contenders, self.hours, self.simulated_hours, self.differences, strict=True
            )
        ]
        sides = ["paper, real", "paper, simulated", "ours, live", "ours, simulated", "range", "difference"]
        return NumberTable([self.trial.figure, *sides], rows)


def measure(study: Study, scope: Scope) -> Measured:
    """Run both trials, live and simulated."""
    continuous, static = (_run(trial, trial.full if scope.full else trial.quick) for trial in (CONTINUOUS, STATIC))
    titles = [
        f"{len(outcome.live[0])} jobs on {CLUSTER}, {'all at the start' if outcome.trial.static else 'arriving'}"
        for outcome in (continuous, static)
    ]
    return Measured(
        study,
        values=continuous.values("jct") | static.values("makespan"),
        tables=list(zip(titles, (continuous.table(), static.table()), strict=True)),
        plots=[_plot(study, continuous)],
        notes=[
            "The paper's traces and cluster are larger: compare ratios, not hours.",
            *(note for outcome in (continuous, static) for note in outcome.notes()),
        ],
    )


def _run(trial: Trial, size: TrialSize) -> PhysicalOutcome:
    trace = _trace(builtin_table(), size, trial)
    live = asyncio.run(_side_by_side(trial, trace, size))
    sides = zip(trial.contenders, live, strict=True)
    return PhysicalOutcome(
        trial,
        live=[each.seconds for each in live],
        simulated=[_simulations(trace, size, contender, each.starts) for contender, each in sides],
        starts=[each.starts for each in live],
    )


def _trace(table: ThroughputTable, size: TrialSize, trial: Trial) -> Trace:
    """Single-worker jobs that arrive over some hours, or all at once, and last half an hour to two hours on a V100."""
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(150.0, size=size.jobs))
    names = [name for name in table.templates if (table.single_rates([name], table.types) > 0).all()]
    jobs = []
    for number in range(size.jobs):
        template = names[int(rng.integers(len(names)))]
        rate = float(table.single_rates([template], ["v100"])[0, 0])
        seconds = 1800.0 * 4.0 ** float(rng.uniform())
        arrival = 0.0 if trial.static else float(arrivals[number] - arrivals[0])
        name = str(number + 1)  # the live system's id, because Gandiva's random pairs depend on ids
        jobs.append(TraceJob(name, template, 1, max(round(seconds * rate), 1), arrival=arrival))
    return Trace.of(jobs)


async def _side_by_side(trial: Trial, trace: Trace, size: TrialSize) -> list[Live]:
    """Run both contenders at once, each on its own cluster, because most of the time is spent waiting.

    Processes start when rounds begin; half a round apart, those of one cluster do not delay the other's.
    """

    async def later(number: int, contender: PhysicalContender) -> Live:
        await asyncio.sleep(number / len(trial.contenders) * ROUND_SECONDS / size.time_scale)
        return await _live(trace, size, contender)

    return await asyncio.gather(*(later(number, contender) for number, contender in enumerate(trial.contenders)))


async def _live(trace: Trace, size: TrialSize, contender: PhysicalContender) -> Live:
    facts: list[Fact] = []
    settings = ServeSettings(
        policy=contender.policy,
        agnostic=contender.agnostic,
        space_sharing=contender.space_sharing,
        round_seconds=ROUND_SECONDS / size.time_scale,
        restart_seconds=START_SECONDS,
        patience=_compressed(Patience(), size.time_scale),
        fleet=FleetSettings(heartbeat_seconds=0.5, checkpoint_grace_seconds=10.0, terminate_grace_seconds=2.0),
    )
    servers = {f"{type_name}-server": f"{type_name}={count}" for type_name, count in CLUSTER.items()}
    with tempfile.TemporaryDirectory(prefix="gavel-reproduce-") as name:
        program = Path(name) / "program.py"
        program.write_text(EMULATED_PROGRAM)
        async with local_cluster(settings, servers, Path(name), time_scale=size.time_scale) as running:
            running.engine.witnesses.append(facts.extend)
            ids = await _submit(running, trace, size, program)
            views = await _all_over(running, ids, size)
    starts = measured_starts(facts, builtin_table().faster(size.time_scale)).times(size.time_scale)
    return Live([(view.changed - view.submitted) * size.time_scale for view in views], starts)


def _compressed(patience: Patience, time_scale: float) -> Patience:
    """Patience in trace time, as in the simulator."""
    horizon, cheapest = patience.horizon_seconds / time_scale, patience.cheapest_restart_seconds / time_scale
    return replace(patience, horizon_seconds=horizon, cheapest_restart_seconds=cheapest)


async def _submit(running: Running, trace: Trace, size: TrialSize, program: Path) -> list[str]:
    """Submit every job at its time, simultaneous ones in one call: otherwise a round would begin with the first."""
    clock = asyncio.get_running_loop()
    began = clock.time()
    ids: list[str] = []
    async with grpc.aio.insecure_channel(running.address) as channel:
        submit = GavelStub(channel).Submit  # type: ignore[no-untyped-call]
        for arrival, jobs in groupby(trace.jobs, key=lambda job: job.arrival):
            await asyncio.sleep(max(began + arrival / size.time_scale - clock.time(), 0.0))
            command = [sys.executable, str(program)]
            requests = [
                pb.JobRequest(name=job.id, template=job.template, command=command, steps=job.steps, retries=2)
                for job in jobs
            ]
            ids += (await submit(pb.SubmitRequest(jobs=requests))).ids
    return ids


async def _all_over(running: Running, ids: list[str], size: TrialSize) -> list[JobView]:
    engine, records = running.engine, running.engine.records
    try:
        async with asyncio.timeout(size.limit_seconds):
            while any(job in records and not records[job].finished for job in ids):  # noqa: ASYNC110 - it does not tell us
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise GavelError(f"the live run did not finish within {size.limit_seconds:g} s") from None
    views = [job_view(engine, record) for record in map(engine.record, ids) if record is not None]
    if len(views) < len(ids) or any(view.state is not JobState.COMPLETED for view in views):
        raise GavelError("some jobs of the live run did not complete")
    return views


def _simulations(trace: Trace, size: TrialSize, contender: PhysicalContender, starts: StartCosts) -> list[list[float]]:
    """Completion times of every simulation, with start costs close to the live run's."""
    return [_simulated(trace, size, contender, starts.times(factor)) for factor in COST_FACTORS]


def _simulated(trace: Trace, size: TrialSize, contender: PhysicalContender, starts: StartCosts) -> list[float]:
    """Completion times in seconds, with the given start costs."""
    policy, believed = find_policy(contender.policy), START_SECONDS * size.time_scale
    settings = Settings(round_seconds=ROUND_SECONDS, space_sharing=contender.space_sharing, restart_seconds=believed)
    outcome = simulate(
        trace,
        parse_cluster(",".join(f"{type_name}={count}" for type_name, count in CLUSTER.items())),
        builtin_table(),
        lambda problem: allocate(problem, contender.policy, heterogeneity_agnostic=contender.agnostic),
        mechanism_for(policy, agnostic=contender.agnostic),
        suited(settings, policy),
        starts=starts,
    )
    return [outcome.jobs[job.id].seconds for job in trace.jobs]


def _plot(study: Study, outcome: PhysicalOutcome) -> Plot:
    with styled():
        figure, (axis,) = new_figure(4.5)
        sides = zip(outcome.trial.contenders, outcome.live, outcome.simulated, strict=True)
        for number, (contender, live, simulated) in enumerate(sides):
            usual = np.mean(simulated, axis=0) / 3600
            axis.plot(np.array(live) / 3600, usual, "o", color=colour(number), label=contender.label)
        most = max(np.max(outcome.live), np.max(outcome.simulated)) / 3600
        axis.plot([0, most], [0, most], color="#888888", linewidth=1)
        axis.set_xlabel("completion time, live (h of the trace)")
        axis.set_ylabel("simulated (h)")
        axis.legend()
        return Plot(study.name, study.title, f"{study.about} One dot per job.", figure)
