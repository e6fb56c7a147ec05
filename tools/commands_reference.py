"""Generate docs/reference/commands.md from the command line: `python tools/commands_reference.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from gavel.cli.app import VERBS, command_line

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
INTRODUCTION = """# Commands

This page lists every command with its arguments and options. `python tools/commands_reference.py` generates it from the
program, and a test checks that it is up to date. `gavel COMMAND --help` prints the same text.

- Commands that return results print a table or, with `--json`, one JSON document. Progress and errors go to standard
  error.
- Exit code 0 means success, 2 bad input, 1 a failure, 130 an interruption; see [Exit codes](../live.md#exit-codes) for
  the live system.
- An option with an environment variable takes its value from there if it is not given.
- An error is one sentence. Set `GAVEL_TRACEBACK=1` to see the traceback of a bug in Gavel.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, _contents()]
    for name in VERBS:
        group: Any = typer.main.get_command(command_line([name]))
        parts += _sections(group.commands[name], f"gavel {name}", level=2)
    return "\n".join(parts)


def _contents() -> str:
    rows = (f"| [`gavel {name}`](#gavel-{name}) | {verb.summary} |" for name, verb in VERBS.items())
    return "\n".join(["| command | purpose |", "|---|---|", *rows, ""])


def _sections(command: Any, name: str, level: int) -> Iterator[str]:
    """The sections of a command and its subcommands."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    yield f"{'#' * level} {name}\n\n{_paragraphs(command.help)}\n\n```\n{usage}\n```\n"
    rows = [_row(record) for record in _records(command, context) if record is not None]
    if rows:
        yield "\n".join(["| name | meaning |", "|---|---|", *rows, ""])
    for below, found in getattr(command, "commands", {}).items():
        yield from _sections(found, f"{name} {below}", level + 1)


def _records(command: Any, context: typer.Context) -> Iterator[tuple[str, str] | None]:
    """The help of each parameter, without --help itself."""
    for parameter in command.get_params(context):
        if "--help" not in parameter.opts:
            yield parameter.get_help_record(context)


def _row(record: tuple[str, str]) -> str:
    names, meaning = (" ".join(text.split()).replace("|", "\\|") for text in record)
    return f"| `{names}` | {meaning} |"


def _paragraphs(text: str) -> str:
    """A docstring with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
