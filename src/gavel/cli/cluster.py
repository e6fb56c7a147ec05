"""`gavel cluster`: servers, types, and what the policy makes of them."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from gavel.cli.job_table import span
from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, number, print_json, table
from gavel.client.views import ClusterView, ServerView


def cluster_command(scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Show servers, types, policy and round."""
    with connect(scheduler) as client:
        address, view = client.address, client.cluster()
    if as_json:
        print_json(view.document())
        return
    out = console()
    _print_head(out, address, view)
    if not view.servers:
        out.print("\nno servers yet; start `gavel worker` on each")
        return
    _print_types(out, view)
    _print_servers(out, view)


def _print_head(out: Console, address: str, view: ClusterView) -> None:
    objective = f": objective {number(view.objective)}" if view.types else ""
    out.print(f"[bold]{view.policy}[/bold]{objective}")
    ends = view.round_ends - view.time
    round_left = f", the next begins in {span(ends)}" if ends > 0 else ""
    jobs = "job" if view.running == 1 else "jobs"
    out.print(
        f"{view.running:,} {jobs} running, {view.queued:,} waiting; rounds of {view.round_seconds:g} s{round_left}"
    )
    if view.trouble:
        out.print(Text(f"no new decision, the last one stays in force: {view.trouble}", style="yellow"))
    if view.ignored:
        out.print(Text(f"measured, and not believed: {view.ignored[-1]}", style="dim"))
    out.print(f"gavel {view.version} at {address}, up for {span(view.time - view.started)}", style="dim")


def _print_types(out: Console, view: ClusterView) -> None:
    rows = [
        [
            kind.name,
            f"{kind.accelerators:,}",
            f"{kind.busy:,}",
            number(kind.price),
            f"{kind.given_seconds / 3600:,.1f} h",
        ]
        for kind in view.types
    ]
    out.print()
    out.print(table(["type", "accelerators", "busy", "one more is worth", "given"], rows))


def _print_servers(out: Console, view: ClusterView) -> None:
    """Which jobs run on a server comes last: it may be long."""
    rows = [
        [
            server.name,
            server.type,
            f"{server.accelerators - server.free}/{server.accelerators}",
            _state(server, view.time),
            " ".join(server.jobs),
        ]
        for server in view.servers
    ]
    out.print()
    out.print(table(["server", "type", "busy", "state", "jobs"], rows, left=5))


def _state(server: ServerView, now: float) -> str:
    """Its state, and for how long nothing was heard if that is news."""
    return server.state if server.state == "connected" else f"{server.state}, heard {span(now - server.last_heard)} ago"
