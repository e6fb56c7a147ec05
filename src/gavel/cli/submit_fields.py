"""What the options of `gavel submit` say about a job: fields of a request, which may win over those of job files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gavel.client.arrays import grid_values
from gavel.client.field_checks import FieldError, shortened
from gavel.client.requests import JobRequest, absolute
from gavel.client.selection import tags_of
from gavel.errors import InputError

FLAGS = {
    "environment": "--env",
    "secrets": "--secret",
    "tags": "--tag",
    "modules": "--module",
    "working_directory": "--directory",
}
"""Fields whose options have different names."""
NOT_EMPTY = ("array", "venv", "container")
"""Fields that are not asked for if they are empty: an option with an empty value is a variable that was not set."""


def read_requests(files: Sequence[str], command: Sequence[str] | None, given: Mapping[str, Any]) -> list[JobRequest]:
    """Read all jobs, from files, options or both, before any is sent; options win over files."""
    if not files and not command:
        raise InputError("say what to run: a job file, or a command after --, as in `gavel submit -- python train.py`")
    here = Path.cwd()
    fields = dict(given)
    for field in NOT_EMPTY:
        if fields.get(field) == "":
            raise InputError(f"--{field} is empty; give a value or leave it out")
    if command is not None:
        fields["command"] = list(command)
    if "working_directory" in fields:
        fields["working_directory"] = absolute(fields["working_directory"], here)
    try:
        if files:
            from gavel.client.job_file import read_jobs  # noqa: PLC0415 - loads the library that reads YAML

            return [job for file in files for job in read_jobs(file, fields)]
        request = JobRequest(**{"working_directory": str(here), **fields})
        request.check()
    except FieldError as error:
        raise told_of_option(error) from None
    return [request]


def told_of_option(error: FieldError) -> InputError:
    """The error of a field that an option set, with the name of the option."""
    option = FLAGS.get(error.field, f"--{error.field.replace('_', '-')}")
    sentence = str(error).removeprefix(f"{error.field}: ")
    return InputError(str(error) if error.field == "command" else f"{option}: {sentence}")


def comma_list(text: str | None) -> list[str] | None:
    """Read A,B; None if the option is not given."""
    return None if text is None else [part.strip() for part in text.split(",")]


def read_tags(pairs: Sequence[str] | None) -> dict[str, str] | None:
    return tags_of("--tag", pairs) if pairs else None


def read_grid(axes: Sequence[str] | None) -> dict[str, list[str]] | None:
    """Read NAME=VALUES."""
    found: dict[str, list[str]] = {}
    for axis in axes or ():
        name, sign, values = axis.partition("=")
        if not sign:
            raise InputError(f"--grid {shortened(axis)[1:-1]}: write NAME=VALUE,VALUE or NAME=0..4")
        if name in found:
            raise InputError(f"--grid {name} is given twice; give its values together")
        if not values.strip():
            raise InputError(f"--grid {name} has no values; write for example --grid {name}=1,2")
        try:
            found[name] = list(grid_values(values))
        except InputError as error:
            raise InputError(f"--grid {name}: {error}") from None
    return found or None


def read_environment(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """Read NAME=VALUE."""
    variables: dict[str, str] = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"--env {pair}: write NAME=VALUE")
        if name in variables:
            raise InputError(f"--env {name} is given twice; keep one")
        variables[name] = value
    return variables or None
