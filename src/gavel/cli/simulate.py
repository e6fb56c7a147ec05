"""`gavel simulate`: a trace or a generated workload in virtual time."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.options import AsJson, check_directory, check_file
from gavel.cli.progress import ProgressBar
from gavel.cli.render import console, number, print_json, table
from gavel.cli.settings import Settings, takes_settings
from gavel.core.errors import InputError
from gavel.sim.experiment import Experiment, Scene, prepare, run
from gavel.sim.recorder import Recorder
from gavel.sim.records import write_csv
from gavel.sim.report import Report
from gavel.sim.resume_file import ResumeFile, StoppedError

NONE = "none finished"


@takes_settings()
def simulate_command(
    *,
    settings: Settings,
    static: Annotated[
        int | None, typer.Option(help="Generate this many jobs, all arriving at the start.", min=1, metavar="N")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Write plots, and a page that shows them, to this directory.", metavar="DIR")
    ] = None,
    jobs_csv: Annotated[
        Path | None, typer.Option(help="Write a CSV file with a row for each job that arrived.", metavar="FILE")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Save the state of the run here; after an interruption, the same command resumes it.", metavar="FILE"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a workload in virtual time and print its figures."""
    _check_workload(settings, static)
    if plots is not None and settings["ideal"]:
        raise InputError("--ideal has no rounds to record; leave out --plots")
    experiment = Experiment(**settings | {"jobs": settings["jobs"] if static is None else static})
    scene = prepare(experiment)
    if plots is not None:
        import_module("gavel.plots")  # refuses before the run if matplotlib is not installed
        check_directory("--plots", plots)
    if jobs_csv is not None:
        check_file("--jobs-csv", jobs_csv)
    resume_file = None if resume is None else ResumeFile(resume, experiment)
    report = _run(experiment, scene, None if plots is None else Recorder(), resume_file)
    _write(report, plots, jobs_csv)
    if as_json:
        print_json(report.document())
    else:
        _print(report)
    if resume_file is not None:
        resume_file.remove()


def _check_workload(settings: Settings, static: int | None) -> None:
    """Refuse anything but one workload."""
    jobs, load = settings["jobs"], settings["arrivals_per_hour"]
    if sum(option is not None for option in (settings["trace"], jobs, static)) != 1:
        raise InputError("give one of --trace FILE, --jobs N with --arrivals-per-hour L, or --static N")
    if jobs is not None and load is None:
        raise InputError("--jobs needs --arrivals-per-hour; for jobs that all arrive at the start use --static")
    if static is not None and load is not None:
        raise InputError("--static jobs all arrive at the start; use --jobs with --arrivals-per-hour")


def _write(report: Report, plots: Path | None, jobs_csv: Path | None) -> None:
    """Write the requested files."""
    if plots is not None:
        from gavel.plots.run_report import write_run_plots  # noqa: PLC0415 - matplotlib takes long to load

        write_run_plots(report, plots)
    if jobs_csv is not None:
        write_csv(jobs_csv, report.job_columns(), report.jobs())


def _run(experiment: Experiment, scene: Scene, recorder: Recorder | None, resume_file: ResumeFile | None) -> Report:
    if resume_file is None:
        with ProgressBar() as bar:
            return run(experiment, scene=scene, recorder=recorder, attendants=[bar])
    start = resume_file.found()
    if start is not None:
        print(f"gavel: resuming from {resume_file.path}", file=sys.stderr)
    try:
        with ProgressBar() as bar, _heard_by(resume_file):
            return run(experiment, scene=scene, recorder=recorder, attendants=[bar, resume_file], start=start)
    except StoppedError as stopped:
        print(f"gavel: {stopped}; run the same command again to resume from {resume_file.path}", file=sys.stderr)
        raise typer.Exit(128 + stopped.signal) from None


@contextmanager
def _heard_by(resume_file: ResumeFile) -> Iterator[None]:
    """Tell a resume file when the process is asked to stop."""
    before = {number: signal.signal(number, resume_file.interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(report: Report) -> None:
    document = report.document()
    labels = {
        "average JCT": "average_jct_seconds",
        "median JCT": "median_jct_seconds",
        "99% of jobs within": "p99_jct_seconds",
        "makespan": "makespan_seconds",
    }
    rows = [[label, _hours(document[key])] for label, key in labels.items()]
    late, dated = document["slo_violations"], document["jobs_with_deadline"]
    hours = {name: number(document[f"{name}_accelerator_hours"]) for name in ("busy", "restart", "idle")}
    rows += [
        ["jobs completed", f"{document['jobs_completed']:,} of {len(report.window):,}"],
        ["utilisation", f"{document['utilization']:.1%}"],
        ["accelerator hours", f"{hours['busy']} busy, {hours['restart']} restarting, {hours['idle']} idle"],
        ["restarts per job", _or_none(document["restarts_per_job"])],
        ["finish-time fairness", _or_none(document["average_finish_time_fairness"])],
        ["cost", f"${document['cost_dollars']:,.0f}"],
        ["deadlines missed", f"{late:,} of {dated:,}" if dated else "no deadlines"],
        ["rounds", f"{document['rounds']:,}"],
        ["wall time", f"{document['wall_seconds']:.1f} s, {document['solver_seconds']:.1f} s of it in the policy"],
    ]
    out = console()
    out.print(table([report.experiment.policy, ""], rows))
    for note in document["notes"]:
        out.print(f"note: {note}", markup=False)


def _hours(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds / 3600:.2f} h"


def _or_none(value: float | None) -> str:
    return NONE if value is None else number(value)
