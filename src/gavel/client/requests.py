"""A job as its owner requests it, and as the scheduler keeps it. It knows neither files nor the network."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gavel.client.field_checks import FieldError
from gavel.client.quantities import bytes_of, seconds_of
from gavel.client.request_rules import SHELL, check_request
from gavel.client.secret_values import HIDDEN, SecretValues
from gavel.client.webhooks import host_only
from gavel.errors import InputError

_READERS: Mapping[str, Callable[[str], float]] = {
    "grace": seconds_of,
    "time_limit": seconds_of,
    "idle_timeout": seconds_of,
    "gpu_memory": bytes_of,
    "memory": bytes_of,
}
"""Fields that people write as text with a unit."""
SET_BY_SCHEDULER = ("user", "array_id", "index", "parameters")
"""Fields of a request that only the scheduler fills in."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job as a user writes it: what to run, how much of it, and on what. The scheduler gets its Submission.

    >>> JobRequest(["python", "train.py"], steps=1000, types=["v100"]).types
    ('v100',)
    >>> JobRequest("python train.py > out").command
    ('/bin/sh', '-c', 'python train.py > out')
    >>> JobRequest(["train"], workers=0).check()
    Traceback (most recent call last):
    gavel.client.field_checks.FieldError: workers must be at least 1, not 0
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
    prefer: Sequence[str] = ()
    """Types that it should run on if that does not take long; empty: no preference."""
    launcher: str = "per-device"
    """`per-device`: one process for each accelerator; `per-server`: one for each server, which starts the ranks."""
    grace: float | str | None = None
    """How long it may take to save and leave, in seconds or as "5m"; None: as the cluster is set up."""
    time_limit: float | str | None = None
    """How long it may run in all, in seconds or as "12h"; then it is stopped at a checkpoint and has failed."""
    idle_timeout: float | str | None = None
    """How long it may run without a step and without output; then it has failed."""
    hold: bool = False
    """Whether it waits until it is released."""
    after: Sequence[str] = ()
    """What it waits for: ID, ID:ok, ID:any or ID:failed; or names of jobs of the same submission."""
    tags: Mapping[str, str] = field(default_factory=dict)
    gpu_memory: float | str | None = None
    """Accelerator memory that each worker needs, in bytes or as "20G"."""
    cpus: float | None = None
    """CPU cores for each worker; None: its accelerators' part of the server."""
    memory: float | str | None = None
    """RAM for each worker, in bytes or as "20G"; None: its accelerators' part of the server."""
    notify: Sequence[str] = ()
    """URLs that are told when it first starts, ends, or seems stuck."""
    venv: str = ""
    """The directory of a Python virtual environment to run in, on the server."""
    modules: Sequence[str] = ()
    """Environment modules to load."""
    container: str = ""
    """The container image to run in."""
    terminal: bool = False
    """Whether it gets a terminal, which `gavel run --pty` connects to."""
    array: str = ""
    """Indices, such as 0-99%8: one job for each."""
    grid: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values by parameter: one job for each combination."""
    at_once: int = 0
    """How many jobs of the array or grid may run at the same time; 0: any number."""
    array_id: str = ""
    """The array or grid that it belongs to; the scheduler sets it."""
    index: int | None = None
    """Its place in the array; the scheduler sets it."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Its values of the grid's parameters; the scheduler sets them."""

    def __post_init__(self) -> None:
        if isinstance(self.command, str):
            object.__setattr__(self, "command", (*SHELL, self.command))
        if isinstance(self.secrets, Mapping) and not isinstance(self.secrets, SecretValues):
            object.__setattr__(self, "secrets", SecretValues(self.secrets))
        for name in ("command", "types", "secrets", "prefer", "after", "notify", "modules"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.grid, Mapping):
            lists = {name: tuple(each) if isinstance(each, list) else each for name, each in self.grid.items()}
            object.__setattr__(self, "grid", lists)
        for name, read in _READERS.items():
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, _read(name, getattr(self, name), read))

    def check(self) -> None:
        """Raise FieldError for the first field that no scheduler could accept."""
        check_request(self)

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
            prefer=tuple(self.prefer),
            launcher=self.launcher,
            grace_seconds=_number(self.grace),
            time_limit_seconds=_number(self.time_limit),
            idle_timeout_seconds=_number(self.idle_timeout),
            hold=self.hold,
            after=tuple(self.after),
            tags=self.tags,
            gpu_memory_bytes=int(_number(self.gpu_memory) or 0),
            cpus=self.cpus,
            memory_bytes=int(_number(self.memory) or 0),
            notify=tuple(self.notify),
            venv=self.venv,
            modules=tuple(self.modules),
            container=self.container,
            terminal=self.terminal,
            array=self.array,
            grid={name: tuple(values) for name, values in self.grid.items()},
            at_once=int(self.at_once),
            array_id=self.array_id,
            index=self.index,
            parameters=self.parameters,
        )

    def redacted(self) -> JobRequest:
        """For everyone to see: without the values of its environment and the paths of URLs, which may be secrets.

        >>> JobRequest(["train"], environment={"TOKEN": "secret"}).redacted().environment
        {'TOKEN': '(hidden)'}
        >>> JobRequest(["train"], notify=["https://chat.example.org/T0/secret"]).redacted().notify
        ('https://chat.example.org/(hidden)',)
        """
        if not self.environment and not self.notify and not isinstance(self.secrets, SecretValues):
            return self
        return replace(
            self,
            environment=dict.fromkeys(self.environment, HIDDEN),
            secrets=tuple(self.secrets),
            notify=tuple(map(host_only, self.notify)),
        )

    def document(self) -> dict[str, Any]:
        """As plain data, with the names that job files use; of secrets, only their names."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {
            "command": list(self.command),
            "types": list(self.types),
            "secrets": list(self.secrets),
            "environment": dict(self.environment),
            "prefer": list(self.prefer),
            "after": list(self.after),
            "notify": list(self.notify),
            "modules": list(self.modules),
            "tags": dict(self.tags),
            "grid": {name: list(each) for name, each in self.grid.items()},
            "parameters": dict(self.parameters),
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
    prefer: tuple[str, ...] = ()
    """Types that it should run on if that does not take long."""
    launcher: str = "per-device"
    grace_seconds: float | None = None
    """How long it may take to save and leave; None: as the cluster is set up."""
    time_limit_seconds: float | None = None
    """Of running time."""
    idle_timeout_seconds: float | None = None
    hold: bool = False
    """Whether it was submitted on hold."""
    after: tuple[str, ...] = ()
    """What it waits for, as texts of `Dependency`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    gpu_memory_bytes: int = 0
    """Accelerator memory that each worker needs; 0: any."""
    cpus: float | None = None
    """CPU cores for each worker; None: its accelerators' part of the server."""
    memory_bytes: int = 0
    """RAM for each worker; 0: its accelerators' part of the server."""
    notify: tuple[str, ...] = ()
    venv: str = ""
    modules: tuple[str, ...] = ()
    container: str = ""
    terminal: bool = False
    array: str = ""
    """Indices that this stands for; empty once it is one job."""
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parameters that this stands for; empty once it is one job."""
    at_once: int = 0
    """How many jobs of its array may run at the same time; 0: any number."""
    array_id: str = ""
    """The array that it belongs to; empty: none."""
    index: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

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
            prefer=self.prefer,
            launcher=self.launcher,
            grace=self.grace_seconds,
            time_limit=self.time_limit_seconds,
            idle_timeout=self.idle_timeout_seconds,
            hold=self.hold,
            after=self.after,
            tags=self.tags,
            gpu_memory=self.gpu_memory_bytes or None,
            cpus=self.cpus,
            memory=self.memory_bytes or None,
            notify=self.notify,
            venv=self.venv,
            modules=self.modules,
            container=self.container,
            terminal=self.terminal,
            array=self.array,
            grid=self.grid,
            at_once=self.at_once,
            array_id=self.array_id,
            index=self.index,
            parameters=self.parameters,
        )


def _read(name: str, text: str, read: Callable[[str], float]) -> float:
    try:
        return read(text)
    except InputError as error:
        raise FieldError(name, f"{name}: {error}") from None


def _number(value: float | str | None) -> float | None:
    """A quantity that was written as text is a number by now."""
    return None if value is None else float(value)


def absolute(directory: str, base: Path) -> str:
    """A working directory as an absolute path."""
    # Path.expanduser would raise for a user that does not exist.
    return os.path.normpath(os.path.join(base, os.path.expanduser(directory)))  # noqa: PTH111, PTH118
