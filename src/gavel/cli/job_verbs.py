"""`gavel cancel`, `hold`, `release` and `requeue`: the verbs that need nothing but jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gavel.cli.options import AsJson
from gavel.cli.remote import ActingFor, SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.selecting import (
    Everything,
    Mine,
    Names,
    OfUser,
    Places,
    States,
    Tags,
    Yes,
    already_finished,
    concerned,
    confirm,
    report,
    selection_of,
)
from gavel.client.views import JobState, JobView

if TYPE_CHECKING:
    from gavel.client.api import Client

HELD = "held"
"""The code of a job that waits because a user holds it."""


def cancel_command(
    jobs: Places = None,
    names: Names = None,
    tags: Tags = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Everything = False,
    yes: Yes = False,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs that have not finished.

    No checkpoint is saved. Selectors are combined: gavel cancel --name 'resnet*' --state queued. All selected jobs are
    cancelled, or none.
    """
    with connect(scheduler, acting_for=acting_for) as client:
        selection = selection_of(client, jobs, names=names, tags=tags, state=state, user=user, mine=mine)
        chosen = concerned(
            client, "cancel", selection, lambda job: not job.finished, everything=everything, fault=already_finished
        )
        confirm("cancel", chosen, yes=yes)
        found = client.cancel([job.id for job in chosen])
    if as_json:
        print_json({"jobs": [job.document() for job in found]})
        return
    report(found, _cancelled, "are cancelled")


def _cancelled(job: JobView) -> str:
    if job.state is JobState.CANCELLED:
        return f"job {job.id} is cancelled"
    return f"job {job.id} had already finished: {job.state}" if job.finished else f"job {job.id} is being cancelled"


@dataclass(frozen=True, slots=True)
class _Verb:
    """A verb that needs nothing but jobs."""

    name: str
    call: Callable[[Client, list[str]], list[JobView]]
    applies: Callable[[JobView], bool]
    """To which jobs of a selection."""
    line: Callable[[JobView], str]
    outcome: str


def _perform(
    verb: _Verb,
    places: list[str] | None,
    names: list[str] | None,
    tags: list[str] | None,
    state: str | None,
    user: str,
    mine: bool,
    everything: bool,
    acting_for: str,
    scheduler: str | None,
    as_json: bool,
) -> None:
    with connect(scheduler, acting_for=acting_for) as client:
        selection = selection_of(client, places, names=names, tags=tags, state=state, user=user, mine=mine)
        chosen = concerned(client, verb.name, selection, verb.applies, everything=everything, fault=already_finished)
        found = verb.call(client, [job.id for job in chosen])
    if as_json:
        print_json({"jobs": [job.document() for job in found]})
        return
    report(found, verb.line, verb.outcome)


_HOLD = _Verb(
    "hold",
    lambda client, ids: client.hold(ids),
    lambda job: not job.finished and job.code != HELD,
    lambda job: (
        f"job {job.id} is on hold"
        if job.state is not JobState.RUNNING
        else f"job {job.id} saves, leaves and is then on hold"
    ),
    "are on hold",
)
_RELEASE = _Verb(
    "release",
    lambda client, ids: client.release(ids),
    lambda job: job.code == HELD,
    lambda job: f"job {job.id} is released",
    "are released",
)
_REQUEUE = _Verb(
    "requeue",
    lambda client, ids: client.requeue(ids),
    lambda job: not job.finished,
    lambda job: (
        f"job {job.id} saves, leaves and waits again" if job.state is JobState.RUNNING else f"job {job.id} waits again"
    ),
    "wait again",
)


def hold_command(
    jobs: Places = None,
    names: Names = None,
    tags: Tags = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Everything = False,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Let jobs wait until they are released.

    Running ones save and leave first. Selectors are combined. All selected jobs are held, or none; jobs that are on
    hold already are left out.
    """
    _perform(_HOLD, jobs, names, tags, state, user, mine, everything, acting_for, scheduler, as_json)


def release_command(
    jobs: Places = None,
    names: Names = None,
    tags: Tags = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Everything = False,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Let jobs run that are on hold.

    Selectors are combined. All selected jobs are released, or none; jobs that no user holds are left out.
    """
    _perform(_RELEASE, jobs, names, tags, state, user, mine, everything, acting_for, scheduler, as_json)


def requeue_command(
    jobs: Places = None,
    names: Names = None,
    tags: Tags = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Everything = False,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Let jobs save, leave and wait for another turn.

    A pause after a failure ends. Selectors are combined. All selected jobs are requeued, or none.
    """
    _perform(_REQUEUE, jobs, names, tags, state, user, mine, everything, acting_for, scheduler, as_json)
