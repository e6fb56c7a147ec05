"""The plots of a sweep: figures against load, and distributions of completion times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from gavel.core.problem import Floats
from gavel.plots.figures import (
    MARKERS,
    Plot,
    colour,
    dash,
    distribution,
    legend_below,
    new_figure,
    share_of_jobs,
    styled,
)
from gavel.sim.sweep import Contender, SweepOutcome

MOST_PANELS = 6
LOG_FROM = 12.0
"""Averages that differ by more than this factor are drawn on a logarithmic scale."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A contender's figure at its loads."""

    contender: Contender
    loads: Floats
    mean: Floats
    deviation: Floats
    drained: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


Scale = Literal["hours", "percent", "plain"]
FACTORS: dict[Scale, float] = {"hours": 1 / 3600, "percent": 100.0, "plain": 1.0}


def sweep_plots(outcome: SweepOutcome) -> list[Plot]:
    """All plots of a sweep."""
    return [plot for name in SWEEP_PLOTS if (plot := sweep_plot(outcome, name))]


def sweep_plot(outcome: SweepOutcome, name: str) -> Plot | None:
    """The plot of that name; None if no job finished."""
    if not any(len(cell.completion_seconds) for cell in outcome.cells):
        return None
    with styled():
        return SWEEP_PLOTS[name](outcome)


def _curves(outcome: SweepOutcome, figure: str, factor: float) -> list[Curve]:
    curves: list[Curve] = []
    for contender in outcome.sweep.contenders:
        cells = [cell for cell in outcome.cells if cell.contender == contender and len(cell.values(figure))]
        cells.sort(key=lambda cell: cell.load)
        if cells:
            curves.append(
                Curve(
                    contender,
                    np.array([cell.load for cell in cells]),
                    np.array([cell.mean(figure) for cell in cells]) * factor,
                    np.array([cell.deviation(figure) for cell in cells]) * factor,
                    np.array([cell.drained for cell in cells]),
                )
            )
    return curves


def _numbers(outcome: SweepOutcome) -> dict[Contender, int]:
    """A contender has the same colour in every plot."""
    return {contender: number for number, contender in enumerate(outcome.sweep.contenders)}


def _jct(outcome: SweepOutcome) -> Plot:
    sweep = outcome.sweep
    curves = _curves(outcome, "average_jct_seconds", FACTORS["hours"])
    single = len(sweep.loads) == 1
    figure, (axes,) = new_figure(1.6 + 0.42 * len(curves) if single else 5.6)
    title = "Average job completion time" if single else "Average job completion time against load"
    axes.set_title(title)
    if single:
        _bars(axes, outcome, curves, f"average JCT (hours) at {sweep.loads[0]:g} {sweep.load_unit}")
    else:
        _lines(axes, outcome, curves, "average JCT (hours)")
        _scale(axes, np.concatenate([curve.mean for curve in curves]))
        legend_below(figure, [axes], columns=_legend_columns(outcome))
    caption = "Average job completion time by policy."
    if len(sweep.seeds) > 1:
        what = "Whiskers" if single else "Bands"
        caption += f" {what} show one standard deviation over {len(sweep.seeds)} seeds."
    if not single and not all(curve.drained.all() for curve in curves):
        caption += " Hollow marks: some jobs did not finish in time."
    return Plot("jct", title, caption, figure)


def _scale(axes: Axes, values: Floats) -> None:
    if values.max() <= LOG_FROM * max(values.min(), 1e-9):
        axes.set_ylim(bottom=0)
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _legend_columns(outcome: SweepOutcome) -> int:
    return 2 if max(len(contender.label) for contender in outcome.sweep.contenders) > 30 else 3


def _lines(axes: Axes, outcome: SweepOutcome, curves: Sequence[Curve], label: str) -> None:
    numbers = _numbers(outcome)
    for curve in curves:
        number = numbers[curve.contender]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(
            curve.loads,
            curve.mean,
            marker=marker,
            markersize=6,
            linewidth=2,
            color=colour(number),
            linestyle=dash(number),
            label=curve.contender.label,
        )
        stuck = ~curve.drained
        axes.plot(
            curve.loads[stuck],
            curve.mean[stuck],
            marker,
            markersize=6,
            markerfacecolor="white",
            markeredgecolor=colour(number),
        )
        low = np.maximum(curve.mean - curve.deviation, curve.mean * 0.02)
        axes.fill_between(curve.loads, low, curve.mean + curve.deviation, color=colour(number), alpha=0.12, linewidth=0)
    axes.set_xlabel("load (jobs at the start)" if outcome.sweep.static else "load (jobs/hour)")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=outcome.sweep.static))


