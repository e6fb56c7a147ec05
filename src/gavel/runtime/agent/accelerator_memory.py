"""The memory of accelerators that are named by hand: as stated, as their driver says, or as their type is known for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gavel.client.quantities import bytes_of
from gavel.errors import InputError
from gavel.limits import MOST_BYTES

_GIGABYTES = {
    "k80": 12,
    "m60": 8,
    "p4": 8,
    "p40": 24,
    "p100": 12,
    "v100": 16,
    "t4": 16,
    "a2": 16,
    "a10": 24,
    "a10g": 24,
    "a16": 16,
    "a30": 24,
    "a40": 48,
    "a100": 40,
    "a4000": 16,
    "a5000": 24,
    "a6000": 48,
    "l4": 24,
    "l40": 48,
    "l40s": 48,
    "h100": 80,
    "h200": 141,
    "b200": 180,
    "gh200": 96,
    "rtx2080ti": 11,
    "rtx3090": 24,
    "rtx4090": 24,
    "rtx6000ada": 48,
    "titanxp": 12,
    "titanrtx": 24,
    "mi50": 16,
    "mi100": 32,
    "mi210": 64,
    "mi250": 128,
    "mi250x": 128,
    "mi300x": 192,
}
KNOWN: Mapping[str, int] = {name: size * 2**30 for name, size in _GIGABYTES.items()}
"""By type: bytes of the smallest variant that was sold."""


def parse_memory(text: str, types: Collection[str]) -> dict[str, int]:
    """Read "type=size,type=size".

    >>> parse_memory("v100=16G", ["v100"])
    {'v100': 17179869184}
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, separator, amount = (piece.strip() for piece in part.partition("="))
        where = f"accelerator memory {text!r}: {part.strip()!r}"
        if not (name and separator and amount):
            raise InputError(f"{where} is not type=size, for example v100=16G")
        if name not in types:
            raise InputError(f"{where}: this agent has no accelerators of type {name}; it has {', '.join(types)}")
        if name in found:
            raise InputError(f"{where}: type {name} is given twice; keep one")
        size = bytes_of(amount)
        if not 0 < size <= MOST_BYTES:
            raise InputError(f"{where}: the memory must be more than 0 and at most 1024T")
        found[name] = size
    return found


def known_memory(types: Collection[str], listed: Mapping[str, int], stated: Mapping[str, int]) -> dict[str, int]:
    """By type: bytes of one accelerator, where anything is known; what was stated counts most.

    >>> known_memory(["v100", "mine"], {}, {"mine": 5})
    {'v100': 17179869184, 'mine': 5}
    """
    found = {name: stated.get(name) or listed.get(name) or KNOWN.get(name, 0) for name in types}
    return {name: size for name, size in found.items() if size}
