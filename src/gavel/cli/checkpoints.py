"""`gavel checkpoints remove`: give the room back that results take which are no longer needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import ActingFor, SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.words import printable

if TYPE_CHECKING:
    from gavel.client.views import CheckpointsView

app = typer.Typer(help="Remove checkpoints of finished jobs.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Remove checkpoints of finished jobs."""


@app.command("remove")
def remove_command(
    ids: Annotated[list[str], typer.Argument(help="The ids of finished jobs.", metavar="ID")],
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove the checkpoints of finished jobs on all servers; this cannot be undone."""
    with connect(scheduler, acting_for=acting_for) as client:
        found = client.remove_checkpoints(ids)
    if as_json:
        print_json({"jobs": [view.document() for view in found]})
        return
    for view in found:
        print(printable(_outcome(view)))


def _outcome(view: CheckpointsView) -> str:
    """What became of the checkpoints of one job."""
    if view.state == "kept":
        return f"the checkpoints of job {view.job} are kept: {view.reason}"
    if view.state == "waiting":
        return f"the checkpoints of job {view.job} will be removed when these agents answer: {view.reason}"
    return f"the checkpoints of job {view.job} are removed"
