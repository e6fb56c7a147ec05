"""`gavel submit`: jobs from files or flags, and waiting until they finish."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, ActingFor, PatienceOption, SchedulerOption, connect, interruptible
from gavel.cli.render import console, print_json
from gavel.cli.words import printable, summary
from gavel.client.errors import Refused
from gavel.client.field_checks import FieldError, nearest, shortened
from gavel.client.requests import JobRequest, absolute
from gavel.client.secret_values import SecretValues, check_names, from_file
from gavel.client.views import JobState, JobView
from gavel.errors import GavelError, InputError
from gavel.limits import MOST_COPIES, at_most

if TYPE_CHECKING:
    from gavel.client.api import Client

FLAGS = {
    "deadline_hours": "--deadline-hours",
    "environment": "--env",
    "secrets": "--secret",
    "working_directory": "--directory",
}
"""Fields whose flags have different names."""
SHOWN_IDS = 20
REST_SECONDS = 0.2
"""Minimum time between two lines of progress."""


class CommandAfterDashes(TyperCommand):
    """A command line in which everything after `--` is the job's command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


COMMAND_CLASS = CommandAfterDashes


def submit_command(
    context: typer.Context,
    files: Annotated[
        list[str] | None, typer.Argument(help="Job files, YAML or JSON; - reads standard input.", metavar="FILE")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="What the job runs, by its name in the throughput table.", metavar="NAME")
    ] = None,
    steps: Annotated[float | None, typer.Option(help="Total number of steps.", metavar="COUNT")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of accelerators. [default: 1]", metavar="COUNT")] = None,
    weight: Annotated[
        float | None, typer.Option(help="Weight relative to other jobs. [default: 1]", metavar="NUMBER")
    ] = None,
    entity: Annotated[str | None, typer.Option(help="The team that owns the job.", metavar="NAME")] = None,
    deadline_hours: Annotated[float | None, typer.Option(help="Deadline, in hours from now.", metavar="HOURS")] = None,
    types: Annotated[
        str | None, typer.Option(help="Where it may run: v100,k80. [default: anywhere]", metavar="TYPE,...")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="An environment variable for the job.", metavar="NAME=VALUE")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            help="A secret environment variable: its value is read from your environment, the terminal, or @FILE.",
            metavar="NAME[=@FILE]",
        ),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Let only you read its logs and environment, not your team.")
    ] = False,
    retries: Annotated[
        int | None, typer.Option(help="Number of retries after failures. [default: 3]", metavar="COUNT")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job.", metavar="NAME")] = None,
    directory: Annotated[
        str | None, typer.Option(help="Working directory. [default: the current directory]", metavar="DIR")
    ] = None,
    count: Annotated[int, typer.Option(help="Number of copies to submit.", min=1, metavar="COUNT")] = 1,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all jobs finish; exit code 0 if all completed.")
    ] = False,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> int:
    """Submit jobs from files, or a command after --.

    Examples: gavel submit job.yaml; gavel submit --steps 1000 -- python train.py
    """
    flags = {
        "template": template,
        "steps": steps,
        "workers": workers,
        "weight": weight,
        "entity": entity,
        "deadline_hours": deadline_hours,
        "types": None if types is None else [type_name.strip() for type_name in types.split(",")],
        "environment": _environment(env) if env else None,
        "secrets": _secrets(secret) if secret else None,
        "private": private or None,
        "retries": retries,
        "name": name,
        "working_directory": directory,
    }
    given = {field: value for field, value in flags.items() if value is not None}
    jobs = _with_secrets(_jobs(files or [], context.meta.get("command"), given))
    if len(jobs) * count > MOST_COPIES:
        raise InputError(f"--count {shortened(count)}: submit {at_most(MOST_COPIES)} jobs at once")
    jobs *= count
    with connect(scheduler, patience, acting_for=acting_for) as client:
        ids = _submit(client, jobs)
        if not as_json:
            print(printable(_receipt(ids)), flush=True)
        _warn_of_types(client, jobs)
        if not wait:
            if as_json:
                print_json({"ids": ids})
            return 0
        return _wait(client, ids, as_json=as_json)


