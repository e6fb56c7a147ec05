"""Runs a job's command in a container image: by podman, docker or apptainer, whichever this server has.

It makes command lines and runs nothing. A container is an environment, not a wall: the runtime is started with the
rights of the job's account, and can do no more than the job could by itself.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gavel.errors import InputError
from gavel.runtime.agent.confinement import NO_LIMITS, TaskLimits

PODMAN, DOCKER, APPTAINER, SINGULARITY = RUNTIMES = ("podman", "docker", "apptainer", "singularity")
"""In order of preference."""
_PREFIXES = {APPTAINER: "APPTAINERENV_", SINGULARITY: "SINGULARITYENV_"}
"""Variables with these names appear in the container without the prefix."""
FAILED_TO_START = 125
"""The exit code of podman and docker if the container could not be started."""
_FROM_REGISTRY = "docker://"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNMOUNTABLE = ":,\"'\\\n"
_STEERING_PREFIXES = ("LD_", "XDG_", "DOCKER_", "CONTAINER", "STORAGE_", "REGISTRY_", "BUILDAH_", "PODMAN_")
_STEERING_NAMES = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "GODEBUG", "BASH_ENV", "ENV", "IFS"})
"""Variables that would steer the runtime itself; they reach the container in another way."""
_INHERITED = ("NCCL_", "GLOO_", "UCX_")
"""What a container gets of the server's own variables: they describe its networks."""
_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})


class CannotContainError(Exception):
    """A job cannot run in its container on this server; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program that runs containers."""

    kind: str
    program: str
    """Its absolute path."""
    catatonit: bool = False
    """For podman: whether it can put a process that handles signals first in the container."""


@dataclass(frozen=True, slots=True)
class Contained:
    """What to run in which container."""

    image: str
    name: str
    """Of the container; no other on this server has it."""
    command: Sequence[str]
    directory: str
    """Where it starts; empty: where the image says."""
    mounts: Mapping[str, bool]
    """Paths that are the same inside, and whether they may be written."""
    variables: Mapping[str, str]
    devices: tuple[str, ...]
    """What the driver calls the NVIDIA devices; empty: there are none."""
    uid: int
    groups: tuple[int, ...]
    """The main one first."""
    steering_file: str
    """Where variables are that the runtime must not find in its own environment."""
    terminal: bool = False
    """Whether it has a terminal."""
    limits: TaskLimits = NO_LIMITS
    """For runtimes whose containers are not in the control group of the task."""


@dataclass(frozen=True, slots=True)
class ContainerCall:
    """How a container is started and ended."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables for the runtime, beside its own; values are only here and in the steering file."""
    steering_file: str
    steering: str
    """The content of that file; empty: none is needed."""
    removal: tuple[str, ...]
    """Ends the container, whatever it does; empty: it ends with the process that started it."""


def find_runtime(wanted: Sequence[str], path: str | None) -> Runtime | None:
    """The first of these runtimes that is installed."""
    for kind in wanted:
        program = shutil.which(kind, path=path)
        if program is not None:
            return Runtime(kind, os.path.abspath(program), _has_catatonit(path))  # noqa: PTH100 - keeps links as named
    return None


