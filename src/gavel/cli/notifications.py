"""`gavel notifications`: where users are told what happens to their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.words import printable
from gavel.errors import InputError

if TYPE_CHECKING:
    from gavel.client.views import NotificationsView

User = Annotated[str, typer.Option(help="Those of this user; for operators.", metavar="NAME")]

app = typer.Typer(invoke_without_command=True)


@app.callback()
def notifications_command(
    context: typer.Context, user: User = "", scheduler: SchedulerOption = None, as_json: AsJson = False
) -> None:
    """Show and set where you are told what happens to your jobs.

    Example: gavel notifications set https://chat.example.org/hook
    """
    if context.invoked_subcommand is None:
        show_command(user, scheduler, as_json)
    elif user:
        raise InputError(f"write --user after the command: gavel notifications {context.invoked_subcommand} --user ...")


@app.command("show")
def show_command(user: User = "", scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Show URLs, the key that receivers check signatures by, and what has not been delivered."""
    with connect(scheduler) as client:
        found = client.notifications(user)
    _print(found, as_json=as_json)


@app.command("set")
def set_command(
    urls: Annotated[list[str], typer.Argument(help="Told about every job from now on.", metavar="URL...")],
    user: User = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Set the URLs that are told about all your jobs; they replace the earlier ones.

    Example: gavel notifications set https://chat.example.org/hook
    """
    if not all(urls):
        raise InputError("a URL is empty; `gavel notifications clear` removes all")
    with connect(scheduler) as client:
        found = client.set_notifications(urls, user=user)
    _print(found, as_json=as_json)


@app.command("clear")
def clear_command(user: User = "", scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Remove all URLs; those of single jobs stay."""
    with connect(scheduler) as client:
        found = client.set_notifications([], user=user)
    _print(found, as_json=as_json)


@app.command("test")
def send_test_command(user: User = "", scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Send one notification to each URL now; the exit code is 1 if any was not delivered."""
    with connect(scheduler) as client:
        tests = client.test_notifications(user)
    if as_json:
        print_json({"tests": [each.document() for each in tests]})
    elif not tests:
        raise InputError("there are no URLs to test; `gavel notifications set URL` sets one")
    else:
        for each in tests:
            print(printable(f"{each.url}: {each.trouble or f'delivered, status {each.status}'}"))
    if any(each.trouble for each in tests):
        raise typer.Exit(1)


def _print(found: NotificationsView, *, as_json: bool) -> None:
    if as_json:
        print_json(found.document())
        return
    allowed = ", ".join(found.allowed_hosts) or "none; the operator lists them (gavel serve --notify-hosts)"
    lines = [f"notifications of {found.user}"]
    lines += [f"  told about every job: {url}" for url in found.urls] or ["  no URL is told about every job"]
    lines += [f"  hosts that may be called: {allowed}"]
    lines += [f"  waiting to be delivered: {found.pending:,}"] if found.pending else []
    lines += [f"  last failure: {found.trouble}"] if found.trouble else []
    lines += [f"  signing key: {found.signing_key}"]
    for line in lines:
        print(printable(line))
