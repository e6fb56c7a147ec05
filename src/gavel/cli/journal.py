"""`gavel journal`: check, read, compact and salvage a journal, with or without a running scheduler."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from gavel.cli.options import AsJson
from gavel.cli.render import console, print_json, table
from gavel.cli.words import printable
from gavel.errors import InputError
from gavel.journal import (
    CheckReport,
    Entry,
    JournalReader,
    Retention,
    journal_url,
    open_read_only,
    salvage,
    state_at,
)
from gavel.runtime.timeline import sentence

app = typer.Typer(help="Check, read, compact and salvage a journal.", no_args_is_help=True)

Place = Annotated[
    str,
    typer.Argument(
        help="A scheduler's folder, a journal's file, or postgresql://...",
        metavar="PLACE",
        envvar="GAVEL_FOLDER",
    ),
]
DEFAULT = "gavel-state"
RETENTION = Retention()
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@app.command("check")
def check_command(place: Place = DEFAULT, as_json: AsJson = False) -> None:
    """Verify a journal completely; exit code 1 if it is damaged."""
    with open_read_only(journal_url(place)) as reader:
        report = reader.check()
    if as_json:
        print_json({**asdict(report), "whole": report.whole})
    else:
        _print_report(report)
    if not report.whole:
        raise typer.Exit(1)


def _print_report(report: CheckReport) -> None:
    for problem in report.problems:
        print(printable(f"damaged: {problem}"))
    facts = f"facts {report.first} to {report.intact}" if report.intact >= report.first else "no facts"
    until = f", until {_moment(report.intact_time)}" if report.intact >= report.first else ""
    print(f"intact: {facts}{until}; {len(report.kept)} states; {report.finished} finished jobs")
    print(f"cluster {report.cluster}; the last fact that was written is {report.last}")


@app.command("compact")
def compact_command(
    place: Place = DEFAULT,
    journal_days: Annotated[
        float, typer.Option(help="Remove facts older than this.", min=0.001, metavar="DAYS")
    ] = RETENTION.journal_days,
    finished_days: Annotated[
        float, typer.Option(help="Remove finished jobs older than this.", min=0.001, metavar="DAYS")
    ] = RETENTION.finished_days,
    as_json: AsJson = False,
) -> None:
    """Remove old facts, states and finished jobs, even while a scheduler runs."""
    retention = Retention(journal_days=journal_days, finished_days=finished_days)
    with open_read_only(journal_url(place)) as reader:
        report = retention.apply(reader, time.time(), pause=_breathe)
    if as_json:
        print_json(asdict(report))
        return
    learned = f", and what was learned about {report.learned} templates" if report.learned else ""
    print(f"removed {report.facts} facts, {report.states} states and {report.finished} finished jobs{learned}")


def _breathe() -> None:
    """Yield the database to a waiting scheduler."""
    time.sleep(0.01)


@app.command("salvage")
def salvage_command(
    to: Annotated[str, typer.Option(help="Location of the new journal: a file or postgresql://...", metavar="NEW")],
    place: Place = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Write the intact part of a damaged journal to a new one; the damaged one is only read."""
    report = salvage(journal_url(place), journal_url(to))
    if as_json:
        print_json(asdict(report))
        return
    print(f"saved facts {report.first} to {report.last}, until {_moment(report.last_time)}; {report.lost} are lost")
    print(f"saved {report.states} states, {report.finished} finished jobs; {report.finished_lost} of these are lost")
    print(f"start a scheduler on it with: gavel serve --journal {journal_url(to)}")


