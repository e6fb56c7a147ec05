"""Maps names of GPU models in logs and node lists to the accelerator types of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

SEPARATOR = "|"
"""Separates the types of a job, or the models it may run on; it occurs in no name."""
_MEMORY = re.compile(r"(?<=\d)m\d+$")
"""Alibaba's suffix for the memory: V100M32."""


def type_of(model: str, types: Sequence[str]) -> str | None:
    """The type of a model, ignoring case, maker and memory; None if the table has no such type.

    >>> [type_of(name, ["v100", "p100"]) for name in ("V100M32", "Tesla P100-PCIE-16GB", "v100", "T4")]
    ['v100', 'p100', 'v100', None]
    """
    known = {_plain(name): name for name in reversed(types)}
    for part in (_plain(model), *map(_plain, re.split(r"[\s_/-]+", model))):
        for name in (part, _MEMORY.sub("", part)):
            if name in known:
                return known[name]
    return None


def types_of(models: Iterable[str], types: Sequence[str]) -> tuple[str, ...]:
    """The types of the models, in the table's order.

    >>> types_of(["V100M16", "V100M32", "T4"], ["p100", "v100"])
    ('v100',)
    """
    meant = {type_of(model, types) for model in models}
    return tuple(name for name in types if name in meant)


def names(text: str) -> tuple[str, ...]:
    """The names in a text, separated by bars.

    >>> names("V100M16| P100|")
    ('V100M16', 'P100')
    """
    return tuple(name for part in text.split(SEPARATOR) if (name := part.strip()))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower()
