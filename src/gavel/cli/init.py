"""`gavel init`: set up TLS and users before the scheduler starts for the first time."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.serve import Names, first_lines
from gavel.client.access import is_loopback
from gavel.core.errors import InputError
from gavel.journal.database import parse, shown
from gavel.runtime.configuration import ServeSettings
from gavel.runtime.listening import Listening, advertised, server_names, split
from gavel.runtime.privacy import private_umask
from gavel.runtime.server import open_journal
from gavel.security.setup import FOLDER, Secured, is_set_up, set_up
from gavel.wire import DEFAULT_PORT

EVERYWHERE = f"0.0.0.0:{DEFAULT_PORT}"


def init_command(
    listen: Annotated[
        str,
        typer.Option(
            help="Where the scheduler will listen, as for `gavel serve`.", metavar="HOST:PORT", envvar="GAVEL_LISTEN"
        ),
    ] = EVERYWHERE,
    folder: Annotated[
        Path,
        typer.Option(help="The scheduler's directory, as for `gavel serve`.", metavar="DIR", envvar="GAVEL_FOLDER"),
    ] = Path("gavel-state"),
    journal: Annotated[
        str | None,
        typer.Option(
            help="A database for the journal; default: SQLite in the folder.", metavar="URL", envvar="GAVEL_JOURNAL"
        ),
    ] = None,
    name: Names = None,
) -> None:
    """Set up TLS and users for a scheduler.

    That is a certificate authority, the scheduler's certificate, an administrator and the first tokens. `gavel serve`
    on an address beyond this machine does the same when it starts for the first time. The folder's `security`
    directory holds the keys: keep a copy of it, and let no one else read it.
    """
    private_umask()
    listening = Listening(names=tuple(name or ()))
    split(listen, "--listen")
    if is_set_up(folder):
        raise InputError(
            f"{folder / FOLDER} is set up already; `gavel token create` makes more tokens, "
            "and `gavel serve` uses what is there"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with open_journal(ServeSettings(folder=folder, journal=journal)) as opened:
        secured = set_up(folder, opened, server_names(listen, listening), time.time)
    for line in _sentences(secured, folder, listen, journal, listening):
        print(line)


def _sentences(secured: Secured, folder: Path, listen: str, journal: str | None, wanted: Listening) -> list[str]:
    address, fingerprint = advertised(listen, wanted), secured.authority.fingerprint
    names = "".join(f" --name {name}" for name in wanted.names)
    options = f" --journal {shown(parse(journal))}" if journal else ""  # without its password
    here = " (this machine only)" if is_loopback(listen) else ""
    found = [
        f"set up {folder / FOLDER}: authority {fingerprint}; {secured.owner} is the administrator",
        f"start the scheduler{here}:",
        f"  gavel serve --listen {listen} --folder {folder}{names}{options}",
    ]
    if secured.first is not None:
        found += first_lines(secured.first, address, fingerprint, shown=sys.stdout.isatty())
    return found
