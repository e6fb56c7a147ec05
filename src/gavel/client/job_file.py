"""Job files: YAML or JSON to requests and back. A mistake is one sentence that names file, line and field.

A job may extend one of another file: what it does not say is taken from there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import yaml

from gavel.client.field_checks import FieldError, nearest
from gavel.client.job_fields import field_value, without_value
from gavel.client.requests import SET_BY_SCHEDULER, JobRequest, absolute
from gavel.client.secret_values import SecretValues
from gavel.client.yaml_text import Fields, Items, LineError, Node, Scalar, documents
from gavel.errors import InputError
from gavel.limits import MOST_COPIES

EXTENDS = "extends"
KNOWN = (*(each.name for each in fields(JobRequest) if each.name not in SET_BY_SCHEDULER), "count", EXTENDS)
MOST_LAYERS = 20
"""The longest chain of files that extend each other."""


@dataclass(frozen=True, slots=True)
class JobText:
    """A text with jobs: its name in messages, and what relative paths in it are relative to."""

    name: str
    directory: Path
    path: Path | None = None
    """The file; None for standard input and for a text of a program."""

    def fail(self, line: int, sentence: str) -> NoReturn:
        raise InputError(f"{self.name}, line {line}: {sentence}") from None


@dataclass(slots=True)
class Layer:
    """What one file says of a job, or several that extend each other: values, and where each was written."""

    source: JobText
    line: int
    values: dict[str, Any] = field(default_factory=dict)
    """None: the field goes back to its default."""
    written: dict[str, tuple[JobText, int]] = field(default_factory=dict)
    """By field, and by `field: name` for entries of mappings."""


def read_jobs(path: str, overrides: Mapping[str, Any] | None = None) -> list[JobRequest]:
    """All jobs of a file; `-` reads standard input. `overrides` are fields that win over those of every job."""
    text = sys.stdin.read() if path == "-" else _text_of(path)
    if path == "-":
        return _jobs(text, JobText("standard input", Path.cwd()), overrides or {})
    absolute_path = Path(path).absolute()
    return _jobs(text, JobText(path, absolute_path.parent, absolute_path), overrides or {})


def _text_of(path: str, shown: str = "") -> str:
    """The text of a file; errors name it as it is `shown`."""
    name = shown or path
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {name}: {(error.strerror or 'unknown error').lower()}") from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read {name}: it is not UTF-8 text") from None


def parse_jobs(text: str, *, source: str = "jobs", directory: Path | None = None) -> list[JobRequest]:
    """Jobs from text: one mapping, a list of mappings, or several documents of either.

    Relative paths are taken from `directory`; a job without a working directory works in the current directory.

    >>> [job.command for job in parse_jobs("command: [python, train.py, --lr, 1e-3]")]
    [('python', 'train.py', '--lr', '1e-3')]
    """
    return _jobs(text, JobText(source, Path.cwd() if directory is None else directory), {})


def _jobs(text: str, source: JobText, overrides: Mapping[str, Any]) -> list[JobRequest]:
    found: list[JobRequest] = []
    for layer in _layers(text, source, ()):
        request, copies = _request(layer, overrides)
        found += [request] * copies
    if not found:
        raise InputError(f"{source.name} holds no job; write at least a command")
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


# ---- layers ----


def _layers(text: str, source: JobText, chain: tuple[JobText, ...]) -> list[Layer]:
    """The jobs of a text, with what they extend. `chain` has the sources on the way here."""
    try:
        return [_layer(node, source, chain) for node in _mappings(documents(text))]
    except LineError as error:
        source.fail(error.line, str(error))


def _mappings(nodes: Iterable[Node]) -> Iterator[Fields]:
    for node in nodes:
        if isinstance(node, Scalar) and node.null:
            continue  # nothing between two lines of ---
        for job in node.values if isinstance(node, Items) else [node]:
            if not isinstance(job, Fields):
                raise LineError(job.line, f"a job must be a mapping of fields such as command and steps, not {job}")
            yield job


def _layer(node: Fields, source: JobText, chain: tuple[JobText, ...]) -> Layer:
    """What one mapping says, on top of what it extends."""
    layer = Layer(source, node.line)
    for name, value in node.values.items():
        if name not in KNOWN:
            raise LineError(node.keys[name], f"there is no field {name!r}; {nearest(name, KNOWN)}")
        null = isinstance(value, Scalar) and value.null
        layer.values[name] = None if null else _value(name, value, source)
        layer.written[name] = source, node.keys[name]
        if isinstance(value, Fields):
            layer.written |= {f"{name}: {entry}": (source, line) for entry, line in value.keys.items()}
    extended = layer.values.pop(EXTENDS, None)
    if extended is None:
        return layer
    return _merged(_extended(extended, node.keys[EXTENDS], source, chain), layer)


def _value(name: str, node: Node, source: JobText) -> Any:
    if name == EXTENDS:
        if not isinstance(node, Scalar):
            raise LineError(node.line, f"{EXTENDS} must be the path of a job file, not {node}")
        return node.text
    value = field_value(name, node, source.directory)
    return absolute(value, source.directory) if name == "working_directory" and value else value


def _extended(path: str, line: int, source: JobText, chain: tuple[JobText, ...]) -> Layer:
    """The one job of an extended file, with what that extends."""
    place = Path(absolute(path, source.directory))
    chain = (*chain, source)
    names = [each.name for each in chain]
    if any(each.path is not None and _same(each.path, place) for each in chain):
        raise LineError(line, f"{EXTENDS}: the files extend each other in a circle: {' -> '.join([*names, path])}")
    if len(chain) > MOST_LAYERS:
        raise LineError(line, f"{EXTENDS}: more than {MOST_LAYERS} files extend each other")
    shown = str(place) if Path(path).is_absolute() or source.path is None else str(Path(source.name).parent / path)
    try:
        text = _text_of(str(place), shown)
    except InputError as error:
        raise LineError(line, f"{EXTENDS}: {error}") from None
    layers = _layers(text, JobText(shown, place.parent, place), chain)
    if len(layers) != 1:
        raise LineError(line, f"{EXTENDS}: {shown} has {len(layers)} jobs; only a file with one can be extended")
    return layers[0]


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _merged(base: Layer, top: Layer) -> Layer:
    """Both, where `top` wins: mappings are merged, everything else is replaced, nothing means the default."""
    merged = {**base.values, **top.values}
    for name, value in top.values.items():
        below = base.values.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            both = {**below, **value}
            kept = {each: both[each] for each in both if both[each] is not None or each not in below}
            merged[name] = SecretValues(kept) if isinstance(value, SecretValues) else kept
    return Layer(top.source, top.line, merged, base.written | top.written)


def _request(layer: Layer, overrides: Mapping[str, Any]) -> tuple[JobRequest, int]:
    """A job, and the number of copies requested."""
    given = {name: value for name, value in layer.values.items() if value is not None}
    for name, value in given.items():
        for entry, text in value.items() if isinstance(value, Mapping) else ():
            if text is None:
                source, line = layer.written[f"{name}: {entry}"]
                source.fail(line, without_value(f"{name}: {entry}"))
    copies = given.pop("count", 1)
    if not 1 <= copies <= MOST_COPIES:
        source, line = layer.written["count"]
        source.fail(line, f"count must be between 1 and {MOST_COPIES:,}, not {copies:g}")
    top = Layer(layer.source, layer.line, dict(overrides))
    given = _merged(Layer(layer.source, layer.line, given), top).values
    if "command" not in given:
        layer.source.fail(layer.line, "command is missing; give the program and its arguments")
    given["working_directory"] = given.get("working_directory") or str(Path.cwd())
    try:
        request = JobRequest(**given)
        request.check()
    except FieldError as error:
        if error.field in overrides:
            raise
        source, line = layer.written.get(error.field, (layer.source, layer.line))
        source.fail(line, str(error))
    return request, copies
