"""The report of a sweep: its plots, and a page with the numbers and settings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from gavel.plots.page import NumberTable, write_report
from gavel.plots.sweep_plots import sweep_plots
from gavel.sim.sweep import Sweep, SweepCell, SweepOutcome

VARIED = {"policy", "agnostic", "space_sharing", "mechanism", "seed", "arrivals_per_hour", "trace"}
"""Settings that a sweep varies or does not use."""


def write_sweep_report(outcome: SweepOutcome, directory: Path) -> list[Path]:
    """Write the plots and the page of a sweep; return the files."""
    headings = ["policy", outcome.sweep.load_unit, "seeds", "average JCT (h)", "± (h)", "median (h)", "99% (h)"]
    headings += ["makespan (h)", "utilisation", "restarts/job", "fairness", "cost ($)", "jobs done"]
    return write_report(
        directory,
        title=f"Sweep on {outcome.sweep.base.cluster}",
        plots=sweep_plots(outcome),
        numbers=NumberTable(headings, [_row(cell) for cell in outcome.cells]),
        settings=_settings(outcome.sweep),
        notes=_notes(outcome),
    )


def _row(cell: SweepCell) -> list[str]:
    hours = {name: cell.mean(f"{name}_seconds") / 3600 for name in ("average_jct", "median_jct", "p99_jct", "makespan")}
    deviation = f"{cell.deviation('average_jct_seconds') / 3600:.2f}" if len(cell.results) > 1 else ""
    return [
        cell.contender.label,
        f"{cell.load:g}",
        str(len(cell.results)),
        f"{hours['average_jct']:.2f}",
        deviation,
        f"{hours['median_jct']:.2f}",
        f"{hours['p99_jct']:.2f}",
        f"{hours['makespan']:.1f}",
        f"{cell.mean('utilization'):.1%}",
        f"{cell.mean('restarts_per_job'):.2f}",
        f"{cell.mean('average_finish_time_fairness'):.2f}",
        f"{cell.mean('cost_dollars'):,.0f}",
        f"{len(cell.completion_seconds):,}",
    ]


def _settings(sweep: Sweep) -> dict[str, str]:
    shown = {
        "policies": ", ".join(contender.label for contender in sweep.contenders),
        f"loads ({sweep.load_unit})": ", ".join(f"{load:g}" for load in sweep.loads),
        "seeds": ", ".join(str(seed) for seed in sweep.seeds),
        "mechanism": sweep.base.mechanism,
    }
    for name, value in asdict(sweep.base).items():
        if name not in VARIED and value is not None:
            shown[name.replace("_", " ")] = ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return shown


def _notes(outcome: SweepOutcome) -> list[str]:
    notes = [
        f"{cell.contender.label} at {cell.load:g} {outcome.sweep.load_unit}: not all jobs finished within "
        f"{outcome.sweep.base.limit_days:g} simulated days; its averages cover only those that did."
        for cell in outcome.cells
        if not cell.drained
    ]
    if outcome.failures:
        notes.append(f"{len(outcome.failures)} of {len(outcome.sweep.points)} points failed and are missing here.")
    return notes
