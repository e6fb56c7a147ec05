"""Options that several commands share, each with one meaning and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gavel.errors import InputError

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        "-p",
        help="The policy; `gavel policies` lists them. module.NAME selects your own.",
        metavar="NAME",
    ),
]
SpaceSharing = Annotated[bool, typer.Option("--space-sharing", help="Let pairs of jobs share accelerators.")]
Agnostic = Annotated[bool, typer.Option("--agnostic", help="Decide as if all types were equally fast.")]
Normalised = Annotated[
    bool,
    typer.Option(
        "--normalised",
        help="Add up normalised throughputs, not steps/s (max_throughput, min_cost, min_cost_slo).",
    ),
]
LimitSeconds = Annotated[
    float, typer.Option("--limit-seconds", help="Abort a solve that takes, or is predicted to take, longer.", min=0.001)
]
Workers = Annotated[int | None, typer.Option(help="Number of processes; default: one per core.", min=1, metavar="N")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Throughputs = Annotated[str, typer.Option(help="A throughput table, or 'builtin'.", metavar="FILE")]


def check_directory(option: str, directory: Path) -> None:
    """Refuse a directory that cannot be written to, before the work that it is for."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".gavel"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = "it is a file" if directory.is_file() else (error.strerror or "unknown error").lower()
        raise InputError(f"cannot write to {option} {directory}: {reason}; give another directory") from None


def check_file(option: str, path: Path) -> None:
    """Refuse a file that cannot be written, before the work that it is for; its content is kept."""
    there = path.exists()
    try:
        path.open("a").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise InputError(
            f"cannot write to {option} {path}: {(error.strerror or 'unknown error').lower()}; give another file"
        ) from None
