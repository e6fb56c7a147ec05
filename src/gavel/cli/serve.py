"""`gavel serve`: the scheduler as a service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gavel.cli import service_log
from gavel.cli.experiment_options import MechanismOption, MinSecondsBetweenAllocations
from gavel.cli.options import Agnostic, PolicyName, SpaceSharing
from gavel.cli.service_log import FORMATS, LEVELS
from gavel.cli.words import printable
from gavel.client.access import MACHINE_SOCKET
from gavel.client.contexts import ContextFile, SchedulerContext
from gavel.client.field_checks import nearest, shortened
from gavel.client.quantities import seconds_of
from gavel.core.errors import InputError
from gavel.journal.database import parse, shown
from gavel.journal.errors import JournalInUseError
from gavel.limits import LARGEST, as_float, at_most, check_options
from gavel.policies.mechanisms import check_mechanism
from gavel.policies.registry import find_policy
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.housekeeping import Keep
from gavel.runtime.listening import BoundPorts, Listening, insecure_sentence
from gavel.runtime.notify.settings import EVENTS, NotifySettings
from gavel.runtime.privacy import open_to_others, private_umask
from gavel.runtime.server import Running, ServeSettings, read_entities, serving
from gavel.security.setup import FirstTokens, Secured
from gavel.version import __version__
from gavel.wire import DEFAULT_ADDRESS


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use options from a TOML file as defaults: flags and environment variables take precedence."""
    if path is None:
        return None
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"--config {path}: {error}") from error
    except ValueError:  # Python refuses to parse such integers
        raise InputError(
            f"--config {path}: it contains a number with thousands of digits; give {at_most(LARGEST)}"
        ) from None
    document = _with_notify(path, _with_retention(path, document))
    known = {str(parameter.name) for parameter in context.command.params} - {"config", "insecure"}
    options = {name.replace("-", "_"): value for name, value in document.items()}
    if unknown := sorted(name for name in document if name.replace("-", "_") not in known):
        names = sorted(name.replace("_", "-") for name in known)
        raise InputError(f"--config {path}: there is no option {unknown[0]!r}; {nearest(unknown[0], names)}")
    if len(options) < len(document):
        twice = next(name for name in document if "_" in name and name.replace("_", "-") in document)
        raise InputError(f"--config {path}: {twice.replace('_', '-')} is given twice, with - and with _; keep one")
    for name, value in options.items():
        if isinstance(value, int | float) and not abs(as_float(value)) <= LARGEST:
            raise InputError(f"--config {path}: {name} must be finite and {at_most(LARGEST)}, not {shortened(value)}")
    context.default_map = {**(context.default_map or {}), **options}
    return path


