"""`gavel agent`: the agents that have a certificate, and taking it away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, print_json, table
from gavel.cli.words import printable, span

if TYPE_CHECKING:
    from gavel.client.views import EnrolledAgentView

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """List and revoke enrolled agents.

    Example: gavel agent revoke server-3
    """


@app.command("list")
def list_command(scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """List all agents that have a certificate."""
    with connect(scheduler) as client:
        found = client.agents()
    if as_json:
        print_json({"agents": [agent.document() for agent in found]})
        return
    if not found:
        print("no agents have enrolled; `gavel token create --join` prints the command for a new server")
        return
    now = time.time()
    rows = [
        [agent.name, agent.agent, agent.state or "not here", _certificate(agent, now), _enrolled(agent, now)]
        for agent in found
    ]
    console().print(table(["name", "id", "state", "certificate", "enrolled"], rows, left=5))


def _certificate(agent: EnrolledAgentView, now: float) -> str:
    if agent.revoked:
        return "revoked"
    return "expired" if agent.expires <= now else f"expires in {span(agent.expires - now)}"


def _enrolled(agent: EnrolledAgentView, now: float) -> str:
    by = f" by {agent.by}" if agent.by else ""
    return f"{span(now - agent.enrolled)} ago{by}"


@app.command("revoke")
def revoke_command(
    name: Annotated[str, typer.Argument(help="The agent's name or id.", metavar="NAME")],
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Make an agent's certificate count no longer and close its connection; its jobs start elsewhere."""
    with connect(scheduler) as client:
        found = client.revoke_agent(name)
    if as_json:
        print_json({"agents": [agent.document() for agent in found]})
    else:
        print(printable(f"the certificate of agent {name} is revoked; it can join again only with a new join token"))
