"""Which accelerators a server has: as its user writes them, and the short names of types."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gavel.errors import InputError

MOST = 4096
"""A higher count for one server is a typing error."""

Indices = dict[str, tuple[int, ...]]
"""The device numbers of each type."""


def parse_accelerators(text: str) -> Indices:
    """Read "type=count,type=count"; devices are numbered in the order given.

    >>> parse_accelerators("v100=2,k80=1")
    {'v100': (0, 1), 'k80': (2,)}
    """
    found: Indices = {}
    first = 0
    for part in text.split(","):
        name, separator, number = (piece.strip() for piece in part.partition("="))
        if not (name and separator and number.isdecimal()):
            raise InputError(f"accelerators {text!r}: {part.strip()!r} is not type=count, for example v100=4")
        if name in found:
            raise InputError(f"accelerators {text!r}: type {name!r} is given twice; add the counts up")
        if len(number) > len(str(MOST)) or not 1 <= int(number) <= MOST:
            raise InputError(f"accelerators {text!r}: {name} must be 1 to {MOST}, not {number}")
        found[name] = tuple(range(first, first + int(number)))
        first += int(number)
    return found


def by_type(names: Iterable[str]) -> Indices:
    """Device numbers by type, given the type of each device.

    >>> by_type(["v100", "k80", "v100"])
    {'v100': (0, 2), 'k80': (1,)}
    """
    found: Indices = {}
    for index, name in enumerate(names):
        found[name] = (*found.get(name, ()), index)
    return found


_BRANDS = {"nvidia", "tesla", "quadro", "geforce", "grid", "graphics", "generation", "amd", "instinct"}
_SERIES = {"rtx", "gtx", "titan"}
_VARIANTS = {"ti", "super", "ada", "blackwell"}


def short_type(name: str) -> str:
    """Shorten a driver's GPU name to the one that tables and job files use.

    >>> [short_type(name) for name in ("Tesla V100-SXM2-16GB", "NVIDIA A100 80GB PCIe", "NVIDIA RTX A6000")]
    ['v100', 'a100', 'a6000']
    >>> [short_type(name) for name in ("NVIDIA GeForce RTX 3080 Ti", "NVIDIA RTX 6000 Ada Generation", "TITAN Xp")]
    ['rtx3080ti', 'rtx6000ada', 'titanxp']
    """
    words = [word for word in re.split(r"[\s\-_/()]+", name.lower()) if word and word not in _BRANDS]
    if not words:
        return "gpu"
    model = next((word for word in words if re.fullmatch(r"[a-z]{1,3}\d+[a-z]{0,2}", word)), None)
    if model is not None:
        return model
    if words[0] in _SERIES:
        variants = [word for word in words[2:] if word in _VARIANTS]
        return "".join([*words[:2], *variants])
    return words[0]
