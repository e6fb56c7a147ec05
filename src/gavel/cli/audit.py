"""`gavel audit`: what was done and refused, by whom and from where."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.events import parse_time
from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import console, print_json, table

if TYPE_CHECKING:
    from gavel.client.views import AuditView

SHOWN = 100
"""Lines printed unless a number or a time is given."""


def audit_command(
    since: Annotated[
        str | None,
        typer.Option(help="Only since then: 10m, 2h or 3d ago, 14:30, or 2026-01-31T14:30.", metavar="TIME"),
    ] = None,
    user: Annotated[str, typer.Option(help="Only what this user did, or was done for them.", metavar="NAME")] = "",
    job: Annotated[str, typer.Option(help="Only what is about this job.", metavar="ID")] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            help=f"Only the newest; 0: all. [default: {SHOWN}, with --since all]", min=0, max=2**32 - 1, metavar="COUNT"
        ),
    ] = None,
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Print who did what, and what was refused.

    Example: gavel audit --since 1d --user bob
    """
    began = 0.0 if since is None else parse_time(since, time.time())
    most = limit if limit is not None else 0 if since is not None else SHOWN
    with connect(scheduler) as client:
        found = list(client.audit(since=began, user=user, job=job, limit=most))
    if as_json:
        print_json({"audit": [line.document() for line in found]})
        return
    if not found:
        print("nothing")
        return
    headers = ["time", "user", "role", "address", "call", "object", "outcome"]
    console().print(table(headers, [_row(line) for line in found], left=7))


def _row(line: AuditView) -> list[str]:
    acting = f" for {line.acting_for}" if line.acting_for and line.acting_for != line.user else ""
    at = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(line.time))}"
    outcome = ": ".join(filter(None, [line.outcome, line.what]))
    cells = [at, f"{line.user or '-'}{acting}", line.role, line.address, line.method, line.object, outcome]
    return [" ".join(cell.split()) for cell in cells]
