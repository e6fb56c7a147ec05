"""Pictures and tables of studies that are sweeps: a figure against load, and ours beside what the authors published."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gavel.core.problem import Floats
from gavel.plots.figures import MARKERS, Plot, colour, dash, new_figure, png, styled
from gavel.plots.page import NumberTable
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Contender, Study

UNITS = {"seconds": ("h", 3600.0), "dollars": ("$", 1.0)}
"""How figures are shown, by the end of their name."""
NAMES = {"average_jct_seconds": "average JCT", "makespan_seconds": "makespan", "cost_dollars": "cost"}


def unit_of(figure: str) -> tuple[str, float]:
    """The unit that a figure is shown in, and what to divide it by."""
    return UNITS.get(figure.rsplit("_", 1)[-1], ("", 1.0))


def sweep_plot(measured: Measured) -> Plot:
    """A figure by contender: lines over loads, or bars where there is one load; deviations over seeds."""
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
        return Plot(study.name, study.title, study.about, png(figure))


def _loads(measured: Measured) -> list[float]:
    return sorted({load for _, load in measured.results})


def _lines(axis: Axes, measured: Measured) -> None:
    """Contenders that are run at few loads are left to the table."""
    study = measured.study
    for number, contender in enumerate(study.contenders):
        shown, spread = _shown(measured, contender)
        if len(shown) and (contender.loads is None or len(shown) >= 3):
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


def _bars(axis: Axes, measured: Measured) -> None:
    for number, contender in enumerate(measured.study.contenders):
        shown, spread = _shown(measured, contender)
        bars = axis.barh([contender.label] * len(shown), shown, xerr=spread, color=colour(number), height=0.6)
        axis.bar_label(bars, [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in shown], padding=4)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.grid(visible=False, axis="y")


def _shown(measured: Measured, contender: Contender) -> tuple[Floats, Floats]:
    """The study's figure by load as it is shown, and its deviations."""
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
    """Ours beside the authors' own figures, where both are known."""
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
    return ("Beside the figures that the authors published", NumberTable(headings, rows)) if rows else None


def _number(value: float | None, divisor: float) -> str:
    return "" if value is None else f"{value / divisor:,.2f}"


def with_drawings(measured: Measured, study: Study, *, compare: bool) -> Measured:
    """What a sweep measured, with its picture and tables; `compare`: the cluster and loads are the authors'."""
    if not measured.results:
        return measured
    published = published_table(measured) if compare else None
    tables = [sweep_table(measured), *([published] if published else [])]
    return Measured(study, measured.results, measured.values, tables, [sweep_plot(measured)], measured.notes)
