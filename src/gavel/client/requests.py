"""A job as its owner requests it, and the rules for a valid request. It knows neither files nor the network."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gavel.client.secret_values import HIDDEN, SecretValues, check_names, check_values
from gavel.errors import InputError
from gavel.limits import (
    LARGEST,
    LONGEST_HOURS,
    LONGEST_LABEL,
    LONGEST_PATH,
    MOST_RETRIES,
    MOST_TYPES,
    MOST_VARIABLES,
    MOST_WORKERS,
    SMALLEST,
    as_float,
    at_most,
)

SHELL = ("/bin/sh", "-c")


class FieldError(InputError):
    """One field of a request is invalid."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job as a user writes it: what to run, how much of it, and on what. The scheduler gets its Submission.

    >>> JobRequest(["python", "train.py"], steps=1000, types=["v100"]).types
    ('v100',)
    >>> JobRequest("python train.py > out").command
    ('/bin/sh', '-c', 'python train.py > out')
    >>> JobRequest(["train"], workers=0).check()
    Traceback (most recent call last):
    gavel.client.requests.FieldError: workers must be at least 1, not 0
    """

    command: Sequence[str]
    """The program and its arguments; a string is run by the shell."""
    name: str = ""
    template: str = ""
    """What it runs, as throughput tables name it; without one, its speed is learned under the name of its command."""
    steps: float | None = None
    """Total number of steps; None if unknown."""
    workers: int = 1
    weight: float = 1.0
    entity: str = ""
    deadline_hours: float | None = None
    """Hours after submission."""
    types: Sequence[str] = ()
    """Accelerator types it may run on; empty: any."""
    environment: Mapping[str, str] = field(default_factory=dict)
    retries: int = 3
    """How often it may fail before the scheduler gives up."""
    working_directory: str = ""
    """On the server that runs it; empty: a directory that the agent chooses."""
    private: bool = False
    """Whether only its user may read its logs and environment, not the whole team."""
    user: str = ""
    """Whose job it is; the scheduler sets it."""
    secrets: Mapping[str, str] | Sequence[str] = ()
    """Environment variables whose values are in no view, document or journal: values by name, or only names, whose
    values the client reads from its own environment. Views have only names."""

    def __post_init__(self) -> None:
        if isinstance(self.command, str):
            object.__setattr__(self, "command", (*SHELL, self.command))
        if isinstance(self.secrets, Mapping) and not isinstance(self.secrets, SecretValues):
            object.__setattr__(self, "secrets", SecretValues(self.secrets))
        for name in ("command", "types", "secrets"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))

    def check(self) -> None:
        """Raise FieldError for the first field that no scheduler could accept."""
        for name in ("command", "types"):
            if not isinstance(getattr(self, name), tuple):
                raise FieldError(name, f"{name} must be a list, not {shortened(getattr(self, name))}")
        _check_command(self.command)
        for name in ("name", "template", "entity", "user"):
            _check_label(name, getattr(self, name))
        _check_label("working_directory", self.working_directory, longest=LONGEST_PATH)
        _check_types(self.types)
        _check_environment(self.environment)
        if self.steps is not None:
            _check_positive("steps", self.steps)
        if self.deadline_hours is not None:
            _check_positive("deadline_hours", self.deadline_hours, most=LONGEST_HOURS)
        _check_positive("weight", self.weight)
        _check_whole("workers", self.workers, least=1, most=MOST_WORKERS)
        _check_whole("retries", self.retries, least=0, most=MOST_RETRIES)
        if not isinstance(self.private, bool):
            raise FieldError("private", f"private must be true or false, not {shortened(self.private)}")
        _check_secrets(self.secrets)

    def submission(self) -> Submission:
        """The job as the scheduler gets it."""
        return Submission(
            command=tuple(self.command),
            name=self.name,
            template=self.template,
            steps=self.steps or None,
            workers=int(self.workers),
            weight=self.weight,
            entity=self.entity or None,
            deadline_seconds=(self.deadline_hours or 0.0) * 3600.0 or None,
            types=tuple(self.types),
            environment=self.environment,
            retries=int(self.retries),
            working_directory=self.working_directory,
            private=self.private,
            user=self.user,
            secrets=tuple(self.secrets),
        )

    def redacted(self) -> JobRequest:
        """For everyone to see: without the values of its environment, which may be secrets.

        >>> JobRequest(["train"], environment={"TOKEN": "secret"}).redacted().environment
        {'TOKEN': '(hidden)'}
        """
        if not self.environment and not isinstance(self.secrets, SecretValues):
            return self
        return replace(self, environment=dict.fromkeys(self.environment, HIDDEN), secrets=tuple(self.secrets))

    def document(self) -> dict[str, Any]:
        """As plain data, with the names that job files use; of secrets, only their names."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {
            "command": list(self.command),
            "types": list(self.types),
            "secrets": list(self.secrets),
            "environment": dict(self.environment),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job as the protocol carries it, the journal stores it and an agent runs it: in seconds, with nothing implicit.

    It differs in units and defaults from a JobRequest, which is for people. A journal omits fields with their default,
    so the defaults are part of the journal's format and do not change.
    """

    command: tuple[str, ...]
    """The program and its arguments."""
    name: str = ""
    template: str = ""
    """What the job runs, as throughput tables name it."""
    steps: float | None = None
    """Total number of steps; None if the user does not know."""
    workers: int = 1
    weight: float = 1.0
    entity: str | None = None
    deadline_seconds: float | None = None
    """Seconds after it was submitted."""
    types: tuple[str, ...] = ()
    """Accelerator types it may run on; empty: any."""
    environment: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    """How often it may fail before the scheduler gives up."""
    working_directory: str = ""
    private: bool = False
    """Whether only its user may read its logs and environment."""
    user: str = ""
    """Whose job it is; the scheduler sets it."""
    secrets: tuple[str, ...] = ()
    """Names of its secrets."""

    def request(self) -> JobRequest:
        """The job as its user would write it."""
        return JobRequest(
            command=self.command,
            name=self.name,
            template=self.template,
            steps=self.steps,
            workers=self.workers,
            weight=self.weight,
            entity=self.entity or "",
            deadline_hours=None if self.deadline_seconds is None else self.deadline_seconds / 3600.0,
            types=self.types,
            environment=self.environment,
            retries=self.retries,
            working_directory=self.working_directory,
            private=self.private,
            user=self.user,
            secrets=self.secrets,
        )


def _check_command(command: Sequence[str]) -> None:
    if not command or not command[0]:
        raise FieldError("command", "command is missing; give the program and its arguments")
    for part in command:
        _check_text("command", part)
    if tuple(command[:2]) == SHELL and len(command) == 3 and not command[2].strip():
        raise FieldError("command", "command is empty; give the program and its arguments")


def _check_text(name: str, value: object) -> None:
    """Refuse NUL and invalid Unicode: system calls take bytes up to a NUL, the wire takes Unicode."""
    if not isinstance(value, str):
        raise FieldError(name, f"{name} must be text, not {shortened(value)}")
    if "\0" in value:
        raise FieldError(name, f"{name} contains a NUL character: {shortened(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError(name, f"{name} contains invalid Unicode: {shortened(value)}") from None


def _check_label(name: str, value: object, longest: int = LONGEST_LABEL) -> None:
    """Refuse text that tables cannot show, or that is too long for them."""
    _check_text(name, value)
    if (fault := label_fault(str(value), longest)) is not None:
        raise FieldError(name, f"{name} {fault}: {shortened(value)}")


def label_fault(text: str, longest: int = LONGEST_LABEL) -> str | None:
    """Why a text cannot be a name in tables, as the second half of a sentence; None if it can.

    >>> label_fault("a100"), label_fault("a\\x1b[31m")
    (None, 'contains a character that cannot be printed')
    """
    if len(text) > longest:
        return f"has {len(text):,} characters, at most {longest:,} are allowed"
    return None if text.isprintable() else "contains a character that cannot be printed"


def _check_types(types: Sequence[str]) -> None:
    if len(types) > MOST_TYPES:
        raise FieldError("types", f"types names {len(types):,} types; name at most {MOST_TYPES}")
    for type_name in types:
        _check_label("types", type_name)
        if not type_name:
            raise FieldError("types", "types contains an empty name")
        if types.count(type_name) > 1:
            raise FieldError("types", f"types names {type_name!r} twice")


def _check_environment(environment: Mapping[str, str]) -> None:
    if not isinstance(environment, Mapping):
        raise FieldError("environment", f"environment must be a mapping, not {shortened(environment)}")
    if len(environment) > MOST_VARIABLES:
        raise FieldError(
            "environment", f"environment has {len(environment):,} variables, at most {MOST_VARIABLES:,} are allowed"
        )
    for name, value in environment.items():
        _check_label("environment", name)
        if not name or "=" in name:
            raise FieldError("environment", f"environment: {shortened(name)} cannot be the name of a variable")
        _check_value(name, value)


def _check_value(name: str, value: object) -> None:
    """As `_check_text`, without quoting the value: it may be a secret."""
    try:
        _check_text("environment", value)
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


def _check_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(name, f"{name} must be a number, not {shortened(value)}")
    number = as_float(value)
    if not math.isfinite(number):
        raise FieldError(name, f"{name} must be a finite number, not {shortened(value)}")
    return number


def _check_positive(name: str, value: object, most: float = LARGEST) -> None:
    number = _check_number(name, value)
    if number <= 0:
        raise FieldError(name, f"{name} must be greater than 0, not {number:g}")
    if number < SMALLEST:
        raise FieldError(name, f"{name} must be at least {SMALLEST:g}, not {number:g}")
    if number > most:
        years = " (317 years)" if most == LONGEST_HOURS else ""
        raise FieldError(name, f"{name} must be {at_most(most)}{years}, not {number:g}")


def _check_whole(name: str, value: object, *, least: int, most: int) -> None:
    number = _check_number(name, value)
    if number != int(number):
        raise FieldError(name, f"{name} must be a whole number, not {number:g}")
    if number < least:
        raise FieldError(name, f"{name} must be at least {least}, not {number:g}")
    if number > most:
        raise FieldError(name, f"{name} must be at most {most:,}, not {number:g}")


def absolute(directory: str, base: Path) -> str:
    """A working directory as an absolute path."""
    # Path.expanduser would raise for a user that does not exist.
    return os.path.normpath(os.path.join(base, os.path.expanduser(directory)))  # noqa: PTH111, PTH118


def shortened(value: object, most: int = 60) -> str:
    """A value in a form that a sentence can quote.

    >>> shortened("x" * 100, most=12), shortened(10**5000)
    ("'xxxxxxxx...", 'a number of thousands of digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print such integers
        return "a number of thousands of digits"
    return text if len(text) <= most else text[: most - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest what may have been meant, as the second half of a sentence.

    >>> nearest("step", ["steps", "types"]), nearest("x", ["steps", "types"])
    ("did you mean 'steps'?", 'there are: steps, types')
    """
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=2)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(choices)}"