@app.command("show")
def show_command(
    place: Place = DEFAULT,
    at: Annotated[
        str | None,
        typer.Option(help="Show the state at this time, or after the fact with this number.", metavar="TIME|NUMBER"),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only facts about this job.", metavar="ID")] = None,
    server: Annotated[str | None, typer.Option(help="Only facts about this server.", metavar="NAME")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only facts since then: a time, or 90s, 30m, 2h or 7d ago.", metavar="TIME")
    ] = None,
    limit: Annotated[int, typer.Option(help="Only the newest of these; 0: all.", min=0, metavar="COUNT")] = 50,
    as_json: AsJson = False,
) -> None:
    """Print what happened around a job or a time."""
    start = None if since is None else _time("--since", since)
    with open_read_only(journal_url(place)) as reader:
        number = None if at is None else _number(reader, at)
        found = reader.facts(until=number, since=start, job=job, server=server, newest_first=True, limit=limit or None)
        entries = list(found)[::-1]
        state = None if number is None else state_at(reader, number, _summary)
    if as_json:
        print_json({"at": number, "state": state, "facts": [asdict(entry) for entry in entries]})
        return
    out = console()
    out.print(table(["fact", "time", "job", "server", "what"], map(_row, entries), left=5))
    if len(entries) == limit:
        out.print(f"the newest {limit}; --limit 0 prints all", style="dim")
    if state is not None:
        _print_state(state)


def _row(entry: Entry) -> list[str]:
    jobs = entry.document.get("jobs", ())
    job = f"{', '.join(jobs[:3])}{' …' if len(jobs) > 3 else ''}"
    what = sentence(entry.kind, entry.document["fact"])
    return [str(entry.number), _moment(entry.time), job, str(entry.document.get("server", "")), what]


def _summary(document: Mapping[str, Any] | None, entries: Iterator[Entry]) -> dict[str, Any]:
    """The state after these facts, for display: facts are applied, nothing is decided."""
    from gavel.runtime.configuration import Configurator, Scheduling  # noqa: PLC0415 - the solvers take long to load
    from gavel.runtime.recovery import apply  # noqa: PLC0415
    from gavel.runtime.state import ClusterState  # noqa: PLC0415

    configurator = Configurator(Scheduling())
    state = ClusterState(configurator) if document is None else ClusterState.of(document, configurator)
    for entry in entries:
        apply(state, entry.document)
    return {
        "time": state.time,
        "settings": dict(state.settings),
        "jobs": [
            {
                "id": record.id,
                "name": record.request.name,
                "state": str(record.state),
                "since": record.changed,
                "reason": record.history[-1].reason,
                "attempts": record.attempts,
                "steps_done": record.steps_done,
                "places": dict(record.places),
            }
            for record in state.jobs.records.values()
        ],
        "agents": [
            {"name": agent.name, "lost": agent.lost, "draining": agent.draining, "since": agent.since}
            for agent in state.agents
        ],
    }


def _print_state(state: Mapping[str, Any]) -> None:
    out = console()
    out.print(f"\nat {_moment(state['time'])}:")
    jobs = [
        [job["id"], job["name"], job["state"], str(job["attempts"]), f"{job['steps_done']:g}", job["reason"]]
        for job in state["jobs"]
    ]
    out.print(table(["job", "name", "state", "attempts", "steps", "why"], jobs, left=6))
    agents = [
        [agent["name"], "lost" if agent["lost"] else "draining" if agent["draining"] else "present"]
        for agent in state["agents"]
    ]
    out.print(table(["agent", "state"], agents, left=2))


def _number(reader: JournalReader, text: str) -> int:
    """The last fact at a number or a time."""
    leads = reader.leader
    if text.isdecimal():
        number = int(text[:18])
        if not leads.base <= number <= leads.last:
            raise InputError(f"--at {text}: the journal has the facts {leads.base + 1} to {leads.last}")
        return number
    moment = _time("--at", text)
    last = next(reader.facts(before=math.nextafter(moment, math.inf), newest_first=True, limit=1), None)
    if last is None:
        raise InputError(f"--at {text}: the journal has no fact that early")
    return last.number


def _time(option: str, text: str) -> float:
    """Read a point in time, or how long ago it was."""
    if ago := re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text):
        return time.time() - float(ago[1]) * UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"{option} {text}: not a time; write 2026-05-01T14:30 or 2026-05-01, or 90s, 30m, 2h or 7d ago"
        ) from None


def _moment(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
