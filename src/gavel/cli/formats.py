"""`--format`: jobs and servers as lines for scripts, by a list of columns or a template such as '{id} {name}'."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Annotated, Any

import typer

from gavel.cli.words import clock, done, label, lasted, printable, said_command, span, steps, tags, where
from gavel.client.field_checks import nearest, shortened
from gavel.client.quantities import duration, size
from gavel.errors import InputError

Cells = Mapping[str, Callable[[Any, float], str]]
"""By column: its text for a record at a given time."""
CELLS: Cells = {
    "id": lambda job, _: job.id,
    "name": lambda job, _: label(job),
    "user": lambda job, _: job.request.user,
    "entity": lambda job, _: job.request.entity,
    "state": lambda job, _: job.state,
    "code": lambda job, _: job.code,
    "reason": lambda job, _: job.reason,
    "warning": lambda job, _: job.warning,
    "exit_code": lambda job, _: "" if job.exit_code is None else str(job.exit_code),
    "where": lambda job, _: where(job),
    "type": lambda job, _: job.type,
    "servers": lambda job, _: ",".join(dict.fromkeys(place.server for place in job.places)),
    "beside": lambda job, _: job.beside,
    "time": lambda job, now: span(lasted(job, now)),
    "submitted": lambda job, _: _clock(job.submitted),
    "ended": lambda job, _: _clock(job.ended),
    "done": lambda job, _: done(job),
    "steps": lambda job, _: steps(job),
    "steps_done": lambda job, _: f"{job.steps_done:.15g}",
    "workers": lambda job, _: str(job.request.workers),
    "weight": lambda job, _: f"{job.request.weight:g}",
    "types": lambda job, _: ",".join(job.request.types),
    "prefer": lambda job, _: ",".join(job.request.prefer),
    "launcher": lambda job, _: job.request.launcher,
    "gpu_memory": lambda job, _: _size(job.request.gpu_memory),
    "cpus": lambda job, _: "" if job.request.cpus is None else f"{job.request.cpus:g}",
    "memory": lambda job, _: _size(job.request.memory),
    "time_limit": lambda job, _: _duration(job.request.time_limit),
    "array": lambda job, _: job.request.array_id,
    "index": lambda job, _: "" if job.request.index is None else str(job.request.index),
    "parameters": lambda job, _: " ".join(f"{name}={value}" for name, value in job.request.parameters.items()),
    "after": lambda job, _: ",".join(job.request.after),
    "tags": lambda job, _: tags(job.request),
    "starts": lambda job, _: str(job.attempts),
    "restarts": lambda job, _: str(job.restarts),
    "failures": lambda job, _: str(job.failures),
    "retries": lambda job, _: str(job.request.retries),
    "template": lambda job, _: job.request.template,
    "command": lambda job, _: said_command(job.request),
    "directory": lambda job, _: job.request.working_directory,
}
_ESCAPES = {r"\t": "\t", r"\n": "\n", r"\\": "\\"}


Format = Annotated[
    str | None,
    typer.Option("--format", help="Columns, id,name,state, or a template, '{id} {name}'.", metavar="FORMAT"),
]


def check_format(text: str, *, as_json: bool, watch: bool = False, cells: Cells = CELLS) -> None:
    """Refuse a format with an unknown column, or beside another way to print, before the scheduler is asked."""
    if as_json or watch:
        raise InputError(f"--format and {'--json' if as_json else '--watch'} do not go together; leave one of them out")
    for name in _columns(text):
        if name not in cells:
            raise InputError(f"--format: there is no column {shortened(name)}; {_hint(name, cells)}")


def _hint(name: str, cells: Cells) -> str:
    near = nearest(name, cells)
    return near if near.startswith("there are") else f"{near} There are: {', '.join(cells)}"


def _columns(text: str) -> list[str]:
    if "{" not in text and "}" not in text:
        return [part.strip() for part in text.split(",")]
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise InputError(f"--format {shortened(text)}: {error}; write for example '{{id}} {{name}}'") from None
    for _, name, layout, conversion in parts:
        if conversion or (layout and not _LAYOUT.fullmatch(layout)):
            raise InputError(f"--format {shortened(text)}: after a colon comes a width, as in '{{id:>8}} {{name:<20}}'")
        if name == "":
            raise InputError(f"--format {shortened(text)}: name the columns, as in '{{id}} {{name}}'")
    return [name for _, name, _, _ in parts if name is not None]


_LAYOUT = re.compile(r"[<>^]?[1-9]\d{0,2}")


def print_formatted(text: str, records: Sequence[Any], cells: Cells = CELLS) -> None:
    for line in formatted(text, records, time.time(), cells):
        print(line)


def formatted(text: str, records: Sequence[Any], now: float, cells: Cells = CELLS) -> Iterator[str]:
    """The lines: with headers for a list of columns, without for a template."""
    columns = _columns(text)
    rows = [[printable(" ".join(cells[name](each, now).split())) for name in columns] for each in records]
    if "{" in text or "}" in text:
        pattern = re.sub(r"\\[tn\\]", lambda found: _ESCAPES[found[0]], text)
        for row in rows:
            yield pattern.format(**dict(zip(columns, row, strict=True)))
        return
    from rich.cells import cell_len  # noqa: PLC0415 - loads the library that draws

    table = [columns, *rows]
    widths = [max(cell_len(row[column]) for row in table) for column in range(len(columns))]
    for row in table:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _clock(seconds: float | None) -> str:
    return clock(seconds) if seconds else ""


def _duration(seconds: float | str | None) -> str:
    return "" if seconds is None else duration(float(seconds))


def _size(amount: float | str | None) -> str:
    return "" if amount is None else size(int(amount))
