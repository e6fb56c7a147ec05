"""`gavel run`: one job in the foreground, with its output here or at an interactive terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, ActingFor, PatienceOption, SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.running import INTERRUPTED, ForegroundJob, how_it_ended, say
from gavel.cli.submit import CommandAfterDashes, warn_of_types
from gavel.cli.submit_fields import comma_list, read_environment, read_requests, read_tags
from gavel.cli.submit_secrets import secrets
from gavel.client.quantities import seconds_of
from gavel.client.requests import JobRequest
from gavel.client.views import JobState
from gavel.errors import InputError
from gavel.limits import LONGEST_LINGER_SECONDS

if TYPE_CHECKING:
    from gavel.client.api import Client

COMMAND_CLASS = CommandAfterDashes
SHELL_OF_SERVER = ("/bin/sh", "-c", '[ -x "$SHELL" ] || SHELL=/bin/sh; exec "$SHELL"')
"""What --pty runs without a command."""
MOST_RANKS = 64
"""The most ranks whose output is printed at once."""


def run_command(
    context: typer.Context,
    pty: Annotated[
        bool, typer.Option("--pty", help="Give it this terminal; without a command, it is a shell on the server.")
    ] = False,
    attach: Annotated[
        str | None, typer.Option(help="Return to the terminal of this running job.", metavar="ID")
    ] = None,
    types: Annotated[
        str | None, typer.Option(help="Where it may run: v100,k80. [default: anywhere]", metavar="TYPE,...")
    ] = None,
    prefer: Annotated[
        str | None, typer.Option(help="Where it should run if that does not take long.", metavar="TYPE,...")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Number of accelerators. [default: 1]", metavar="COUNT")] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Accelerator memory that each worker needs, such as 20G.", metavar="SIZE")
    ] = None,
    cpus: Annotated[float | None, typer.Option(help="CPU cores for each worker.", metavar="COUNT")] = None,
    memory: Annotated[str | None, typer.Option(help="RAM for each worker, such as 64G.", metavar="SIZE")] = None,
    launcher: Annotated[
        str | None, typer.Option(help="per-device or per-server. [default: per-device]", metavar="NAME")
    ] = None,
    directory: Annotated[
        str | None, typer.Option(help="Working directory. [default: the current directory]", metavar="DIR")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="An environment variable for the job.", metavar="NAME=VALUE")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(help="A secret environment variable, as for `gavel submit`.", metavar="NAME[=@FILE]"),
    ] = None,
    venv: Annotated[
        str | None, typer.Option(help="A Python virtual environment on the server to run in.", metavar="DIR")
    ] = None,
    module: Annotated[
        list[str] | None, typer.Option(help="An environment module to load, such as cuda/12.4.", metavar="NAME")
    ] = None,
    container: Annotated[str | None, typer.Option(help="The container image to run in.", metavar="IMAGE")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="How long it may run in all, such as 12h.", metavar="DURATION")
    ] = None,
    idle_timeout: Annotated[
        str | None,
        typer.Option(help="How long it may run without a step or output. [default: any time]", metavar="DURATION"),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(help="How long it may take to save and leave. [default: as the cluster]", metavar="DURATION"),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="Number of retries after failures. [default: 0]", metavar="COUNT")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Weight relative to other jobs. [default: 1]", metavar="NUMBER")
    ] = None,
    entity: Annotated[str | None, typer.Option(help="The team that owns the job.", metavar="NAME")] = None,
    template: Annotated[
        str | None, typer.Option(help="What the job runs, by its name in the throughput table.", metavar="NAME")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job.", metavar="NAME")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag, by which jobs can be selected.", metavar="NAME=VALUE")
    ] = None,
    private: Annotated[
        bool,
        typer.Option("--private", help="Let only you read its logs, not your team; always so with --pty."),
    ] = False,
    rank: Annotated[
        str, typer.Option(help="The worker whose output is printed, or all, with a prefix.", metavar="RANK")
    ] = "0",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the job running when interrupted.")] = False,
    wait: Annotated[
        str | None,
        typer.Option(help="With --pty: give up if it does not start within this time.", metavar="DURATION"),
    ] = None,
    linger: Annotated[
        str | None,
        typer.Option(
            help="With --pty: how long the job stays when the connection is lost. [default: 60s]", metavar="DURATION"
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Say on stderr what the job waits for, also without a terminal.")
    ] = False,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> int:
    """Run a command on the cluster as if it ran here.

    Its output goes to stdout, byte for byte; what Gavel says goes to stderr. With --json, the output goes to stderr,
    and a document about the finished job to stdout. The exit code is the job's; 128 and the number of the signal that
    ended it; 1 if it failed without one; 130 after Ctrl-C, which ends the job. With --pty, the job has this terminal;
    ~. at the beginning of a line leaves it.

    Examples: gavel run --types v100 -- python train.py; gavel run --pty --types v100; gavel run --attach 12
    """
    command: Sequence[str] | None = context.meta.get("command")
    _check_together(pty=pty, attach=attach, command=command, wait=wait, linger=linger, rank=rank, as_json=as_json)
    linger_seconds = _duration("--linger", linger, most=LONGEST_LINGER_SECONDS) or 0.0
    start_within = _duration("--wait", wait)
    if attach is not None:
        _check_terminal()
        with connect(scheduler, patience, acting_for=acting_for) as client:
            return _at_terminal(client, attach, linger_seconds, None, returning=True)
    options = {
        "name": name or ("terminal" if pty and not command else None),
        "workers": workers,
        "types": comma_list(types),
        "prefer": comma_list(prefer),
        "gpu_memory": gpu_memory,
        "cpus": cpus,
        "memory": memory,
        "launcher": launcher,
        "working_directory": directory,
        "environment": read_environment(env),
        "secrets": secrets(secret, ask=True),
        "venv": venv,
        "modules": module or None,
        "container": container,
        "time_limit": time_limit,
        "idle_timeout": idle_timeout,
        "grace": grace,
        "retries": retries or 0,
        "weight": weight,
        "entity": entity,
        "template": template,
        "tags": read_tags(tag),
        "private": private or None,
    }
    given = {field: value for field, value in options.items() if value is not None}
    if pty:
        _check_terminal()
        job = _with_terminal(_request(command or SHELL_OF_SERVER, given))
        with connect(scheduler, patience, acting_for=acting_for) as client:
            id = client.submit(job)[0]  # noqa: A001 - the word for it everywhere
            warn_of_types(client, [job])
            return _at_terminal(client, id, linger_seconds, start_within)
    job = _request(command, given)
    ranks = _ranks(rank, int(job.workers))
    with connect(scheduler, patience, acting_for=acting_for) as client:
        return _in_foreground(client, job, ranks, keep=keep, verbose=verbose, as_json=as_json)


def _check_together(
    *,
    pty: bool,
    attach: str | None,
    command: Sequence[str] | None,
    wait: str | None,
    linger: str | None,
    rank: str,
    as_json: bool,
) -> None:
    """Refuse options that contradict each other."""
    terminal = pty or attach is not None
    if attach is not None and (pty or command or wait):
        raise InputError("--attach returns to a job that exists; leave out --pty, --wait and the command")
    if not terminal and (wait or linger):
        raise InputError(
            f"{'--wait' if wait else '--linger'} is about an interactive terminal; add --pty or leave it out"
        )
    if terminal and (as_json or rank != "0"):
        raise InputError(f"{'--json' if as_json else '--rank'} does not go with an interactive terminal; leave it out")
    if not terminal and not command:
        raise InputError(
            "say what to run, after --, as in `gavel run -- python train.py`; `gavel run --pty` starts a shell"
        )


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(
            "there is no terminal here: --pty and --attach need one for input and output; without --pty, `gavel run`"
            " works in scripts"
        )


def _duration(option: str, text: str | None, *, most: float | None = None) -> float | None:
    if text is None:
        return None
    try:
        seconds = seconds_of(text)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None
    if seconds < 1.0 or (most is not None and seconds > most):
        limits = "at least 1 s" if most is None else f"between 1 s and {most / 3600:g} h"
        raise InputError(f"{option} {text}: it must be {limits}")
    return seconds


def _request(command: Sequence[str] | None, given: Mapping[str, Any]) -> JobRequest:
    return read_requests([], command, given)[0]


def _with_terminal(job: JobRequest) -> JobRequest:
    """The job with a terminal like this one. What it shows is for no one else."""
    like_this = {"TERM": os.environ["TERM"]} if os.environ.get("TERM") else {}
    return replace(job, terminal=True, private=True, environment={**like_this, **job.environment})


def _ranks(text: str, workers: int) -> list[int]:
    """Whose output is printed."""
    if text == "all":
        if workers > MOST_RANKS:
            raise InputError(f"--rank all prints the output of at most {MOST_RANKS} workers, not {workers:,}")
        return list(range(workers))
    if not text.isdecimal() or int(text) >= workers:
        ranks = f"{workers:,} workers; give 0 to {workers - 1:,}, or all" if workers > 1 else "one worker, rank 0"
        raise InputError(f"--rank {text}: the job has {ranks}")
    return [int(text)]


def _at_terminal(
    client: Client, job: str, linger_seconds: float, start_within: float | None, *, returning: bool = False
) -> int:
    from gavel.cli.terminal import use_terminal  # noqa: PLC0415 - not on every system

    return use_terminal(client, job, linger_seconds=linger_seconds, start_within=start_within, returning=returning)


def _in_foreground(
    client: Client, job: JobRequest, ranks: Sequence[int], *, keep: bool, verbose: bool, as_json: bool
) -> int:
    tell = say if verbose or sys.stderr.isatty() else _silent
    id = client.submit(job)[0]  # noqa: A001 - the word for it everywhere
    tell(f"submitted job {id}")
    warn_of_types(client, [job])
    output = (sys.stderr if as_json else sys.stdout).fileno()
    ended, code = ForegroundJob(client, id, ranks, output, tell).follow(keep=keep)
    if ended is not None and ended.state is not JobState.COMPLETED and code != INTERRUPTED:
        say(how_it_ended(ended))
    if as_json:
        print_json({"id": id, "job": None if ended is None else ended.document()})
    return code


def _silent(_: str) -> None:
    """Say nothing: no one asked, and no one watches."""