def _with_retention(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Convert the table [retention] to options: its journal-days is --keep-journal-days."""
    table = document.pop("retention", {})
    if not isinstance(table, dict):
        raise InputError(f"--config {path}: retention must be a table, such as [retention] with journal-days = 30")
    return {**document, **{f"keep-{name.replace('_', '-')}": value for name, value in table.items()}}


def _with_notify(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Convert the table [notify] to options: its hosts is --notify-hosts; its stuck-minutes keeps its name."""
    table = document.pop("notify", {})
    if not isinstance(table, dict):
        raise InputError(f"--config {path}: notify must be a table, such as [notify] with hosts = ['chat.example.org']")
    names = {name: name.replace("_", "-") for name in table}
    own = {name if names[name] == "stuck-minutes" else f"notify-{names[name]}": table[name] for name in table}
    for name in ("notify-hosts", "notify-command", "notify-events"):
        value = own.get(name, document.get(name, document.get(name.replace("-", "_"), [])))
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InputError(f"--config {path}: {name} must be a list of texts, not {shortened(value)}")
    if twice := sorted({name.replace("_", "-") for name in document} & own.keys()):
        raise InputError(f"--config {path}: {twice[0]} is given twice, also in [notify]; keep one")
    return {**document, **own}


LOCAL_CONTEXT = "local"
"""The context of the account that sets a cluster up."""

Config = Annotated[
    Path | None,
    typer.Option(
        callback=_read_config,
        is_eager=True,
        metavar="FILE",
        help="A TOML file with these options; names may use - or _, as in log-level or log_level.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        help="A name or address that this scheduler is reached by; the first is told to others. May be repeated.",
        metavar="HOST",
    ),
]


def serve_command(
    config: Config = None,
    listen: Annotated[
        str, typer.Option(help="Address for clients and agents.", metavar="HOST:PORT", envvar="GAVEL_LISTEN")
    ] = DEFAULT_ADDRESS,
    folder: Annotated[
        Path, typer.Option(help="Directory for the journal and logs.", metavar="DIR", envvar="GAVEL_FOLDER")
    ] = Path("gavel-state"),
    journal: Annotated[
        str | None,
        typer.Option(
            help="A database for the journal; default: SQLite in the folder.", metavar="URL", envvar="GAVEL_JOURNAL"
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            help="How long to wait for another scheduler on the same journal to end.", min=0.0, metavar="SECONDS"
        ),
    ] = 0.0,
    log_level: Annotated[
        str, typer.Option(help=f"Log level on standard error: {', '.join(LEVELS)}.", metavar="LEVEL")
    ] = "info",
    log_format: Annotated[str, typer.Option(help=f"Log format: {' or '.join(FORMATS)}.", metavar="FORMAT")] = "text",
    name: Names = None,
    agents_listen: Annotated[
        str | None,
        typer.Option(
            help="Address for agents with certificates; default: the port after --listen.", metavar="HOST:PORT"
        ),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option(
            help="UNIX socket for local users; default: /run/gavel/gavel.sock for root, else in the folder.",
            metavar="PATH",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="A certificate of your own, with its chain.", metavar="FILE")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of --tls-cert.", metavar="FILE")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="An authority of your own for agents' certificates.", metavar="FILE")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS and no users, even beyond this machine. Not in --config.")
    ] = False,
    insecure_listen: Annotated[
        str | None,
        typer.Option(help="Also take agents without TLS here, while they are being upgraded.", metavar="HOST:PORT"),
    ] = None,
    policy: PolicyName = "max_min_fairness",
    agnostic: Agnostic = False,
    space_sharing: SpaceSharing = False,
    mechanism: MechanismOption = "credits",
    round_seconds: Annotated[
        float, typer.Option(help="Length of a round.", min=0.1, envvar="GAVEL_ROUND_SECONDS")
    ] = 360.0,
    min_seconds_between_allocations: MinSecondsBetweenAllocations = 0.0,
    restart_seconds: Annotated[
        float, typer.Option(help="Cost of a restart, for templates for which it has not been measured.", min=0.0)
    ] = 10.0,
    solve_limit_seconds: Annotated[
        float, typer.Option(help="Abort a solve that takes longer; the old allocation stays in force.", min=0.1)
    ] = 60.0,
    throughputs: Annotated[
        str, typer.Option(help="Initial throughput table, or 'builtin'; the rest is learned.", metavar="FILE")
    ] = "builtin",
    profiled: Annotated[
        list[str] | None,
        typer.Option(help="A table written by `gavel profile`; may be given several times.", metavar="FILE"),
    ] = None,
    entities: Annotated[
        Path | None, typer.Option(help="A JSON file with weights and policies of teams.", metavar="FILE")
    ] = None,
    log_megabytes: Annotated[
        float, typer.Option(help="How much output to keep for each worker of a job.", min=0.01)
    ] = 16.0,
    keep_journal_days: Annotated[float, typer.Option(help="How long to keep facts in the journal.", min=0.01)] = 30.0,
    keep_finished_days: Annotated[float, typer.Option(help="How long to keep finished jobs.", min=0.01)] = 365.0,
    keep_logs_days: Annotated[
        float, typer.Option(help="How long to keep job logs after they were last written.", min=0.01)
    ] = 90.0,
    keep_checkpoints_days: Annotated[
        float | None,
        typer.Option(help="Checkpoints of finished jobs are kept for this long; default: for ever.", min=0.01),
    ] = None,
    keep_audit_days: Annotated[float, typer.Option(help="How long to keep the audit.", min=1.0)] = 400.0,
    heartbeat_seconds: Annotated[float, typer.Option(help="Heartbeat interval of agents.", min=0.05)] = 2.0,
    agent_timeout_seconds: Annotated[
        float, typer.Option(help="Time without heartbeats after which an agent is lost.", min=0.1)
    ] = 15.0,
    lease_slack_seconds: Annotated[
        float, typer.Option(help="How long jobs continue after their round while the scheduler is away.", min=0.0)
    ] = 30.0,
    checkpoint_grace_seconds: Annotated[float, typer.Option(help="Time to save a checkpoint.", min=0.0)] = 60.0,
    terminate_grace_seconds: Annotated[float, typer.Option(help="Time between SIGTERM and SIGKILL.", min=0.0)] = 10.0,
    longest_grace: Annotated[
        str, typer.Option(help="The longest time to save that a job may ask for.", metavar="DURATION")
    ] = "1h",
    retry_seconds: Annotated[float, typer.Option(help="Pause after a failure; doubles each time.", min=0.0)] = 10.0,
    notify_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--notify-hosts",
            help="A host that notifications may go to: host, host:port, *.domain or http://host:port. May be repeated.",
            metavar="HOST",
        ),
    ] = None,
    notify_command: Annotated[
        list[str] | None,
        typer.Option(
            "--notify-command",
            help="A program run for every notification, which it reads as JSON; repeat for each argument.",
            metavar="WORD",
        ),
    ] = None,
    notify_events: Annotated[
        list[str] | None,
        typer.Option(
            "--notify-events",
            help=f"Run --notify-command only for this event: {', '.join(EVENTS)}. May be repeated.",
            metavar="EVENT",
        ),
    ] = None,
    notify_command_seconds: Annotated[float, typer.Option(help="How long --notify-command may take.", min=0.1)] = 30.0,
    notify_commands_at_once: Annotated[
        int, typer.Option(help="How often --notify-command may run at the same time.", min=1, max=1000)
    ] = 4,
    stuck_minutes: Annotated[
        float, typer.Option(help="Time without a step and without output after which a job seems stuck.", min=0.01)
    ] = 30.0,
) -> None:
    """Run the scheduler, which assigns jobs to agents."""
    _check_choice("--log-level", log_level, LEVELS)
    _check_choice("--log-format", log_format, FORMATS)
    find_policy(policy)
    check_mechanism(mechanism, resumed_by="a scheduler")
    settings = ServeSettings(
        listen=listen,
        folder=folder,
        journal=journal,
        wait_seconds=wait,
        policy=policy,
        agnostic=agnostic,
        space_sharing=space_sharing,
        mechanism=mechanism,
        round_seconds=round_seconds,
        min_seconds_between_allocations=min_seconds_between_allocations,
        restart_seconds=restart_seconds,
        solve_limit_seconds=solve_limit_seconds,
        throughputs=throughputs,
        profiled=tuple(profiled or ()),
        entities=read_entities(entities) if entities else {},
        log_megabytes=log_megabytes,
        keep=Keep(
            journal_days=keep_journal_days,
            finished_days=keep_finished_days,
            logs_days=keep_logs_days,
            checkpoints_days=keep_checkpoints_days,
            audit_days=keep_audit_days,
        ),
        listening=Listening(
            names=tuple(name or ()),
            agents_listen=agents_listen,
            socket=socket,
            tls_cert=tls_cert,
            tls_key=tls_key,
            client_ca=client_ca,
            insecure=insecure,
            insecure_listen=insecure_listen,
        ),
        fleet=FleetSettings(
            heartbeat_seconds=heartbeat_seconds,
            agent_timeout_seconds=agent_timeout_seconds,
            lease_slack_seconds=lease_slack_seconds,
            checkpoint_grace_seconds=checkpoint_grace_seconds,
            terminate_grace_seconds=terminate_grace_seconds,
            retry_seconds=retry_seconds,
            longest_grace_seconds=_duration("--longest-grace", longest_grace),
        ),
        notify=NotifySettings(
            hosts=tuple(notify_hosts or ()),
            command=tuple(notify_command or ()),
            events=tuple(notify_events or ()),
            command_seconds=notify_command_seconds,
            commands_at_once=notify_commands_at_once,
            stuck_minutes=stuck_minutes,
        ),
    )
    check_options(_flat(settings))
    service_log.set_up(log_level, log_format)
    tell = _log if log_format == "json" else say
    if config:
        tell(f"options from {config}")
    private_umask()
    asyncio.run(_serve(settings, tell))


