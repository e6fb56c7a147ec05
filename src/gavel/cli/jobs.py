"""`gavel jobs`, `gavel logs` and `gavel cancel`: list, follow and cancel jobs."""

from __future__ import annotations

import codecs
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, ActingFor, PatienceOption, SchedulerOption, connect
from gavel.cli.render import console, print_json
from gavel.cli.words import printable, summary
from gavel.client.field_checks import nearest
from gavel.client.views import JobState, JobView
from gavel.errors import InputError

if TYPE_CHECKING:
    from gavel.client.api import Client

RECENT_SECONDS = 3600.0
"""Jobs that ended within this time are listed."""
SHOWN_FINISHED = 200
"""Finished jobs that are listed without --all or --limit."""
STATES = tuple(str(state) for state in JobState if state is not JobState.UNKNOWN)

Id = Annotated[str, typer.Argument(help="The id of a job.", metavar="ID")]


def jobs_command(
    state: Annotated[str | None, typer.Option(help=f"Only these: {', '.join(STATES)}.", metavar="STATE,...")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Include jobs that ended long ago, and more than {SHOWN_FINISHED} of them.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show changes until interrupted.")] = False,
    name: Annotated[
        list[str] | None, typer.Option(help="Only jobs of this name; may be given several times.", metavar="NAME")
    ] = None,
    user: Annotated[str, typer.Option(help="Only jobs of this user.", metavar="NAME")] = "",
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    limit: Annotated[int, typer.Option(help="Only the newest; 0: all.", min=0, metavar="COUNT")] = 0,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """List unfinished jobs and those that ended in the last hour."""
    states = parse_states(state)
    if watch and name:
        raise InputError("--watch shows jobs of all names; leave --name out")
    if user and mine:
        raise InputError("give either --mine or --user, not both")
    since = 0.0 if everything or states else time.time() - RECENT_SECONDS
    with connect(scheduler, patience) as client:
        user = client.whoami().user if mine else user
        if watch:
            from gavel.cli.board import follow  # noqa: PLC0415 - loads the library that draws

            most = 0 if everything or limit else SHOWN_FINISHED
            follow(client, states=states, since=since, limit=limit, most_finished=most, user=user, as_json=as_json)
            return
        names = name or ()
        if everything or limit:
            found, more = client.jobs(states, limit=limit, ended_after=since, names=names, user=user), False
        else:
            found, more = _newest(client, states, names, since, user)
    if as_json:
        print_json({"jobs": [job.document() for job in found], "more": more})
        return
    _print_table(found, _left_out(since, more=more))


def _print_table(jobs: Sequence[JobView], left_out: str) -> None:
    from gavel.cli.job_table import job_table  # noqa: PLC0415 - loads the library that draws

    out = console()
    if jobs:
        out.print(job_table(jobs, time.time(), out.width))
    out.print(f"{summary(jobs)}{left_out}", style="dim", soft_wrap=True)


def _newest(
    client: Client, states: Sequence[JobState], names: Sequence[str], since: float, user: str
) -> tuple[list[JobView], bool]:
    """All unfinished jobs, the newest finished ones, and whether there are more of these."""
    active = client.jobs(states, finished=False, names=names, user=user)
    last = client.jobs(states, finished=True, limit=SHOWN_FINISHED + 1, ended_after=since, names=names, user=user)
    newest = sorted(last, key=lambda job: job.ended or 0.0)[-SHOWN_FINISHED:]
    found = {job.id: job for job in (*active, *newest)}  # a job that finished meanwhile is in both
    return sorted(found.values(), key=lambda job: (len(job.id), job.id)), len(last) > len(newest)


def _left_out(since: float, *, more: bool) -> str:
    if more:
        return f"; only the {SHOWN_FINISHED} that finished last are shown, --all lists the others"
    return "; --all adds those that ended more than an hour ago" if since else ""


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
    keep_on: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the job finishes.")] = False,
    rank: Annotated[int, typer.Option(help="The worker to show.", min=0, metavar="RANK")] = 0,
    tail: Annotated[int | None, typer.Option(help="Only the last N lines.", min=0, metavar="COUNT")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print control characters on a terminal, too; they can do harm there.")
    ] = False,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Print the output of a job.

    On a terminal, control characters are replaced by question marks; a file or a pipe gets every byte as it is.
    """
    if keep_on and as_json:
        raise InputError("--json prints one document, but --follow does not end; leave one of them out")
    with connect(scheduler, patience) as client:
        pieces = client.logs(id, follow=keep_on, rank=rank, tail=tail)
        if as_json:
            text = b"".join(pieces).decode(errors="replace")
            print_json({"id": id, "rank": rank, "log": text})
            return
        for piece in pieces if raw or not sys.stdout.isatty() else _for_terminal(pieces):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


def _for_terminal(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The output of a job without control characters, except those that begin a line or a column."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces:
        yield re.sub(r"[^\n\r\t]+", lambda found: printable(found[0]), decoder.decode(piece)).encode()


def cancel_command(
    ids: Annotated[list[str], typer.Argument(help="The ids of jobs.", metavar="ID")],
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs; finished jobs stay as they are."""
    with connect(scheduler, acting_for=acting_for) as client:
        over = {job.id for job in client.jobs(ids=ids) if job.finished}
        found = client.cancel(ids)
    if as_json:
        print_json({"jobs": [job.document() for job in found], "already_over": sorted(over)})
        return
    for job in found:
        print(printable(_outcome(job, already=job.id in over)))


def _outcome(job: JobView, *, already: bool) -> str:
    if already:
        return f"job {job.id} had already finished: {job.state}"
    return f"job {job.id} is cancelled" if job.state is JobState.CANCELLED else f"job {job.id} is being cancelled"
