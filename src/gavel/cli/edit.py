"""`gavel edit` and `gavel resubmit`: change jobs, and submit jobs like earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import ActingFor, SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.selecting import (
    Everything,
    Mine,
    OfUser,
    Places,
    States,
    already_finished,
    concerned,
    report,
    selection_of,
)
from gavel.cli.submit_fields import FLAGS, comma_list, read_tags, told_of_option
from gavel.cli.submit_secrets import values_for
from gavel.client.field_checks import FieldError, shortened
from gavel.client.requests import JobRequest
from gavel.errors import InputError

NONE = "none"
"""The value that clears a field."""

Named = Annotated[
    list[str] | None,
    typer.Option("--named", help="Only jobs of this name, a pattern such as 'resnet*'; repeatable.", metavar="PATTERN"),
]
Tagged = Annotated[
    list[str] | None, typer.Option("--tagged", help="Only jobs with this tag; repeatable.", metavar="NAME=VALUE")
]
NewName = Annotated[str | None, typer.Option("--name", help="A new name.", metavar="NAME")]
NewSteps = Annotated[str | None, typer.Option("--steps", help="Total number of steps, or none.", metavar="COUNT")]
NewWeight = Annotated[str | None, typer.Option("--weight", help="Weight relative to other jobs.", metavar="NUMBER")]
NewTypes = Annotated[
    str | None, typer.Option("--types", help="Where it may run: v100,k80; none: anywhere.", metavar="TYPE,...")
]
NewPrefer = Annotated[str | None, typer.Option("--prefer", help="Where it should run, or none.", metavar="TYPE,...")]
NewRetries = Annotated[str | None, typer.Option("--retries", help="Number of retries after failures.", metavar="COUNT")]
NewDeadline = Annotated[
    str | None, typer.Option("--deadline-hours", help="Hours from submission, or none.", metavar="HOURS")
]
NewLimit = Annotated[
    str | None, typer.Option("--time-limit", help="How long it may run in all, or none.", metavar="DURATION")
]
NewIdle = Annotated[
    str | None,
    typer.Option("--idle-timeout", help="How long without a step or output, or none.", metavar="DURATION"),
]
NewAtOnce = Annotated[
    str | None, typer.Option("--at-once", help="How many jobs of its array may run, or none.", metavar="COUNT")
]
NewAfter = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        help="All that it waits for from now on, while it has not started, or none; repeatable.",
        metavar="ID[:HOW]",
    ),
]
NewTags = Annotated[
    list[str] | None,
    typer.Option("--tag", help="All its tags from now on, or none; repeatable.", metavar="NAME=VALUE"),
]
NewNotify = Annotated[
    list[str] | None, typer.Option("--notify", help="All URLs to tell from now on, or none; repeatable.", metavar="URL")
]


def edit_command(
    jobs: Places = None,
    named: Named = None,
    tagged: Tagged = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Everything = False,
    name: NewName = None,
    steps: NewSteps = None,
    weight: NewWeight = None,
    types: NewTypes = None,
    prefer: NewPrefer = None,
    retries: NewRetries = None,
    deadline_hours: NewDeadline = None,
    time_limit: NewLimit = None,
    idle_timeout: NewIdle = None,
    at_once: NewAtOnce = None,
    after: NewAfter = None,
    tag: NewTags = None,
    notify: NewNotify = None,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Change jobs that have not finished.

    What concerns running jobs counts from the next decision on. All selected jobs are changed, or none. The value
    `none` clears what can be empty: gavel edit 38-40 --weight 2 --types none
    """
    changes = _changes(
        {"name": name, "steps": steps, "weight": weight, "types": types, "prefer": prefer, "retries": retries}
        | {"deadline_hours": deadline_hours, "time_limit": time_limit, "idle_timeout": idle_timeout}
        | {"at_once": at_once, "after": after, "tags": tag, "notify": notify}
    )
    if not changes:
        raise InputError("say what to change, for example --weight 2; `gavel edit --help` lists what can be changed")
    with connect(scheduler, acting_for=acting_for) as client:
        selection = selection_of(client, jobs, names=named, tags=tagged, state=state, user=user, mine=mine)
        chosen = concerned(
            client, "edit", selection, lambda job: not job.finished, everything=everything, fault=already_finished
        )
        found = client.edit([job.id for job in chosen], **changes)
    if as_json:
        print_json({"jobs": [job.document() for job in found]})
        return
    report(found, lambda job: f"job {job.id} is changed", "are changed")


