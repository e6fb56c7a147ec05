"""What is executed for a job: its command in its virtual environment, with its modules, or in its container."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gavel.client.requests import Submission
from gavel.runtime.agent.confinement import NO_LIMITS, TaskLimits
from gavel.runtime.agent.container_runtimes import (
    CannotContainError,
    Contained,
    ContainerCall,
    Runtime,
    contained,
    from_server,
)
from gavel.runtime.agent.environment import Seat, Variables
from gavel.runtime.agent.run_as import SystemAccount, on_behalf

MODULES_SCRIPT = """
_gavel_left=$1; shift
_gavel_has() { command -v module > /dev/null 2>&1; }
for _gavel_file in "$MODULESHOME/init/$_gavel_shell" "$LMOD_PKG/init/$_gavel_shell" /etc/profile.d/modules.sh \\
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh "/usr/share/modules/init/$_gavel_shell" \\
    "/usr/share/lmod/lmod/init/$_gavel_shell"; do
    _gavel_has && break
    if [ -r "$_gavel_file" ]; then . "$_gavel_file" > /dev/null 2>&1; fi
done
_gavel_has || { echo "gavel: this server has no environment modules: there is no command module" >&2; exit 126; }
while [ "$_gavel_left" -gt 0 ]; do
    _gavel_said=$( { module load "$1"; } 2>&1 ) && _gavel_failed= || _gavel_failed=yes
    case "$_gavel_said" in *ERROR:*) _gavel_failed=yes;; esac
    if [ "$_gavel_failed" ]; then
        echo "gavel: environment module $1 cannot be loaded:" $_gavel_said >&2
        exit 126
    fi
    module load "$1" > /dev/null 2>&1
    shift; _gavel_left=$((_gavel_left - 1))
done
if [ "$VIRTUAL_ENV" ]; then PATH="$VIRTUAL_ENV/bin:$PATH"; export PATH; fi
unset _gavel_left _gavel_file _gavel_said _gavel_failed _gavel_shell
command -v "$1" > /dev/null 2>&1 || { echo "gavel: command not found: $1" >&2; exit 127; }
exec "$@"
"""
"""Takes how many modules there are, the modules, and the command."""


class NeverStartsError(Exception):
    """Trying again would fail the same way: for example, the command or directory does not exist."""


@dataclass(frozen=True, slots=True)
class Execution:
    """A command and its whole environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    searched: bool = True
    """Whether the command is looked for on this server before it is started."""
    container: ContainerCall | None = None
    inherited: Mapping[str, str] = field(default_factory=dict)
    """What the runtime of its container finds in its environment, without anything of the job."""


@dataclass(frozen=True, slots=True)
class TaskSetting:
    """What a server gives to one process of a job."""

    runtime: Runtime | None
    """What runs containers here; None: nothing does."""
    seat: Seat
    devices: tuple[str, ...]
    """What the driver calls its devices; empty: they are emulated."""
    checkpoints: Path
    account: SystemAccount | None
    name: str
    """For a container."""
    steering_file: Path
    terminal: bool = False
    limits: TaskLimits = NO_LIMITS


def execution(request: Submission, variables: Variables, place: TaskSetting) -> Execution:
    """What to execute for a job; NeverStartsError if it cannot run on this server."""
    made = Execution(tuple(request.command), variables.all())
    if request.container:
        made = _in_container(request, variables, place)
    elif request.venv:
        made = replace(made, environment=_in_venv(request, variables.all(), place.account))
    return _with_modules(request.modules, made) if request.modules else made


# ---- virtual environments ----


def _in_venv(request: Submission, environment: Mapping[str, str], account: SystemAccount | None) -> dict[str, str]:
    """What `activate` sets."""
    venv = os.path.normpath(Path(request.working_directory or ".", request.venv).absolute())
    fault = on_behalf(account, lambda: _venv_fault(venv))
    if fault:
        raise NeverStartsError(fault)
    path = f"{venv}/bin{os.pathsep}{environment.get('PATH', os.defpath)}"
    others = {name: value for name, value in environment.items() if name != "PYTHONHOME"}
    return {**others, "VIRTUAL_ENV": venv, "PATH": path}


def _venv_fault(venv: str) -> str:
    if not os.path.isdir(venv):  # noqa: PTH112 - Path.is_dir would raise where it may not look
        return f"there is no virtual environment {venv} on this server"
    try:
        mode = Path(venv, "bin", "python").stat().st_mode  # os.access would ask about another user than on_behalf set
    except OSError:
        mode = 0
    return "" if mode & 0o111 else f"{venv} is no virtual environment: it has no bin/python that can be run"


# ---- environment modules ----


def _with_modules(modules: Sequence[str], made: Execution) -> Execution:
    """Load modules in a shell, which then becomes the command."""
    bash = os.access("/bin/bash", os.X_OK)
    shell = ("/bin/bash", "--noprofile", "--norc", "-c") if bash else ("/bin/sh", "-c")
    environment = {**made.environment, "_gavel_shell": "bash" if bash else "sh"}
    command = (*shell, MODULES_SCRIPT, "gavel", str(len(modules)), *modules, *made.command)
    return replace(made, command=command, environment=environment, searched=False)


# ---- containers ----


def _in_container(request: Submission, variables: Variables, place: TaskSetting) -> Execution:
    if place.runtime is None:
        raise NeverStartsError(
            "this server has neither podman, docker nor apptainer, so it cannot run a job in a container; install one, "
            "or use types of accelerators whose servers have one"
        )
    account = place.account
    own = {**from_server(variables.inherited), **variables.own}
    what = Contained(
        image=request.container,
        name=place.name,
        command=request.command,
        directory=request.working_directory,
        mounts=_mounts(request, place, own),
        variables=own,
        devices=place.devices,
        uid=os.geteuid() if account is None else account.uid,
        groups=(os.getegid(), *_other_groups()) if account is None else account.groups,
        steering_file=str(place.steering_file),
        terminal=place.terminal,
        limits=place.limits,
    )
    try:
        started = contained(place.runtime, what)
    except CannotContainError as error:
        raise NeverStartsError(str(error)) from None
    socket = {"GAVEL_SOCKET": place.seat.socket}  # by which what is left of the runtime itself is found
    environment = {**variables.inherited, **started.environment, **socket}
    return Execution(started.command, environment, container=started, inherited=variables.inherited)


def _other_groups() -> list[int]:
    return [group for group in os.getgroups() if group != os.getegid()]


def _mounts(request: Submission, place: TaskSetting, variables: Mapping[str, str]) -> dict[str, bool]:
    """The paths that a job needs inside, and whether it may write them."""
    found = {str(place.checkpoints): True, place.seat.socket: True}
    if request.working_directory:
        found[request.working_directory] = True
    if place.seat.certificate:
        found[place.seat.certificate] = False
    if pipes := variables.get("CUDA_MPS_PIPE_DIRECTORY"):
        found[pipes] = True
    return found


def container_name(agent: str, job: str, attempt: int, rank: int) -> str:
    """The name of a container, which says what runs in it.

    >>> container_name("5f3a9c21-77", "12", 3, 0)
    'gavel-5f3a9c21-12-3-0'
    """
    shown = (re.sub(r"[^A-Za-z0-9]", "_", text) for text in (agent[:8], job[:100]))
    return f"gavel-{'-'.join(shown)}-{attempt}-{rank}"
