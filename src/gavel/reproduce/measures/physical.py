"""The live system in compressed time, beside the simulator on the same jobs."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from gavel.core.cluster import parse_cluster
from gavel.core.errors import GavelError
from gavel.core.throughputs import ThroughputTable, builtin_table
from gavel.plots.figures import Plot, colour, new_figure, png, styled
from gavel.plots.page import NumberTable
from gavel.policies.registry import allocate
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Scope, Study
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.local import EMULATED_PROGRAM, local_cluster
from gavel.runtime.server import Running, ServeSettings
from gavel.runtime.views import job_view
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Settings
from gavel.sim.simulate import simulate
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub
from gavel.workload.trace import Trace, TraceJob

CLUSTER = {"v100": 2, "p100": 4, "k80": 6}
"""A quarter of the paper's 8, 16 and 24: more processes would wait for each other's start on a small machine."""
ROUND_SECONDS = 360.0
"""Of the trace. Longer rounds are less patient, which those of compressed time, never long, would not be."""
START_SECONDS = 0.5
"""What it takes to stop a process at a checkpoint and to start another one here, as the simulator is told."""
POLICY = "max_min_fairness"
COLUMNS = ("aware", "agnostic")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to run."""

    jobs: int
    time_scale: float
    """So many seconds of the trace pass in one."""
    limit_seconds: float = 600.0


QUICK, FULL = Plan(36, 150.0), Plan(48, 60.0, 3600.0)


def measure(study: Study, scope: Scope) -> Measured:
    """Run the trace with the aware and with the agnostic policy, live and simulated."""
    plan = FULL if scope.full else QUICK
    trace = _trace(builtin_table(), plan)
    live = dict(zip(COLUMNS, asyncio.run(_side_by_side(trace, plan)), strict=True))
    simulated = {name: _simulated(trace, plan, agnostic=name == "agnostic") for name in COLUMNS}
    hours = {
        (how, name): float(np.mean(side[name])) / 3600
        for how, side in (("live", live), ("simulated", simulated))
        for name in COLUMNS
    }
    difference = {name: abs(hours["simulated", name] / hours["live", name] - 1.0) for name in COLUMNS}
    values = {
        "largest_difference": max(difference.values()),
        "live_gain": hours["live", "agnostic"] / hours["live", "aware"],
        "simulated_gain": hours["simulated", "agnostic"] / hours["simulated", "aware"],
    }
    paper = {"aware": ("3.6", "3.4"), "agnostic": ("5.0", "5.2")}
    labels = {"aware": "LAS", "agnostic": "LAS, agnostic"}
    rows = [
        [
            labels[name],
            *paper[name],
            f"{hours['live', name]:.2f}",
            f"{hours['simulated', name]:.2f}",
            f"{difference[name]:.1%}",
        ]
        for name in COLUMNS
    ]
    headings = ["average JCT (h)", "paper, real", "paper, simulated", "ours, live", "ours, simulated", "difference"]
    return Measured(
        study,
        values=values,
        tables=[
            (f"{len(trace.jobs)} jobs on {CLUSTER}, {plan.time_scale:g} times as fast", NumberTable(headings, rows))
        ],
        plots=[_plot(study, live, simulated)],
        notes=["The paper's trace and cluster are larger: compare ratios, not hours."],
    )


def _trace(table: ThroughputTable, plan: Plan) -> Trace:
    """Single workers that arrive over some hours and last between half an hour and two on a V100."""
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(150.0, size=plan.jobs))
    names = [name for name in table.templates if (table.rates([(name, 1)], table.types)[0, :, 0] > 0).all()]
    jobs = []
    for number in range(plan.jobs):
        template = names[int(rng.integers(len(names)))]
        rate = float(table.rates([(template, 1)], ["v100"])[0, 0, 0])
        seconds = 1800.0 * 4.0 ** float(rng.uniform())
        arrival = float(arrivals[number] - arrivals[0])
        jobs.append(TraceJob(f"job{number}", template, 1, max(round(seconds * rate), 1), arrival=arrival))
    return Trace.of(jobs)


