"""How numbers and tables look on a terminal; the library that draws tables is loaded when one is drawn."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDEST = 10_000
"""Columns to assume where the output is not a terminal: nothing is cut there."""


def console() -> Console:
    """Standard output; a file or a pipe has room for whole lines, unless COLUMNS says otherwise."""
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
        # Only the last text column may wrap where the terminal is narrow.
        result.add_column(header, justify="left" if text else "right", no_wrap=index != left - 1, header_style="bold")
    for row in rows:
        result.add_row(*(styled(cell) if isinstance(cell, str) else cell for cell in row))  # names are no markup
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
    """Text as it is, in which brackets are no markup."""
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text(text, style)


def number(value: float) -> str:
    """Four significant digits, without a needless exponent.

    >>> [number(x) for x in (0.0, 0.72727, 1750.0, 732245.3, 1.5e-7)]
    ['0', '0.7273', '1750', '732,245', '1.5e-07']
    """
    if value == 0 or 1e-4 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def share(value: float) -> str:
    """A share of time; nothing for none.

    >>> share(0.4545), share(0.0), share(1e-9)
    ('0.455', '.', '.')
    """
    return f"{value:.3f}" if value >= 0.0005 else "."


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output; an infinite number has no JSON and is refused."""
    print(json.dumps(document, allow_nan=False))


def print_figures(measured: Mapping[str, Any]) -> None:
    """Figures by name, one in a line."""
    rows = [
        [key.replace("_", " "), number(value) if isinstance(value, float) else str(value)]
        for key, value in measured.items()
    ]
    console().print(table(["measured", "value"], rows))