def resubmit_command(
    jobs: Places = None,
    named: Named = None,
    tagged: Tagged = None,
    state: States = None,
    user: OfUser = "",
    mine: Mine = False,
    everything: Everything = False,
    name: NewName = None,
    steps: NewSteps = None,
    weight: NewWeight = None,
    types: NewTypes = None,
    prefer: NewPrefer = None,
    retries: NewRetries = None,
    deadline_hours: NewDeadline = None,
    time_limit: NewLimit = None,
    idle_timeout: NewIdle = None,
    tag: NewTags = None,
    notify: NewNotify = None,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Submit jobs like earlier ones, with what you change.

    They start from the beginning, under new ids. Of jobs that are not named by id, those that have finished are taken:
    gavel resubmit --state failed --mine --retries 5
    """
    changes = _changes(
        {"name": name, "steps": steps, "weight": weight, "types": types, "prefer": prefer, "retries": retries}
        | {"deadline_hours": deadline_hours, "time_limit": time_limit, "idle_timeout": idle_timeout}
        | {"tags": tag, "notify": notify}
    )
    with connect(scheduler, acting_for=acting_for) as client:
        selection = selection_of(client, jobs, names=named, tags=tagged, state=state, user=user, mine=mine)
        chosen = concerned(
            client, "resubmit", selection, lambda job: job.finished, everything=everything, finished=True
        )
        secrets = values_for(name for job in chosen for name in job.request.secrets)
        ids = client.resubmit([job.id for job in chosen], secrets=secrets, **changes)
    if as_json:
        print_json({"ids": ids})
        return
    new = dict(zip((job.id for job in chosen), ids, strict=True))
    report(
        chosen,
        lambda job: f"job {job.id} is submitted again as job {new[job.id]}",
        f"are submitted again, as {ids[0]} to {ids[-1]}",
    )


# ---- the changes ----


def _changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The new values by field, checked as a request is."""
    changes = {field: _value(field, value) for field, value in given.items() if value}
    for field, value in given.items():
        if value == "":
            raise InputError(f"{_option(field)} is empty; write {NONE} to clear it")
    try:
        JobRequest(("job",), **{"array": "0", **changes}).check()
    except FieldError as error:
        raise told_of_option(error) from None
    return changes


def _value(field: str, given: Any) -> Any:
    """A new value as a request holds it; the default for `none`."""
    cleared = given in (NONE, [NONE])
    if cleared and field not in _CLEARED:
        raise InputError(f"{_option(field)} cannot be {NONE}; give a value")
    if cleared:
        return _CLEARED[field]
    if field in ("types", "prefer"):
        return comma_list(given)
    if field == "tags":
        return read_tags(given)
    return _number(field, given) if field in _NUMBERS else given


_CLEARED: Mapping[str, Any] = {
    "name": "",
    "steps": None,
    "types": (),
    "prefer": (),
    "deadline_hours": None,
    "time_limit": None,
    "idle_timeout": None,
    "at_once": 0,
    "tags": {},
    "notify": (),
    "after": (),
}
"""What `none` stands for."""
_NUMBERS = ("steps", "weight", "retries", "deadline_hours", "at_once")


def _number(field: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"{_option(field)} {shortened(text)}: give a number") from None
    return int(number) if field in ("retries", "at_once") and number.is_integer() else number


def _option(field: str) -> str:
    return FLAGS.get(field, f"--{field.replace('_', '-')}")
