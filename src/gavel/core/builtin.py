"""The models behind the built-in throughput table: how rates grow over workers and shrink when jobs share.

Only single-worker rates are data; the rest comes from a few fitted numbers per template: docs/throughputs.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gavel.core.locality import FILE_NAMES, Locality

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Parameters:
    """The content of the data file, for N templates, T types and W worker counts; NaN: no figure."""

    types: tuple[str, ...]
    workers: tuple[int, ...]
    templates: tuple[str, ...]
    base: Array
    """(T, 2, W): step time relative to that of one worker, for the template that communicates least."""
    growth: Array
    """(T, 2, W): what a unit of communication adds to the step time; 1 at the smallest count above one."""
    communication: Array
    """(N, T, 2): the template's share of communication; NaN: no rates with several workers."""
    rate: Array
    """(N, T): steps per second of one worker alone."""
    headroom: Array
    """(N, T): above 1 if a light neighbour costs nothing, because the accelerator idles between steps."""
    sensitivity: Array
    """(N, T): how much a template suffers from its neighbour's pressure."""
    pressure: Array
    """(N, T): how much a template disturbs its neighbour."""
    memory: Array
    """(N, T): share of the accelerator's memory; two templates fit if theirs add up to 1 or less."""


def load_parameters() -> Parameters:
    """The parameters that ship with Gavel."""
    return parse_parameters(resources.files(__package__).joinpath("builtin_throughputs.json").read_text("utf-8"))


def parse_parameters(text: str) -> Parameters:
    """Parameters from the text of a data file, as `tools/fit_throughputs.py` writes it."""
    data = json.loads(text)
    types, templates = tuple(data["types"]), data["templates"]

    def pooled(name: str) -> Array:
        return np.array([[data["scaling"][t][placement][name] for placement in FILE_NAMES.values()] for t in types])

    def column(name: str) -> Array:
        return np.array([entry[name] for entry in templates.values()], dtype=np.float64)

    return Parameters(
        types=types,
        workers=tuple(data["workers"]),
        templates=tuple(templates),
        base=pooled("base"),
        growth=pooled("growth"),
        communication=np.array([_communication(entry, len(types)) for entry in templates.values()]),
        **{name: column(name) for name in ("rate", "headroom", "sensitivity", "pressure", "memory")},
    )


def _communication(entry: dict[str, Any], types: int) -> Array:
    """The (T, 2) of one template; a template without figures runs on one worker only."""
    if "communication" not in entry:
        return np.full((types, len(Locality)), np.nan)
    return np.array([entry["communication"][placement] for placement in FILE_NAMES.values()], dtype=np.float64).T


def scaled_rates(parameters: Parameters) -> Array:
    """(N, W, T, 2): steps per second of all workers together, by placement.

    rate(w) = rate(1) * w / (base(w) + communication * growth(w)), with base(1) = 1 and growth(1) = 0.
    """
    workers = np.array(parameters.workers, dtype=np.float64)
    stretch = parameters.base + parameters.communication[..., None] * parameters.growth
    rates = np.ascontiguousarray(np.moveaxis(parameters.rate[:, :, None, None] * workers / stretch, 3, 1))
    rates[:, workers == 1] = parameters.rate[:, None, :, None]
    # Without a figure for spread-out workers, placement is assumed not to matter; without any figure it cannot run.
    for closer in list(Locality)[:-1]:
        spread = rates[..., closer.wider]
        rates[..., closer.wider] = np.where(np.isnan(spread), rates[..., closer], spread)
    return np.asarray(np.nan_to_num(rates, nan=0.0))


def shared_rates(parameters: Parameters) -> Array:
    """(N, N, T): steps per second of [i] while sharing one accelerator with [j], both with one worker.

    rate * min(1, headroom_i / (1 + sensitivity_i * pressure_j)), or 0 if the memory of both is more than 1.
    """
    p = parameters
    slowdown = 1 + p.sensitivity[:, None, :] * p.pressure[None, :, :]
    kept = np.minimum(1.0, p.headroom[:, None, :] / slowdown)
    return p.rate[:, None, :] * np.where(p.memory[:, None, :] + p.memory[None, :, :] <= 1, kept, 0.0)
