"""The plots of one simulation: utilisation, time allocated and received, and which jobs ran where."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from gavel.core.errors import GavelError
from gavel.core.problem import Ints
from gavel.plots.figures import (
    COLOURS,
    MUTED,
    Plot,
    colour,
    distribution,
    legend_below,
    new_figure,
    share_of_jobs,
    styled,
)
from gavel.sim.recorder import Recorder, Stretch
from gavel.sim.report import Report

MOST_BINS = 240
MOST_JOBS = 40
LEAST_HOURS = 0.1
"""Accelerator-hours below which a group of jobs is drawn at the edge."""
FEWEST_JOBS = 5
"""A quantile of fewer jobs than this is meaningless."""


def run_plots(report: Report) -> list[Plot]:
    """All plots of a simulation."""
    return [plot for name in RUN_PLOTS if (plot := run_plot(report, name))]


def run_plot(report: Report, name: str) -> Plot | None:
    """The plot of that name; None if it would be empty."""
    with styled():
        return RUN_PLOTS[name](report)


def recorded(report: Report) -> Recorder:
    """What the simulation recorded for its plots."""
    if report.recorder is None:
        raise GavelError("nothing was recorded for plots; ask for it with gavel.simulate(..., plots=True)")
    return report.recorder


def _present(recorder: Recorder) -> Ints:
    """The types that had any accelerators."""
    return np.flatnonzero(recorder.capacity)


def _time_unit(seconds: float) -> tuple[float, str]:
    return (86_400.0, "days") if seconds > 4 * 86_400 else (3600.0, "hours")


def _utilisation(report: Report) -> Plot:
    recorder = recorded(report)
    present = _present(recorder)
    edges, averages = recorder.timeline.averages(at_most=MOST_BINS)
    type_count = len(recorder.types)
    unit, name = _time_unit(float(edges[-1] - edges[0]))
    figure, (above, below) = new_figure(7.0, 2, 1)
    for type_index in present.tolist():
        there = averages[:, type_count + type_index]
        share = np.divide(averages[:, type_index], there, out=np.zeros_like(there), where=there > 0)
        label = f"{recorder.types[type_index]} ({recorder.capacity[type_index]:.0f})"
        above.stairs(share * 100, edges / unit, color=colour(type_index), linewidth=1.6, label=label, baseline=None)
    above.set_ylim(0, 104)
    title = "Utilisation over time by accelerator type"
    above.set_title(title, pad=28)  # the legend is between the title and the axes
    above.set_ylabel("accelerators in use (%)")
    above.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(present))
    running, waiting = averages[:, -2], averages[:, -1]
    below.stairs(running, edges / unit, fill=True, color="#56B4E9", label="running")
    below.stairs(running + waiting, edges / unit, baseline=running, fill=True, color="#D0D0D0", label="waiting")
    below.set_ylabel("jobs in the cluster")
    below.set_ylim(0, max(float((running + waiting).max()), 1.0) * 1.2)
    below.legend(loc="upper left", ncols=2)
    for axes in (above, below):
        axes.set_xlim(edges[0] / unit, edges[-1] / unit)
        axes.set_xlabel(f"time ({name})")
    caption = "Above: the fraction of each type in use. Below: running and waiting jobs. Both averaged over bins."
    return Plot("utilisation", title, caption, figure)


def _cdf(report: Report) -> Plot | None:
    seconds = np.sort(np.array(report.completion_seconds()))
    if not len(seconds):
        return None
    figure, (axes,) = new_figure(4.6)
    title = "How long jobs take"
    distribution(axes, seconds / 3600, 0, "")
    for value, name, at in ((float(np.median(seconds)), "median", 0.5), (float(seconds.mean()), "average", None)):
        height = np.searchsorted(seconds, value, side="right") / len(seconds) if at is None else at
        axes.plot(value / 3600, height, "o", color=colour(1))
        text = f"{name} {value / 3600:.3g} h"
        axes.annotate(text, (value / 3600, height), xytext=(10, -10), textcoords="offset points", va="top")
    share_of_jobs(axes, "job completion time (hours)")
    axes.set_title(title)
    return Plot(
        "cdf", title, "The fraction of jobs that finish within a given time, from arrival to the last step.", figure
    )


def _received(report: Report) -> Plot | None:
    recorder = recorded(report)
    return _targets(recorder, _present(recorder)) if recorder.dues else None


def _targets(recorder: Recorder, present: Ints) -> Plot:
    figure, (jobs, groups) = new_figure(5.8, 1, 2)
    target = np.array([dues.target for dues in recorder.dues])
    received = np.array([dues.received for dues in recorder.dues])
    size = 6.0 + 3.0 * np.log2(np.maximum([dues.rounds for dues in recorder.dues], 1.0))
    totals = np.array(list(recorder.by_profile.values())) / 3600
    for type_index in present.tolist():
        label = recorder.types[type_index]
        jobs.scatter(
            target[:, type_index],
            received[:, type_index],
            s=size,
            color=colour(type_index),
            alpha=0.35,
            linewidth=0,
            label=label,
        )
        wanted = (totals[:, :, type_index] > LEAST_HOURS).any(axis=1)
        meant, got = np.maximum(totals[wanted, :, type_index], LEAST_HOURS).T
        groups.scatter(meant, got, s=34, color=colour(type_index), alpha=0.7, linewidth=0, label=label)
    jobs.set_xlim(-0.03, 1.03)
    jobs.set_ylim(-0.03, 1.03)
    jobs.set_title("Each job and type", fontsize=11)
    jobs.set_xlabel("target (share of its time)")
    jobs.set_ylabel("received (share of its time)")
    groups.set_title("Jobs with equal rates, by type", fontsize=11)
    groups.set_xlabel("target (accelerator-hours)")
    groups.set_ylabel("received (accelerator-hours)")
    reach = (LEAST_HOURS * 0.7, max(float(totals.max()), 1.0) * 1.6)
    groups.set(xscale="log", yscale="log", xlim=reach, ylim=reach)
    for axes in (jobs, groups):
        axes.axline((0.5, 0.5), (1, 1), color=MUTED, linewidth=1, linestyle="--", label="as allocated", zorder=0)
        axes.set_box_aspect(1)
    title = "Time allocated and time received"
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    legend_below(figure, [jobs], columns=len(present) + 1)
    caption = (
        f"Finished jobs ({len(recorder.dues):,} of {recorder.jobs_seen:,} shown); larger dots were present for longer. "
        "Above the line: more time than allocated, because idle accelerators are offered to any job that can use them. "
        f"On the right, less than {LEAST_HOURS:g} hours is drawn at the edge."
    )
    return Plot("received", title, caption, figure)


def _convergence(report: Report) -> Plot | None:
    recorder = recorded(report)
    if not recorder.dues:
        return None
    rounds, (low, middle, high) = recorder.deviations.quantiles(0.1, 0.5, 0.9, at_least=FEWEST_JOBS)
    figure, (axes,) = new_figure(4.8)
    title = "Received time converges to the allocation"
    axes.fill_between(rounds, low, high, color=colour(0), alpha=0.18, linewidth=0, label="10% to 90% of jobs")
    axes.plot(rounds, middle, color=colour(0), marker="o", linewidth=2, label="median job")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.set_xlabel("rounds since a job's first allocation")
    axes.set_ylabel("|received - target|, share of time,\nadded up over types")
    axes.legend(loc="upper right")
    caption = (
        "Distance between the shares of time a job has received and its targets so far, by time since its arrival."
    )
    return Plot("convergence", title, caption, figure)


def _gantt(report: Report) -> Plot | None:
    recorder = recorded(report)
    stretch = recorder.busiest_stretch()
    if stretch is None or not stretch.segments:
        return None
    return _rows(recorder.types, stretch, _present(recorder), report.experiment.round_seconds)


def _rows(types: Sequence[str], stretch: Stretch, present: Ints, round_seconds: float) -> Plot:
    ran = {segment.job for segment in stretch.segments}
    candidates = [name for name in stretch.present if name in ran]
    chosen = np.unique(np.linspace(0, len(candidates) - 1, min(MOST_JOBS, len(candidates))).round().astype(int))
    row_of = {candidates[index]: row for row, index in enumerate(chosen.tolist())}
    until = max(segment.end for segment in stretch.segments)
    figure, (axes,) = new_figure(1.8 + 0.19 * len(row_of))
    unit = 3600.0
    for name, row in row_of.items():
        came, left = stretch.present[name]
        axes.plot([came / unit, min(left, until) / unit], [row, row], color="#BBBBBB", linewidth=1, zorder=1)
    _draw_segments(axes, stretch, row_of, unit)
    for name in stretch.finished & row_of.keys():
        axes.plot(stretch.present[name][1] / unit, row_of[name], "|", color="black", markersize=7, markeredgewidth=2)
    axes.set_yticks(range(len(row_of)), list(row_of), fontsize=8)
    axes.set_ylim(len(row_of) - 0.4, -0.6)
    axes.set_xlim(stretch.begin / unit, until / unit)
    axes.grid(visible=False, axis="y")
    title = f"Which jobs run where: the busiest {(until - stretch.begin) / round_seconds:.0f} rounds"
    axes.set_title(title)
    axes.set_xlabel("time (hours)")
    axes.set_ylabel("job, by arrival")
    handles = [Patch(color=colour(type_index), label=types[type_index]) for type_index in present.tolist()]
    if any(segment.shared for segment in stretch.segments):
        handles.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="shared by two jobs"))
    lines = [
        Line2D([], [], color="#BBBBBB", label="waiting"),
        Line2D([], [], color="black", marker="|", linestyle="", markersize=8, markeredgewidth=2, label="done"),
    ]
    figure.legend(handles=[*handles, *lines], loc="outside lower center", ncols=len(handles) + 2)
    caption = f"{len(row_of)} of the {len(candidates)} jobs that ran then. A change of colour or a gap costs a restart."
    return Plot("gantt", title, caption, figure)


def _draw_segments(axes: Axes, stretch: Stretch, row_of: dict[str, int], unit: float) -> None:
    for shared in (False, True):
        for type_index in {segment.type_index for segment in stretch.segments}:
            drawn = [
                s for s in stretch.segments if s.job in row_of and (s.type_index, s.shared) == (type_index, shared)
            ]
            if drawn:
                axes.barh(
                    [row_of[segment.job] for segment in drawn],
                    [(segment.end - segment.begin) / unit for segment in drawn],
                    left=[segment.begin / unit for segment in drawn],
                    height=0.72,
                    color=COLOURS[type_index % len(COLOURS)],
                    edgecolor="white",
                    linewidth=0.4,
                    hatch="////" if shared else None,
                    zorder=2,
                )


RUN_PLOTS: dict[str, Callable[[Report], Plot | None]] = {
    "utilisation": _utilisation,
    "cdf": _cdf,
    "received": _received,
    "convergence": _convergence,
    "gantt": _gantt,
}
"""In the order of the page."""
