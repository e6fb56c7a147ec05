"""`gavel cluster`: servers, types, and the policy's current answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gavel.cli.formats import Cells, Format, check_format, print_formatted
from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, number, print_json, styled, table
from gavel.cli.words import span
from gavel.client.quantities import size
from gavel.client.views import ClusterView, ServerView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {"away": "yellow", "draining": "yellow", "drained": "dim", "lost": "red"}


def cluster_command(scheduler: SchedulerOption = None, form: Format = None, as_json: AsJson = False) -> None:
    """Show servers, types, the policy and the current round.

    With --format, a line for each server, for example: gavel cluster --format server,free
    """
    if form is not None:
        check_format(form, as_json=as_json, cells=CELLS)
    with connect(scheduler) as client:
        address, view = client.address, client.cluster()
    if as_json:
        print_json(view.document())
        return
    if form is not None:
        print_formatted(form, view.servers, CELLS)
        return
    out = console()
    for alarm in view.alarms:
        out.print(styled(f"ALARM: {alarm}", "bold red"), soft_wrap=True)
    _print_head(out, address, view)
    if not view.servers:
        out.print("\nno servers yet; start `gavel worker` on each server")
        return
    _print_types(out, view)
    _print_servers(out, view)


def _print_head(out: Console, address: str, view: ClusterView) -> None:
    objective = f": objective {number(view.objective)}" if view.types else ""
    out.print(styled(view.policy, "bold").append(objective, "not bold"))
    ends = view.round_ends - view.time
    round_left = f", the next begins in {span(ends)}" if ends > 0 else ""
    jobs = "job" if view.running == 1 else "jobs"
    out.print(
        f"{view.running:,} {jobs} running, {view.queued:,} waiting; rounds of {view.round_seconds:g} s{round_left}"
    )
    if view.trouble:
        trouble = f"no new decision, the last one stays in force: {view.trouble}"
        out.print(styled(trouble, "yellow"), soft_wrap=True)
    if view.ignored:
        out.print(styled(f"measurement rejected: {view.ignored[-1]}", "dim"), soft_wrap=True)
    identity = f"; cluster {view.cluster}, term {view.term}" if view.cluster else ""
    up = span(view.time - view.started)
    out.print(styled(f"gavel {view.version} at {address}, up for {up}{identity}", "dim"), soft_wrap=True)


def _print_types(out: Console, view: ClusterView) -> None:
    rows = [
        [
            accelerator_type.name,
            f"{accelerator_type.accelerators:,}",
            f"{accelerator_type.busy:,}",
            number(accelerator_type.price),
            f"{accelerator_type.given_seconds / 3600:,.1f} h",
        ]
        for accelerator_type in view.types
    ]
    out.print()
    out.print(table(["type", "accelerators", "busy", "one more is worth", "given"], rows))


def _print_servers(out: Console, view: ClusterView) -> None:
    """The columns of the table; a server's jobs and the reason for its state come last because they may be long."""
    known = any(server.cpus or server.memory_bytes for server in view.servers)
    rows: list[list[str | Text]] = [
        [
            server.name,
            server.type,
            _busy(server),
            *([_beside(server)] if known else []),
            styled(server.state, STYLES.get(server.state, "")),
            span(view.time - server.since) if server.since else "",
            "; ".join(filter(None, [" ".join(server.jobs), _reason(server, view.time)])),
        ]
        for server in view.servers
    ]
    out.print()
    head = ["server", "type", "busy", *(["free cores, RAM"] if known else []), "state", "for", "jobs"]
    out.print(table(head, rows, left=len(head)))


def _busy(server: ServerView) -> str:
    """How many accelerators are in use; unknown for a lost server."""
    used = "?" if server.state == "lost" else str(server.accelerators - server.free)
    return f"{used}/{server.accelerators}"


def _beside(server: ServerView) -> str:
    """The CPU cores and RAM that are free; empty where they are not counted."""
    cores = f"{server.free_cpus:.4g}/{server.cpus:.4g}" if server.cpus else ""
    memory = f"{server.free_memory_bytes / 2**30:.3g}/{server.memory_bytes / 2**30:.3g}G" if server.memory_bytes else ""
    return ", ".join(filter(None, [cores, memory]))


def _reason(server: ServerView, now: float) -> str:
    """Why it takes no work, or how long ago its last heartbeat was."""
    if server.state == "away":
        return f"last heard {span(now - server.last_heard)} ago"
    return server.reason


CELLS: Cells = {
    "server": lambda server, _: server.name,
    "agent": lambda server, _: server.agent,
    "type": lambda server, _: server.type,
    "accelerators": lambda server, _: str(server.accelerators),
    "free": lambda server, _: str(server.free),
    "state": lambda server, _: server.state,
    "reason": _reason,
    "jobs": lambda server, _: ",".join(server.jobs),
    "cpus": lambda server, _: f"{server.cpus:.4g}",
    "free_cpus": lambda server, _: f"{server.free_cpus:.4g}",
    "memory": lambda server, _: size(server.memory_bytes),
    "free_memory": lambda server, _: size(server.free_memory_bytes),
    "accelerator_memory": lambda server, _: size(server.accelerator_memory_bytes),
}
"""Columns of `--format`; each line is a server."""