def _has_catatonit(path: str | None) -> bool:
    there = ("/usr/libexec/podman/catatonit", "/usr/local/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
    return shutil.which("catatonit", path=path) is not None or any(Path(each).exists() for each in there)


def parse_runtimes(text: str) -> tuple[str, ...]:
    """Read --container-runtime.

    >>> parse_runtimes("apptainer,podman")
    ('apptainer', 'podman')
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in RUNTIMES:
            raise InputError(f"--container-runtime {text!r}: {name!r} is none of {', '.join(RUNTIMES)}")
    return names


def contained(runtime: Runtime, what: Contained) -> ContainerCall:
    """Make the command that runs something in a container."""
    for path in filter(None, (what.directory, *what.mounts)):
        if any(character in path for character in _UNMOUNTABLE):
            raise CannotContainError(f"{path!r} cannot be mounted in a container, because of a character in its name")
    for name in what.variables:
        if not _NAME.fullmatch(name):
            raise CannotContainError(f"the environment variable {name!r} cannot be passed to a container; rename it")
    return _by_prefix(runtime, what) if runtime.kind in _PREFIXES else _by_name(runtime, what)


def _by_name(runtime: Runtime, what: Contained) -> ContainerCall:
    """With podman or docker: the command line names variables, whose values are read from the environment."""
    steers = steering(what.variables)
    for name in (name for name, value in steers.items() if "\n" in value):
        raise CannotContainError(f"the variable {name} has several lines, which cannot be passed to a container")
    # The container has no other devices, and numbers those that it has by itself.
    passed = {
        name: value
        for name, value in what.variables.items()
        if name not in steers and not (what.devices and name in _DEVICES)
    }
    command = [
        *(runtime.program, "run", "--rm", f"--name={what.name}", "--network=host", "--ipc=host"),
        "--security-opt=label=disable",
        *(["--interactive", "--tty"] if what.terminal else []),
        *_init(runtime),
        *_user(runtime, what),
        *_devices(runtime, what.devices),
        *_limits(what.limits),
        *(f"--mount=type=bind,source={path},target={path}{_access(may_write=w)}" for path, w in what.mounts.items()),
        *(f"--env={name}" for name in passed),
        *([f"--env-file={what.steering_file}"] if steers else []),
        *([f"--workdir={what.directory}"] if what.directory else []),
        _image(runtime, what.image),
        *what.command,
    ]
    removal = [runtime.program, "rm", "--force", *(["--ignore", "--time=0"] if runtime.kind == PODMAN else [])]
    lines = "".join(f"{name}={value}\n" for name, value in steers.items())
    return ContainerCall(tuple(command), passed, what.steering_file, lines, (*removal, what.name))


def _by_prefix(runtime: Runtime, what: Contained) -> ContainerCall:
    """With apptainer or singularity: the container is the process itself, and ends with it."""
    command = [
        *(runtime.program, "exec", "--cleanenv"),
        *(["--nv"] if what.devices else []),
        *(f"--bind={path}:{path}{'' if may_write else ':ro'}" for path, may_write in what.mounts.items()),
        *([f"--pwd={what.directory}"] if what.directory else []),
        _image(runtime, what.image),
        *what.command,
    ]
    prefix = _PREFIXES[runtime.kind]
    passed = {f"{prefix}{name}": value for name, value in what.variables.items()}
    return ContainerCall(tuple(command), passed, what.steering_file, "", ())


def _init(runtime: Runtime) -> list[str]:
    """Without a first process that handles signals, SIGTERM would not reach most programs."""
    return ["--init"] if runtime.kind == DOCKER or runtime.catatonit else []


def _user(runtime: Runtime, what: Contained) -> list[str]:
    """Files that the job writes belong to its account."""
    if runtime.kind == PODMAN and what.uid != 0:
        return ["--userns=keep-id"]
    main, *others = what.groups
    return [f"--user={what.uid}:{main}", *(f"--group-add={group}" for group in others)]


def _devices(runtime: Runtime, devices: tuple[str, ...]) -> list[str]:
    if not devices:
        return []
    if runtime.kind == PODMAN:
        return [f"--device=nvidia.com/gpu={device}" for device in devices]
    return [f'--gpus="device={",".join(devices)}"']  # docker reads it as a list with quotes


def _limits(limits: TaskLimits) -> list[str]:
    memory = [f"--memory={limits.memory}", f"--memory-swap={limits.memory}"] if limits.memory else []
    return [*memory, *([f"--cpus={limits.cores:g}"] if limits.cores else [])]


def _access(*, may_write: bool) -> str:
    return "" if may_write else ",readonly"


def _image(runtime: Runtime, image: str) -> str:
    """An image as a runtime names it: those of registries are the same for all."""
    scheme, separator, rest = image.partition("://")
    is_file = not separator and (image.startswith(("/", ".")) or image.endswith(".sif"))
    if runtime.kind in _PREFIXES:
        return image if separator or is_file else f"{_FROM_REGISTRY}{image}"
    if is_file or (separator and scheme != "docker"):
        raise CannotContainError(
            f"image {image!r} is for apptainer, and this server has {runtime.kind}; name an image of a registry"
        )
    return rest if separator else image


def steering(variables: Mapping[str, str]) -> dict[str, str]:
    """Those variables that would steer a runtime that finds them in its environment.

    >>> steering({"PATH": "/bin", "DOCKER_HOST": "tcp://x", "WANDB_KEY": "y"})
    {'PATH': '/bin', 'DOCKER_HOST': 'tcp://x'}
    """
    return {
        name: value
        for name, value in variables.items()
        if name in _STEERING_NAMES or name.startswith(_STEERING_PREFIXES)
    }


def from_server(inherited: Mapping[str, str]) -> dict[str, str]:
    """What a container gets of the variables that jobs on this server inherit: others describe the server's files."""
    return {name: value for name, value in inherited.items() if name.startswith(_INHERITED)}
