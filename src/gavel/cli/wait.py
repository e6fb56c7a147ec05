"""`gavel wait`: wait until jobs have finished."""

from __future__ import annotations

from typing import Annotated

import typer

from gavel.cli.formats import Format, check_format
from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, PatienceOption, SchedulerOption, connect
from gavel.cli.selecting import Everything, Mine, Names, OfUser, Places, States, Tags, concerned, selection_of
from gavel.cli.waiting import wait_for
from gavel.client.quantities import seconds_of
from gavel.errors import InputError
from gavel.limits import LONGEST_SECONDS, at_most


def wait_command(
    jobs: Places = None,
    names: Names = None,
    tags: Tags = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Everything = False,
    timeout: Annotated[
        str | None, typer.Option(help="Give up after this long, such as 90s or 2h.", metavar="DURATION")
    ] = None,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    form: Format = None,
    as_json: AsJson = False,
) -> int:
    """Wait until jobs have finished.

    The exit code is 0 if all completed, 1 otherwise. Of jobs that are not named by id, those that have not finished
    when it begins are waited for. It continues through restarts of the scheduler.
    """
    seconds = None if timeout is None else _seconds(timeout)
    if form is not None:
        check_format(form, as_json=as_json)
    with connect(scheduler, patience) as client:
        selection = selection_of(client, jobs, names=names, tags=tags, state=state, user=user, mine=mine)
        whole = bool(selection.arrays)  # an array is waited for as a whole
        chosen = concerned(
            client,
            "wait for",
            selection,
            lambda job: not job.finished or (whole and job.request.array_id in selection.arrays),
            everything=everything,
        )
        return wait_for(client, [job.id for job in chosen], timeout=seconds, as_json=as_json, form=form)


def _seconds(text: str) -> float:
    try:
        seconds = seconds_of(text)
    except InputError as error:
        raise InputError(f"--timeout: {error}") from None
    if seconds > LONGEST_SECONDS:
        raise InputError(f"--timeout must be {at_most(LONGEST_SECONDS)}, not {seconds:g}")
    return seconds
