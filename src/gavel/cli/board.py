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

from gavel.cli.job_table import job_table
from gavel.cli.remote import interruptible
from gavel.cli.render import console, styled
from gavel.cli.words import printable, summary
from gavel.client.views import JobState, JobUpdate, JobView
from gavel.errors import GavelError

if TYPE_CHECKING:
    from gavel.client.api import Client

REDRAW_SECONDS = 1.0
"""Redraw this often even if nothing changes, because the table shows running times."""
REST_SECONDS = 0.1
"""Minimum time between two redraws."""
CHROME_LINES = 3
"""Lines of the screen without jobs: the header, the summary and the cursor line."""


class Board:
    """The latest known state of the jobs, updated by one thread and drawn by another."""

    def __init__(self, states: Sequence[JobState] = (), since: float = 0.0, limit: int = 0) -> None:
        self._states, self._since, self._limit = states, since, limit
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
        """The requested jobs: unfinished ones first, then the most recently finished."""
        jobs = [job for job in list(self._jobs.values()) if self.wants(job)]
        jobs = jobs[-self._limit :] if self._limit else jobs
        return sorted(jobs, key=lambda job: (job.finished, -(job.ended or 0.0)))

    def wants(self, job: JobView) -> bool:
        """Whether a job is among the requested ones."""
        return (not self._states or job.state in self._states) and not 0.0 < (job.ended or 0.0) < self._since

    def picture(self, now: float, width: int, height: int) -> RenderableType:
        """As many jobs as fit on the screen, and a summary."""
        jobs = self.shown()
        room = max(1, height - CHROME_LINES)
        hidden = len(jobs) - room
        more = f"; {hidden:,} more are not shown" if hidden > 0 else ""
        footer = Text(f"{summary(jobs)}{more}", style="dim")
        if self.away:
            footer = styled(f"the scheduler is away ({self.away}); trying again", "yellow")
        return Group(job_table(jobs[:room], now, width), footer)


def follow(
    client: Client,
    *,
    states: Sequence[JobState],
    since: float,
    limit: int,
    most_finished: int,
    user: str = "",
    as_json: bool,
) -> None:
    """Show jobs until the user interrupts, which is not an error; of those that had finished, only the last."""
    board = Board(states, since, limit)
    out = console()
    updates = client.watch(ended_after=since, most_finished=most_finished, user=user)
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