def _bars(axes: Axes, outcome: SweepOutcome, curves: Sequence[Curve], label: str) -> None:
    numbers = _numbers(outcome)
    for row, curve in enumerate(curves):
        mean, deviation = float(curve.mean[0]), float(curve.deviation[0])
        axes.barh(row, mean, height=0.62, color=colour(numbers[curve.contender]))
        if deviation:
            axes.errorbar(mean, row, xerr=deviation, color="black", capsize=4, linewidth=1.2)
        axes.annotate(
            f"{mean:.3g}" if curve.drained[0] else f"{mean:.3g}, not all finished",
            (mean + deviation, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_yticks(range(len(curves)), [curve.contender.label for curve in curves])
    axes.invert_yaxis()
    reach = max(float((curve.mean + curve.deviation)[0]) for curve in curves)
    axes.set_xlim(0, max(reach, 1e-9) * 1.18)  # room for the numbers
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(label)


def _cdf(outcome: SweepOutcome) -> Plot:
    loads = sorted({cell.load for cell in outcome.cells if len(cell.completion_seconds)})
    if len(loads) > MOST_PANELS:
        loads = [loads[i] for i in np.unique(np.linspace(0, len(loads) - 1, MOST_PANELS).round().astype(int))]
    columns = 1 if len(loads) == 1 else 2
    rows = -(-len(loads) // columns)
    figure, panels = new_figure(1.0 + (4.4 if rows == 1 else 3.2 * rows), rows, columns)
    numbers = _numbers(outcome)
    shown = [cell for cell in outcome.cells if cell.load in loads and len(cell.completion_seconds)]
    shortest = min(float(cell.completion_seconds[0]) for cell in shown) / 3600
    longest = max(float(cell.completion_seconds[-1]) for cell in shown) / 3600
    for axes, load in zip(panels, loads, strict=False):
        for cell in (cell for cell in shown if cell.load == load):
            distribution(axes, cell.completion_seconds / 3600, numbers[cell.contender], cell.contender.label)
        share_of_jobs(axes, "job completion time (hours)")
        axes.set_xlim(shortest * 0.9, longest * 1.1)
        axes.set_title(f"{load:g} {outcome.sweep.load_unit}", fontsize=11)
    for axes in panels[len(loads) :]:
        axes.set_visible(False)
    title = "How long jobs take"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    legend_below(figure, panels, columns=_legend_columns(outcome))
    caption = "The fraction of jobs that finish within a given time, all seeds together."
    if len(loads) < len(outcome.sweep.loads):
        caption += f" {len(loads)} of {len(outcome.sweep.loads)} loads are shown."
    return Plot("cdf", title, caption, figure)


def _others(outcome: SweepOutcome) -> Plot:
    wanted: list[tuple[str, str, Scale]] = [
        ("utilization", "utilisation (%)", "percent"),
        ("restarts_per_job", "restarts per job", "plain"),
        ("average_finish_time_fairness", "finish-time fairness (1 = fair share)", "plain"),
        ("makespan_seconds", "makespan (hours)", "hours"),
    ]
    single = len(outcome.sweep.loads) == 1
    figure, panels = new_figure(2.4 + 0.6 * len(outcome.sweep.contenders) if single else 7.4, 2, 2)
    for axes, (name, label, scale) in zip(panels, wanted, strict=True):
        curves = _curves(outcome, name, FACTORS[scale])
        if single:
            _bars(axes, outcome, curves, label)
        else:
            _lines(axes, outcome, curves, label)
            axes.set_ylim(bottom=0)
    if single:
        for axes in panels[1::2]:
            axes.tick_params(labelleft=False)
    title = "Other figures" if single else "Other figures against load"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    if not single:
        legend_below(figure, panels, columns=_legend_columns(outcome))
    return Plot("figures", title, "Utilisation, restarts, fairness and makespan; deviations as above.", figure)


SWEEP_PLOTS: dict[str, Callable[[SweepOutcome], Plot]] = {"jct": _jct, "cdf": _cdf, "figures": _others}
"""In the order of the page."""
