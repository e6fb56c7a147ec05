"""Jobs as a table that fits its terminal: a line for each job, and the columns that there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from gavel.client.requests import SHELL, JobRequest
from gavel.client.views import JobState, JobView

GAP = 2
ROOM_FOR_REASON = 36
"""Columns of less worth go if a reason would have less, and is longer."""
STYLES = {
    JobState.RUNNING: "green",
    JobState.PREEMPTED: "yellow",
    JobState.FAILED: "red",
    JobState.CANCELLED: "dim",
    JobState.COMPLETED: "dim",
}


@dataclass(frozen=True, slots=True)
class JobColumn:
    """One property of a job; those of low worth go first where there is no room."""

    header: str
    cell: Callable[[JobView, float], str]
    """Of a job, now."""
    worth: int
    longest: int = 40
    right: bool = False


def span(seconds: float) -> str:
    """A length of time in its two largest units.

    >>> [span(s) for s in (0.4, 59, 61, 3700, 90000, 1e6)]
    ['0s', '59s', '1m01s', '1h01m', '1d01h', '11d13h']
    """
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    for size, unit, part in ((86400, "d", "h"), (3600, "h", "m"), (60, "m", "s")):
        if whole >= size:
            smaller = {"h": 3600, "m": 60, "s": 1}[part]
            return f"{whole // size}{unit}{whole % size // smaller:02d}{part}"
    raise AssertionError(seconds)


def printable(text: str) -> str:
    r"""Without what would move the cursor or colour the terminal: other people's jobs have any names that they like.

    >>> printable("a\x1b[31mb"), printable("first\nsecond")
    ('a?[31mb', 'first\nsecond')
    """
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def said_command(request: JobRequest) -> str:
    """A command as a person would type it; what the shell runs, without the shell."""
    if tuple(request.command[:2]) == SHELL and len(request.command) == 3:
        return " ".join(request.command[2].split())
    return " ".join(request.command)


def template(request: JobRequest) -> str:
    """What it runs, unless that is only its command in other words."""
    return "" if " ".join(request.command).startswith(request.template) else request.template


def label(job: JobView) -> str:
    """What people call a job."""
    return job.request.name or said_command(job.request)


def done(job: JobView) -> str:
    """How much of a job is done, if that is known."""
    if job.request.steps:
        return f"{min(1.0, job.steps_done / job.request.steps):.0%}"
    return "100%" if job.state is JobState.COMPLETED else ""


def steps(job: JobView) -> str:
    """Steps done, of those to do if they are known."""
    total = f"/{job.request.steps:,.0f}" if job.request.steps else ""
    return f"{job.steps_done:,.0f}{total}" if total or job.steps_done else ""


def lasted(job: JobView, now: float) -> float:
    """Seconds that a job has been in its state; of one that is over, from submission to end."""
    return now - job.changed if job.ended is None else job.ended - job.submitted


def where(job: JobView) -> str:
    """Type and servers; with the number of accelerators where there are several servers."""
    names = {place: place.server.removesuffix(f":{job.type}") for place in job.places}  # an agent of several types
    several = len(names) > 1
    servers = "+".join(f"{name}:{place.accelerators}" if several else name for place, name in names.items())
    return f"{job.type} {servers}".strip()


def _some(count: int) -> str:
    return str(count) if count else ""


COLUMNS = (
    JobColumn("id", lambda job, _: job.id, 100),
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


def _style(column: JobColumn, job: JobView) -> str:
    return STYLES.get(job.state, "") if column.header == "state" else ""


def _fitting(cells: dict[JobColumn, list[str]], width: int, reason: int) -> tuple[list[JobColumn], int]:
    """The columns that say something and fit beside a reason, and the room that they leave for it."""
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


def summary(jobs: Sequence[JobView]) -> str:
    """How many are in which state.

    >>> summary([])
    'no jobs'
    """
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{counts[state]:,} {state}" for state in JobState if counts[state]) or "no jobs"
