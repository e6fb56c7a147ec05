"""The rules for a valid job request, field by field: what no scheduler could accept is refused with a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gavel.client.arrays import LARGEST_INDEX, Indices, check_grid
from gavel.client.dependencies import Dependency
from gavel.client.field_checks import (
    FieldError,
    check_label,
    check_positive_field,
    check_text,
    check_whole,
    shortened,
)
from gavel.client.secret_values import SecretValues, check_names, check_values
from gavel.errors import InputError
from gavel.limits import (
    LONGEST_HOURS,
    LONGEST_PATH,
    LONGEST_SECONDS,
    MOST_AFTER,
    MOST_BYTES,
    MOST_CORES,
    MOST_JOBS_IN_A_CALL,
    MOST_MODULES,
    MOST_NOTIFIED,
    MOST_RETRIES,
    MOST_TAGS,
    MOST_TYPES,
    MOST_VARIABLES,
    MOST_WORKERS,
)

if TYPE_CHECKING:
    from gavel.client.requests import JobRequest

SHELL = ("/bin/sh", "-c")
PER_DEVICE, PER_SERVER = LAUNCHERS = ("per-device", "per-server")


def check_request(request: JobRequest) -> None:
    """Raise FieldError for the first field that no scheduler could accept."""
    for name in ("command", "types", "prefer", "after", "notify", "modules"):
        if not isinstance(getattr(request, name), tuple):
            raise FieldError(name, f"{name} must be a list, not {shortened(getattr(request, name))}")
    _check_command(request.command)
    for name in ("name", "template", "entity", "user", "array_id"):
        check_label(name, getattr(request, name))
    for name in ("working_directory", "venv", "container"):
        check_label(name, getattr(request, name), longest=LONGEST_PATH)
    _check_types("types", request.types)
    _check_types("prefer", request.prefer)
    _check_preference(request)
    _check_environment(request.environment)
    _check_numbers(request)
    for name in ("private", "hold", "terminal"):
        if not isinstance(getattr(request, name), bool):
            raise FieldError(name, f"{name} must be true or false, not {shortened(getattr(request, name))}")
    _check_secrets(request.secrets)
    _check_tags(request.tags)
    _check_launcher(request)
    _check_lists(request)
    _check_array(request)


LEAST_BYTES = 2**20
"""Less memory than this is a size whose unit was forgotten."""


def _check_numbers(request: JobRequest) -> None:
    most: Mapping[str, float] = {
        "deadline_hours": LONGEST_HOURS,
        "grace": LONGEST_SECONDS,
        "time_limit": LONGEST_SECONDS,
        "idle_timeout": LONGEST_SECONDS,
        "gpu_memory": MOST_BYTES,
        "memory": MOST_BYTES,
        "cpus": MOST_CORES,
    }
    if request.steps is not None:
        check_positive_field("steps", request.steps)
    for name, limit in most.items():
        value: Any = getattr(request, name)
        if value is not None:
            check_positive_field(name, value, most=limit)
            if name in ("gpu_memory", "memory") and value < LEAST_BYTES:
                raise FieldError(name, f"{name} is only {value:g} bytes; give it with a unit, for example 20G")
    check_positive_field("weight", request.weight)
    check_whole("workers", request.workers, least=1, most=MOST_WORKERS)
    check_whole("retries", request.retries, least=0, most=MOST_RETRIES)
    check_whole("at_once", request.at_once, least=0, most=MOST_JOBS_IN_A_CALL)


def _check_preference(request: JobRequest) -> None:
    """Preferred types are among those that the job may run on."""
    outside = [name for name in request.prefer if request.types and name not in request.types]
    if outside:
        raise FieldError("prefer", f"prefer names {outside[0]!r}, which is not one of its types")


def _check_tags(tags: Mapping[str, str]) -> None:
    if not isinstance(tags, Mapping):
        raise FieldError("tags", f"tags must be a mapping of names to values, not {shortened(tags)}")
    if len(tags) > MOST_TAGS:
        raise FieldError("tags", f"tags has {len(tags):,} tags, at most {MOST_TAGS} are allowed")
    for name, value in tags.items():
        check_label("tags", name)
        check_label("tags", value)
        if not name or "=" in name:
            raise FieldError("tags", f"tags: {shortened(name)} cannot be the name of a tag")


def _check_launcher(request: JobRequest) -> None:
    if request.launcher not in LAUNCHERS:
        raise FieldError("launcher", f"launcher must be {' or '.join(LAUNCHERS)}, not {shortened(request.launcher)}")
    if request.launcher == PER_DEVICE and request.workers > 1 and (program := starts_ranks(request.command)):
        raise FieldError(
            "launcher",
            f"{program} starts the ranks of a job itself, and Gavel would start {program} {request.workers:,} times, "
            "once for each worker; write --launcher per-server (in a file: launcher: per-server), which starts it once "
            "on each server",
        )


_STARTERS = {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun"}
_STARTING_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
}


def starts_ranks(command: Sequence[str]) -> str:
    """The program in a command that starts the ranks of a job itself; empty if there is none.

    >>> starts_ranks(("torchrun", "train.py")), starts_ranks(("python", "-m", "torch.distributed.run", "train.py"))
    ('torchrun', 'torchrun')
    >>> starts_ranks(("python", "torchrun.py")), starts_ranks(("accelerate", "env"))
    ('', '')
    """
    words = list(command)
    if tuple(words[:2]) == SHELL and len(words) == 3:
        words = words[2].split()
    if not words:
        return ""
    program = words[0].rpartition("/")[2]
    if program in _STARTERS:
        return program if program != "accelerate" or "launch" in words[1:2] else ""
    if program.startswith("python") and "-m" in words[:-1]:
        return _STARTING_MODULES.get(words[words.index("-m") + 1], "")
    return ""


def _check_lists(request: JobRequest) -> None:
    """The fields that are lists of texts."""
    limits = {"after": MOST_AFTER, "notify": MOST_NOTIFIED, "modules": MOST_MODULES}
    for name, most in limits.items():
        values: Sequence[str] = getattr(request, name)
        if len(values) > most:
            raise FieldError(name, f"{name} has {len(values):,} entries, at most {most:,} are allowed")
        for value in values:
            check_label(name, value, longest=LONGEST_PATH)
    for text in request.after:
        _saying("after", lambda text=text: Dependency.of(text))  # type: ignore[misc] # bound now
    for url in request.notify:
        if not url.startswith(("https://", "http://")):
            raise FieldError("notify", f"notify: {shortened(url)} is not a URL that begins with https:// or http://")
    _check_environments(request)


_IMAGE = re.compile(r"(?!.*//.*//)[A-Za-z0-9/._][A-Za-z0-9/._:@+~-]*")
_IMAGE_SCHEMES = ("docker", "library", "oras", "shub")
_MODULE = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_/.+:@=~%-]*")


def _check_environments(request: JobRequest) -> None:
    """What it runs in: these texts become words of commands, and must not be options of them."""
    if request.container and request.venv:
        raise FieldError("container", "give a container or a virtual environment (venv), not both")
    scheme, separator, _ = request.container.partition("://")
    known = not separator or scheme in _IMAGE_SCHEMES
    if request.container and not (known and _IMAGE.fullmatch(request.container)):
        told = "is not the name of an image; write, for example, pytorch/pytorch:2.9 or /images/train.sif"
        raise FieldError("container", f"container {shortened(request.container)} {told}")
    for module in request.modules:
        if not _MODULE.fullmatch(module):
            raise FieldError(
                "modules", f"modules names {shortened(module)}, which is not the name of a module, such as cuda/12.4"
            )
    if request.venv.startswith("-"):
        raise FieldError("venv", f"venv {shortened(request.venv)} is not a directory; write ./{request.venv}")


def _check_array(request: JobRequest) -> None:
    if request.index is not None:
        check_whole("index", request.index, least=0, most=LARGEST_INDEX)
    if not isinstance(request.parameters, Mapping):
        raise FieldError("parameters", f"parameters must be a mapping, not {shortened(request.parameters)}")
    for name, value in request.parameters.items():
        check_label("parameters", name)
        check_label("parameters", value)
    if request.array:
        check_label("array", request.array)
        _saying("array", lambda: Indices.of(request.array))
    _saying("grid", lambda: check_grid(request.grid))
    if request.at_once and not (request.array or request.grid or request.array_id):
        raise FieldError("at_once", "at_once limits the jobs of an array or a grid, and this job has neither")


def _saying(name: str, check: Callable[[], object]) -> None:
    """Name the field in the error of a check."""
    try:
        check()
    except FieldError:
        raise
    except InputError as error:
        raise FieldError(name, f"{name}: {error}") from None


def _check_command(command: Sequence[str]) -> None:
    if not command or not command[0]:
        raise FieldError("command", "command is missing; give the program and its arguments")
    for part in command:
        check_text("command", part)
    if tuple(command[:2]) == SHELL and len(command) == 3 and not command[2].strip():
        raise FieldError("command", "command is empty; give the program and its arguments")


def _check_types(name: str, types: Sequence[str]) -> None:
    if len(types) > MOST_TYPES:
        raise FieldError(name, f"{name} names {len(types):,} types; name at most {MOST_TYPES}")
    for type_name in types:
        check_label(name, type_name)
        if not type_name:
            raise FieldError(name, f"{name} contains an empty name")
        if types.count(type_name) > 1:
            raise FieldError(name, f"{name} names {type_name!r} twice")


def _check_environment(environment: Mapping[str, str]) -> None:
    if not isinstance(environment, Mapping):
        raise FieldError("environment", f"environment must be a mapping, not {shortened(environment)}")
    if len(environment) > MOST_VARIABLES:
        raise FieldError(
            "environment", f"environment has {len(environment):,} variables, at most {MOST_VARIABLES:,} are allowed"
        )
    for name, value in environment.items():
        check_label("environment", name)
        if not name or "=" in name:
            raise FieldError("environment", f"environment: {shortened(name)} cannot be the name of a variable")
        _check_value(name, value)


def _check_value(name: str, value: object) -> None:
    """As `check_text`, without quoting the value: it may be a secret."""
    try:
        check_text("environment", value)
    except FieldError:
        told = f"environment: the value of {shortened(name)} must be text without NUL characters, in valid Unicode"
        raise FieldError("environment", told) from None


def _check_secrets(secrets: Mapping[str, str] | Sequence[str]) -> None:
    if not isinstance(secrets, SecretValues | tuple):
        raise FieldError("secrets", "secrets must be a mapping of names to values, or a list of names")
    try:
        check_names(secrets)
        check_values(secrets if isinstance(secrets, SecretValues) else {})
    except InputError as error:
        raise FieldError("secrets", str(error)) from None
