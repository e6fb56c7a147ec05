"""What the commands that talk to a scheduler share: where it is, and how long to wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gavel.client.api import Client

PATIENCE = 300.0

SchedulerOption = Annotated[
    str | None,
    typer.Option("--scheduler", envvar="GAVEL_SCHEDULER", metavar="HOST:PORT", help="Where the scheduler is."),
]
PatienceOption = Annotated[
    float,
    typer.Option(
        "--patience",
        envvar="GAVEL_PATIENCE",
        metavar="SECONDS",
        min=0.0,
        help="How long to wait for a scheduler that goes away meanwhile.",
    ),
]


def connect(scheduler: str | None, patience: float = PATIENCE) -> Client:
    """A client of the scheduler that the user means."""
    from gavel.client.api import Client  # noqa: PLC0415 - the network library takes long to load, and --help is short

    return Client(scheduler, patience=patience)
