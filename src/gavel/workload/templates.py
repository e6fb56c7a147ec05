"""Reports templates that are not in the throughput table, all in one sentence, with the closest known names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property

from gavel.core.errors import InputError
from gavel.core.throughputs import ThroughputTable
from gavel.workload.rows import Row

_SHOWN = 5
_NEAR = 0.55
"""How similar a name must be, from 0 to 1."""


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """Up to three known templates with a similar name, with or without their batch size.

    >>> nearest("resnet50", ["A3C", "ResNet-50 (batch size 16)"])
    ['ResNet-50 (batch size 16)']
    """

    def likeness(template: str) -> float:
        model, _, _ = template.partition(" (")
        return max(SequenceMatcher(None, name.lower(), text.lower()).ratio() for text in (template, model))

    scores = {template: likeness(template) for template in known}
    near = sorted((template for template in known if scores[template] >= _NEAR), key=lambda t: -scores[t])
    return near[:3]


@dataclass
class UnknownTemplates:
    """Collects them while a file is read."""

    source: str
    table: ThroughputTable
    found: dict[str, int] = field(default_factory=dict)
    """Each unknown template and the line that names it first."""

    def knows(self, template: str, row: Row) -> bool:
        """Whether the table has a template; if not, it is recorded."""
        if template in self._known:
            return True
        self.found.setdefault(template, row.line)
        return False

    def check(self) -> None:
        """Refuse the file if there were any."""
        if not self.found:
            return
        shown = [self._described(name, line) for name, line in list(self.found.items())[:_SHOWN]]
        more = f" and {len(self.found) - _SHOWN} more" if len(self.found) > _SHOWN else ""
        raise InputError(
            f"{self.source}: the throughput table does not list {', '.join(shown)}{more}; rename them or give a table "
            "that has them with --throughputs"
        )

    def _described(self, name: str, line: int) -> str:
        near = nearest(name, self.table.templates)
        hint = f"closest: {', '.join(map(repr, near))}" if near else "no similar name"
        return f"template {name!r} (line {line}; {hint})"

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.table.templates)
