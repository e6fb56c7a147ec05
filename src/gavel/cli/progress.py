"""Progress of one or several simulations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gavel.sim.simulate import Underway


class ProgressBar:
    """Shows the progress of a longer simulation on a terminal; elsewhere nothing."""

    PATIENCE_SECONDS = 1.0
    REFRESH_SECONDS = 0.2

    def __init__(self) -> None:
        terminal = Console(stderr=True)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("jobs, {task.fields[where]}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=terminal, transient=True, auto_refresh=False)
        self._began = time.monotonic()
        self._due = self._began + self.PATIENCE_SECONDS if terminal.is_terminal else np.inf
        self._rounds: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.tasks:  # stopping a display that never started prints an empty line
            self._bar.stop()

    def between(self, simulation: Underway) -> None:
        """Redraw it from time to time."""
        outcome = simulation.outcome
        if self._rounds is None:  # leave out the parts done before a resume
            self._rounds = outcome.rounds
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self.REFRESH_SECONDS
        done, jobs = simulation.jobs_done
        pace = (outcome.rounds - self._rounds) / (now - self._began)
        where = f"{outcome.stopped / 86_400:,.1f} days, {pace:,.0f} rounds/s"
        if not self._bar.tasks:
            self._bar.add_task("simulate", total=jobs, completed=done, where=where)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, where=where, refresh=True)


class Tell(Protocol):
    """Called after each finished step."""

    def __call__(self, step: str, *, said: str, failed: bool = False, doing: str = "") -> None: ...


@contextmanager
def steps(doing: str, total: int, known: int) -> Iterator[Tell]:
    """Show on standard error how many steps are done: a bar on a terminal, elsewhere a line for each step."""
    err = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    done = known
    with Progress(*columns, console=err, speed_estimate_period=3600, disable=not err.is_terminal) as progress:
        bar = progress.add_task(doing, total=total, completed=known)

        def tell(step: str, *, said: str, failed: bool = False, doing: str = doing) -> None:
            nonlocal done
            done += 1
            if failed or not err.is_terminal:
                begin = "failed:" if failed else f"{done}/{total}"
                err.print(f"{begin} {step}: {said}", markup=False, soft_wrap=True)
            progress.update(bar, advance=1, description=doing)

        yield tell
