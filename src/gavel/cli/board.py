"""A live view of jobs: a table on a terminal, and a line for each change elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gavel.cli.folding import Row, folded
from gavel.cli.job_table import job_table
from gavel.cli.remote import interruptible
from gavel.cli.render import console, styled
from gavel.cli.words import printable, summary
from gavel.client.selection import Selection
from gavel.client.views import JobState, JobUpdate, JobView, by_id
from gavel.errors import GavelError

if TYPE_CHECKING:
    from gavel.client.api import Client

EVERYTHING = Selection()
REDRAW_SECONDS = 1.0
"""Redraw this often even if nothing changes, because the table shows running times."""
REST_SECONDS = 0.1
"""Minimum time between two redraws."""
CHROME_LINES = 3
"""Lines of the screen without jobs: the header, the summary and the cursor line."""


class Board:
    """The latest known state of the jobs, updated by one thread and drawn by another."""

    def __init__(
        self, selection: Selection = EVERYTHING, since: float = 0.0, limit: int = 0, *, unfold: bool = False
    ) -> None:
        self.selection, self.since, self._limit, self._unfold = selection, since, limit, unfold
        self._selected = selection.test()
        self._jobs: dict[str, JobView] = {}
        self._arriving: dict[str, JobView] | None = {}
        """What a new connection has sent so far; it replaces the known jobs once it is complete."""
        self.away = ""
        self.changed = threading.Event()

    def take_in(self, update: JobUpdate) -> None:
        """Record an update."""
        if update.away:
            self.away, self._arriving = update.away, {}
        elif update.caught_up:
            self.away = ""
            self._jobs, self._arriving = self._arriving if self._arriving is not None else self._jobs, None
        if update.job is not None:
            known = self._jobs if self._arriving is None else self._arriving
            known[update.job.id] = update.job
        if self._arriving is None or update.away:
            self.changed.set()

    def shown(self) -> list[JobView]:
        """The requested jobs, the newest last."""
        jobs = sorted((job for job in list(self._jobs.values()) if self.wants(job)), key=by_id)
        return jobs[-self._limit :] if self._limit else jobs

    def rows(self, jobs: Sequence[JobView]) -> list[Row]:
        """Unfinished jobs and arrays first, then the most recently finished."""
        rows = list(jobs) if self._unfold else folded(jobs)
        return sorted(rows, key=lambda row: (row.finished, -(row.ended or 0.0)))

    def wants(self, job: JobView) -> bool:
        """Whether a job is among the requested ones."""
        return self._selected(job.id, job.request, job.state) and not 0.0 < (job.ended or 0.0) < self.since

    def picture(self, now: float, width: int, height: int) -> RenderableType:
        """As many jobs as fit on the screen, and a summary."""
        jobs = self.shown()
        rows = self.rows(jobs)
        room = max(1, height - CHROME_LINES)
        hidden = len(rows) - room
        more = f"; {hidden:,} more are not shown" if hidden > 0 else ""
        table = job_table(rows[:room], now, width)
        cut = "; … is cut, `gavel job ID` shows it" if table.cut else ""
        footer = Text(f"{summary(jobs)}{more}{cut}", style="dim", no_wrap=True, overflow="ellipsis")
        if self.away:
            footer = styled(f"the scheduler is away ({self.away}); trying again", "yellow")
        return Group(table.drawn, footer)


def follow(client: Client, board: Board, *, most_finished: int, as_json: bool) -> None:
    """Show jobs until the user interrupts, which is not an error; of those that had finished, only the last."""
    out = console()
    selection = board.selection
    updates = client.watch(
        ids=selection.ids,
        ended_after=board.since,
        most_finished=most_finished,
        user=selection.user,
        patterns=selection.names,
        tags=selection.tags,
        arrays=dict.fromkeys([*selection.arrays, *(member.array for member in selection.members)]),
        ranges=selection.ranges,
    )
    with suppress(KeyboardInterrupt), interruptible():
        if as_json or not out.is_terminal:
            _print_changes(board, updates, as_json=as_json)
        else:
            _draw(board, updates, out)


def _print_changes(board: Board, updates: Iterable[JobUpdate], *, as_json: bool) -> None:
    told: dict[str, tuple[JobState, str]] = {}
    for update in updates:
        job = update.job
        if job is None or not board.wants(job):
            continue
        if as_json:
            print(json.dumps(job.document(), allow_nan=False), flush=True)
        elif told.get(job.id) != (job.state, job.reason):
            at, reason = datetime.fromtimestamp(job.changed).astimezone(), " ".join(job.reason.split())
            print(printable(f"{at:%H:%M:%S}  {job.id}  {job.state}  {reason}".rstrip()), flush=True)
            told[job.id] = (job.state, job.reason)


def _draw(board: Board, updates: Iterable[JobUpdate], out: Console) -> None:
    failure: list[GavelError] = []

    def listen() -> None:
        try:
            for update in updates:
                board.take_in(update)
        except GavelError as error:
            failure.append(error)
            board.changed.set()

    threading.Thread(target=listen, daemon=True).start()
    with Live(console=out, auto_refresh=False, transient=False) as live:
        while not failure:
            live.update(board.picture(time.time(), out.width, out.height), refresh=True)
            time.sleep(REST_SECONDS)
            board.changed.wait(REDRAW_SECONDS - REST_SECONDS)
            board.changed.clear()
    raise failure[0]
