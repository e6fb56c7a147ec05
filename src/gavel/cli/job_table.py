"""Jobs as a table that fits the terminal: one line for each job, and the columns that fit."""

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
"""Drop less important columns if a longer reason would get less room than this."""
STYLES = {
    JobState.RUNNING: "green",
    JobState.PREEMPTED: "yellow",
    JobState.FAILED: "red",
    JobState.CANCELLED: "dim",
    JobState.COMPLETED: "dim",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One property of a job; columns of low worth are dropped first if there is no room."""

    header: str
    cell: Callable[[JobView, float], str]
    """The text for a job at a given time."""
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
    r"""Replace control characters, which could move the cursor or colour the terminal: job names are arbitrary.

    >>> printable("a\x1b[31mb"), printable("first\nsecond")
    ('a?[31mb', 'first\nsecond')
    """
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def said_command(request: JobRequest) -> str:
    """A command as a person would type it, without the shell that runs it."""
    if tuple(request.command[:2]) == SHELL and len(request.command) == 3:
        return " ".join(request.command[2].split())
    return " ".join(request.command)


def template(request: JobRequest) -> str:
    """Its template, unless that was derived from the command."""
    return "" if " ".join(request.command).startswith(request.template) else request.template


def label(job: JobView) -> str:
    """The job's name for people."""
    return job.request.name or said_command(job.request)


def done(job: JobView) -> str:
    """The fraction of a job that is done, if known."""
    if job.request.steps:
        return f"{min(1.0, job.steps_done / job.request.steps):.0%}"
    return "100%" if job.state is JobState.COMPLETED else ""


def steps(job: JobView) -> str:
    """Steps done, and the total if known."""
    total = f"/{job.request.steps:,.0f}" if job.request.steps else ""
    return f"{job.steps_done:,.0f}{total}" if total or job.steps_done else ""


def lasted(job: JobView, now: float) -> float:
    """Seconds that a job has been in its state; for a finished job, from submission to end."""
    return now - job.changed if job.ended is None else job.ended - job.submitted


def where(job: JobView) -> str:
    """Type and servers, with numbers of accelerators if there are several servers."""
    names = {place: place.server.removesuffix(f":{job.type}") for place in job.places}  # an agent with several types
    several = len(names) > 1
    servers = "+".join(f"{name}:{place.accelerators}" if several else name for place, name in names.items())
    return f"{job.type} {servers}".strip()


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
    """The reason, except for running jobs: where they run has its own column."""
    return "" if job.state is JobState.RUNNING else printable(" ".join(job.reason.split()))


def _style(column: Column, job: JobView) -> str:
    return STYLES.get(job.state, "") if column.header == "state" else ""


def _fitting(cells: dict[Column, list[str]], width: int, reason: int) -> tuple[list[Column], int]:
    """The columns that are not empty and fit beside the reason, and the width left for it."""
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


def summary(jobs: Sequence[JobView]) -> str:
    """How many jobs are in which state.

    >>> summary([])
    'no jobs'
    """
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{counts[state]:,} {state}" for state in JobState if counts[state]) or "no jobs"
