"""`gavel worker`: the agent of one server, in the foreground; `gavel worker drain, undrain, remove`: for operators."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.joining import Joining, credentials_for
from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.cli.words import printable, span
from gavel.client.access import INSECURE_VARIABLE, is_loopback
from gavel.client.connection import scheduler_address
from gavel.client.quantities import bytes_of, size
from gavel.client.views import AgentView
from gavel.core.throughputs import ThroughputTable, read_table
from gavel.errors import InputError
from gavel.limits import check_options, check_positive
from gavel.runtime.agent import Agent, AgentSettings, emulated
from gavel.runtime.agent.accelerator_memory import known_memory, parse_memory
from gavel.runtime.agent.accelerators import parse_accelerators
from gavel.runtime.agent.container_runtimes import RUNTIMES, parse_runtimes
from gavel.runtime.agent.discovery import Hardware, discovered, named_by_hand
from gavel.runtime.agent.emulation import Emulation
from gavel.runtime.agent.run_as import run_as
from gavel.runtime.agent.server_figures import usable_cores, usable_memory
from gavel.runtime.agent.state import closed_above
from gavel.runtime.privacy import forbid_inspection, open_to_others, private_umask

AgentName = Annotated[str, typer.Argument(help="The agent's name, as shown by `gavel cluster`.", metavar="NAME")]

app = typer.Typer(
    help="""Run jobs on this server for a scheduler.

    On SIGTERM or Ctrl-C, jobs save and move elsewhere. A second signal ends them at once.
    """,
    invoke_without_command=True,
)


@app.callback()
def worker_command(
    context: typer.Context,
    scheduler: SchedulerOption = None,
    accelerators: Annotated[
        str | None,
        typer.Option(
            help="Accelerators of this server, for example v100=4, numbered as by nvidia-smi; auto: ask nvidia-smi or "
            "rocm-smi, within what this agent was given.",
            metavar="TYPE=COUNT,…",
            envvar="GAVEL_ACCELERATORS",
        ),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(
            help="Emulated accelerators, for example v100=2,k80=2: jobs run as fast as a table says.",
            metavar="TYPE=COUNT,…",
            envvar="GAVEL_EMULATE",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of this server; default: its host name.", envvar="GAVEL_WORKER_NAME"),
    ] = None,
    accelerator_memory: Annotated[
        str | None,
        typer.Option(
            help="Memory of one accelerator by type, for example v100=16G; default: what its driver or its name says.",
            metavar="TYPE=SIZE,…",
            envvar="GAVEL_ACCELERATOR_MEMORY",
        ),
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(help="CPU cores that jobs may use; default: all that the agent may use.", metavar="CORES"),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="RAM that jobs may use, for example 200G; default: all but a small reserve.", metavar="SIZE"),
    ] = None,
    enforce_shares: Annotated[
        bool,
        typer.Option(
            "--enforce-shares",
            help="Hold jobs that do not say what they need to their accelerators' part of the CPU cores and RAM.",
        ),
    ] = False,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="Directory for checkpoints; all servers must see the same one.",
            metavar="DIR",
            envvar="GAVEL_CHECKPOINTS",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Directory for this agent's identity, lock and logs; one per agent.",
            metavar="DIR",
            envvar="GAVEL_STATE",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Address at which other servers reach this one; default: as seen by the scheduler.", metavar="HOST"
        ),
    ] = None,
    time_scale: Annotated[float, typer.Option(help="How many times as fast emulated accelerators run.")] = 1.0,
    throughputs: Annotated[
        str, typer.Option(help="Throughput table of emulated accelerators, or 'builtin'.", metavar="FILE")
    ] = "builtin",
    log_megabytes: Annotated[float, typer.Option(help="Largest log of one worker of a job.", min=0.1)] = 16.0,
    join: Annotated[
        str | None,
        typer.Option(
            help="Enrol at this scheduler, if this agent has not yet; later starts need no options.",
            metavar="HOST:PORT",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="Join token; -: read it from standard input. Also GAVEL_JOIN_TOKEN.", metavar="TOKEN"),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="Fingerprint of the cluster's authority.", metavar="sha256:…")
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            help="Own certificate, for a scheduler with --client-ca; its common name is --name.", metavar="FILE"
        ),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of that certificate.", metavar="FILE")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="Authority of the scheduler's certificate, in PEM.", metavar="FILE")
    ] = None,
    run_jobs_as: Annotated[
        str | None,
        typer.Option(
            "--run-as",
            help="For an agent that runs as root: the account that jobs run as. 'same': that of the user's name; "
            "FILE: a JSON or TOML table of accounts by user, with '*' for all others.",
            metavar="NAME|FILE|same",
            envvar="GAVEL_RUN_AS",
            show_default="same",
        ),
    ] = None,
    container_runtime: Annotated[
        str,
        typer.Option(
            help="What runs jobs in containers: the first of these that is installed.",
            metavar="NAME,…",
            envvar="GAVEL_CONTAINER_RUNTIME",
        ),
    ] = ",".join(RUNTIMES),
) -> None:
    """Run the agent, unless a subcommand was given."""
    if context.invoked_subcommand is not None:
        return
    check_options({"log_megabytes": log_megabytes})
    found, emulation = _hardware(accelerators, emulate, time_scale, throughputs)
    stated = {} if accelerator_memory is None else parse_memory(accelerator_memory, found.accelerators)
    cores, ram = _figures(cpus, memory, emulated=emulation is not None)
    named = platform.node() if name is None else name
    home = _home() / "agents" / (named.replace("/", "_") or "_") if state is None else state
    settings = AgentSettings(
        accelerators=found.accelerators,
        device_names=found.names,
        vendor=found.vendor,
        accelerator_memory=known_memory(found.accelerators, found.memory, stated),
        cpus=cores,
        memory_bytes=ram,
        enforce_shares=enforce_shares,
        state=home,
        checkpoints=_home() / "checkpoints" if checkpoints is None else checkpoints,
        scheduler=scheduler_address(scheduler),
        umask=private_umask(),
        name=named,
        address=address,
        emulation=emulation,
        log_bytes=int(log_megabytes * 1024 * 1024),
        run_as=run_as(run_jobs_as),
        container_runtimes=parse_runtimes(container_runtime),
    )
    settings.check()  # before a join token is used
    joining = Joining(join=join, token=token, fingerprint=fingerprint, certificate=tls_cert, key=tls_key, authority=ca)
    # A variable for the clients of this machine must not lead an enrolled agent elsewhere.
    given = scheduler if _is_typed(context, "scheduler") else None
    credentials = credentials_for(joining, given, home, named, _say)
    if credentials is None:
        _check_plaintext(settings.scheduler)
    else:
        settings = replace(settings, credentials=credentials, scheduler=credentials.address)
    forbid_inspection()
    asyncio.run(_serve(settings))


@app.command("drain")
def drain_command(
    name: AgentName,
    now: Annotated[
        bool, typer.Option("--now", help="Make its jobs leave at once, not at the end of the round.")
    ] = False,
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a server no new work: when the round ends its jobs save, leave and wait for room elsewhere.

    It stays drained until `gavel worker undrain`, even if it or the scheduler is restarted.
    """
    with connect(scheduler) as client:
        agent, view = client.drain(name, now=now), client.cluster()
    left = max(0.0, view.round_ends - view.time)
    if as_json:
        print_json({**agent.document(), "now": now, "seconds_left": 0.0 if now or not agent.jobs else left})
    else:
        print(printable(_drained(agent, left, now=now)))


