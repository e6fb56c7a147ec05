"""The secrets of jobs that are about to be submitted: from the environment, from files, or typed at the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gavel.client.field_checks import shortened
from gavel.client.requests import JobRequest
from gavel.client.secret_values import SecretValues, check_names, from_file
from gavel.errors import InputError

NOT_ASKED = "(asked when submitted)"
"""Stands for a value that nothing is going to use."""


def secrets(given: Sequence[str] | None, *, ask: bool) -> SecretValues | None:
    """Read NAME or NAME=@FILE."""
    files: dict[str, str | None] = {}
    for each in given or ():
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
    values = {name: _value(name, ask=ask) if file is None else from_file(file) for name, file in files.items()}
    return SecretValues(values) if values else None


def with_secrets(jobs: Sequence[JobRequest], *, ask: bool) -> list[JobRequest]:
    """Jobs with values for the secrets of which their files have only names; each name is asked for once."""
    names = dict.fromkeys(name for job in jobs if not isinstance(job.secrets, SecretValues) for name in job.secrets)
    values = {name: _value(name, ask=ask) for name in names}
    return [
        job
        if isinstance(job.secrets, SecretValues) or not job.secrets
        else replace(job, secrets=SecretValues({name: values[name] for name in job.secrets}))
        for job in jobs
    ]


def values_for(names: Iterable[str]) -> SecretValues:
    """Values for secrets of which only the names are known; each is asked for once."""
    return SecretValues({name: _value(name, ask=True) for name in dict.fromkeys(names)})


def _value(name: str, *, ask: bool) -> str:
    """The value of a secret: from the environment, else typed by the user without an echo."""
    if name in os.environ:
        return os.environ[name]
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"the secret {name} has no value: there is no environment variable {name} and no terminal to ask at; set"
            f" the variable, or give --secret {name}=@FILE"
        )
    if not ask:
        return NOT_ASKED
    from getpass import getpass  # noqa: PLC0415 - rarely needed

    return getpass(f"{name} (hidden): ")
