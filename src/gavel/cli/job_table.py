"""Jobs as a table that fits its terminal: a line for each job, and the columns that there is room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from gavel.cli.words import STYLES, done, label, lasted, printable, span, steps, template, where
from gavel.client.views import JobState, JobView

GAP = 2
ROOM_FOR_REASON = 36
"""Columns of less worth go if a reason would have less, and is longer."""


@dataclass(frozen=True, slots=True)
class Column:
    """One property of a job; those of low worth go first where there is no room."""

    header: str
    cell: Callable[[JobView, float], str]
    """Of a job, now."""
    worth: int
    longest: int = 40
    right: bool = False


def _some(count: int) -> str:
    return str(count) if count else ""


COLUMNS = (
    Column("id", lambda job, _: job.id, 100),
    Column("name", lambda job, _: label(job), 80, longest=24),
    Column("state", lambda job, _: job.state, 99),
    Column("time", lambda job, now: span(lasted(job, now)), 60, right=True),
    Column("template", lambda job, _: template(job.request), 20, longest=28),
    Column("workers", lambda job, _: str(job.request.workers), 40, right=True),
    Column("done", lambda job, _: done(job), 90, right=True),
    Column("steps", lambda job, _: steps(job), 30, right=True),
    Column("where", lambda job, _: where(job), 95, longest=32),
    Column("beside", lambda job, _: job.beside, 50),
    Column("restarts", lambda job, _: _some(job.restarts), 35, right=True),
    Column("failures", lambda job, _: _some(job.failures), 45, right=True),
)


def job_table(jobs: Sequence[JobView], now: float, width: int) -> Table:
    """One line for each job, at most `width` columns wide; the reason takes what is left."""
    cells = {column: [_cut(printable(column.cell(job, now)), column.longest) for job in jobs] for column in COLUMNS}
    reasons = [_told_reason(job) for job in jobs]
    shown, left = _fitting(cells, width, min(ROOM_FOR_REASON, max(map(cell_len, reasons), default=0)))
    result = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in shown:
        result.add_column(column.header, justify="right" if column.right else "left", no_wrap=True)
    if any(reasons):
        result.add_column("reason", no_wrap=True)
    for index, job in enumerate(jobs):
        row = [Text(cells[column][index], style=_style(column, job)) for column in shown]
        result.add_row(*row, *([Text(_cut(reasons[index], left))] if any(reasons) else []))
    return result


def _told_reason(job: JobView) -> str:
    """Where a running job runs has its own column."""
    return "" if job.state is JobState.RUNNING else printable(" ".join(job.reason.split()))


def _style(column: Column, job: JobView) -> str:
    return STYLES.get(job.state, "") if column.header == "state" else ""


def _fitting(cells: dict[Column, list[str]], width: int, reason: int) -> tuple[list[Column], int]:
    """The columns that say something and fit beside a reason, and the room that they leave for it."""
    widths = {
        column: max([cell_len(column.header), *map(cell_len, values)]) + GAP
        for column, values in cells.items()
        if any(values)
    }
    left = width - reason
    shown: set[Column] = set()
    for column in sorted(widths, key=lambda each: -each.worth):
        if widths[column] <= left or not shown:
            shown.add(column)
            left -= widths[column]
    return [column for column in widths if column in shown], max(1, left + reason)


def _cut(text: str, longest: int) -> str:
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1) + "…"
