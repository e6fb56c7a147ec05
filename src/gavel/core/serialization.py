"""Convert dataclasses and arrays to plain data that JSON can hold, and back, exactly.

A dataclass becomes an object of its fields without those that have their default. An array becomes a list, a single
value for all elements, or its non-zero elements. Strict JSON has no infinity or NaN: they become "inf" and "nan".
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from gavel.core.errors import InputError
from gavel.core.locality import Locality

Value = TypeVar("Value")
Reader = Callable[[Any], Any]

SHORT = 8
"""An array of at most this many elements is always a list: shorter and easier to read."""
_PLAIN = frozenset({types.NoneType, bool, int, str})
_STORED_AS = "stored as"
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class MisfitError(InputError):
    """Plain data that is not what it should be; the path leads to the part that is wrong."""

    def __init__(self, what: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(path)} {what}" if path else what)
        self.what = what
        self.path = path

    def within(self, name: str) -> MisfitError:
        """The same error with the path extended by one level outwards."""
        return MisfitError(self.what, (name, *self.path))


def stored_as(name: str) -> Mapping[str, str]:
    """Metadata of a field whose stored name differs from its name in code, so that older data stays readable.

    >>> @dataclasses.dataclass
    ... class Example:
    ...     type_index: int = dataclasses.field(metadata=stored_as("kind"))
    >>> to_plain(Example(2)), from_plain(Example, {"kind": 2}).type_index
    ({'kind': 2}, 2)
    """
    return {_STORED_AS: name}


def _stored_name(field: dataclasses.Field[Any]) -> str:
    name: str = field.metadata.get(_STORED_AS, field.name)
    return name


def to_plain(value: Any) -> Any:  # noqa: PLR0911 - one answer for each kind of value
    """A dataclass, array, mapping, sequence, set, text or number as plain data.

    >>> to_plain({"left": math.inf, "of": (1, 2.5, None)})
    {'left': 'inf', 'of': [1, 2.5, None]}
    """
    if type(value) in _PLAIN:  # most values
        return value
    match value:
        case np.ndarray():
            return _plain_array(value)
        case np.generic():
            return to_plain(value.item())
        case float():
            return _plain_number(value)
        case Locality():
            return value.consolidated
        case int() | str():
            return value
        case Mapping():
            return {name: to_plain(item) for name, item in value.items()}
        case Sequence():
            return [to_plain(item) for item in value]
        case set():
            return sorted(map(to_plain, value))
    return plain_record(value)


def plain_record(value: Any, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The init fields of a dataclass that differ from their defaults, as plain data."""
    return {
        _stored_name(field): to_plain(content)
        for field in dataclasses.fields(value)
        if field.init and field.name not in without and not _is_default(field, content := getattr(value, field.name))
    }


