"""`gavel demo`: the whole live system on one machine, with emulated accelerators."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gavel.cli.demo_jobs import DemoJob, as_trace, demo_jobs, demo_table, emulated_ids
from gavel.cli.options import AsJson
from gavel.cli.render import console, print_json, styled, table
from gavel.client.api import Client
from gavel.client.requests import JobRequest
from gavel.client.views import JobState, JobView
from gavel.core.cluster import parse_cluster
from gavel.core.errors import GavelError
from gavel.core.throughputs import ThroughputTable, builtin_table
from gavel.limits import check_options
from gavel.policies.mechanisms import mechanism_for, suited
from gavel.policies.registry import allocate, find_policy
from gavel.runtime.facts import Fact
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.local import local_cluster
from gavel.runtime.server import Running, ServeSettings
from gavel.runtime.views import job_view
from gavel.scheduler.machine import Settings
from gavel.sim.simulate import simulate
from gavel.sim.starts import StartCosts, measured_starts
from gavel.workload.trace import Trace

CLUSTER = {"v100": 2, "p100": 2, "k80": 2}
TIME_SCALE = 60.0
"""An hour of the built-in throughputs passes in a minute."""
ROUND_SECONDS = 3.0
LIMIT_SECONDS = 170.0
POLICY = "max_min_fairness"
MECHANISM = "priorities"
"""Jobs last only a few rounds: credits, which avoids restarts, would show no preemption at all."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What happened, and what a simulation predicts for the emulated jobs."""

    views: list[JobView]
    aware_seconds: float
    agnostic_seconds: float

    def jct(self, *, emulated_only: bool = False) -> float:
        names = [view for view in self.views if not emulated_only or view.request.name != "real training"]
        return sum(map(_took, names)) / max(len(names), 1)

    def document(self) -> dict[str, Any]:
        return {
            "jobs": [_document(view) for view in self.views],
            "average_jct_seconds": self.jct(),
            "emulated_average_jct_seconds": self.jct(emulated_only=True),
            "simulated_average_jct_seconds": self.aware_seconds,
            "simulated_agnostic_average_jct_seconds": self.agnostic_seconds,
        }


