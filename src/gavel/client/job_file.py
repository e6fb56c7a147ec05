"""Job files: YAML or JSON to requests and back. A mistake is one sentence that names file, line and field."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from gavel.client.arrays import grid_values
from gavel.client.field_checks import FieldError, nearest, shortened
from gavel.client.requests import SET_BY_SCHEDULER, JobRequest, absolute
from gavel.client.secret_values import SecretValues, from_file, from_variable
from gavel.client.yaml_text import Fields, Items, LineError, Node, Scalar, documents
from gavel.errors import InputError
from gavel.limits import MOST_COPIES

KNOWN = (*(each.name for each in fields(JobRequest) if each.name not in SET_BY_SCHEDULER), "count")
_WHOLE = ("workers", "retries", "at_once", "count")
_NUMBERS = ("steps", "weight", "deadline_hours", "cpus", *_WHOLE)
_QUANTITIES = ("grace", "time_limit", "idle_timeout", "gpu_memory", "memory")
"""Numbers, or texts with a unit."""
_TEXTS = ("name", "template", "entity", "working_directory", "launcher", "venv", "container", "array", *_QUANTITIES)
_MAPPINGS = ("environment", "tags")
_SWITCHES = ("private", "hold", "terminal")


def read_jobs(path: str) -> list[JobRequest]:
    """All jobs of a file; `-` reads standard input."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or 'unknown error').lower()}") from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read {path}: it is not UTF-8 text") from None
    directory = Path.cwd() if path == "-" else Path(path).absolute().parent
    return parse_jobs(text, source="standard input" if path == "-" else path, directory=directory)


def parse_jobs(text: str, *, source: str = "jobs", directory: Path | None = None) -> list[JobRequest]:
    """Jobs from text: one mapping, a list of mappings, or several documents of either.

    A relative working directory is taken from `directory`; a job without one works in the current directory.

    >>> [job.command for job in parse_jobs("command: [python, train.py, --lr, 1e-3]")]
    [('python', 'train.py', '--lr', '1e-3')]
    """
    base = Path.cwd() if directory is None else directory
    found: list[JobRequest] = []
    try:
        for node in _mappings(documents(text)):
            request, copies = _job(node, base)
            found += [request] * copies
    except LineError as error:
        raise InputError(f"{source}, line {error.line}: {error}") from None
    if not found:
        raise InputError(f"{source} holds no job; write at least a command")
    return found


def write_jobs(jobs: Iterable[JobRequest]) -> str:
    """A job file; reading it gives the same jobs, but of secrets it has only the names."""
    listed = [
        {
            name: value
            for name, value in job.document().items()
            if name in KNOWN and (name == "command" or value != _DEFAULTS[name])
        }
        for job in jobs
    ]
    return yaml.safe_dump(listed, sort_keys=False)  # escapes what is not ASCII: PyYAML mangles some line breaks


_DEFAULTS = JobRequest(("command",)).document()


def _mappings(nodes: Iterable[Node]) -> Iterator[Fields]:
    for node in nodes:
        if isinstance(node, Scalar) and node.null:
            continue  # nothing between two lines of ---
        for job in node.values if isinstance(node, Items) else [node]:
            if not isinstance(job, Fields):
                raise LineError(job.line, f"a job must be a mapping of fields such as command and steps, not {job}")
            yield job


def _job(node: Fields, base: Path) -> tuple[JobRequest, int]:
    """A job, and the number of copies requested."""
    for name, line in node.keys.items():
        if name not in KNOWN:
            raise LineError(line, f"there is no field {name!r}; {nearest(name, KNOWN)}")
    given: dict[str, Any] = {
        name: _secrets(value, base) if name == "secrets" else _value(name, value)
        for name, value in node.values.items()
        if not (isinstance(value, Scalar) and value.null)
    }
    if "command" not in given:
        raise LineError(node.line, "command is missing; give the program and its arguments")
    copies = given.pop("count", 1)
    if not 1 <= copies <= MOST_COPIES:
        raise LineError(node.keys["count"], f"count must be between 1 and {MOST_COPIES:,}, not {copies:g}")
    given["working_directory"] = absolute(given.get("working_directory") or str(Path.cwd()), base)
    try:
        request = JobRequest(**given)
        request.check()
    except FieldError as error:
        raise LineError(node.keys.get(error.field, node.line), str(error)) from None
    return request, copies


def _value(name: str, node: Node) -> Any:
    return _READERS.get(name, _list)(name, node)


def _command(name: str, node: Node) -> str | list[str]:
    return node.text if isinstance(node, Scalar) else _list(name, node)


def _one_or_more(name: str, node: Node) -> list[str]:
    return [_text(name, node)] if isinstance(node, Scalar) else _list(name, node)