def _is_default(field: dataclasses.Field[Any], content: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(content == field.default_factory())
    if field.default is dataclasses.MISSING:
        return False
    # Compared as text, because 0.0 equals -0.0 and 1 equals True.
    return content is field.default or repr(content) == repr(field.default)


def _plain_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(float(value))


def _plain_array(array: NDArray[Any]) -> list[Any] | dict[str, Any]:
    if array.size <= SHORT and array.size > 0:
        return _listed(array)
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(f"i{flat.itemsize}")  # distinguishes 0.0 from -0.0, and makes NaN equal to itself
    if not array.size or (bits == bits[0]).all():
        return [] if array.shape == (0,) else {"shape": [*array.shape], "all": to_plain(flat[0]) if array.size else 0}
    at = np.flatnonzero(bits)
    if 3 * len(at) < array.size:
        return {"shape": [*array.shape], "at": at.tolist(), "values": _listed(flat[at])}
    return _listed(array)


def _listed(array: NDArray[Any]) -> list[Any]:
    listed: list[Any] = array.tolist()
    return listed if np.isfinite(array).all() else _spelled(listed)


def _spelled(values: list[Any]) -> list[Any]:
    return [_spelled(value) if isinstance(value, list) else _plain_number(value) for value in values]


def from_plain(kind: type[Value], document: Any, **known: Any) -> Value:
    """Read plain data as a value of this type; fields that are `known` need not be in it.

    >>> from gavel.core.cluster import Server
    >>> from_plain(Server, {"name": "a", "type": "v100", "accelerators": 4})
    Server(name='a', type='v100', accelerators=4, cpus=0.0, memory_bytes=0, accelerator_memory=0)
    >>> from_plain(Server, {"name": "a", "type": "v100", "accelerators": "4"})
    Traceback (most recent call last):
    gavel.core.serialization.MisfitError: accelerators is '4', not a whole number
    """
    value: Value = _record(kind, document, known) if known else _reader(cast("Any", kind))(document)
    return value


@cache
def _reader(hint: Any) -> Reader:  # noqa: C901, PLR0911 - one answer for each kind of type
    """How to read a value of an annotated type."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if dataclasses.is_dataclass(hint):
        return lambda document: _record(cast("type", hint), document, {})
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda document: hint(_one_of(tuple(hint), document))
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType} and len(parts) == 2 and parts[1] is types.NoneType:
        present = _reader(parts[0])
        return lambda document: None if document is None else present(document)
    if origin in {np.ndarray, NDArray}:  # the second from Python 3.12 on, where it is a separate alias
        return _array_reader(np.dtype(parts[0] if origin is NDArray else get_args(parts[1])[0]))
    if origin is Literal:
        return lambda document: _one_of(parts, document)
    if origin in {Mapping, dict} and parts[0] is str:
        return _mapping_reader(_reader(parts[1]))
    if origin is Sequence or (origin is tuple and parts[1:] == (...,)):
        return _sequence_reader(_reader(parts[0]))
    if origin is tuple:
        return _tuple_reader([_reader(part) for part in parts])
    if origin in {list, set}:
        members = _sequence_reader(_reader(parts[0]))
        return lambda document: origin(members(document))
    raise TypeError(f"{hint} cannot be read from plain data")


@cache
def _fields(kind: type) -> tuple[dict[str, Any], frozenset[str], dict[str, str]]:
    """By stored name: the type of each field; the required fields; and the names in code that differ."""
    hints = get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    required = {_stored_name(f) for f in fields if f.default is f.default_factory is dataclasses.MISSING}
    renamed = {_stored_name(field): field.name for field in fields if _stored_name(field) != field.name}
    return {_stored_name(field): hints[field.name] for field in fields}, frozenset(required), renamed


def _record(kind: type, document: Any, known: Mapping[str, Any]) -> Any:
    hints, required, renamed = _fields(kind)
    open_ = {name: hint for name, hint in hints.items() if name not in known} if known else hints
    contents = _contents(document, open_, required - known.keys(), kind.__name__)
    if renamed:
        contents = {renamed.get(stored, stored): content for stored, content in contents.items()}
    return kind(**known, **contents)


def read_items(hints: Mapping[str, Any], document: Any, whose: str) -> dict[str, Any]:
    """Read an object that has exactly these items, with these types."""
    return _contents(document, hints, frozenset(hints), whose)


def _contents(document: Any, hints: Mapping[str, Any], required: frozenset[str], whose: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise MisfitError(f"is {reprlib.repr(document)}, not an object of {whose}'s fields")
    content = {}
    for name, part in document.items():
        if name not in hints:
            raise MisfitError(f"has a field {name!r} that {whose} does not have")
        try:
            content[name] = _reader(hints[name])(part)
        except MisfitError as misfit:
            raise misfit.within(name) from None
    if missing := sorted(required - content.keys()):
        raise MisfitError(f"lacks {', '.join(map(repr, missing))} of {whose}")
    return content


def _text(document: Any) -> str:
    if not isinstance(document, str):
        raise MisfitError(f"is {reprlib.repr(document)}, not a text")
    return document


def _truth(document: Any) -> bool:
    if not isinstance(document, bool):
        raise MisfitError(f"is {reprlib.repr(document)}, not true or false")
    return document


def _whole(document: Any) -> int:
    if not isinstance(document, int) or isinstance(document, bool):
        raise MisfitError(f"is {reprlib.repr(document)}, not a whole number")
    return document


def _number(document: Any) -> float:
    if isinstance(document, str) and document in NOT_FINITE:
        return NOT_FINITE[document]
    if not isinstance(document, int | float) or isinstance(document, bool):
        raise MisfitError(f"is {reprlib.repr(document)}, not a number")
    return float(document)


def _locality(document: Any) -> Locality:
    return Locality.of(_truth(document))


_SIMPLE: dict[Any, Reader] = {
    str: _text,
    bool: _truth,
    int: _whole,
    float: _number,
    Locality: _locality,
    Any: lambda document: document,
}


def _one_of(allowed: tuple[Any, ...], document: Any) -> Any:
    if document not in allowed:
        raise MisfitError(f"is {reprlib.repr(document)}, not one of {', '.join(map(repr, allowed))}")
    return document


def _sequence_reader(part: Reader) -> Reader:
    def read(document: Any) -> tuple[Any, ...]:
        if not isinstance(document, list):
            raise MisfitError(f"is {reprlib.repr(document)}, not a list")
        return tuple(map(part, document))

    return read


def _tuple_reader(parts: list[Reader]) -> Reader:
    def read(document: Any) -> tuple[Any, ...]:
        if not isinstance(document, list) or len(document) != len(parts):
            raise MisfitError(f"is {reprlib.repr(document)}, not a list of {len(parts)}")
        return tuple(part(item) for part, item in zip(parts, document, strict=True))

    return read


def _mapping_reader(part: Reader) -> Reader:
    def read(document: Any) -> dict[str, Any]:
        if not isinstance(document, dict):
            raise MisfitError(f"is {reprlib.repr(document)}, not an object")
        return {name: part(item) for name, item in document.items()}

    return read


def _array_reader(dtype: np.dtype[Any]) -> Reader:
    def read(document: Any) -> NDArray[Any]:
        try:
            if not isinstance(document, dict):
                return _elements(document, dtype)
            shape = tuple(map(_whole, document["shape"]))
            if "all" in document:
                return np.full(shape, _elements([document["all"]], dtype)[0])
            array = np.zeros(shape, dtype=dtype)
            array.reshape(-1)[_elements(document["at"], np.dtype(np.intp))] = _elements(document["values"], dtype)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise MisfitError(f"is {reprlib.repr(document)}, not an array of {dtype}") from error
        return array

    return read


def _elements(listed: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Build an array from a list of lists; numpy reads "inf" and "nan" as we write them."""
    if not isinstance(listed, list):
        raise TypeError
    found = np.array(listed)
    if found.dtype.kind == "U" and dtype.kind == "f":
        return np.array(listed, dtype=dtype)
    if found.size and found.dtype.kind not in {"i", dtype.kind}:
        raise ValueError  # numpy would truncate fractions, and read null as NaN
    return found.astype(dtype)
