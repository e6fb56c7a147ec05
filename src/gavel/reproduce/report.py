"""What is left after a run of studies: a page, pictures and tables as files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from gavel.core.errors import GavelError
from gavel.plots.page import PAGE, figure_html, html, table_html
from gavel.reproduce.measured import Check, Measured, checks
from gavel.reproduce.study import Scope
from gavel.version import __version__

CLAIMS = "claims.csv"
HEADINGS = ("study", "claim", "paper", "ours", "ratio", "wanted", "verdict")
OWN_STYLE = """
.fails { color: #b00020; font-weight: bold; } .holds { color: #1b6e3c; }
td.text { text-align: left; white-space: normal; }
nav { columns: 3; font-size: 0.9em; }
"""


def write_reproduction(directory: Path, everything: Sequence[Measured], scope: Scope, command: str) -> list[Path]:
    """Write claims.csv, a CSV for each table, a PNG for each picture, and the page; return the files."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = [_write_csv(directory / CLAIMS, HEADINGS, claim_rows(everything, scope))]
        for measured in everything:
            for number, (_, table) in enumerate(measured.tables):
                name = measured.study.name + (f"-{number + 1}" if number else "")
                written.append(_write_csv(directory / f"{name}.csv", table.headings, table.rows))
            for plot in measured.plots:
                written.append(directory / f"{plot.name}.png")
                written[-1].write_bytes(plot.png)
        written.append(directory / PAGE)
        written[-1].write_text(page(everything, scope, command), encoding="utf-8")
    except OSError as error:
        raise GavelError(f"cannot write to {directory}: {(error.strerror or 'unknown error').lower()}") from error
    return written


def _write_csv(path: Path, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(headings)
        writer.writerows(rows)
    return path


def claim_rows(everything: Sequence[Measured], scope: Scope) -> list[list[str]]:
    """Every claim with its verdict, as text."""
    return [_row(measured.study.name, check) for measured in everything for check in checks(measured, scope)]


def _row(study: str, check: Check) -> list[str]:
    paper, ours = check.claim.paper, check.ours
    ratio = f"{ours / paper:.2f}" if paper and ours is not None else ""
    shown = ("" if value is None else f"{value:.3g}" for value in (paper, ours))
    return [study, check.claim.says, *shown, ratio, check.wanted, check.verdict]


def page(everything: Sequence[Measured], scope: Scope, command: str) -> str:
    """One page that needs nothing else."""
    every = [check for measured in everything for check in checks(measured, scope)]
    counts = {
        verdict: sum(check.verdict == verdict for check in every) for verdict in ("holds", "FAILS", "not measured")
    }
    title = "The paper beside ours"
    about = f"gavel {__version__}, {scope.name}, throughputs {Path(scope.throughputs).name}"
    missing = f", {counts['not measured']} were not measured" if counts["not measured"] else ""
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="note">{escape(about)}; made by <code>{escape(command)}</code></p>',
        f"<p>{counts['holds']} of {len(every)} claims hold, {counts['FAILS']} fail{missing}.</p>",
        "<nav>" + "<br>".join(f'<a href="#{m.study.name}">{escape(m.study.title)}</a>' for m in everything) + "</nav>",
        *(_section(measured, scope) for measured in everything),
    ]
    return html(title, parts, OWN_STYLE)


def _section(measured: Measured, scope: Scope) -> str:
    study = measured.study
    sizes = study.sizes(scope)
    seeds = f"; seeds {', '.join(map(str, sizes.seeds))}; cluster 1/{sizes.scale}" if study.contenders else ""
    parts = [
        f'<h2 id="{study.name}">{escape(study.title)}</h2>',
        f'<p class="note">{study.name}, section {escape(study.section)} of the paper{seeds}</p>',
        f"<p>{escape(study.about)}</p>",
        _claims_html(checks(measured, scope)),
        *(figure_html(plot) for plot in measured.plots),
        *(f"<h3>{escape(title)}</h3>{table_html(table)}" for title, table in measured.tables),
        *(f'<p class="note">{escape(note)}</p>' for note in measured.notes),
    ]
    return "\n".join(parts)


def _claims_html(found: Sequence[Check]) -> str:
    rows = []
    for check in found:
        _, says, paper, ours, ratio, wanted, verdict = _row("", check)
        style = {"holds": "holds", "FAILS": "fails"}.get(verdict, "note")
        why = f'<br><span class="note">{escape(check.claim.why)}</span>' if check.claim.why else ""
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (paper, ours, ratio, wanted))
        rows.append(f'<tr><td class="text">{escape(says)}{why}</td>{cells}<td class="{style}">{verdict}</td></tr>')
    head = "".join(f"<th>{name}</th>" for name in ("claim", "paper", "ours", "ours / paper", "wanted", "verdict"))
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