@app.command("undrain")
def undrain_command(name: AgentName, scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Let a drained server take work again."""
    with connect(scheduler) as client:
        agent = client.undrain(name)
    back = {
        "lost": " when it comes back; it is lost",
        "away": " when it comes back; it is away",
    }
    if as_json:
        print_json(agent.document())
    else:
        print(printable(f"{name} takes work again{back.get(agent.state, '')}"))


@app.command("remove")
def remove_command(name: AgentName, scheduler: SchedulerOption = None, as_json: AsJson = False) -> None:
    """Remove a lost or drained server from the list."""
    with connect(scheduler) as client:
        agent = client.remove_server(name)
    if as_json:
        print_json(agent.document())
    else:
        print(printable(f"{name} is removed; if its agent connects again, it joins as a new one"))


def _drained(agent: AgentView, left: float, *, now: bool) -> str:
    """Say what happens to the jobs of an agent, and when."""
    if agent.state == "lost":
        return f"{agent.agent} is lost; if it comes back it takes no work until `gavel worker undrain {agent.agent}`"
    if not agent.jobs:
        return f"{agent.agent} takes no new work, and none is left there: it is drained"
    one = len(agent.jobs) == 1
    jobs = f"{'job' if one else 'jobs'} {', '.join(agent.jobs)}"
    if now:
        what = f"{jobs} {'is' if one else 'are'} asked to save and leave now"
    else:
        what = f"{jobs} {'runs' if one else 'run'} until the round ends in {span(left)}, then {_leaves(one=one)}"
    return f"{agent.agent} takes no new work; {what}. `gavel cluster` says drained when it is empty"


def _leaves(*, one: bool) -> str:
    return "saves, leaves and waits for room elsewhere" if one else "save, leave and wait for room elsewhere"


def _hardware(
    accelerators: str | None, emulate: str | None, time_scale: float, throughputs: str
) -> tuple[Hardware, Emulation | None]:
    if (accelerators is None) == (emulate is None):
        raise InputError("say what this server has: either --accelerators v100=4 (or auto), or --emulate v100=2,k80=2")
    if emulate is not None:
        check_positive("--time-scale", time_scale)
        found, emulation = emulated(emulate, table=_table(throughputs), time_scale=time_scale)
        return Hardware(found), emulation
    if accelerators is None or accelerators == "auto":
        hardware = discovered(os.environ)
        for warning in hardware.warnings:
            _say(warning)
        return hardware, None
    return named_by_hand(parse_accelerators(accelerators), os.environ), None


def _figures(cpus: float | None, memory: str | None, *, emulated: bool) -> tuple[float, int]:
    """The cores and RAM that jobs may use; emulated accelerators have as much as is stated, or any."""
    stated_memory = None if memory is None else bytes_of(memory)
    if emulated:
        return cpus or 0.0, stated_memory or 0
    cores, ram = usable_cores(), usable_memory()
    if cpus is not None and not 0.0 < cpus <= cores:
        raise InputError(f"--cpus {cpus:g}: jobs may use more than 0 and at most the {cores:g} that this agent may use")
    if stated_memory is not None and not 0 < stated_memory <= max(ram, 1):
        raise InputError(f"--memory {memory}: jobs may use more than 0 and at most the {size(ram)} that there are")
    return cpus or cores, stated_memory or ram


def _check_plaintext(scheduler: str) -> None:
    """Refuse to take orders without TLS from beyond this machine, unless that is wanted."""
    if not is_loopback(scheduler) and not os.environ.get(INSECURE_VARIABLE):
        raise InputError(
            f"this agent has not joined the scheduler at {scheduler}, so anyone in between could give it orders; join"
            f" it with --join, --token and --fingerprint, or set {INSECURE_VARIABLE}=1 if that scheduler has no TLS"
        )


def _is_typed(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _table(name: str) -> ThroughputTable | None:
    return None if name == "builtin" else read_table(Path(name))


def _home() -> Path:
    """Find the default directory for the agent's state."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "gavel"


async def _serve(settings: AgentSettings) -> None:
    settings.check()
    agent = Agent(settings, _say)
    stops: list[asyncio.Task[None]] = []

    def leave() -> None:
        _say(
            "ending all jobs at once"
            if stops
            else "asking all jobs to save and leave; signal again to end them at once"
        )
        stops.append(asyncio.create_task(agent.stop(at_once=bool(stops))))

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    counts = ", ".join(f"{count} {type_name}" for type_name, count in settings.counts().items())
    emulated_ones = " (emulated)" if settings.emulation is not None else ""
    _say(f"agent {settings.name}: {counts}{emulated_ones}; checkpoints {settings.checkpoints}; state {settings.state}")
    for sentence in (*open_to_others(settings.state), *_isolation(settings)):
        _say(sentence)
    await agent.run()
    _say("left the cluster")


def _isolation(settings: AgentSettings) -> list[str]:
    """What the operator must know about what jobs can reach."""
    closed = closed_above(settings.checkpoints / "job") if settings.run_as.accounts else None
    if closed is None:
        return [settings.run_as.described()]
    unreachable = f"accounts of jobs may not be able to enter {closed}, where their checkpoints are"
    return [settings.run_as.described(), f"{unreachable}; choose another --checkpoints directory or open this one"]


def _say(sentence: str) -> None:
    print(f"{datetime.now().astimezone():%H:%M:%S} {printable(sentence)}", file=sys.stderr, flush=True)
