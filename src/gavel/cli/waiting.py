"""Waiting until jobs finish: the progress on a terminal, how they ended, and what an interruption leaves behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gavel.cli.formats import print_formatted
from gavel.cli.logs import print_output
from gavel.cli.remote import interruptible
from gavel.cli.render import console, print_json
from gavel.cli.words import printable, summary
from gavel.client.views import JobState, JobView
from gavel.errors import GavelError

if TYPE_CHECKING:
    from gavel.client.api import Client

SHOWN_IDS = 20
REST_SECONDS = 0.2
"""Minimum time between two lines of progress."""


def wait_for(
    client: Client, ids: Sequence[str], *, timeout: float | None = None, as_json: bool, form: str | None = None
) -> int:
    """Wait until all jobs finish and show how they ended; the exit code is 0 only if all completed."""
    try:
        with interruptible():
            over = _watched(client, ids, timeout)
    except KeyboardInterrupt:
        print(printable(f"gavel: interrupted; {left_behind(ids)}"), file=sys.stderr)
        return 130
    except GavelError as error:
        raise GavelError(f"{error}; {left_behind(ids)}") from None
    if as_json:
        print_json({"ids": list(ids), "jobs": [job.document() for job in over]})
    elif form is not None:
        print_formatted(form, over)
    else:
        _draw(over)
    return 0 if all(job.state is JobState.COMPLETED for job in over) else 1


def _draw(over: Sequence[JobView]) -> None:
    from gavel.cli.folding import folded  # noqa: PLC0415 - as below
    from gavel.cli.job_table import job_table  # noqa: PLC0415 - loads the library that draws

    shown = console()
    rows = folded(over) if len(over) > 1 else over
    shown.print(job_table(rows, time.time(), shown.width).drawn)
    shown.print(summary(over), style="dim")


def _watched(client: Client, ids: Sequence[str], timeout: float | None) -> list[JobView]:
    """Return the jobs once they have finished; on a terminal, a line shows the progress."""
    if not sys.stderr.isatty():
        return client.wait(ids, timeout)
    from rich.console import Console  # noqa: PLC0415 - loads the library that draws

    out = Console(stderr=True, highlight=False)
    shown_at = 0.0

    def show(jobs: Mapping[str, JobView]) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= REST_SECONDS:  # counting many jobs at every change would take too long
            status.update(_progress(jobs))
            shown_at = time.monotonic()

    with out.status("waiting") as status:
        return client.wait(ids, timeout, on_change=show)


def _progress(jobs: Mapping[str, JobView]) -> str:
    over = sum(job.finished for job in jobs.values())
    return f"{over:,} of {len(jobs):,} finished: {summary(list(jobs.values()))}"


def left_behind(ids: Sequence[str]) -> str:
    """What becomes of jobs that are no longer waited for."""
    cancel = f"`gavel cancel {' '.join(ids)}` ends them" if len(ids) <= SHOWN_IDS else "`gavel cancel` ends them"
    return f"the jobs continue: `gavel jobs` shows them, {cancel}"


def follow_log(client: Client, id: str) -> int:  # noqa: A002 - the word for it everywhere
    """Print the output of a job until it finishes; the exit code is 0 only if it completed."""
    try:
        with interruptible():
            print_output(client.logs(id, follow=True))
            job = client.wait(id)[0]
    except KeyboardInterrupt:
        print(printable(f"gavel: interrupted; {left_behind([id])}"), file=sys.stderr)
        return 130
    except GavelError as error:
        raise GavelError(f"{error}; {left_behind([id])}") from None
    reason = f": {job.reason}" if job.reason not in ("", job.state.value) else ""
    print(printable(f"job {id} {job.state}{reason}"), file=sys.stderr)
    return 0 if job.state is JobState.COMPLETED else 1