async def _side_by_side(trace: Trace, plan: Plan) -> list[list[float]]:
    """Both policies, on a cluster each: most of the time everyone waits.

    Processes start where rounds begin; half a round apart, those of one do not keep the others waiting.
    """

    async def later(number: int, name: str) -> list[float]:
        await asyncio.sleep(number / len(COLUMNS) * ROUND_SECONDS / plan.time_scale)
        return await _live(trace, plan, agnostic=name == "agnostic")

    return await asyncio.gather(*(later(number, name) for number, name in enumerate(COLUMNS)))


async def _live(trace: Trace, plan: Plan, *, agnostic: bool) -> list[float]:
    """Completion times in seconds of the trace."""
    settings = ServeSettings(
        policy=POLICY,
        agnostic=agnostic,
        round_seconds=ROUND_SECONDS / plan.time_scale,
        fleet=FleetSettings(heartbeat_seconds=0.5, checkpoint_grace_seconds=10.0, terminate_grace_seconds=2.0),
    )
    servers = {f"{kind}-server": f"{kind}={count}" for kind, count in CLUSTER.items()}
    with tempfile.TemporaryDirectory(prefix="gavel-reproduce-") as name:
        program = Path(name) / "program.py"
        program.write_text(EMULATED_PROGRAM)
        async with local_cluster(settings, servers, Path(name), time_scale=plan.time_scale) as running:
            ids = await _submit(running, trace, plan, program)
            views = await _all_over(running, ids, plan)
    return [(view.ended - view.submitted) * plan.time_scale for view in views]


async def _submit(running: Running, trace: Trace, plan: Plan, program: Path) -> list[str]:
    """Every job at its time."""
    clock = asyncio.get_running_loop()
    began = clock.time()
    ids: list[str] = []
    async with grpc.aio.insecure_channel(running.address) as channel:
        submit = GavelStub(channel).Submit  # type: ignore[no-untyped-call]
        for job in trace.jobs:
            await asyncio.sleep(max(began + job.arrival / plan.time_scale - clock.time(), 0.0))
            command = [sys.executable, str(program)]
            request = pb.JobRequest(name=job.id, template=job.template, command=command, steps=job.steps, retries=2)
            ids += (await submit(pb.SubmitRequest(jobs=[request]))).ids
    return ids


async def _all_over(running: Running, ids: list[str], plan: Plan) -> list[pb.JobView]:
    book = running.engine.book
    try:
        async with asyncio.timeout(plan.limit_seconds):
            while not all(book[job].over for job in ids):  # noqa: ASYNC110 - the book does not tell us
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise GavelError(f"the live run was not over after {plan.limit_seconds:g} s") from None
    views = [job_view(running.engine, book[job]) for job in ids]
    if any(view.state != pb.COMPLETED for view in views):
        raise GavelError("some jobs of the live run did not complete")
    return views


def _simulated(trace: Trace, plan: Plan, *, agnostic: bool) -> list[float]:
    outcome = simulate(
        trace,
        parse_cluster(",".join(f"{kind}={count}" for kind, count in CLUSTER.items())),
        builtin_table(),
        lambda problem: allocate(problem, POLICY, heterogeneity_agnostic=agnostic),
        Credits(),
        Settings(round_seconds=ROUND_SECONDS),
        restart_seconds=START_SECONDS * plan.time_scale,
    )
    return [outcome.jobs[job.id].seconds for job in trace.jobs]


def _plot(study: Study, live: dict[str, list[float]], simulated: dict[str, list[float]]) -> Plot:
    with styled():
        figure, (axis,) = new_figure(4.5)
        for number, name in enumerate(COLUMNS):
            axis.plot(
                np.array(live[name]) / 3600, np.array(simulated[name]) / 3600, "o", color=colour(number), label=name
            )
        most = max(max(side[name]) for side in (live, simulated) for name in COLUMNS) / 3600
        axis.plot([0, most], [0, most], color="#888888", linewidth=1)
        axis.set_xlabel("completion time, live (h of the trace)")
        axis.set_ylabel("simulated (h)")
        axis.legend()
        return Plot(study.name, study.title, f"{study.about} One dot a job.", png(figure))
