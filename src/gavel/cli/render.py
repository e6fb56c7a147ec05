"""How numbers and tables look on a terminal; the library that draws tables is loaded when one is drawn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gavel.cli.words import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDEST = 10_000
"""Columns to assume if the output is not a terminal, so that nothing is cut off."""


def console() -> Console:
    """Standard output; files and pipes get full lines, unless COLUMNS is set."""
    from rich.console import Console  # noqa: PLC0415 - see above

    out = Console(highlight=False)
    return out if out.is_terminal or os.environ.get("COLUMNS") else Console(highlight=False, width=WIDEST)


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: int = 1, title: str | None = None
) -> Table:
    """A plain table; the first `left` columns are text, the rest numbers."""
    from rich.table import Table  # noqa: PLC0415 - see above

    result = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, header in enumerate(headers):
        text = index < left
        # Only the last text column may wrap on a narrow terminal.
        result.add_column(header, justify="left" if text else "right", no_wrap=index != left - 1, header_style="bold")
    for row in rows:
        result.add_row(*(styled(cell) if isinstance(cell, str) else cell for cell in row))  # names are not markup
    return result


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values, which may be long."""
    from rich.table import Table  # noqa: PLC0415 - see above

    result = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    result.add_column(no_wrap=True, style="dim")
    result.add_column(overflow="fold")
    for name, value in rows:
        result.add_row(name, styled(value))
    return result


def styled(text: str, style: str = "") -> Text:
    """Text without control characters, in which brackets are no markup; tables are made of it."""
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text(printable(text), style)


def number(value: float) -> str:
    """Four significant digits, without an unnecessary exponent.

    >>> [number(x) for x in (0.0, 0.72727, 1750.0, 732245.3, 1.5e-7)]
    ['0', '0.7273', '1750', '732,245', '1.5e-07']
    """
    if value == 0 or 1e-4 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def share(value: float) -> str:
    """A share of time; a dot for none.

    >>> share(0.4545), share(0.0), share(1e-9)
    ('0.455', '.', '.')
    """
    return f"{value:.3f}" if value >= 0.0005 else "."


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document to standard output; infinite numbers, which JSON lacks, are refused."""
    print(json.dumps(document, allow_nan=False))


def print_figures(measured: Mapping[str, Any]) -> None:
    """Figures by name, one per line."""
    rows = [
        [key.replace("_", " "), number(value) if isinstance(value, float) else str(value)]
        for key, value in measured.items()
    ]
    console().print(table(["measured", "value"], rows))
