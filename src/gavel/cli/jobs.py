"""`gavel jobs`, `gavel logs` and `gavel cancel`: what became of what was submitted."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from gavel.cli.board import follow
from gavel.cli.job_table import job_table, summary
from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, PatienceOption, SchedulerOption, connect
from gavel.cli.render import console, print_json
from gavel.client.requests import nearest
from gavel.client.views import JobState, JobView
from gavel.errors import InputError

RECENT_SECONDS = 3600.0
"""Jobs that ended within this time are still news."""
STATES = tuple(str(state) for state in JobState if state is not JobState.UNKNOWN)

Id = Annotated[str, typer.Argument(help="The id of a job.", metavar="ID")]


def jobs_command(
    state: Annotated[str | None, typer.Option(help=f"Only these: {', '.join(STATES)}.", metavar="STATE,...")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also jobs that ended long ago.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on and show changes until interrupted.")] = False,
    limit: Annotated[int, typer.Option(help="Only the newest so many; 0: all.", min=0, metavar="COUNT")] = 0,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """List jobs that are not over or ended in the last hour."""
    states = parse_states(state)
    since = 0.0 if everything or states else time.time() - RECENT_SECONDS
    with connect(scheduler, patience) as client:
        if watch:
            follow(client, states=states, since=since, limit=limit, as_json=as_json)
            return
        found = client.jobs(states=states, limit=limit, ended_after=since)
    if as_json:
        print_json({"jobs": [job.document() for job in found]})
        return
    out = console()
    if found:
        out.print(job_table(found, time.time(), out.width))
    left_out = "; --all adds those that ended more than an hour ago" if since else ""
    out.print(f"{summary(found)}{left_out}", style="dim")


def parse_states(text: str | None) -> list[JobState]:
    """Read a list of states.

    >>> [str(state) for state in parse_states("queued, running")]
    ['queued', 'running']
    """
    names = [] if text is None else [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in STATES:
            raise InputError(f"--state {text}: there is no state {name!r}; {nearest(name, STATES)}")
    return [JobState(name) for name in dict.fromkeys(names)]


def logs_command(
    id: Id,  # noqa: A002 - the word for it everywhere
    keep_on: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    rank: Annotated[int, typer.Option(help="Which of its workers.", min=0, metavar="RANK")] = 0,
    tail: Annotated[int | None, typer.Option(help="Only the last so many lines.", min=0, metavar="COUNT")] = None,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Print what a job has printed."""
    if keep_on and as_json:
        raise InputError("--json prints one document, and --follow has no end; leave one of them out")
    with connect(scheduler, patience) as client:
        pieces = client.logs(id, follow=keep_on, rank=rank, tail=tail)
        if as_json:
            text = b"".join(pieces).decode(errors="replace")
            print_json({"id": id, "rank": rank, "log": text})
            return
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


def cancel_command(
    ids: Annotated[list[str], typer.Argument(help="The ids of jobs.", metavar="ID")],
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs; those that are over stay as they are."""
    with connect(scheduler) as client:
        over = {job.id for job in client.jobs(ids=ids) if job.over}
        found = client.cancel(ids)
    if as_json:
        print_json({"jobs": [job.document() for job in found], "already_over": sorted(over)})
        return
    for job in found:
        print(_outcome(job, already=job.id in over))


def _outcome(job: JobView, *, already: bool) -> str:
    if already:
        return f"job {job.id} was over already: {job.state}"
    return f"job {job.id} is cancelled" if job.state is JobState.CANCELLED else f"job {job.id} is being cancelled"
