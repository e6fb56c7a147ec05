"""Shared by commands that talk to a scheduler: its address, and how long to wait for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gavel.client.api import Client

PATIENCE = 300.0

SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler", envvar="GAVEL_SCHEDULER", metavar="HOST:PORT", help="Address of the scheduler, or a context."
    ),
]
PatienceOption = Annotated[
    float,
    typer.Option(
        "--patience",
        envvar="GAVEL_PATIENCE",
        metavar="SECONDS",
        min=0.0,
        help="How long to wait for a scheduler that becomes unreachable.",
    ),
]
ActingFor = Annotated[
    str, typer.Option("--as", metavar="USER", help="Act for this user; for operators and administrators.")
]


@contextmanager
def connect(scheduler: str | None, patience: float = PATIENCE, *, acting_for: str = "") -> Iterator[Client]:
    """A client of the scheduler that the user named."""
    # The network library reads this when it is loaded: we report errors ourselves, in one sentence.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from gavel.client.api import Client  # noqa: PLC0415 - the network library takes long to load, and --help should be quick

    with interruptible(), Client(scheduler, patience=patience, acting_for=acting_for) as client:
        yield client


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for Ctrl-C, even if it hits a thread's lock and surfaces as a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
