"""`gavel logs`: print the output of a job."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, PatienceOption, SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.selecting import Id, one_id
from gavel.cli.words import printable
from gavel.errors import InputError


def logs_command(
    id: Id,  # noqa: A002 - the word for it everywhere
    keep_on: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the job finishes.")] = False,
    rank: Annotated[int, typer.Option(help="The worker to show.", min=0, metavar="RANK")] = 0,
    tail: Annotated[int | None, typer.Option(help="Only the last N lines.", min=0, metavar="COUNT")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print control characters on a terminal, too; they can do harm there.")
    ] = False,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Print the output of a job.

    On a terminal, control characters are replaced by question marks; a file or a pipe gets every byte as it is.
    """
    if keep_on and as_json:
        raise InputError("--json prints one document, but --follow does not end; leave one of them out")
    with connect(scheduler, patience) as client:
        id = one_id(client, id)  # noqa: A001
        pieces = client.logs(id, follow=keep_on, rank=rank, tail=tail)
        if as_json:
            text = b"".join(pieces).decode(errors="replace")
            print_json({"id": id, "rank": rank, "log": text})
            return
        print_output(pieces, raw=raw)


def print_output(pieces: Iterable[bytes], *, raw: bool = False) -> None:
    """Print what a job printed; on a terminal without control characters, unless they are wanted."""
    for piece in pieces if raw or not sys.stdout.isatty() else _for_terminal(pieces):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _for_terminal(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The output of a job without control characters, except those that begin a line or a column."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces:
        yield re.sub(r"[^\n\r\t]+", lambda found: printable(found[0]), decoder.decode(piece)).encode()
