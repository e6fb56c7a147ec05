"""How our plots look, and how they become files. Figures are drawn without a display and without global state."""

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
"""Okabe and Ito's, which stay apart for the colour-blind; yellow, which is pale on white, is replaced by brown."""
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
    """A picture as a file, with what to say about it."""

    name: str
    """Of its file, without the ending."""
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True, eq=False)
class Plot:
    """A finished figure, with what to say about it."""

    name: str
    """Of its file, without the ending."""
    title: str
    caption: str
    figure: Figure

    @cached_property
    def png(self) -> bytes:
        """The picture as a file."""
        return png(self.figure)


class NotebookFigure(Figure):
    """A figure that notebooks show, also where pyplot was never loaded."""

    def _repr_png_(self) -> bytes:
        return png(self)


@contextmanager
def styled() -> Iterator[None]:
    """Our looks for the figures made within."""
    with mpl.rc_context(STYLE):
        yield


def new_figure(height_inches: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of our width with its axes, row by row."""
    figure = NotebookFigure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [cell for row in axes for cell in row]


def png(figure: Figure) -> bytes:
    """A figure as a file."""
    content = io.BytesIO()
    with styled():
        figure.savefig(content, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return content.getvalue()


def colour(index: int) -> str:
    """The colour of the n-th thing; they come again after eight, with another dash."""
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> str:
    """The dash of the n-th line."""
    return DASHES[index // len(COLOURS) % len(DASHES)]


def distribution(axes: Axes, values: Floats, number: int, label: str) -> None:
    """The share of values that are no larger, as the n-th line."""
    share = np.arange(1, len(values) + 1) / len(values)
    line = dash(number)
    axes.step(np.sort(values), share, where="post", linewidth=1.8, color=colour(number), linestyle=line, label=label)


def share_of_jobs(axes: Axes, what: str) -> None:
    """Axes for distributions over jobs, of something that spans decades."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))  # enough of them within a decade too
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=9)  # three panels side by side have room for these
    axes.set_ylim(0, 1.01)
    axes.set_xlabel(what)
    axes.set_ylabel("share of jobs")


def legend_below(figure: Figure, axes: Sequence[Axes], *, columns: int) -> None:
    """One legend for all axes, under them, with each label once."""
    handles: dict[str, Artist] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)
