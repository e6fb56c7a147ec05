"""A self-contained HTML page: embedded images, no scripts, no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from gavel.core.errors import GavelError
from gavel.plots.figures import Picture, Plot
from gavel.version import __version__

PAGE = "report.html"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1000px; margin: 2em auto;
       padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0; } h2 { font-size: 1.2em; margin-top: 2em; }
figure { margin: 1.5em 0; } img { width: 100%; height: auto; } figcaption { color: #555; font-size: 0.9em; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9em; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25em 1em 0.25em 0; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1em 1.5em; font-size: 0.9em; }
dt { color: #555; } dd { margin: 0; overflow-wrap: anywhere; }
.note { color: #555; }
"""


@dataclass(frozen=True, slots=True)
class NumberTable:
    """Numbers as text, with column headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_report(
    directory: Path,
    *,
    title: str,
    plots: Sequence[Plot],
    numbers: NumberTable,
    settings: Mapping[str, str],
    notes: Sequence[str] = (),
) -> list[Path]:
    """Write every plot as PNG, and the page; return the files."""
    files = {directory / f"{plot.name}.png": plot.png for plot in plots}
    files[directory / PAGE] = page(title, plots, numbers, settings, notes).encode()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)
    except OSError as error:
        raise GavelError(f"cannot write plots to {directory}: {(error.strerror or 'unknown error').lower()}") from error
    return list(files)


def page(
    title: str, plots: Sequence[Plot], numbers: NumberTable, settings: Mapping[str, str], notes: Sequence[str]
) -> str:
    """The page as text."""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">gavel {escape(__version__)}</p>',
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        *(figure_html(plot) for plot in plots),
        "<h2>Numbers</h2>",
        table_html(numbers),
        "<h2>Settings</h2>",
        "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in settings.items()) + "</dl>",
    ]
    return html(title, parts)


def html(title: str, parts: Sequence[str], more_style: str = "") -> str:
    """A whole page from HTML parts."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}{more_style}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{view}{head}</head>\n<body>\n{body}\n</body></html>\n'


def figure_html(plot: Plot | Picture) -> str:
    """A picture with its caption."""
    data = base64.b64encode(plot.png).decode()
    image = f'<img alt="{escape(plot.title)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{escape(plot.caption)}</figcaption></figure>"


def table_html(numbers: NumberTable) -> str:
    """A table of numbers."""
    head = "".join(f"<th>{escape(text)}</th>" for text in numbers.headings)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in numbers.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
