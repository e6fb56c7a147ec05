"""`gavel jobs`: list and watch jobs, with arrays in one row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.formats import Format, check_format, print_formatted
from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, PatienceOption, SchedulerOption, connect
from gavel.cli.render import console, print_json
from gavel.cli.selecting import Mine, Names, OfUser, Places, States, Tags, selection_of
from gavel.cli.words import summary
from gavel.client.selection import Selection
from gavel.client.views import JobView, by_id

if TYPE_CHECKING:
    from gavel.cli.folding import Row
    from gavel.client.api import Client

RECENT_SECONDS = 3600.0
"""Jobs that ended within this time are listed."""
SHOWN_FINISHED = 200
"""Finished jobs that are listed without --all or --limit."""
MOST_ARRAYS, MOST_OF_ARRAYS = 100, 20_000
"""Arrays whose other jobs are asked for, and how many of these; of other arrays only listed jobs are counted."""


def jobs_command(
    jobs: Places = None,
    names: Names = None,
    tags: Tags = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Include jobs that ended long ago, and more than {SHOWN_FINISHED} of them.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Only the newest; 0: all.", min=0, metavar="COUNT")] = 0,
    unfold: Annotated[
        bool, typer.Option("--unfold", help="A line for each job of arrays and grids. [default with JOBS]")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", help="Cut nothing; long reasons take several lines.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show changes until interrupted.")] = False,
    form: Format = None,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """List unfinished jobs and those that ended in the last hour.

    An array or a grid is one row; `gavel jobs a38` or --unfold lists its jobs. Selectors are combined: gavel jobs
    --mine --name 'resnet*' --state queued
    """
    if form is not None:
        check_format(form, as_json=as_json, watch=watch)
    with connect(scheduler, patience) as client:
        selection = selection_of(client, jobs, names=names, tags=tags, state=state, user=user, mine=mine)
        since = 0.0 if everything or selection.states or selection.placed else time.time() - RECENT_SECONDS
        apart = unfold or selection.placed
        if watch:
            from gavel.cli.board import Board, follow  # noqa: PLC0415 - loads the library that draws

            most = 0 if everything or limit else SHOWN_FINISHED
            board = Board(selection, since, limit, unfold=apart)
            follow(client, board, most_finished=most, as_json=as_json)
            return
        if everything or limit or selection.placed:
            found, more = client.select(selection, limit=limit, ended_after=since), False
            found = found[-limit:] if limit else found
        else:
            found, more = _newest(client, selection, since)
        whole = [] if apart or limit or as_json or form else _rest_of_arrays(client, selection, found)
    if as_json:
        print_json({"jobs": [job.document() for job in found], "more": more})
    elif form is not None:
        print_formatted(form, found)
    else:
        _print_table(found, whole, _left_out(since, more=more), unfold=apart, wide=wide)


def _print_table(jobs: Sequence[JobView], whole: Sequence[JobView], left_out: str, *, unfold: bool, wide: bool) -> None:
    from gavel.cli.folding import folded  # noqa: PLC0415 - as below
    from gavel.cli.job_table import CUT, job_table  # noqa: PLC0415 - loads the library that draws

    known = {job.id: job for job in (*whole, *jobs)}
    listed = sorted(known.values(), key=by_id)
    rows: Sequence[Row] = jobs if unfold else folded(listed)
    out = console()
    if rows:
        table = job_table(rows, time.time(), out.width, wide=wide)
        out.print(table.drawn)
        if table.cut:
            out.print(CUT, style="dim", soft_wrap=True)
    out.print(f"{summary(jobs if unfold else listed)}{left_out}", style="dim", soft_wrap=True)


def _newest(client: Client, selection: Selection, since: float) -> tuple[list[JobView], bool]:
    """All unfinished jobs, the newest finished ones, and whether there are more of these."""
    active = client.select(selection, finished=False)
    last = client.select(selection, finished=True, limit=SHOWN_FINISHED + 1, ended_after=since)
    newest = sorted(last, key=lambda job: job.ended or 0.0)[-SHOWN_FINISHED:]
    found = {job.id: job for job in (*active, *newest)}  # a job that finished meanwhile is in both
    return sorted(found.values(), key=by_id), len(last) > len(newest)


def _rest_of_arrays(client: Client, selection: Selection, jobs: Sequence[JobView]) -> list[JobView]:
    """The other jobs of arrays that are listed, so that their rows count all; selected as those are."""
    arrays = {job.request.array_id for job in jobs} - {""}
    newest = sorted(arrays, key=lambda array: (len(array), array))[-MOST_ARRAYS:]
    if not newest or selection.states:
        return []
    wanted = selection.test()
    found = client.jobs(arrays=newest, finished=True, limit=MOST_OF_ARRAYS)
    return [job for job in found if job.request.array_id in arrays and wanted(job.id, job.request, job.state)]


def _left_out(since: float, *, more: bool) -> str:
    if more:
        return f"; only the {SHOWN_FINISHED} that finished last are shown, --all lists the others"
    return "; --all adds those that ended more than an hour ago" if since else ""
