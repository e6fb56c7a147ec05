"""The style of our plots, and how they are written to files. Figures need no display and no global state."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gavel.core.problem import Floats

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""The colour-blind-safe palette of Okabe and Ito, with brown instead of yellow, which is pale on white."""
MARKERS = "osD^vPX*"
DASHES = ("-", "--", ":", "-.")
MUTED = "#888888"
WIDTH_INCHES = 10.0
DOTS_PER_INCH = 150

STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Picture:
    """An image file with title and caption."""

    name: str
    """The file name without its extension."""
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True, eq=False)
class Plot:
    """A finished figure with title and caption."""

    name: str
    """The file name without its extension."""
    title: str
    caption: str
    figure: Figure

    @cached_property
    def png(self) -> bytes:
        """The figure as an image file."""
        return png(self.figure)


class NotebookFigure(Figure):
    """A figure that notebooks display even if pyplot was never loaded."""

    def _repr_png_(self) -> bytes:
        return png(self)


@contextmanager
def styled() -> Iterator[None]:
    """Apply our style to figures made within."""
    with mpl.rc_context(STYLE):
        yield


def new_figure(height_inches: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of the standard width and its axes, row by row."""
    figure = NotebookFigure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [cell for row in axes for cell in row]


def png(figure: Figure) -> bytes:
    """A figure as PNG."""
    content = io.BytesIO()
    with styled():
        figure.savefig(content, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return content.getvalue()


def colour(index: int) -> str:
    """The n-th colour; colours repeat after eight, with another dash."""
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> str:
    """The dash of the n-th line."""
    return DASHES[index // len(COLOURS) % len(DASHES)]


def distribution(axes: Axes, values: Floats, number: int, label: str) -> None:
    """Draw the cumulative distribution of values as the n-th line."""
    share = np.arange(1, len(values) + 1) / len(values)
    line = dash(number)
    axes.step(np.sort(values), share, where="post", linewidth=1.8, color=colour(number), linestyle=line, label=label)


def share_of_jobs(axes: Axes, what: str) -> None:
    """Set up logarithmic axes for distributions over jobs."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))  # enough ticks within a decade, too
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=9)  # these fit three panels side by side
    axes.set_ylim(0, 1.01)
    axes.set_xlabel(what)
    axes.set_ylabel("fraction of jobs")


def legend_below(figure: Figure, axes: Sequence[Axes], *, columns: int) -> None:
    """One legend below all axes, without repeated labels."""
    handles: dict[str, Artist] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)
