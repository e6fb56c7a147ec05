"""Plots and tables of sweep studies: figures by load, completion times, and ours beside published figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes

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
from gavel.plots.page import NumberTable
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Claim, Study, StudyContender

UNITS = {"seconds": ("h", 3600.0), "dollars": ("$", 1.0)}
"""Units of figures, by the suffix of their name."""
NAMES = {"average_jct_seconds": "average JCT", "makespan_seconds": "makespan", "cost_dollars": "cost"}


def unit_of(figure: str) -> tuple[str, float]:
    """The unit that a figure is shown in, and what to divide it by."""
    return UNITS.get(figure.rsplit("_", 1)[-1], ("", 1.0))


def sweep_plot(measured: Measured) -> Plot:
    """A figure by contender: lines over loads, or bars for a single load, with deviations over seeds."""
    study = measured.study
    unit, _ = unit_of(study.figure)
    label, several = f"{NAMES.get(study.figure, study.figure)} ({unit})", len(_loads(measured)) > 1
    with styled():
        figure, (axis,) = new_figure(5.0 if several else 0.8 + 0.6 * len(study.contenders))
        if several:
            _lines(axis, measured)
            axis.set_xlabel(f"load on the paper's cluster ({study.load_unit})")
            axis.set_ylabel(label)
        else:
            _bars(axis, measured)
            axis.set_xlabel(label)
        return Plot(study.name, study.title, study.about, figure)


def _loads(measured: Measured) -> list[float]:
    return sorted({load for _, load in measured.results})


def _lines(axis: Axes, measured: Measured) -> None:
    study = measured.study
    for number, contender in _drawn(measured):
        shown, spread = _shown(measured, contender)
        axis.errorbar(
            list(measured.series(contender.key, study.figure)),
            shown,
            yerr=spread,
            label=contender.label,
            color=colour(number),
            linestyle=dash(number),
            marker=MARKERS[number % len(MARKERS)],
            capsize=3,
        )
    axis.set_ylim(bottom=0)
    axis.legend()


def _drawn(measured: Measured) -> list[tuple[int, StudyContender]]:
    """Contenders with their numbers; those run at few loads appear only in the table."""
    found = []
    for number, contender in enumerate(measured.study.contenders):
        loads = measured.series(contender.key, measured.study.figure)
        if loads and (contender.loads is None or len(loads) >= 3):
            found.append((number, contender))
    return found


def _bars(axis: Axes, measured: Measured) -> None:
    for number, contender in enumerate(measured.study.contenders):
        shown, spread = _shown(measured, contender)
        bars = axis.barh([contender.label] * len(shown), shown, xerr=spread, color=colour(number), height=0.6)
        axis.bar_label(bars, [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in shown], padding=4)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.grid(visible=False, axis="y")


def distribution_plot(measured: Measured) -> Plot | None:
    """Distribution of completion times at the highest load common to all, also relative to yardsticks."""
    study, drawn = measured.study, _drawn(measured)
    times = {number: measured.times(contender.key) for number, contender in drawn}
    load = _highest(times.values())
    relative = [claim for claim in study.claims if claim.yardstick is not None]
    if load is None:
        return None
    with styled():
        figure, panels = new_figure(4.6, 1, 3 if relative else 2)
        hours = {number: by_load[load] / 3600 for number, by_load in times.items()}
        for number, contender in drawn:
            for axis in panels[:2]:
                distribution(axis, hours[number], number, contender.label)
        for axis, title in zip(panels, (f"{load:g} {study.load_unit}", "the slowest fifth"), strict=False):
            share_of_jobs(axis, "completion time (h)")
            axis.set_title(title, fontsize=11)
        panels[1].set_ylim(0.8, 1.002)
        panels[1].set_xlim(left=min(float(np.quantile(taken, 0.8)) for taken in hours.values()))
        if relative:
            _relative(panels[2], measured, relative)
        legend_below(figure, panels, columns=2 if relative else 3)
        caption = "The fraction of jobs that finish within a given time, all seeds together."
        return Plot(f"{study.name}-cdf", f"{study.title}: all jobs", caption, figure)


def _relative(axis: Axes, measured: Measured, claims: Sequence[Claim]) -> None:
    """Completion times divided by those of the same jobs under a yardstick, as in claims."""
    numbers = {contender.key: number for number, contender in enumerate(measured.study.contenders)}
    labels = {contender.key: contender.label for contender in measured.study.contenders}
    for claim in claims:
        ratios = {key: measured.relative(key, claim.yardstick or "") for key in (claim.of, claim.to) if key is not None}
        load = _highest(ratios.values())
        if load is not None:
            for key, by_load in ratios.items():
                distribution(axis, np.concatenate(by_load[load]), numbers[key], labels[key])
            axis.set_title(f"relative, {load:g} {measured.study.load_unit}", fontsize=11)
    yardsticks = [labels[claim.yardstick] for claim in claims if claim.yardstick is not None]
    share_of_jobs(axis, f"relative to {min(yardsticks, key=len)}")
    axis.xaxis.label.set_fontsize(9)  # names of contenders are long


def _highest(by_load: Iterable[Iterable[float]]) -> float | None:
    """The highest load common to all."""
    loads = [set(one) for one in by_load]
    return max(set.intersection(*loads), default=None) if loads else None


def _shown(measured: Measured, contender: StudyContender) -> tuple[Floats, Floats]:
    """The study's figure by load in display units, and its deviations."""
    figure = measured.study.figure
    series, spread = measured.series(contender.key, figure), measured.deviations(contender.key, figure)
    _, divisor = unit_of(figure)
    return np.array(list(series.values())) / divisor, np.array([spread[load] for load in series]) / divisor


def sweep_table(measured: Measured) -> tuple[str, NumberTable]:
    """The plotted figure by contender and load."""
    study = measured.study
    unit, divisor = unit_of(study.figure)
    loads = _loads(measured)
    rows = []
    for contender in study.contenders:
        series = measured.series(contender.key, study.figure)
        rows.append([contender.label, *(_number(series.get(load), divisor) for load in loads)])
    title = f"{NAMES.get(study.figure, study.figure)} ({unit}) by load ({study.load_unit})"
    return title, NumberTable(["", *(f"{load:g}" for load in loads)], rows)


def published_table(measured: Measured) -> tuple[str, NumberTable] | None:
    """Our figures beside the authors', where both are known."""
    study = measured.study
    unit, divisor = unit_of(study.figure)
    rows = []
    for contender in study.contenders:
        series = measured.series(contender.key, study.figure)
        for load, theirs in (contender.published or {}).items():
            if load in series:
                ours = series[load] / divisor
                rows.append([contender.label, f"{load:g}", f"{theirs:.2f}", f"{ours:.2f}", f"{ours / theirs:.2f}"])
    headings = ["", study.load_unit, f"the authors ({unit})", f"ours ({unit})", "ratio"]
    return ("Compared with the authors' published figures", NumberTable(headings, rows)) if rows else None


def _number(value: float | None, divisor: float) -> str:
    return "" if value is None else f"{value / divisor:,.2f}"


def with_drawings(measured: Measured, study: Study, *, compare: bool) -> Measured:
    """A sweep's measurements with plots and tables; `compare` if cluster and loads are the authors'."""
    if not measured.results:
        return measured
    published = published_table(measured) if compare else None
    tables = [sweep_table(measured), *([published] if published else [])]
    distributions = distribution_plot(measured) if study.distributions else None
    plots = [sweep_plot(measured), *([distributions] if distributions else [])]
    return Measured(study, measured.results, measured.values, tables, plots, measured.notes)
