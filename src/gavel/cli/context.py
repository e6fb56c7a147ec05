"""`gavel context`: the schedulers that this user has logged in to, and which of them commands talk to."""

from __future__ import annotations

from typing import Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.render import console, print_json, table
from gavel.cli.words import printable
from gavel.client.contexts import ContextFile, SchedulerContext

app = typer.Typer(invoke_without_command=True)
Name = Annotated[str, typer.Argument(help="The name of a context.", metavar="NAME")]


@app.callback()
def context_command(context: typer.Context, as_json: AsJson = False) -> None:
    """Show, choose and remove your logins to schedulers.

    Example: gavel context use gpu-head
    """
    if context.invoked_subcommand is not None:
        return
    chosen = ContextFile.own().read().chosen
    if as_json:
        print_json({"context": chosen.document() if chosen else None})
    else:
        print(printable(_sentence(chosen) if chosen else "no context is current; `gavel login HOST` makes one"))


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List all contexts; a star marks the current one."""
    contexts = ContextFile.own().read()
    if as_json:
        print_json(
            {"current": contexts.current, "contexts": [context.document() for context in contexts.known.values()]}
        )
        return
    if not contexts.known:
        print("no contexts; `gavel login HOST` makes one")
        return
    rows = [
        ["*" if context.name == contexts.current else "", context.name, context.address, context.user]
        for context in contexts.known.values()
    ]
    console().print(table(["", "name", "address", "user"], rows, left=4))


@app.command("use")
def use_command(name: Name, as_json: AsJson = False) -> None:
    """Make a context the current one."""
    context = ContextFile.own().change(lambda contexts: contexts.using(name)).named(name)
    if as_json:
        print_json({"context": context.document()})
    else:
        print(printable(f"now: {_sentence(context)}"))


@app.command("rm")
def rm_command(name: Name, as_json: AsJson = False) -> None:
    """Remove a context and its token; the scheduler still accepts the token until it is revoked."""
    left = ContextFile.own().change(lambda contexts: contexts.without(name))
    if as_json:
        print_json({"removed": name, "current": left.current})
        return
    print(printable(f"context {name} is removed" + ("" if left.current else "; no context is current")))


def _sentence(context: SchedulerContext) -> str:
    user = f" as {context.user}" if context.user else ""
    return f"{context.name}: {context.address}{user}"