def _list(name: str, node: Node) -> list[str]:
    if not isinstance(node, Items):
        raise LineError(node.line, f"{name} must be a list, for example {_EXAMPLES[name]}, not {node}")
    return [_text(name, value) for value in node.values]


def _mapping(name: str, node: Node) -> dict[str, str]:
    return {key: _text(f"{name}: {key}", value) for key, value in _fields(name, node).items()}


def _grid(name: str, node: Node) -> dict[str, list[str]]:
    return {key: _grid_axis(f"{name}: {key}", value) for key, value in _fields(name, node).items()}


_EXAMPLES = {
    "command": "[python, train.py]",
    "types": "[v100, k80]",
    "prefer": "[v100]",
    "after": "[38, prepare:any]",
    "notify": "[https://example.org/hook]",
    "modules": "[cuda/12.4]",
}
_OFTEN_ONE = ("prefer", "after", "notify", "modules")
"""Lists for which a single text may stand."""


def _grid_axis(name: str, node: Node) -> list[str]:
    """The values of a parameter: a list, or a text such as 0..4."""
    if isinstance(node, Items):
        return [_text(name, value) for value in node.values]
    try:
        return list(grid_values(_text(name, node)))
    except InputError as error:
        raise LineError(node.line, f"{name}: {error}") from None


def _secrets(node: Node, base: Path) -> SecretValues | list[str]:
    """Values by name; or names, whose values are read when the job is submitted."""
    if isinstance(node, Items):
        return [_text("secrets", name) for name in node.values]
    if not isinstance(node, Fields):
        raise LineError(node.line, f"secrets must be a list of names, or a mapping such as {_SECRET}")
    return SecretValues({name: _secret(name, source, base) for name, source in node.values.items()})


def _secret(name: str, node: Node, base: Path) -> str:
    """The value of one secret. No message quotes what is in its place: it may be the value itself."""
    told = (
        f"secrets: {shortened(name)} must say where its value is: {{env: VARIABLE}}, {{file: PATH}} or {{value: TEXT}}"
    )
    if not isinstance(node, Fields) or len(node.values) != 1:
        raise LineError(node.line, told)
    ((kind, source),) = node.values.items()
    if kind not in _SOURCES or not isinstance(source, Scalar) or source.null:
        raise LineError(node.line, told)
    try:
        return _SOURCES[kind](source.text, base)
    except InputError as error:
        raise LineError(source.line, f"secrets: {error}") from None


_SECRET = "{HF_TOKEN: {env: HF_TOKEN}}"  # noqa: S105 - an example
_SOURCES: Mapping[str, Callable[[str, Path], str]] = {
    "env": lambda variable, _: from_variable(variable),
    "file": lambda path, base: from_file(absolute(path, base)),
    "value": lambda text, _: text,
}


def _boolean(name: str, node: Node) -> bool:
    if not isinstance(node, Scalar) or not node.plain or node.text.lower() not in ("true", "false"):
        raise LineError(node.line, f"{name} must be true or false, not {node}")
    return node.text.lower() == "true"


def _fields(name: str, node: Node) -> Mapping[str, Node]:
    if not isinstance(node, Fields):
        raise LineError(node.line, f"{name} must be a mapping of names to values, not {node}")
    return node.values


def _text(name: str, node: Node) -> str:
    if not isinstance(node, Scalar):
        raise LineError(node.line, f"{name} must be text, not {node}")
    if node.null:
        raise LineError(node.line, f"{name} has no value; write '' for an empty one")
    return node.text


def _number(name: str, node: Node) -> float:
    if not isinstance(node, Scalar) or not node.plain:
        raise LineError(node.line, f"{name} must be a number, not {_quoted(node)}")
    try:
        value = float(node.text)
    except ValueError:
        raise LineError(node.line, f"{name} must be a number, not {node}") from None
    if not math.isfinite(value):
        raise LineError(node.line, f"{name} must be a finite number, not {node}")
    if name in _WHOLE and value.is_integer():
        return int(value)
    if name == "count":
        raise LineError(node.line, f"{name} must be a whole number, not {node}")
    return value


def _quoted(node: Node) -> str:
    return f"the text {node}" if isinstance(node, Scalar) else str(node)


_READERS: Mapping[str, Callable[[str, Node], Any]] = {
    **dict.fromkeys(_NUMBERS, _number),
    **dict.fromkeys(_TEXTS, _text),
    **dict.fromkeys(_MAPPINGS, _mapping),
    **dict.fromkeys(_SWITCHES, _boolean),
    **dict.fromkeys(_OFTEN_ONE, _one_or_more),
    "grid": _grid,
    "command": _command,
}
"""How each field is read; all others are lists of texts."""
