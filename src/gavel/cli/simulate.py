"""`gavel simulate`: a trace or a generated workload in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.options import (
    Agnostic,
    AsJson,
    ClusterText,
    LimitDays,
    MechanismOption,
    MinSecondsBetweenAllocations,
    MultiWorker,
    PerServer,
    PolicyName,
    RecomputeEverySeconds,
    RestartSeconds,
    RoundSeconds,
    SpaceSharing,
    Throughputs,
    Window,
)
from gavel.cli.render import console, number, print_json, table
from gavel.core.errors import InputError
from gavel.report.recorder import Recorder
from gavel.sim.experiment import Experiment, Report, run


def simulate_command(
    cluster: ClusterText,
    policy: PolicyName = "max_min_fairness",
    trace: Annotated[str | None, typer.Option(help="A trace to run; see `gavel trace`.", metavar="FILE")] = None,
    jobs: Annotated[int | None, typer.Option(help="Generate this many jobs.", min=1)] = None,
    arrivals_per_hour: Annotated[float | None, typer.Option(help="How fast generated jobs arrive.")] = None,
    static: Annotated[int | None, typer.Option(help="Generate this many jobs, all there at the start.", min=1)] = None,
    multi_worker: MultiWorker = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    round_seconds: RoundSeconds = 360.0,
    throughputs: Throughputs = "builtin",
    space_sharing: SpaceSharing = False,
    agnostic: Agnostic = False,
    mechanism: MechanismOption = "credits",
    window: Window = None,
    ideal: Annotated[
        bool, typer.Option("--ideal", help="Grant every job its allocation exactly; no rounds, no restarts.")
    ] = False,
    failures: Annotated[
        str | None, typer.Option(help="A CSV of servers lost and joined: seconds,event,server.", metavar="FILE")
    ] = None,
    failures_per_server_day: Annotated[
        float, typer.Option(help="Servers fail at random this often a day.", min=0.0)
    ] = 0.0,
    repair_hours: Annotated[float, typer.Option(help="Mean time until a failed server is back.", min=0.0)] = 4.0,
    restart_seconds: RestartSeconds = 10.0,
    min_seconds_between_allocations: MinSecondsBetweenAllocations = 0.0,
    recompute_every_seconds: RecomputeEverySeconds = None,
    per_server: PerServer = 4,
    limit_days: LimitDays = 1000.0,
    plots: Annotated[
        Path | None, typer.Option(help="Write plots and a page with them to this directory.", metavar="DIR")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a workload in virtual time and print job completion times and more."""
    if sum(option is not None for option in (trace, jobs, static)) != 1:
        raise InputError("give one of --trace FILE, --jobs N with --arrivals-per-hour L, or --static N")
    if jobs is not None and arrivals_per_hour is None:
        raise InputError("--jobs needs --arrivals-per-hour; for jobs that are all there at the start use --static")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise InputError(f"--plots {plots}: it is a file; give a directory")
    recorder = Recorder()
    report = run(
        Experiment(
            cluster=cluster,
            policy=policy,
            agnostic=agnostic,
            space_sharing=space_sharing,
            mechanism=mechanism,
            trace=trace,
            jobs=static if jobs is None else jobs,
            arrivals_per_hour=arrivals_per_hour,
            multi_worker=multi_worker,
            seed=seed,
            throughputs=throughputs,
            per_server=per_server,
            round_seconds=round_seconds,
            ideal=ideal,
            failures=failures,
            failures_per_server_day=failures_per_server_day,
            repair_hours=repair_hours,
            restart_seconds=restart_seconds,
            min_seconds_between_allocations=min_seconds_between_allocations,
            recompute_every_seconds=recompute_every_seconds,
            window=parse_window(window),
            limit_days=limit_days,
        ),
        observers=[] if plots is None else [recorder],
    )
    if plots is not None:
        from gavel.report.run_report import write_run_plots  # noqa: PLC0415 - matplotlib takes long to load

        write_run_plots(report, recorder, plots)
    if as_json:
        print_json(report.document())
    else:
        _print(report)


def parse_window(text: str | None) -> tuple[int, int] | None:
    """Read A:B."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise InputError(f"--window {text}: write A:B with A < B, for example 4000:5000")
    return int(first), int(last)


def _print(report: Report) -> None:
    document = report.document()
    hours = {
        "average JCT": "average_jct_seconds",
        "median JCT": "median_jct_seconds",
        "99% of jobs within": "p99_jct_seconds",
        "makespan": "makespan_seconds",
    }
    rows = [[label, f"{document[key] / 3600:.2f} h"] for label, key in hours.items()]
    rows += [
        ["jobs completed", f"{document['jobs_completed']:,}"],
        ["utilisation", f"{document['utilization']:.1%}"],
        ["restarts per job", number(document["restarts_per_job"])],
        ["finish-time fairness", number(document["average_finish_time_fairness"])],
        ["cost", f"${document['cost_dollars']:,.0f}"],
        ["deadlines missed", str(document["slo_violations"])],
        ["rounds", f"{document['rounds']:,}"],
        ["time here", f"{document['wall_seconds']:.1f} s, {document['solver_seconds']:.1f} s of it in the policy"],
    ]
    out = console()
    out.print(table([report.experiment.policy, ""], rows))
    for note in document["notes"]:
        out.print(f"note: {note}")
