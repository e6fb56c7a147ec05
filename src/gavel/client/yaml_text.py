"""YAML and JSON as written: text with line numbers; nothing is guessed, lost or constructed.

`yes`, `010` and `1e-3` stay text until a caller asks for a number; a key given twice is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from gavel.client.field_checks import shortened
from gavel.errors import InputError

DEEPEST = 20
"""The deepest nesting that is read: no job file needs more, and a parser's stack is finite."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_LIST_TAGS = (None, "!", "tag:yaml.org,2002:seq")
_MAP_TAGS = (None, "!", "tag:yaml.org,2002:map")
_NULL = ("", "~", "null", "Null", "NULL")
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][\da-fA-F]{2})\\u([dD][c-fC-F][\da-fA-F]{2})")


class LineError(InputError):
    """An error on one line of a text."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, as written."""

    line: int
    text: str
    plain: bool
    """Whether it is unquoted, so that it may be a number or null."""

    @property
    def null(self) -> bool:
        return self.plain and self.text in _NULL

    def __str__(self) -> str:
        return shortened(self.text) if not self.plain else shortened(self.text)[1:-1] or "nothing"


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    line: int
    values: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        return "a list"


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping, each key once, including what it merges with `<<`."""

    line: int
    values: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    """The line number of each key."""

    def __str__(self) -> str:
        return "a mapping"


Node = Scalar | Items | Fields


def documents(text: str) -> Iterator[Node]:
    """The documents of a YAML text; raises LineError.

    >>> [str(node) for node in documents("lr: 1e-3")], next(documents("lr: 1e-3")).values["lr"].text
    (['a mapping'], '1e-3')
    """
    if text.lstrip()[:1] in ("{", "["):
        text = _SURROGATES.sub(_one_escape, text)
    try:
        events = yaml.parse(text, _LOADER)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                yield _node(next(events), events, {}, DEEPEST)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise LineError(line, f"not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeError):
        raise LineError(_first_odd_line(text), "it contains a character that YAML does not allow") from None


def _one_escape(match: re.Match[str]) -> str:
    """JSON writes characters beyond the first 65,536 as two escapes, YAML as one."""
    high, low = (int(digits, 16) for digits in match.group(2, 3))
    return f"{match.group(1)}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


def _first_odd_line(text: str) -> int:
    odd = re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    return text.count("\n", 0, odd.start()) + 1 if odd else 1


def _node(event: yaml.Event, events: Iterator[yaml.Event], anchors: dict[str, Node], levels: int) -> Node:
    line = _line(event)
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            raise LineError(line, f"*{event.anchor} refers to an anchor that is not defined before it")
        return anchors[event.anchor]
    if not levels:
        raise LineError(line, f"it is nested more than {DEEPEST} levels deep")
    node: Node
    if isinstance(event, yaml.ScalarEvent):
        _check_tag(line, event.tag, _TEXT_TAGS)
        node = Scalar(line, event.value, plain=not event.style and event.tag is None)
    elif isinstance(event, yaml.SequenceStartEvent):
        _check_tag(line, event.tag, _LIST_TAGS)
        node = Items(line, list(_until(yaml.SequenceEndEvent, events, anchors, levels)))
    else:
        assert isinstance(event, yaml.MappingStartEvent), event  # noqa: S101 - nothing else starts a node
        _check_tag(line, event.tag, _MAP_TAGS)
        node = _fields(line, list(_until(yaml.MappingEndEvent, events, anchors, levels)))
    if event.anchor:
        anchors[event.anchor] = node
    return node


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _check_tag(line: int, tag: str | None, meant: tuple[str | None, ...]) -> None:
    if tag not in meant:
        raise LineError(line, f"the tag {tag!r} has no meaning here; leave it out")


def _until(
    end: type[yaml.Event], events: Iterator[yaml.Event], anchors: dict[str, Node], levels: int
) -> Iterator[Node]:
    for event in events:
        if isinstance(event, end):
            return
        yield _node(event, events, anchors, levels - 1)


def _fields(line: int, nodes: list[Node]) -> Fields:
    """Build a mapping from alternating keys and values."""
    result = Fields(line)
    taken_over: list[Node] = []
    for key, value in zip(nodes[::2], nodes[1::2], strict=True):
        if not isinstance(key, Scalar):
            raise LineError(key.line, f"a field's name must be text, not {key}")
        if key.plain and key.text == "<<":
            taken_over += value.values if isinstance(value, Items) else [value]
        elif key.text in result.values:
            raise LineError(key.line, f"the field {shortened(key.text)} is given twice; keep one")
        else:
            result.values[key.text], result.keys[key.text] = value, key.line
    for other in taken_over:
        if not isinstance(other, Fields):
            raise LineError(line, f"<< merges the fields of a mapping, not of {other}")
        for name in other.values:
            if name not in result.values:
                result.values[name], result.keys[name] = other.values[name], other.keys[name]
    return result
