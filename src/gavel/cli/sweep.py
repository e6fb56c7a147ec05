"""`gavel sweep`: policies x loads x seeds on all cores, with a resumable results file and plots."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from gavel.cli.options import AsJson, Workers
from gavel.cli.progress import steps
from gavel.cli.render import console, print_json, table
from gavel.cli.settings import Settings, takes_settings
from gavel.core.errors import GavelError, InputError, NotInstalledError
from gavel.sim.experiment import Experiment
from gavel.sim.results import RESULTS, Result, ResultsFiles
from gavel.sim.sweep import VARIANTS, Contender, Sweep, SweepCell, SweepOutcome, SweepPoint, run_sweep, said

Value = TypeVar("Value")
SWEPT = {"policy", "agnostic", "space_sharing", "normalised", "seed", "arrivals_per_hour", "trace", "trace_format"}
"""Settings that a sweep takes as lists, and those for workloads that are not generated."""


@takes_settings(without=SWEPT)
def sweep_command(
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Directory for results and plots; the same command again resumes.", metavar="DIR"
        ),
    ],
    policies: Annotated[
        str,
        typer.Option(
            help=f"Policies, optionally with variants after a colon, as in NAME:agnostic+plain: "
            f"{', '.join(VARIANTS)}, mechanism=module.NAME.",
            metavar="NAME,…",
        ),
    ] = "max_min_fairness",
    loads: Annotated[str | None, typer.Option(help="Loads, in jobs per hour.", metavar="L,…")] = None,
    static: Annotated[
        str | None, typer.Option(help="Numbers of jobs that all arrive at the start.", metavar="N,…")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of everything random.", metavar="S,…")] = "0",
    settings: Settings,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Compare policies over loads and seeds, on all cores.

    You can interrupt it at any time: the same command resumes it.
    """
    if (loads is None) == (static is None):
        raise InputError("give either --loads L,… with --jobs N, or --static N,…")
    if (loads is None) != (settings["jobs"] is None):
        raise InputError("--loads needs --jobs, the number of jobs to generate; --static needs none")
    listed = loads if static is None else static
    sweep = Sweep(
        Experiment(**settings),
        contenders=_listed("--policies", policies, Contender.parse),
        loads=_listed("--loads" if static is None else "--static", listed or "", float),
        seeds=_listed("--seeds", seeds, _seed),
        static=static is not None,
    )
    sweep.check()
    try:
        with ResultsFiles(out) as files:
            outcome, plots = _run(sweep, files, workers or len(os.sched_getaffinity(0)))
    except KeyboardInterrupt:
        print(f"gavel: interrupted; run the same command again to resume from {out / RESULTS}", file=sys.stderr)
        raise typer.Exit(130) from None
    _show(outcome, out, plots, as_json=as_json)
    if outcome.failures:
        raise GavelError(
            f"{len(outcome.failures)} of {len(sweep.points)} points failed; the same command tries them again"
        )


def _listed(option: str, text: str, read: Callable[[str], Value]) -> tuple[Value, ...]:
    """The values of a list, without repetitions."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"{option} is empty; give values separated by commas")
    try:
        return tuple(dict.fromkeys(read(part) for part in parts))
    except GavelError:
        raise
    except ValueError:
        raise InputError(f"{option} {text}: give numbers separated by commas") from None


def _seed(text: str) -> int:
    seed = int(text)
    if seed < 0:
        raise InputError(f"--seeds: {seed} is less than 0")
    return seed


def _run(sweep: Sweep, files: ResultsFiles, workers: int) -> tuple[SweepOutcome, list[Path]]:
    known = sum(point.id in files.known for point in sweep.points)
    if known:
        print(
            f"gavel: {known} of {len(sweep.points)} points are already in {files.directory / RESULTS}", file=sys.stderr
        )
    with steps("sweep", len(sweep.points), known) as tell:

        def on_end(point: SweepPoint, answer: Result | str) -> None:
            tell(point.label, said=said(answer), failed=isinstance(answer, str))

        outcome = run_sweep(sweep, files, workers=workers, on_end=on_end)
    return outcome, _draw(outcome, files.directory)


def _draw(outcome: SweepOutcome, directory: Path) -> list[Path]:
    """Write the plots and the page, where what draws is installed: the numbers are worth having without."""
    try:
        from gavel.plots.sweep_report import write_sweep_report  # noqa: PLC0415 - matplotlib takes long to load
    except NotInstalledError as error:
        print(f"gavel: without plots: {error}", file=sys.stderr)
        return []
    return write_sweep_report(outcome, directory)


def _show(outcome: SweepOutcome, out: Path, plots: list[Path], *, as_json: bool) -> None:
    if as_json:
        print_json(_document(outcome, out, plots))
        return
    sweep = outcome.sweep
    cells = {(cell.contender, cell.load): cell for cell in outcome.cells}
    rows = [
        [contender.label, *(_jct(cells.get((contender, load))) for load in sweep.loads)]
        for contender in sweep.contenders
    ]
    terminal = console()
    terminal.print(table([f"average JCT (h) at {sweep.load_unit}", *(f"{load:g}" for load in sweep.loads)], rows))
    if any(not cell.drained for cell in outcome.cells):
        terminal.print(f"* not all jobs finished within {sweep.base.limit_days:g} simulated days (--limit-days)")
    written = f"plots and numbers: {plots[-1]}" if plots else f"numbers: {out / RESULTS}"
    terminal.print(written, soft_wrap=True, markup=False)


def _jct(cell: SweepCell | None) -> str:
    """A cell of the table.

    >>> figures = {"average_jct_seconds": 7200.0, "jobs_completed": 1, "drained": True}
    >>> _jct(SweepCell(Contender("fifo"), 1.0, (Result(figures, [7200.0]),)))
    '2.00'
    """
    if cell is None or not len(cell.completion_seconds):
        return "-"
    text = f"{cell.mean('average_jct_seconds') / 3600:.2f}"
    if len(cell.results) > 1:
        text += f" ± {cell.deviation('average_jct_seconds') / 3600:.2f}"
    return text if cell.drained else f"{text}*"


def _document(outcome: SweepOutcome, out: Path, plots: list[Path]) -> dict[str, Any]:
    return {
        "out": str(out),
        "results": str(out / RESULTS),
        "plots": [str(path) for path in plots],
        "points": len(outcome.sweep.points),
        "already_known": outcome.already_known,
        "failed": [{"point": failure.point.label, "reason": failure.reason} for failure in outcome.failures],
        "averages": [_averages(cell) for cell in outcome.cells],
    }


def _averages(cell: SweepCell) -> dict[str, Any]:
    document: dict[str, Any] = {
        "policy": cell.contender.label,
        "load": cell.load,
        "seeds": len(cell.results),
        "drained": cell.drained,
        "jobs_completed": len(cell.completion_seconds),
    }
    if len(cell.completion_seconds):
        document["average_jct_seconds"] = cell.mean("average_jct_seconds")
        document["deviation_jct_seconds"] = cell.deviation("average_jct_seconds")
        for name in ("utilization", "restarts_per_job", "average_finish_time_fairness", "makespan_seconds"):
            document[name] = cell.mean(name)
    return document
