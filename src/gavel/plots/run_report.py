"""The report of one simulation: its plots, and a page with the numbers and settings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from gavel.plots.page import NumberTable, write_report
from gavel.plots.run_plots import run_plots
from gavel.sim.report import Report


def write_run_plots(report: Report, directory: Path) -> list[Path]:
    """Write the plots and the page of a simulation that had a recorder; return the files."""
    document = report.document()
    figures = {name: value for name, value in document.items() if isinstance(value, int | float)}
    rows = [
        [name.replace("_", " "), f"{value:,.6g}" if isinstance(value, float) else str(value)]
        for name, value in figures.items()
    ]
    settings = {name: value for name, value in asdict(report.experiment).items() if value is not None}
    return write_report(
        directory,
        title=f"{report.experiment.policy} on {report.experiment.cluster}",
        plots=run_plots(report),
        numbers=NumberTable(["figure", "value"], rows),
        settings={
            name.replace("_", " "): ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, value in settings.items()
        },
        notes=report.notes,
    )
