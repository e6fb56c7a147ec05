"""What can be saved of a damaged journal, as a new journal that is whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What a salvage saved and what it lost."""


def salvage(url: str, to: str) -> SalvageReport:
    raise NotImplementedError
