"""A throughput table in the layout of the public artefact's files, made by us from the built-in models and noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gavel.core.throughputs import Profile, ThroughputTable, builtin_table

PLACEMENTS = ("", "_unconsolidated")


def write_artefact_table(path: Path, *, noise: float = 0.0, seed: int = 0) -> Path:
    """Write the table; with noise, each rate is off by a random share of about this size."""
    path.write_text(json.dumps(document(builtin_table(), noise, np.random.default_rng(seed))), encoding="utf-8")
    return path


def document(table: ThroughputTable, noise: float, rng: np.random.Generator) -> dict[str, Any]:
    """Rates alone and beside others, by type and placement; sharing is known for single workers."""
    alone = table.rates(table.profiles, table.types)
    alone = alone * rng.lognormal(0.0, noise, alone.shape)
    found: dict[str, Any] = {}
    for column, kind in enumerate(table.types):
        for place, ending in enumerate(PLACEMENTS):
            found[kind + ending] = {
                _key(profile): {"null": float(alone[row, column, place])} for row, profile in enumerate(table.profiles)
            }
        _add_pairs(found, table, kind, noise, rng)
    return found


def _add_pairs(
    found: dict[str, Any], table: ThroughputTable, kind: str, noise: float, rng: np.random.Generator
) -> None:
    profiles = [(template, 1) for template in table.templates]
    first, second, rates = table.pairs(profiles, [kind])
    for one, other, [[mine], [others]] in zip(first.tolist(), second.tolist(), rates.tolist(), strict=True):
        factor = float(rng.lognormal(0.0, noise))
        for ending in PLACEMENTS:
            entries = found[kind + ending]
            entries[_key(profiles[one])][_key(profiles[other])] = [mine * factor, others * factor]
            entries[_key(profiles[other])][_key(profiles[one])] = [others * factor, mine * factor]


def _key(profile: Profile) -> str:
    template, workers = profile
    return f"('{template}', {workers})"
