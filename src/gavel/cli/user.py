"""`gavel user`: add, list, change, disable and enable users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.login import described
from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, print_json, table
from gavel.cli.token import DAY, Days, login_line, valid_for
from gavel.cli.words import printable
from gavel.errors import GavelError, InputError

if TYPE_CHECKING:
    from gavel.client.api import Client
    from gavel.client.views import NewTokenView, UserView

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The user.", metavar="NAME")]
ROLES = "viewer, user, operator or admin"


@app.callback()
def _group() -> None:
    """Add, list, change and disable users.

    Example: gavel user add ann --team nlp
    """


@app.command("add")
def add_command(
    name: Name,
    role: Annotated[str, typer.Option(help=f"What the user may do: {ROLES}.", metavar="ROLE")] = "user",
    team: Annotated[
        list[str] | None,
        typer.Option(help="A team; may be given several times, the first is the default.", metavar="NAME"),
    ] = None,
    lead: Annotated[
        list[str] | None, typer.Option(help="A team that the user leads; may be given several times.", metavar="NAME")
    ] = None,
    days: Days = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Create no token.")] = False,
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Add a user, and print the command with which this user logs in.

    Example: gavel user add ann --team nlp --lead nlp
    """
    with connect(scheduler) as client:
        user = client.add_user(name, role, teams=team or (), leads=lead or ())
        new = None if no_token else _first_token(client, user.name, (days or 0.0) * DAY)
        line = login_line(new, client.address) if new else ""
    if as_json:
        print_json({"user": user.document(), "token": new.document() if new else None, "command": line})
    else:
        print(printable(_receipt(user, new, line)))


def _first_token(client: Client, user: str, seconds: float) -> NewTokenView:
    try:
        return client.create_token(user=user, name="login", seconds=seconds)
    except GavelError as error:
        raise GavelError(
            f"user {user} was added, but has no token: {error}; `gavel token create --user {user}` creates one"
        ) from None


def _receipt(user: UserView, new: NewTokenView | None, line: str) -> str:
    added = f"added user {described(user)}"
    if new is None:
        return f"{added}; `gavel token create --user {user.name}` creates a token"
    return f"{added}. To log in, {user.name} runs (the token is not shown again{valid_for(new.view)}):\n  {line}"


@app.command("list")
def list_command(scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """List all users."""
    with connect(scheduler) as client:
        found = client.users()
    if as_json:
        print_json({"users": [user.document() for user in found]})
        return
    if not found:
        print("no users; `gavel user add NAME` adds one")
        return
    rows = [
        [user.name, user.role, ", ".join(user.teams), ", ".join(user.leads), "disabled" if user.disabled else "active"]
        for user in found
    ]
    console().print(table(["name", "role", "teams", "leads", "state"], rows, left=5))


@app.command("set")
def set_command(
    name: Name,
    role: Annotated[str | None, typer.Option(help=f"What the user may do: {ROLES}.", metavar="ROLE")] = None,
    team: Annotated[
        list[str] | None, typer.Option(help="All teams of the user; the first is the default.", metavar="NAME")
    ] = None,
    lead: Annotated[list[str] | None, typer.Option(help="All teams that the user leads.", metavar="NAME")] = None,
    no_teams: Annotated[bool, typer.Option("--no-teams", help="Take the user out of all teams.")] = False,
    no_leads: Annotated[bool, typer.Option("--no-leads", help="The user leads no team.")] = False,
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Change the role or the teams of a user.

    Example: gavel user set ann --role operator
    """
    if (team and no_teams) or (lead and no_leads):
        raise InputError("give either --team or --no-teams, and either --lead or --no-leads, not both")
    if role is None and not (team or lead or no_teams or no_leads):
        raise InputError("say what to change: --role, --team, --lead, --no-teams or --no-leads")
    with connect(scheduler) as client:
        teams, leads = () if no_teams else team or None, () if no_leads else lead or None
        _print(client.change_user(name, role=role, teams=teams, leads=leads), as_json=as_json)


@app.command("disable")
def disable_command(name: Name, scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Make a user's tokens count no longer until the user is enabled again; the user's jobs continue."""
    with connect(scheduler) as client:
        _print(client.change_user(name, disabled=True), as_json=as_json)


@app.command("enable")
def enable_command(name: Name, scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Let a disabled user call again."""
    with connect(scheduler) as client:
        _print(client.change_user(name, disabled=False), as_json=as_json)


def _print(user: UserView, *, as_json: bool) -> None:
    if as_json:
        print_json({"user": user.document()})
    else:
        print(printable(f"{described(user)} is {'disabled' if user.disabled else 'active'}"))
