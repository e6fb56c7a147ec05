"""Jobs as a table that fits the terminal: one line for each job, and the columns that fit."""

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
"""Drop less important columns if a longer reason would get less room than this."""


@dataclass(frozen=True, slots=True)
class JobColumn:
    """One property of a job; columns of low worth are dropped first if there is no room."""

    header: str
    cell: Callable[[JobView, float], str]
    """The text for a job at a given time."""
    worth: int
    longest: int = 40
    right: bool = False


def _some(count: int) -> str:
    return str(count) if count else ""


ONE_USER = frozenset({"", "you"})
"""The users of a scheduler that does not identify them: not worth a column."""
COLUMNS = (
    JobColumn("id", lambda job, _: job.id, 100),
    JobColumn("user", lambda job, _: job.request.user, 70, longest=16),
    JobColumn("name", lambda job, _: label(job), 80, longest=24),
    JobColumn("state", lambda job, _: job.state, 99),
    JobColumn("time", lambda job, now: span(lasted(job, now)), 60, right=True),
    JobColumn("template", lambda job, _: template(job.request), 20, longest=28),
    JobColumn("workers", lambda job, _: str(job.request.workers), 40, right=True),
    JobColumn("done", lambda job, _: done(job), 90, right=True),
    JobColumn("steps", lambda job, _: steps(job), 30, right=True),
    JobColumn("where", lambda job, _: where(job), 95, longest=32),
    JobColumn("beside", lambda job, _: job.beside, 50),
    JobColumn("restarts", lambda job, _: _some(job.restarts), 35, right=True),
    JobColumn("failures", lambda job, _: _some(job.failures), 45, right=True),
)


def job_table(jobs: Sequence[JobView], now: float, width: int) -> Table:
    """One line for each job, at most `width` columns wide; the reason takes what is left."""
    several = any(job.request.user not in ONE_USER for job in jobs)
    columns = [column for column in COLUMNS if several or column.header != "user"]
    cells = {column: [_cut(printable(column.cell(job, now)), column.longest) for job in jobs] for column in columns}
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
    """The reason, except for running jobs: where they run has its own column."""
    return "" if job.state is JobState.RUNNING else printable(" ".join(job.reason.split()))


def _style(column: JobColumn, job: JobView) -> str:
    return STYLES.get(job.state, "") if column.header == "state" else ""


def _fitting(cells: dict[JobColumn, list[str]], width: int, reason: int) -> tuple[list[JobColumn], int]:
    """The columns that are not empty and fit beside the reason, and the width left for it."""
    widths = {
        column: max([cell_len(column.header), *map(cell_len, values)]) + GAP
        for column, values in cells.items()
        if any(values)
    }
    left = width - reason
    shown: set[JobColumn] = set()
    for column in sorted(widths, key=lambda each: -each.worth):
        if widths[column] <= left or not shown:
            shown.add(column)
            left -= widths[column]
    return [column for column in widths if column in shown], max(1, left + reason)


def _cut(text: str, longest: int) -> str:
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1) + "…"