def _jobs(files: Sequence[str], command: Sequence[str] | None, given: Mapping[str, Any]) -> list[JobRequest]:
    """Read all jobs, from files or from flags, before any is sent."""
    if files and (given or command is not None):
        raise InputError("give either job files, or flags and a command after --, not both")
    if files:
        from gavel.client.job_file import read_jobs  # noqa: PLC0415 - loads the library that reads YAML

        return [job for file in files for job in read_jobs(file)]
    if not command:
        raise InputError("say what to run: a job file, or a command after --, as in `gavel submit -- python train.py`")
    here = Path.cwd()
    request = JobRequest(
        command, **{**given, "working_directory": absolute(given.get("working_directory", str(here)), here)}
    )
    try:
        request.check()
    except FieldError as error:
        flag = FLAGS.get(error.field, f"--{error.field}")
        raise InputError(str(error) if error.field == "command" else f"{flag}: {error}") from None
    return [request]


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE."""
    variables: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"--env {pair}: write NAME=VALUE")
        if name in variables:
            raise InputError(f"--env {name} is given twice; keep one")
        variables[name] = value
    return variables


def _secrets(given: Sequence[str]) -> SecretValues:
    """Read NAME or NAME=@FILE."""
    files: dict[str, str | None] = {}
    for each in given:
        name, sign, source = each.partition("=")
        if sign and not source.startswith("@"):
            raise InputError(
                f"--secret {shortened(name)[1:-1]}=...: other users of this machine see command lines, so write no"
                " value there; give --secret NAME (from your environment or the terminal) or --secret NAME=@FILE"
            )
        if name in files:
            raise InputError(f"--secret {shortened(name)[1:-1]} is given twice; keep one")
        files[name] = source[1:] if sign else None
    try:
        check_names(files)
    except InputError as error:
        raise InputError(f"--secret: {error}") from None
    return SecretValues({name: _asked(name) if file is None else from_file(file) for name, file in files.items()})


def _asked(name: str) -> str:
    """The value of a secret: from the environment, else typed by the user without an echo."""
    if name in os.environ:
        return os.environ[name]
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"the secret {name} has no value: there is no environment variable {name} and no terminal to ask at; set"
            f" the variable, or give --secret {name}=@FILE"
        )
    from getpass import getpass  # noqa: PLC0415 - rarely needed

    return getpass(f"{name} (hidden): ")


def _with_secrets(jobs: Sequence[JobRequest]) -> list[JobRequest]:
    """Jobs with values for the secrets of which their files have only names; each name is asked for once."""
    names = dict.fromkeys(name for job in jobs if not isinstance(job.secrets, SecretValues) for name in job.secrets)
    values = {name: _asked(name) for name in names}
    return [
        job
        if isinstance(job.secrets, SecretValues) or not job.secrets
        else replace(job, secrets=SecretValues({name: values[name] for name in job.secrets}))
        for job in jobs
    ]


def _submit(client: Client, jobs: Sequence[JobRequest]) -> list[str]:
    try:
        return client.submit(jobs)
    except Refused as error:
        if not error.submitted:
            raise
        first, last = error.submitted[0], error.submitted[-1]
        raise InputError(
            f"{error}; the {len(error.submitted):,} jobs before that batch were submitted ({first} to {last})"
        ) from None


def _warn_of_types(client: Client, jobs: Sequence[JobRequest]) -> None:
    """Warn about types that no server has: such a server may join later, or the name may be a typo."""
    named = dict.fromkeys(type_name for job in jobs for type_name in job.types)
    known = dict.fromkeys(server.type for server in client.cluster().servers) if named else {}
    if unknown := [type_name for type_name in named if type_name not in known]:
        what = f"type {unknown[0]!r}" if len(unknown) == 1 else f"types {', '.join(map(repr, unknown))}"
        there = f"; {nearest(unknown[0], known)}" if known else "; no server has joined yet"
        print(printable(f"gavel: no server has accelerators of {what}{there}"), file=sys.stderr)


def _receipt(ids: Sequence[str]) -> str:
    """One line that names the submitted jobs."""
    if len(ids) == 1:
        return f"submitted job {ids[0]}"
    listed = " ".join(ids) if len(ids) <= SHOWN_IDS else f"{ids[0]} to {ids[-1]}"
    return f"submitted {len(ids):,} jobs: {listed}"


def _wait(client: Client, ids: Sequence[str], *, as_json: bool) -> int:
    """Wait until all jobs finish and show how they ended."""
    try:
        with interruptible():
            over = _watched(client, ids)
    except KeyboardInterrupt:
        print(printable(f"gavel: interrupted; {_left_behind(ids)}"), file=sys.stderr)
        return 130
    except GavelError as error:
        raise GavelError(f"{error}; {_left_behind(ids)}") from None
    if as_json:
        print_json({"ids": list(ids), "jobs": [job.document() for job in over]})
    else:
        from gavel.cli.job_table import job_table  # noqa: PLC0415 - loads the library that draws

        shown = console()
        shown.print(job_table(over, time.time(), shown.width))
        shown.print(summary(over), style="dim")
    return 0 if all(job.state is JobState.COMPLETED for job in over) else 1


def _watched(client: Client, ids: Sequence[str]) -> list[JobView]:
    """Return the jobs once they have finished; on a terminal, a line shows the progress."""
    if not sys.stderr.isatty():
        return client.wait(ids)
    from rich.console import Console  # noqa: PLC0415 - loads the library that draws

    out = Console(stderr=True, highlight=False)
    shown_at = 0.0

    def show(jobs: Mapping[str, JobView]) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= REST_SECONDS:  # counting many jobs at every change would take too long
            status.update(_progress(jobs))
            shown_at = time.monotonic()

    with out.status("waiting") as status:
        return client.wait(ids, on_change=show)


def _progress(jobs: Mapping[str, JobView]) -> str:
    over = sum(job.finished for job in jobs.values())
    return f"{over:,} of {len(jobs):,} finished: {summary(list(jobs.values()))}"


def _left_behind(ids: Sequence[str]) -> str:
    cancel = f"`gavel cancel {' '.join(ids)}` ends them" if len(ids) <= SHOWN_IDS else "`gavel cancel` ends them"
    return f"the jobs continue: `gavel jobs` shows them, {cancel}"
