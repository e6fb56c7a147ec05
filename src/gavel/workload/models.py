"""Names of GPU models as logs and node lists write them, and the accelerator types of a table that they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

SEPARATOR = "|"
"""Between the types of a job, or the models that it may run on: no name of either has one."""
_MEMORY = re.compile(r"(?<=\d)m\d+$")
"""What Alibaba appends for the memory: V100M32."""


def type_of(model: str, types: Sequence[str]) -> str | None:
    """The type that a model's name means, whatever its case, maker and memory; None if the table has no such type.

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
    """The types that any of the models means, in the table's order.

    >>> types_of(["V100M16", "V100M32", "T4"], ["p100", "v100"])
    ('v100',)
    """
    meant = {type_of(model, types) for model in models}
    return tuple(name for name in types if name in meant)


def names(text: str) -> tuple[str, ...]:
    """The names in a text with bars between them.

    >>> names("V100M16| P100|")
    ('V100M16', 'P100')
    """
    return tuple(name for part in text.split(SEPARATOR) if (name := part.strip()))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower()
