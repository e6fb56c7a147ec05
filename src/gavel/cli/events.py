"""`gavel events`: what happened in the cluster, as a timeline."""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Annotated

import typer

from gavel.cli.remote import PATIENCE, PatienceOption, SchedulerOption, connect, interruptible
from gavel.cli.render import print_json
from gavel.cli.words import printable
from gavel.client.views import EventView
from gavel.errors import InputError

SHOWN = 100
"""Events that are printed unless a number or a time is given."""
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def events_command(
    keep_on: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with what happens, until interrupted.")
    ] = False,
    job: Annotated[str, typer.Option(help="Only what concerns this job.", metavar="ID")] = "",
    server: Annotated[str, typer.Option(help="Only what concerns this server or agent.", metavar="NAME")] = "",
    since: Annotated[
        str | None,
        typer.Option(help="Only what happened since: 10m, 2h, 3d ago, 14:30, or 2026-01-31T14:30.", metavar="TIME"),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help=f"Only the newest; 0: all. [default: {SHOWN}, with --since all]", min=0, metavar="COUNT"),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what happens all the time: counted steps, measured rates, wakes.")
    ] = False,
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document; with -f one in each line.")] = False,
) -> None:
    """Print what happened, as a timeline.

    Jobs, servers, rounds and settings, oldest first.
    """
    began = 0.0 if since is None else parse_time(since, time.time())
    most = limit if limit is not None else 0 if since is not None else SHOWN
    with connect(scheduler, patience) as client:
        found = client.events(job=job, server=server, since=began, limit=most, routine=everything, follow=keep_on)
        if as_json and not keep_on:
            print_json({"events": [event.document() for event in found]})
            return
        count = 0
        with suppress(KeyboardInterrupt) if keep_on else nullcontext(), interruptible():
            for event in found:
                print(_line(event, as_json=as_json), flush=keep_on)
                count += 1
    if limit is None and count == SHOWN and since is None and not keep_on:
        print(f"only the newest {SHOWN} are shown; --limit 0 prints all", file=sys.stderr)


def _line(event: EventView, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(event.document(), allow_nan=False)
    at = datetime.fromtimestamp(event.time).astimezone()
    return f"{at:%Y-%m-%d %H:%M:%S}  {printable(' '.join(event.text.split()))}"


def parse_time(text: str, now: float) -> float:
    """A moment in seconds since 1970: so long ago, a time of today, or a date with or without a time.

    >>> parse_time("10m", 1000.0), parse_time("1.5h", 6000.0), parse_time("1970-01-01T00:01+00:00", 0.0)
    (400.0, 600.0, 60.0)
    """
    ago = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])(?: ago)?", text.strip())
    if ago:
        return max(0.0, now - float(ago[1]) * UNITS[ago[2]])
    today = datetime.fromtimestamp(now).astimezone().date().isoformat()
    for candidate in (text.strip(), f"{today}T{text.strip()}"):
        with suppress(ValueError, OverflowError, OSError):
            moment = datetime.fromisoformat(candidate)
            return max(0.0, (moment if moment.tzinfo else moment.astimezone()).timestamp())
    raise InputError(f"--since {text}: write how long ago (30s, 10m, 2h, 3d) or a time (14:30, 2026-01-31T14:30)")