def _check_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{option} {shortened(value)}: {nearest(value, choices)}")


def _duration(option: str, text: str) -> float:
    try:
        return seconds_of(text)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


Tell = Callable[[str], None]


async def _serve(settings: ServeSettings, tell: Tell) -> None:
    # Until it is up, a signal ends it at once, even while it waits for the journal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    async with _leading(settings, tell) as running:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        _introduce(settings, running, tell)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, running.work}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if running.work.done():
            running.work.result()  # raises what went wrong
        tell("stopping: running jobs continue under their leases")


@asynccontextmanager
async def _leading(settings: ServeSettings, tell: Tell) -> AsyncIterator[Running]:
    """Start the scheduler, once any other one on the same journal has ended."""
    async with AsyncExitStack() as stack:
        try:
            running = await stack.enter_async_context(serving(replace(settings, wait_seconds=0.0)))
        except JournalInUseError as error:
            if not settings.wait_seconds:
                raise JournalInUseError(f"{error}, or pass --wait SECONDS to take over when it ends") from None
            tell(f"another scheduler uses the journal; waiting for it to end, at most {settings.wait_seconds:g} s")
            running = await stack.enter_async_context(serving(settings))
        yield running


def _introduce(settings: ServeSettings, running: Running, tell: Tell) -> None:
    """Print the settings that it runs with."""
    engine = running.engine
    tell(f"gavel {__version__} at {running.address}; {len(engine.scheduler.roster)} unfinished jobs in the journal")
    journal = {"journal": shown(parse(settings.journal))} if settings.journal else {}  # without its password
    for name, value in {**_flat(settings), **journal}.items():
        tell(f"  {name.replace('_', '-')} = {value}")
    tell(f"  cluster {engine.journal.cluster}, term {engine.journal.term}")
    for sentence in (*access_sentences(running), *open_to_others(settings.folder)):
        tell(f"  {sentence}")
    tell(f"  open files: at most {raise_file_limit():,}; every agent and every client needs one")


