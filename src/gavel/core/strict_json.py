"""JSON in which nothing is lost without a word: neither a repeated key nor what a number was."""

from __future__ import annotations

import json
import math
from typing import Any, Self

from gavel.core.errors import InputError

_DIGITS = 300
"""Whole numbers that are longer are beyond every float, and Python refuses to read those of more than 4300 digits."""


class Beyond(float):
    """A number that no float can hold: it is infinite, and messages quote it as it was written.

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
    """Read JSON; raises as `json.loads` does, and InputError for an object with a key that is given twice."""
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
