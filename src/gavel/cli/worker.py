"""`gavel worker`: the agent of one server, in the foreground; `gavel worker drain`: let a server run empty."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.options import AsJson
from gavel.cli.remote import SchedulerOption, connect
from gavel.cli.render import print_json
from gavel.client.connection import scheduler_address
from gavel.core.throughputs import ThroughputTable, read_table
from gavel.errors import InputError
from gavel.limits import check_options, check_positive
from gavel.runtime.agent import Agent, AgentSettings, emulated
from gavel.runtime.agent.accelerators import Indices, installed_accelerators, parse_accelerators
from gavel.runtime.agent.emulation import Emulation

app = typer.Typer(
    help="""Run jobs on this server for a scheduler.

    Ends with SIGTERM or Ctrl-C: jobs save and move elsewhere. A second signal ends them at once.
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
            help="What this server has, for example v100=4, numbered as nvidia-smi does; auto: as nvidia-smi says.",
            metavar="TYPE=COUNT,…",
            envvar="GAVEL_ACCELERATORS",
        ),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(
            help="Pretend to have these, for example v100=2,k80=2: jobs run as fast as a table says.",
            metavar="TYPE=COUNT,…",
            envvar="GAVEL_EMULATE",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="What the scheduler calls this server; default: its host name.", envvar="GAVEL_WORKER_NAME"),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            help="Where jobs keep checkpoints; all servers must see the same directory.",
            metavar="DIR",
            envvar="GAVEL_CHECKPOINTS",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="A directory for this agent alone: logs and the like.", metavar="DIR", envvar="GAVEL_STATE"),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Where other servers reach this one; default: as the scheduler does.", metavar="HOST"),
    ] = None,
    time_scale: Annotated[float, typer.Option(help="Emulated accelerators are so many times as fast.")] = 1.0,
    throughputs: Annotated[
        str, typer.Option(help="The table of emulated accelerators, or 'builtin'.", metavar="FILE")
    ] = "builtin",
    log_megabytes: Annotated[float, typer.Option(help="Largest log of one process of a job.", min=0.1)] = 16.0,
) -> None:
    """Run the agent, unless another command is asked for."""
    if context.invoked_subcommand is not None:
        return
    check_options({"log_megabytes": log_megabytes})
    found, emulation = _hardware(accelerators, emulate, time_scale, throughputs)
    named = platform.node() if name is None else name
    settings = AgentSettings(
        accelerators=found,
        state=_home() / "agents" / (named.replace("/", "_") or "_") if state is None else state,
        checkpoints=_home() / "checkpoints" if checkpoints is None else checkpoints,
        scheduler=scheduler_address(scheduler),
        name=named,
        address=address,
        emulation=emulation,
        log_bytes=int(log_megabytes * 1024 * 1024),
    )
    asyncio.run(_serve(settings))


@app.command("drain")
def drain_command(
    name: Annotated[str, typer.Argument(help="The agent, as `gavel cluster` names it.")],
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a server no new work; its jobs save, leave and start elsewhere when there is room."""
    with connect(scheduler) as client:
        jobs = client.drain(name)
    if as_json:
        print_json({"agent": name, "jobs": jobs})
    elif jobs:
        print(f"{name} gets no new work; still there: {', '.join(jobs)}")
    else:
        print(f"{name} gets no new work, and has none")


def _hardware(
    accelerators: str | None, emulate: str | None, time_scale: float, throughputs: str
) -> tuple[Indices, Emulation | None]:
    if (accelerators is None) == (emulate is None):
        raise InputError("say what this server has: either --accelerators v100=4 (or auto), or --emulate v100=2,k80=2")
    if emulate is not None:
        check_positive("--time-scale", time_scale)
        return emulated(emulate, table=_table(throughputs), time_scale=time_scale)
    if accelerators is None or accelerators == "auto":
        return installed_accelerators(), None
    return parse_accelerators(accelerators), None


def _table(name: str) -> ThroughputTable | None:
    return None if name == "builtin" else read_table(Path(name))


def _home() -> Path:
    """Find where things are kept unless somebody says otherwise."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "gavel"


async def _serve(settings: AgentSettings) -> None:
    settings.check()
    agent = Agent(settings, _say)
    stops: list[asyncio.Task[None]] = []

    def leave() -> None:
        _say("ending all jobs at once" if stops else "asking all jobs to save and leave; once more: at once")
        stops.append(asyncio.create_task(agent.stop(at_once=bool(stops))))

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    kinds = ", ".join(f"{count} {kind}" for kind, count in settings.counts().items())
    emulated_ones = " (emulated)" if settings.emulation is not None else ""
    _say(f"agent {settings.name}: {kinds}{emulated_ones}; checkpoints {settings.checkpoints}; state {settings.state}")
    await agent.run()
    _say("left the cluster")


def _say(sentence: str) -> None:
    print(f"{datetime.now().astimezone():%H:%M:%S} {sentence}", file=sys.stderr, flush=True)
