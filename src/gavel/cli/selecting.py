"""The selectors of the command line: their options, and the jobs that a verb concerns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.words import printable, summary
from gavel.client.selection import FORMS, STATES, Selection, parse_states
from gavel.client.views import JobView
from gavel.errors import InputError
from gavel.limits import MOST_IDS_IN_A_CALL

if TYPE_CHECKING:
    from gavel.client.api import Client

SHOWN = 20
"""Jobs that get a line of their own in what a verb prints."""
ASKED_ABOVE = 10
"""A verb that ends more jobs than this asks first."""

Places = Annotated[
    list[str] | None,
    typer.Argument(help="Ids (38), ranges (38-1037), arrays (a38), members of arrays (a38.5).", metavar="JOBS"),
]
Id = Annotated[str, typer.Argument(help="The id of a job, or a member of an array (a38.5).", metavar="ID")]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="Only jobs of this name, a pattern such as 'resnet*'; repeatable.", metavar="PATTERN"),
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", help="Only jobs with this tag; repeatable.", metavar="NAME=VALUE")
]
States = Annotated[str | None, typer.Option("--state", help=f"Only these: {', '.join(STATES)}.", metavar="STATE,...")]
OfUser = Annotated[str, typer.Option("--user", help="Only jobs of this user.", metavar="NAME")]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own jobs.")]
Everything = Annotated[bool, typer.Option("--all", help="All jobs that this concerns.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help=f"Do not ask, also for more than {ASKED_ABOVE} jobs.")]


def selection_of(
    client: Client,
    places: Iterable[str] | None = None,
    *,
    names: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
    state: str | None = None,
    user: str = "",
    mine: bool = False,
) -> Selection:
    """What the options select; whose jobs are mine, the scheduler knows."""
    if user and mine:
        raise InputError("give either --mine or --user, not both")
    selection = Selection.of(places or (), names=names or (), tags=tags or (), states=parse_states(state), user=user)
    if not mine:
        return selection
    return Selection.of(
        places or (), names=names or (), tags=tags or (), states=selection.states, user=client.whoami().user
    )


def one_id(client: Client, text: str) -> str:
    """The id of the one job that a user names: by its id, or by its array and index."""
    selection = Selection.of([text])
    if selection.ids:
        return text
    if selection.one and not selection.arrays:
        jobs = client.select(selection)
        if len(jobs) == 1:
            return jobs[0].id
    raise InputError(f"{text} names several jobs; name one, by its id or as a member of an array, such as a38.5")


def concerned(
    client: Client,
    verb: str,
    selection: Selection,
    applies: Callable[[JobView], bool],
    *,
    everything: bool = False,
    finished: bool | None = False,
    fault: Callable[[JobView], str] = lambda _: "",
) -> list[JobView]:
    """The selected jobs that a verb applies to, at least one.

    A job named by its id or index must not have a `fault`; of all others, those to which the verb does not apply are
    left out. `finished` says which jobs are looked through.
    """
    if not selection.narrows and not everything:
        by = "--named, --tagged" if verb in _NEW_VALUES else "--name, --tag"
        raise InputError(f"say which jobs to {verb}: {FORMS}; or {by}, --state, --user, --mine; or --all")
    if everything and selection.placed:
        raise InputError("--all selects every job, and ids select some; leave one of them out")
    found: list[JobView] = []
    for job in client.select(selection, finished=finished):
        named = selection.names_job(job.id, job.request)
        if named and (wrong := fault(job)):
            raise InputError(wrong)
        if named or applies(job):
            found.append(job)
    if not found:
        raise InputError(f"nothing to {verb}: no job that can be {_PARTICIPLES[verb]} matches; `gavel jobs` lists jobs")
    if len(found) > MOST_IDS_IN_A_CALL:
        raise InputError(
            f"{len(found):,} jobs match; {verb} at most {MOST_IDS_IN_A_CALL:,} at a time, by ranges of ids"
        )
    return found


_NEW_VALUES = ("edit", "resubmit")
"""Verbs whose --name and --tag are new values, so that they select by other options."""
_PARTICIPLES = {
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "requeue": "requeued",
    "resubmit": "resubmitted",
    "edit": "edited",
    "wait for": "waited for",
}


def already_finished(job: JobView) -> str:
    """The fault of a finished job, as a sentence."""
    return f"job {job.id} has already finished: {job.state}" if job.finished else ""


def confirm(verb: str, jobs: Sequence[JobView], *, yes: bool) -> None:
    """Ask before something happens to many jobs; where there is no terminal to ask at, refuse."""
    if yes or len(jobs) <= ASKED_ABOVE:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(f"this would {verb} {len(jobs):,} jobs ({summary(jobs)}); add --yes to do so")
    print(printable(f"{verb} {len(jobs):,} jobs ({summary(jobs)}), {_named(jobs)}? [y/N] "), end="", file=sys.stderr)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError(f"nothing was done; --yes would {verb} them without asking")


def _named(jobs: Sequence[JobView]) -> str:
    return f"from {jobs[0].id} to {jobs[-1].id}"


def report(jobs: Sequence[JobView], line: Callable[[JobView], str], outcome: str) -> None:
    """Print a line for each job up to a number, then how many there are.

    `outcome` is what happened to them, such as "are cancelled".
    """
    for job in jobs[:SHOWN] if len(jobs) > SHOWN + 1 else jobs:
        print(printable(line(job)))
    if len(jobs) > SHOWN + 1:
        print(f"and {len(jobs) - SHOWN:,} more: {len(jobs):,} jobs {outcome}")
