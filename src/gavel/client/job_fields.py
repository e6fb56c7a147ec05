"""The fields of a job as files write them: how the text of each becomes a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gavel.client.arrays import grid_values
from gavel.client.field_checks import shortened
from gavel.client.requests import absolute
from gavel.client.secret_values import SecretValues, from_file, from_variable
from gavel.client.yaml_text import Fields, Items, LineError, Node, Scalar
from gavel.errors import InputError

_WHOLE = ("workers", "retries", "at_once", "count")
_NUMBERS = ("steps", "weight", "deadline_hours", "cpus", *_WHOLE)
_QUANTITIES = ("grace", "time_limit", "idle_timeout", "gpu_memory", "memory")
"""Numbers, or texts with a unit."""
_TEXTS = ("name", "template", "entity", "working_directory", "launcher", "venv", "container", "array", *_QUANTITIES)
_MAPPINGS = ("environment", "tags")
_SWITCHES = ("private", "hold", "terminal")


def field_value(name: str, node: Node, base: Path) -> Any:
    """The value of one field; raises LineError. Paths are relative to `base`."""
    if name == "secrets":
        return _secrets(node, base)
    return _READERS.get(name, _list)(name, node)


def _command(name: str, node: Node) -> str | list[str]:
    return node.text if isinstance(node, Scalar) else _list(name, node)


def _one_or_more(name: str, node: Node) -> list[str]:
    return [_text(name, node)] if isinstance(node, Scalar) else _list(name, node)


def _list(name: str, node: Node) -> list[str]:
    if not isinstance(node, Items):
        raise LineError(node.line, f"{name} must be a list, for example {_EXAMPLES[name]}, not {node}")
    return [_text(name, value) for value in node.values]


def _mapping(name: str, node: Node) -> dict[str, str | None]:
    """Texts by name; None for a name without a value, which removes what the extended file has."""
    return {key: _unless_null(f"{name}: {key}", value) for key, value in _fields(name, node).items()}


def _unless_null(name: str, node: Node) -> str | None:
    return None if isinstance(node, Scalar) and node.null else _text(name, node)


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
        raise LineError(node.line, without_value(name))
    return node.text


def without_value(name: str) -> str:
    """What is said of a field, or of an entry of one, that needs a value."""
    return f"{name} has no value; write '' for an empty one"


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
