"""Jobs as a table that fits the terminal: one line for each job or array, and the columns that fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from gavel.cli.folding import Fold, Row
from gavel.cli.render import WIDEST
from gavel.cli.words import STYLES, done, label, lasted, place, printable, span, steps, tags, template
from gavel.client.views import JobState, JobView

GAP = 2
ROOM_FOR_PLACE = 36
"""Drop less important columns if a longer place or reason would get less room than this."""
PLACE = "where or why"
CUT = "… is cut; see --wide or `gavel job ID`"


@dataclass(frozen=True, slots=True)
class JobColumn:
    """One property of a job; columns of low worth are dropped first if there is no room."""

    header: str
    cell: Callable[[JobView, float], str]
    """The text for a job at a given time."""
    worth: int
    fold: Callable[[Fold, float], str] = lambda _fold, _now: ""
    """The text for an array."""
    longest: int = 40
    right: bool = False
    least: int = 0
    """To which width it shrinks before less important columns are dropped; 0: it does not."""
    if_different: bool = False
    """Whether it is left out if all rows have the same."""


def _some(count: int) -> str:
    return str(count) if count else ""


def _fold_time(fold: Fold, now: float) -> str:
    return span((fold.ended or now) - fold.submitted)


COLUMNS = (
    JobColumn("id", lambda job, _: job.id, 100, lambda fold, _: fold.id),
    JobColumn(
        "user",
        lambda job, _: job.request.user,
        70,
        lambda fold, _: fold.common(lambda job: job.request.user),
        longest=16,
        if_different=True,
    ),
    JobColumn("name", lambda job, _: label(job), 80, lambda fold, _: fold.name(), longest=24, least=10),
    JobColumn("state", lambda job, _: job.state, 99, lambda fold, _: fold.counts(), longest=60),
    JobColumn("time", lambda job, now: span(lasted(job, now)), 60, _fold_time, right=True),
    JobColumn(
        "tags",
        lambda job, _: tags(job.request),
        55,
        lambda fold, _: fold.common(lambda job: tags(job.request)),
        longest=24,
        if_different=True,
    ),
    JobColumn(
        "template",
        lambda job, _: template(job.request),
        20,
        lambda fold, _: fold.common(lambda job: template(job.request)),
        longest=28,
    ),
    JobColumn(
        "workers",
        lambda job, _: str(job.request.workers),
        40,
        lambda fold, _: fold.common(lambda job: str(job.request.workers)),
        right=True,
    ),
    JobColumn("done", lambda job, _: done(job), 98, lambda fold, _: fold.done(), right=True),
    JobColumn("steps", lambda job, _: steps(job), 30, right=True),
    JobColumn("beside", lambda job, _: job.beside, 50),
    JobColumn(
        "restarts",
        lambda job, _: _some(job.restarts),
        35,
        lambda fold, _: _some(sum(job.restarts for job in fold.jobs)),
        right=True,
    ),
    JobColumn(
        "failures",
        lambda job, _: _some(job.failures),
        45,
        lambda fold, _: _some(sum(job.failures for job in fold.jobs)),
        right=True,
    ),
)
_PLACE_COLUMN = JobColumn(
    PLACE,
    lambda job, _: place(job),
    0,
    lambda fold, _: " ".join("; ".join(filter(None, [fold.where(), fold.reason()])).split()),
)


@dataclass(frozen=True, slots=True)
class JobTable:
    """A table, and whether anything in it had to be cut."""

    drawn: Table
    cut: bool


def job_table(rows: Sequence[Row], now: float, width: int, *, wide: bool = False) -> JobTable:
    """One line for each row, at most `width` columns wide; where it runs, or why not, takes what is left.

    `wide` cuts nothing: names and that last column take several lines.
    """
    whole = wide or width >= WIDEST
    cells = {column: [_cell(column, row, now) for row in rows] for column in COLUMNS}
    cells = {column: texts for column, texts in cells.items() if any(texts) and _tells(column, texts)}
    places = [_cell(_PLACE_COLUMN, row, now) for row in rows]
    longest = max(map(cell_len, [PLACE, *places])) if any(places) else 0
    room = min(ROOM_FOR_PLACE, longest)
    widths = _fitting(cells, width, room, whole=whole)
    left = max(1, width - sum(widths.values()) - GAP * len(widths))
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in widths:
        drawn.add_column(
            column.header,
            justify="right" if column.right else "left",
            no_wrap=not wide,
            width=widths[column] if wide else None,
            overflow="fold",
        )
    if any(places):
        drawn.add_column(_cut(PLACE, left), no_wrap=not wide, overflow="fold")
    cut = False
    for index, row in enumerate(rows):
        texts = [
            (cells[column][index] if wide else _cut(cells[column][index], widths[column]), column) for column in widths
        ]
        last = places[index] if wide else _cut(places[index], left)
        cut |= last != places[index] or any(text != cells[column][index] for text, column in texts)
        drawn.add_row(
            *(Text(text, style=_style(column, row)) for text, column in texts), *_last(last, shown=bool(longest))
        )
    return JobTable(drawn, cut)


def _last(text: str, *, shown: bool) -> list[Text]:
    return [Text(text)] if shown else []


def _cell(column: JobColumn, row: Row, now: float) -> str:
    text = column.fold(row, now) if isinstance(row, Fold) else column.cell(row, now)
    return printable(text)


def _tells(column: JobColumn, texts: Sequence[str]) -> bool:
    """Whether a column says something that is not the same everywhere."""
    return not column.if_different or len(set(texts)) > 1


def _style(column: JobColumn, row: Row) -> str:
    state: JobState | None = row.state
    return STYLES.get(state, "") if column.header == "state" and state is not None else ""


def _fitting(cells: dict[JobColumn, list[str]], width: int, room: int, *, whole: bool) -> dict[JobColumn, int]:
    """The columns that fit beside the last one, with their widths, in their order."""
    widths: dict[JobColumn, int] = {}
    left = width - room
    for column in sorted(cells, key=lambda each: -each.worth):
        wanted = max(map(cell_len, [column.header, *cells[column]]))
        wanted = wanted if whole else min(wanted, max(column.longest, len(column.header)))
        if wanted + GAP <= left:
            widths[column] = wanted
        elif column.least:
            widths[column] = min(wanted, max(column.least, left - GAP))
        elif column.worth >= _ALWAYS:
            widths[column] = wanted
        else:
            continue
        left -= widths[column] + GAP
    while len(widths) > 1 and sum(widths.values()) + GAP * len(widths) > width - min(room, len(PLACE)):
        del widths[min(widths, key=lambda each: each.worth)]  # a very narrow terminal
    return {column: widths[column] for column in cells if column in widths}


_ALWAYS = 98
"""Columns of this worth are there as long as they fit beside anything."""


def _cut(text: str, longest: int) -> str:
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1) + "…"
