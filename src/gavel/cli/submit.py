"""`gavel submit`: jobs from files and options, and following or waiting for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from gavel.cli.options import AsJson
from gavel.cli.remote import PATIENCE, ActingFor, PatienceOption, SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.submit_fields import comma_list, read_environment, read_grid, read_requests, read_tags
from gavel.cli.submit_secrets import secrets, with_secrets
from gavel.cli.waiting import SHOWN_IDS, follow_log, wait_for
from gavel.cli.words import printable
from gavel.client.arrays import size_of
from gavel.client.errors import Refused
from gavel.client.field_checks import nearest, shortened
from gavel.client.requests import JobRequest
from gavel.errors import InputError
from gavel.limits import MOST_COPIES, at_most

if TYPE_CHECKING:
    from gavel.client.api import Client


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
    name: Annotated[
        str | None, typer.Option(help="Name of the job; {index} and parameters are filled in.", metavar="NAME")
    ] = None,
    steps: Annotated[float | None, typer.Option(help="Total number of steps.", metavar="COUNT")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of accelerators. [default: 1]", metavar="COUNT")] = None,
    types: Annotated[
        str | None, typer.Option(help="Where it may run: v100,k80. [default: anywhere]", metavar="TYPE,...")
    ] = None,
    prefer: Annotated[
        str | None, typer.Option(help="Where it should run if that does not take long.", metavar="TYPE,...")
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Accelerator memory that each worker needs, such as 20G.", metavar="SIZE")
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(
            help="CPU cores for each worker. [default: its accelerators' part of the server]", metavar="COUNT"
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="RAM for each worker, such as 64G. [default: as for --cpus]", metavar="SIZE"),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(
            help="per-device starts a process for each accelerator, per-server one for each server, for torchrun and"
            " the like. [default: per-device]",
            metavar="NAME",
        ),
    ] = None,
    directory: Annotated[
        str | None, typer.Option(help="Working directory. [default: the current directory]", metavar="DIR")
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
    venv: Annotated[
        str | None, typer.Option(help="A Python virtual environment on the server to run in.", metavar="DIR")
    ] = None,
    module: Annotated[
        list[str] | None, typer.Option(help="An environment module to load, such as cuda/12.4.", metavar="NAME")
    ] = None,
    container: Annotated[str | None, typer.Option(help="The container image to run in.", metavar="IMAGE")] = None,
    array: Annotated[
        str | None,
        typer.Option(help="One job for each index, such as 0-99, or 0-99%8 for at most 8 at once.", metavar="INDICES"),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="One job for each value, such as lr=1e-3,1e-4 or seed=0..4.", metavar="NAME=VALUES"),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(help="How many jobs of the array or grid may run at the same time.", metavar="COUNT")
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            help="Start after this job or array: ID or ID:ok once it completed, ID:any once it ended, ID:failed once it"
            " failed.",
            metavar="ID[:HOW]",
        ),
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Wait until `gavel release`.")] = False,
    time_limit: Annotated[
        str | None,
        typer.Option(help="How long it may run in all, such as 12h; then it saves and has failed.", metavar="DURATION"),
    ] = None,
    idle_timeout: Annotated[
        str | None,
        typer.Option(help="How long it may run without a step or output; then it has failed.", metavar="DURATION"),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(help="How long it may take to save and leave. [default: as the cluster]", metavar="DURATION"),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="Number of retries after failures. [default: 3]", metavar="COUNT")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Weight relative to other jobs. [default: 1]", metavar="NUMBER")
    ] = None,
    deadline_hours: Annotated[float | None, typer.Option(help="Deadline, in hours from now.", metavar="HOURS")] = None,
    entity: Annotated[str | None, typer.Option(help="The team that owns the job.", metavar="NAME")] = None,
    template: Annotated[
        str | None, typer.Option(help="What the job runs, by its name in the throughput table.", metavar="NAME")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag, by which jobs can be selected.", metavar="NAME=VALUE")
    ] = None,
    notify: Annotated[
        list[str] | None, typer.Option(help="A URL to tell when it first starts, ends or seems stuck.", metavar="URL")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Let only you read its logs and environment, not your team.")
    ] = False,
    count: Annotated[int, typer.Option(help="Number of copies to submit.", min=1, metavar="COUNT")] = 1,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all jobs finish; exit code 0 if all completed.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print the output of the one job until it finishes; exit code as --wait.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show what would be sent; send nothing.")
    ] = False,
    acting_for: ActingFor = "",
    scheduler: SchedulerOption = None,
    patience: PatienceOption = PATIENCE,
    as_json: AsJson = False,
) -> int:
    """Submit jobs from files, or a command after --.

    Options and a command win over what job files say, for every job in them. Jobs run with the environment of the agent
    that starts them, not with yours: name what they need with --env, --secret, --venv, --module or --container.

    Examples: gavel submit job.yaml; gavel submit job.yaml --name second --steps 500; gavel submit --steps 1000 --
    python train.py; gavel submit --grid lr=1e-3,1e-4 --grid seed=0..4 -- python train.py --lr {lr} --seed {seed}
    """
    options = {
        "name": name,
        "steps": steps,
        "workers": workers,
        "types": comma_list(types),
        "prefer": comma_list(prefer),
        "gpu_memory": gpu_memory,
        "cpus": cpus,
        "memory": memory,
        "launcher": launcher,
        "working_directory": directory,
        "environment": read_environment(env),
        "secrets": secrets(secret, ask=not dry_run),
        "venv": venv,
        "modules": module or None,
        "container": container,
        "array": array,
        "grid": read_grid(grid),
        "at_once": at_once,
        "after": after or None,
        "hold": hold or None,
        "time_limit": time_limit,
        "idle_timeout": idle_timeout,
        "grace": grace,
        "retries": retries,
        "weight": weight,
        "deadline_hours": deadline_hours,
        "entity": entity,
        "template": template,
        "tags": read_tags(tag),
        "notify": notify or None,
        "private": private or None,
    }
    given = {field: value for field, value in options.items() if value is not None}
    jobs = with_secrets(read_requests(files or [], context.meta.get("command"), given), ask=not dry_run)
    if len(jobs) * count > MOST_COPIES:
        raise InputError(f"--count {shortened(count)}: submit {at_most(MOST_COPIES)} jobs at once")
    jobs *= count
    if follow:
        _check_one(jobs, as_json=as_json)
    if dry_run:
        _dry_run(jobs, as_json=as_json)
        return 0
    with connect(scheduler, patience, acting_for=acting_for) as client:
        return _perform(client, jobs, wait=wait, follow=follow, as_json=as_json)


def _check_one(jobs: Sequence[JobRequest], *, as_json: bool) -> None:
    total = sum(size_of(job.submission()) for job in jobs)
    if total != 1:
        raise InputError(
            f"--follow prints the output of one job, and these are {total:,}; use --wait, then `gavel logs`"
        )
    if as_json:
        raise InputError("--json prints one document, but --follow prints what the job does; leave one of them out")


def _dry_run(jobs: Sequence[JobRequest], *, as_json: bool) -> None:
    from gavel.cli.dry_run import check_names, show  # noqa: PLC0415 - rarely needed

    check_names(jobs)
    show(jobs, as_json=as_json)


def _perform(client: Client, jobs: Sequence[JobRequest], *, wait: bool, follow: bool, as_json: bool) -> int:
    ids = _submit(client, jobs)
    if not as_json:
        print(printable(receipt(jobs, ids)), file=sys.stderr if follow else sys.stdout, flush=True)
    warn_of_types(client, jobs)
    if follow:
        return follow_log(client, ids[0])
    if wait:
        return wait_for(client, ids, as_json=as_json)
    if as_json:
        print_json({"ids": ids})
    return 0


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


def warn_of_types(client: Client, jobs: Sequence[JobRequest]) -> None:
    """Warn about types that no server has: such a server may join later, or the name may be a typo."""
    named = dict.fromkeys(type_name for job in jobs for type_name in (*job.types, *job.prefer))
    known = dict.fromkeys(server.type for server in client.cluster().servers) if named else {}
    if unknown := [type_name for type_name in named if type_name not in known]:
        what = f"type {unknown[0]!r}" if len(unknown) == 1 else f"types {', '.join(map(repr, unknown))}"
        there = f"; {nearest(unknown[0], known)}" if known else "; no server has joined yet"
        print(printable(f"gavel: no server has accelerators of {what}{there}"), file=sys.stderr)


def receipt(jobs: Sequence[JobRequest], ids: Sequence[str]) -> str:
    """One line that names the submitted jobs."""
    arrays = _array_ids(jobs, ids)
    if len(jobs) == 1 and arrays:
        many = f"{len(ids):,} jobs: {ids[0]} to {ids[-1]}" if len(ids) > 1 else f"one job: {ids[0]}"
        return f"submitted array {arrays[0]} of {many}"
    if len(ids) == 1:
        return f"submitted job {ids[0]}"
    listed = " ".join(ids) if len(ids) <= SHOWN_IDS else f"{ids[0]} to {ids[-1]}"
    among = f", in arrays {' '.join(arrays)}" if 0 < len(arrays) <= SHOWN_IDS else ""
    return f"submitted {len(ids):,} jobs: {listed}{among}"


def _array_ids(jobs: Sequence[JobRequest], ids: Sequence[str]) -> list[str]:
    """The ids of the arrays: each is named after its first job."""
    found: list[str] = []
    at = 0
    for job in jobs:
        if (job.array or job.grid) and at < len(ids):
            found.append(f"a{ids[at]}")
        at += size_of(job.submission())
    return found