def demo(
    jobs: Annotated[int, typer.Option(help="Number of emulated jobs.", min=1, max=26)] = 10,
    seconds: Annotated[float, typer.Option(help="How long a job takes on its fastest accelerator.", min=0.1)] = 16.0,
    seed: Annotated[int, typer.Option(help="Random seed for the jobs.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Run the live system here, with emulated accelerators.

    Runs a scheduler, three servers and about ten jobs, and compares the result with simulations under the same policy
    and under one that ignores types.
    """
    check_options({"seconds": seconds})
    chosen = demo_jobs(builtin_table(), jobs, TIME_SCALE, seconds, seed)
    with tempfile.TemporaryDirectory(prefix="gavel-demo-") as folder:
        result = asyncio.run(_run(chosen, Path(folder), quiet=as_json))
    if as_json:
        print_json(result.document())
    else:
        _print(result)
    if any(view.state is not JobState.COMPLETED for view in result.views):
        raise GavelError("some jobs did not complete")


async def _run(jobs: list[DemoJob], folder: Path, *, quiet: bool) -> DemoResult:
    """Start everything, submit the jobs, follow them until all have finished, and shut everything down."""
    settings = ServeSettings(
        policy=POLICY,
        mechanism=MECHANISM,
        round_seconds=ROUND_SECONDS,
        fleet=FleetSettings(heartbeat_seconds=0.5, checkpoint_grace_seconds=10.0, terminate_grace_seconds=2.0),
    )
    servers = {f"{type_name}-server": f"{type_name}={count}" for type_name, count in CLUSTER.items()}
    async with local_cluster(settings, servers, folder, time_scale=TIME_SCALE) as running:
        facts: list[Fact] = []
        running.engine.witnesses.append(facts.extend)
        ids = await _submit(running.address, jobs, folder)
        await _look_on(running, ids, quiet=quiet)
        views = [job_view(running.engine, running.engine.records[job]) for job in ids]
        table = demo_table(builtin_table(), jobs, [sum(view.received.values()) for view in views], TIME_SCALE)
        starts = measured_starts(facts, table.faster(TIME_SCALE)).times(TIME_SCALE)
        aware, agnostic = (simulated(jobs, table, starts, agnostic=blind) for blind in (False, True))
        return DemoResult(views, aware, agnostic)


async def _submit(address: str, jobs: list[DemoJob], folder: Path) -> list[str]:
    programs = {text: folder / f"program{number}.py" for number, text in enumerate({job.program for job in jobs})}
    for text, path in programs.items():
        path.write_text(text)
    requests = [
        JobRequest(
            [sys.executable, str(programs[job.program])],
            name=job.name,
            template=job.template,
            steps=job.steps,
            workers=job.workers,
            retries=2,
        )
        for job in jobs
    ]
    with Client(address) as client:
        return await asyncio.to_thread(client.submit, requests)


async def _look_on(running: Running, ids: list[str], *, quiet: bool) -> None:
    """Show a live table on a terminal, or occasional lines elsewhere, until all jobs have finished."""
    err = Console(stderr=True, highlight=False)
    engine = running.engine
    started = engine.clock()
    with Live(console=err, auto_refresh=False, transient=True) as live:
        said = ""
        while True:
            records = [engine.records[job] for job in ids]
            if all(record.finished for record in records) or engine.clock() - started > LIMIT_SECONDS:
                return
            if quiet:
                pass
            elif err.is_terminal:
                live.update(_picture(running, records), refresh=True)
            elif (line := _line(records)) != said:
                print(line, file=sys.stderr, flush=True)
                said = line
            await asyncio.sleep(0.5)


def _line(records: list[LiveJobRecord]) -> str:
    counts = {state: sum(record.state is state for record in records) for state in JobState}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _picture(running: Running, records: list[LiveJobRecord]) -> Group:
    views = [job_view(running.engine, record) for record in records]
    rows = [
        [view.id, view.request.name, view.state, _where(view), f"{_progress(view):.0%}", str(view.restarts)]
        for view in views
    ]
    title = Text(f"{_line(records)}; rounds of {ROUND_SECONDS:.0f} s, one minute here is an hour there", style="dim")
    return Group(table(["job", "name", "state", "on", "done", "restarts"], rows, left=4), title)


def _where(view: JobView) -> str:
    return f"{view.request.workers} {view.type}" if view.type else ""


def _progress(view: JobView) -> float:
    return min(view.steps_done / view.request.steps, 1.0) if view.request.steps else 0.0


def simulated(jobs: list[DemoJob], table: ThroughputTable, starts: StartCosts, *, agnostic: bool) -> float:
    """Simulated average completion time of the emulated jobs, in demo seconds, with start costs as measured here."""
    counts = ",".join(f"{type_name}={count}" for type_name, count in CLUSTER.items())
    policy = find_policy(POLICY)
    outcome = simulate(
        Trace.of(as_trace(jobs)),
        parse_cluster(counts),
        table,
        lambda problem: allocate(problem, POLICY, heterogeneity_agnostic=agnostic),
        mechanism_for(policy, MECHANISM, agnostic=agnostic),
        suited(Settings(round_seconds=ROUND_SECONDS * TIME_SCALE), policy, MECHANISM),
        known=builtin_table(),
        starts=starts,
    )
    emulated = [outcome.jobs[job].seconds for job in emulated_ids(jobs)]
    return sum(emulated) / max(len(emulated), 1) / TIME_SCALE


def _took(view: JobView) -> float:
    """Seconds from submission to end; a job that has not ended counts until it was last heard of."""
    return (view.changed if view.ended is None else view.ended) - view.submitted


def _document(view: JobView) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": view.request.name,
        "template": view.request.template,
        "workers": view.request.workers,
        "state": view.state,
        "jct_seconds": _took(view),
        "received_seconds": dict(view.received),
        "restarts": view.restarts,
        "steps": view.steps_done,
    }


def _print(result: DemoResult) -> None:
    out = console()
    type_names = list(CLUSTER)
    rows = [
        [
            view.id,
            f"{view.request.name}{' x2' if view.request.workers > 1 else ''}",
            view.state,
            f"{_took(view):.1f} s",
            *(f"{view.received.get(type_name, 0.0):.1f}" for type_name in type_names),
            str(view.restarts),
        ]
        for view in result.views
    ]
    totals = {
        type_name: sum(v.received.get(type_name, 0.0) * v.request.workers for v in result.views)
        for type_name in type_names
    }
    rows.append(["", "accelerator-seconds", "", "", *(f"{totals[type_name]:.0f}" for type_name in type_names), ""])
    out.print(
        table(
            ["job", "name", "state", "took", *(f"s on {type_name}" for type_name in type_names), "restarts"],
            rows,
            left=3,
        )
    )
    out.print(
        f"\naverage of the emulated jobs: {result.jct(emulated_only=True):.1f} s here, {result.aware_seconds:.1f} s in "
        f"simulation, and {result.agnostic_seconds:.1f} s in simulation under a policy that ignores types"
    )
    for view in result.views:
        if view.state is not JobState.COMPLETED:
            out.print(styled(f"job {view.id}: {view.state}: {view.reason}", "red"))
