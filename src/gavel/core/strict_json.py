"""JSON in which nothing is lost without a word."""

from __future__ import annotations

from typing import Any

from gavel.core.errors import InputError


def without_repeated_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: refuse an object with a key that is given twice, of which the first would be lost."""
    data: dict[str, Any] = {}
    for key, value in items:
        if key in data:
            raise InputError(f"key {key!r} is given twice in one object; keep one")
        data[key] = value
    return data
