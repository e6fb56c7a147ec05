"""The plots of simulations and sweeps as matplotlib figures, for notebooks and scripts."""

from __future__ import annotations

from matplotlib.figure import Figure

from gavel.core.errors import GavelError, InputError
from gavel.plots.run_plots import RUN_PLOTS, run_plot
from gavel.plots.sweep_plots import SWEEP_PLOTS, sweep_plot
from gavel.sim.report import Report
from gavel.sim.sweep import SweepOutcome


def plot(result: Report | SweepOutcome, name: str) -> Figure:
    """Draw a plot of a simulation or a sweep; a notebook shows the figure, and `savefig` writes it to a file.

    Of a simulation: "cdf"; with `gavel.simulate(..., plots=True)` also "utilisation", "received", "convergence" and
    "gantt". Of a sweep: "jct", "cdf" and "figures".
    """
    names = RUN_PLOTS if isinstance(result, Report) else SWEEP_PLOTS
    if name not in names:
        raise InputError(f"there is no plot {name!r} of this; the plots are: {', '.join(names)}")
    drawn = run_plot(result, name) if isinstance(result, Report) else sweep_plot(result, name)
    if drawn is None:
        raise GavelError(f"there is nothing to draw in {name!r}: too little happened, or no job finished")
    return drawn.figure