def access_sentences(running: Running) -> list[str]:
    """Who may call, and how others get in."""
    bound, secured = running.bound, running.secured
    warnings = [warning] if (warning := insecure_sentence(running.mode, bound)) else []
    if secured is None:
        told = "open: every process on this machine may do everything, as one user; `gavel init` sets up TLS and users"
        return warnings or [told]
    found = [
        *warnings,
        f"secured: TLS, authority {running.access.fingerprint}",
        f"agents with certificates at port {bound.agents_port}; local users at unix:{bound.socket}",
    ]
    if secured.first is not None:
        found += _logged_in(bound, secured)
        lines = first_lines(
            secured.first, running.access.advertised, running.access.fingerprint, shown=sys.stderr.isatty()
        )
        found += lines if secured.enrolment.signs else lines[:2]  # otherwise agents bring their certificates
    return found


def _logged_in(bound: BoundPorts, secured: Secured) -> list[str]:
    """Log the account that set the cluster up in at its socket, where commands do not look by themselves."""
    if bound.socket in (None, MACHINE_SOCKET):
        return []
    context = SchedulerContext(name=LOCAL_CONTEXT, address=f"unix:{bound.socket}", user=secured.owner)
    try:
        ContextFile.own().change(lambda contexts: contexts.adding(context))
    except InputError as error:
        return [f"commands on this machine: --scheduler unix:{bound.socket} ({error})"]
    return [f"commands of this account use it: context {LOCAL_CONTEXT!r}, as {secured.owner}"]


def first_lines(first: FirstTokens, address: str, fingerprint: str, *, shown: bool) -> list[str]:
    """The two lines that others need; unless tokens may be shown, with the files that have them."""
    admin = first.admin if shown else f'"$(cat {first.admin_file})"'
    join = first.join if shown else f'"$(cat {first.join_file})"'
    return [
        "to log in elsewhere as an administrator:",
        f"  gavel login {address} --token {admin} --fingerprint {fingerprint}",
        "to join an agent, on each server (within an hour; later: gavel token create --join):",
        f"  gavel worker --join {address} --token {join} --fingerprint {fingerprint} --accelerators auto",
    ]


def _log(line: str) -> None:
    """Write the message to the log."""
    logging.getLogger(__name__).info(line.strip())


def _flat(settings: ServeSettings) -> dict[str, Any]:
    own = {field.name: getattr(settings, field.name) for field in fields(settings)}
    fleet, keep, notify, _ = own.pop("fleet"), own.pop("keep"), own.pop("notify"), own.pop("listening")
    kept = {f"keep_{field.name}": getattr(keep, field.name) for field in fields(keep)}
    return {**own, **kept, **{field.name: getattr(fleet, field.name) for field in fields(fleet)}, **notify.options()}


def say(line: str) -> None:
    """Tell the operator of the service."""
    print(printable(line), file=sys.stderr, flush=True)


def raise_file_limit() -> int:
    """Raise this process's limit on open files to the maximum, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems allow less than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
