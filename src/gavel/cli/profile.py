"""`gavel profile`: measure a command on every accelerator type, alone and beside others, and write the table."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.experiment_options import parse_names
from gavel.cli.options import AsJson
from gavel.cli.render import console, number, print_json, styled, table
from gavel.cli.serve import say
from gavel.cli.submit import CommandAfterDashes
from gavel.client.job_file import read_jobs
from gavel.client.requests import JobRequest
from gavel.core.errors import GavelError, InputError
from gavel.core.throughputs import write_table
from gavel.limits import check_options
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.profiling import Found, ProfileSettings, profile

COMMAND_CLASS = CommandAfterDashes


def profile_command(
    context: typer.Context,
    template: Annotated[str, typer.Option(help="Name of the command in the table.", metavar="NAME")],
    types: Annotated[str, typer.Option(help="Accelerator types to measure on: v100,k80.", metavar="TYPE,…")],
    out: Annotated[Path, typer.Option(help="Where to write the table.", metavar="FILE")],
    beside: Annotated[
        list[str] | None,
        typer.Option(help="A job file with partners to measure it beside; each needs a template.", metavar="FILE"),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to measure each figure.", min=1.0)] = 60.0,
    patience: Annotated[
        float, typer.Option(help="How long to wait for servers, and for first steps, in seconds.", min=1.0)
    ] = 600.0,
    listen: Annotated[
        str, typer.Option(help="Address for the workers that are set aside.", metavar="HOST:PORT")
    ] = "127.0.0.1:7078",
    as_json: AsJson = False,
) -> None:
    """Measure a command on every type, alone and beside others.

    Writes a throughput table: gavel profile --template mine --types v100 --out mine.json -- python train.py. On each
    server that is set aside for it, run: gavel worker --scheduler HOST:7078
    """
    check_options({"seconds": seconds, "patience": patience})
    command = context.meta.get("command")
    if not command:
        raise InputError("say what to measure: a command after --, as in `gavel profile ... -- python train.py`")
    job = JobRequest(command, template=template, working_directory=str(Path.cwd()))
    job.check()
    partners = tuple(partner for file in beside or () for partner in read_jobs(file))
    type_names = parse_names(types)
    _check(job, partners, type_names, out)
    with tempfile.TemporaryDirectory(prefix="gavel-profile-") as folder:
        settings = ProfileSettings(
            job=job,
            beside=partners,
            types=type_names,
            seconds=seconds,
            patience_seconds=patience,
            listen=listen,
            folder=Path(folder),
            fleet=FleetSettings(checkpoint_grace_seconds=5.0, terminate_grace_seconds=2.0, heartbeat_seconds=0.5),
        )
        found = asyncio.run(profile(settings, say))
    if not found.rates:
        raise GavelError(f"nothing was measured; {found.notes[-1]}")
    write_table(found.table([job.template, *(partner.template for partner in partners)], type_names), out)
    if as_json:
        print_json(_document(found, out))
    else:
        _print(found, out)


def _check(job: JobRequest, partners: tuple[JobRequest, ...], type_names: tuple[str, ...], out: Path) -> None:
    if not job.template:
        raise InputError("--template is empty; give a name for the command")
    if not type_names or len(set(type_names)) < len(type_names):
        raise InputError(f"--types {','.join(type_names)}: name each type once, for example v100,k80")
    for partner in partners:
        if not partner.template or partner.workers != 1:
            raise InputError(f"--beside: {' '.join(partner.command)!r} needs a template and one worker")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: there is no directory {out.parent}")


def _document(found: Found, out: Path) -> dict[str, object]:
    rates = [
        {"template": condition.template, "type": condition.type, "beside": condition.beside, "rate": rate}
        for condition, rate in found.rates.items()
    ]
    return {"out": str(out), "rates": rates, "notes": found.notes}


def _print(found: Found, out: Path) -> None:
    rows = [
        [condition.template, condition.beside or "alone", condition.type, number(rate)]
        for condition, rate in found.rates.items()
    ]
    shown = console()
    shown.print(table(["template", "beside", "type", "steps/s"], rows, left=3))
    for note in found.notes:
        shown.print(styled(f"note: {note}"))
    shown.print(f"written to {out}", style="dim")
