"""`gavel limits`: how much users and teams may use, and how much of it they do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, number, print_json, table
from gavel.errors import InputError
from gavel.limits import LARGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gavel.client.views import LimitsView

MOST = 2**32 - 1
"""The largest number that the protocol carries."""

app = typer.Typer(invoke_without_command=True)


@app.callback()
def limits_command(context: typer.Context, scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Show and set how much users and teams may use.

    Example: gavel limits set --user ann --unfinished-jobs 100
    """
    if context.invoked_subcommand is not None:
        return
    with connect(scheduler) as client:
        found = client.limits()
    _print(found, as_json=as_json)


@app.command("set")
def set_command(
    user: Annotated[str, typer.Option(help="The limits of this user.", metavar="NAME")] = "",
    team: Annotated[str, typer.Option(help="The limits of this team.", metavar="NAME")] = "",
    default: Annotated[bool, typer.Option("--default", help="Of every user without limits of its own.")] = False,
    unfinished_jobs: Annotated[
        int | None, typer.Option(help="Jobs that have not finished; 0: no limit.", min=0, max=MOST, metavar="COUNT")
    ] = None,
    running_accelerators: Annotated[
        int | None,
        typer.Option(help="Accelerators in use at the same time; 0: no limit.", min=0, max=MOST, metavar="COUNT"),
    ] = None,
    submissions_per_minute: Annotated[
        float | None,
        typer.Option(help="Jobs submitted per minute; 0: no limit.", min=0.0, max=LARGEST, metavar="NUMBER"),
    ] = None,
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Set limits of a user or a team; those that are not given stay as they are, and 0 removes one.

    Example: gavel limits set --team nlp --running-accelerators 64
    """
    from gavel.client.views import UsageLimits  # noqa: PLC0415

    if sum(map(bool, (user, team, default))) != 1:
        raise InputError("say whose limits: one of --user, --team and --default")
    wanted: dict[str, Any] = {
        "unfinished_jobs": unfinished_jobs,
        "running_accelerators": running_accelerators,
        "submissions_per_minute": submissions_per_minute,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    if not given:
        raise InputError("say which limit: --unfinished-jobs, --running-accelerators or --submissions-per-minute")
    kind = "user" if user else "team" if team else "default"
    with connect(scheduler) as client:
        known = {(each.kind, each.name): each.limits for each in client.limits()}
        now = known.get((kind, user or team), UsageLimits())
        found = client.set_limits(kind, user or team, replace(now, **given))
    _print(found, as_json=as_json)


def _print(found: Sequence[LimitsView], *, as_json: bool) -> None:
    if as_json:
        print_json({"limits": [each.document() for each in found]})
        return
    if not found:
        print("no limits; `gavel limits set` sets some")
        return
    rows = [
        [
            each.kind,
            each.name,
            _of(each.used.unfinished_jobs, each.limits.unfinished_jobs),
            _of(each.used.running_accelerators, each.limits.running_accelerators),
            _of(each.used.submissions_per_minute, each.limits.submissions_per_minute),
        ]
        for each in found
    ]
    headers = ["of", "name", "unfinished jobs", "running accelerators", "submissions/min"]
    console().print(table(headers, rows, left=2))


def _of(used: float, limit: float) -> str:
    return f"{number(used)} of {number(limit)}" if limit else f"{number(used)}, no limit"
