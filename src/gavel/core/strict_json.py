"""Strict JSON reading: repeated keys are errors, and numbers too large for a float keep their text for messages."""

from __future__ import annotations

import json
import math
from typing import Any, Self

from gavel.core.errors import InputError

_DIGITS = 300
"""Longer whole numbers exceed every float, and Python refuses to read more than 4300 digits."""


class Beyond(float):
    """A number that no float can hold: its value is infinite, and messages quote it as it was written.

    >>> Beyond("-1e999") < 0, Beyond("1e999")
    (True, 1e999)
    """

    written: str

    def __new__(cls, written: str) -> Self:
        number = super().__new__(cls, -math.inf if written.startswith("-") else math.inf)
        number.written = written
        return number

    def __repr__(self) -> str:
        return self.written


def read_json(text: str, *, repeated_keys: bool = False) -> Any:
    """Read JSON; raise what `json.loads` raises, and InputError for a key that is given twice in one object."""
    hook = None if repeated_keys else _without_repeated_keys
    return json.loads(text, object_pairs_hook=hook, parse_int=_whole, parse_float=_float, parse_constant=_constant)


def _without_repeated_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in items:
        if key in data:
            raise InputError(f"key {key!r} is given twice in one object; keep one")
        data[key] = value
    return data


def _whole(text: str) -> float:
    return int(text) if len(text) <= _DIGITS else Beyond(text)


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else Beyond(text)


def _constant(text: str) -> float:
    return math.nan if text == "NaN" else Beyond(text)
