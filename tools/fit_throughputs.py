#!/usr/bin/env python
"""Fit the models of the built-in throughput table to the public Gavel artefact's file and report the errors.

    python tools/fit_throughputs.py path/to/throughputs-simulation.json

Single-worker rates are copied, to four digits; rates with several workers or a neighbour are modelled.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, least_squares, milp

from gavel.core import builtin
from gavel.core.builtin import Array
from gavel.core.locality import FILE_NAMES
from gavel.core.throughputs import ThroughputTable, read_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

TYPES = ("v100", "p100", "k80")
WORKERS = (1, 2, 4, 8)
OUTPUT = Path(__file__).parents[1] / "src" / "gavel" / "core" / "builtin_throughputs.json"
ABOUT = "Fitted by tools/fit_throughputs.py; lists by type are in the order of types; see docs/throughputs.md"
MEMORY_MARGIN = 0.01
"""Far more than what rounding to four digits moves, so the file reproduces what was fitted."""
PULL = 0.01
"""Pulls sharing parameters to 1 where the measurements leave them open, so that the fit has one answer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", type=Path, help="the artefact's throughputs-simulation.json")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="data file to write")
    arguments = parser.parse_args()
    table = read_table(arguments.path)
    arguments.output.write_text(render(fit(table)), encoding="utf-8")
    print(report(table, builtin.parse_parameters(arguments.output.read_text("utf-8"))))


# ---- fitting


def fit(table: ThroughputTable) -> dict[str, Any]:
    """The content of the data file."""
    rate, kept = measured_single(table), measured_kept(table)
    scaling, communication = fit_scaling(measured_speedups(table))
    per_type = [fit_sharing(kept[:, :, column]) | {"memory": fit_memory(kept[:, :, column] > 0)} for column in range(3)]
    columns = {name: np.stack([fitted[name] for fitted in per_type], axis=1) for name in per_type[0]}
    return {
        "about": ABOUT,
        "types": list(TYPES),
        "workers": list(WORKERS),
        "scaling": scaling,
        "templates": {
            template: {"rate": rounded(rate[row])}
            | communication_entry(communication[row])
            | {name: rounded(values[row]) for name, values in columns.items()}
            for row, template in enumerate(table.templates)
        },
    }


def measured_single(table: ThroughputTable) -> Array:
    """(N, T): rates of one worker alone."""
    return table.single_rates(table.templates, TYPES)


def measured_kept(table: ThroughputTable) -> Array:
    """(N, N, T): the share of its own rate that [i] keeps next to [j]."""
    profiles = [(template, 1) for template in table.templates]
    first, second, rates = table.pairs(profiles, TYPES)
    kept = np.zeros((len(profiles), len(profiles), len(TYPES)))
    kept[first, second], kept[second, first] = rates[:, 0], rates[:, 1]
    return kept / measured_single(table)[:, None, :]


def measured_speedups(table: ThroughputTable) -> Array:
    """(N, T, 2, W-1): rates with several workers over the rate with one; NaN where nothing was measured."""
    speedups = np.full((len(table.templates), len(TYPES), 2, len(WORKERS) - 1), np.nan)
    for row, template in enumerate(table.templates):
        if set(WORKERS) <= set(table.workers(template)):
            rates = table.rates([(template, count) for count in WORKERS], TYPES)
            # Equal to the last digit means that the file has no unconsolidated figure; 0, that it cannot run.
            rates[1:, :, 1][rates[1:, :, 1] == rates[1:, :, 0]] = np.nan
            rates[rates == 0] = np.nan
            speedups[row] = np.moveaxis(rates[1:] / rates[0], 0, 2)
    return speedups


def fit_scaling(speedups: Array) -> tuple[dict[str, Any], Array]:
    """The pooled curves of each type and placement, and each template's communication (N, T, 2)."""
    communication = np.full(speedups.shape[:3], np.nan)
    scaling: dict[str, Any] = {}
    for column, name in enumerate(TYPES):
        scaling[name] = {}
        for half, placement in FILE_NAMES.items():
            measured = ~np.isnan(speedups[:, column, half]).any(axis=1)
            stretch = np.array(WORKERS[1:]) / speedups[measured, column, half]
            base, growth, communication[measured, column, half] = fit_stretch(stretch)
            scaling[name][placement] = {"base": [1.0, *rounded(base)], "growth": [0.0, *rounded(growth)]}
    return scaling, communication


def fit_stretch(stretch: Array) -> tuple[Array, Array, Array]:
    """Base, growth and communication such that base + communication * growth is near the measured stretch."""
    count, several = stretch.shape

    def residuals(x: Array) -> Array:
        base, growth, communication = np.split(x, [several, 2 * several])
        return np.asarray(np.log((base + np.outer(communication, growth)) / stretch).ravel())

    floor = stretch.min(axis=0)
    start = np.concatenate([floor, np.ones(several), (stretch - floor).mean(axis=1) + 1e-3])
    lowest = np.concatenate([np.full(2 * several, 1e-3), np.zeros(count)])
    solution = least_squares(residuals, start, bounds=(lowest, np.inf), loss="soft_l1", f_scale=0.1)
    base, growth, communication = np.split(solution.x, [several, 2 * several])
    # Many triples are equally good; take the one where the least communication is 0 and growth starts at 1.
    least = communication.min()
    return base + least * growth, growth / growth[0], (communication - least) * growth[0]


def fit_sharing(kept: Array) -> dict[str, Array]:
    """Headroom, sensitivity and pressure of every template on one type, over the pairs that run."""
    runs = kept > 0

    def residuals(x: Array) -> Array:
        headroom, sensitivity, pressure = np.split(np.exp(x), 3)
        modelled = np.minimum(1.0, headroom[:, None] / (1 + np.outer(sensitivity, pressure)))
        return np.concatenate([(modelled - kept)[runs], PULL * x])

    solution = least_squares(residuals, np.zeros(3 * len(kept)), loss="soft_l1", f_scale=0.02)
    headroom, sensitivity, pressure = np.split(np.exp(solution.x), 3)
    return {"headroom": headroom, "sensitivity": sensitivity, "pressure": pressure}


def fit_memory(runs: NDArray[np.bool_]) -> Array:
    """The smallest footprints with the fewest pairs for which "both fit in memory" and "both ran" differ."""
    count = len(runs)
    first, second = np.triu_indices(count)
    pairs = len(first)
    sign = np.where(runs[first, second], 1.0, -1.0)
    sums = np.zeros((pairs, count))
    np.add.at(sums, (np.arange(pairs), first), sign)
    np.add.at(sums, (np.arange(pairs), second), sign)
    # A pair that ran needs a sum <= 1 - margin, one that did not >= 1 + margin; else it is a mistake.
    solution = milp(
        np.concatenate([np.full(count, 1e-3), np.ones(pairs)]),
        integrality=np.concatenate([np.zeros(count), np.ones(pairs)]),
        bounds=Bounds(0, 1.01),
        constraints=LinearConstraint(
            np.hstack([sums, -(1 + 2 * MEMORY_MARGIN) * np.eye(pairs)]), -np.inf, sign - MEMORY_MARGIN
        ),
    )
    if not solution.success:
        raise SystemExit(f"memory footprints: {solution.message}")
    return np.asarray(solution.x[:count])


# ---- writing


def communication_entry(values: Array) -> dict[str, Any]:
    """Nothing for templates that were measured with one worker only."""
    if np.isnan(values).all():
        return {}
    return {"communication": {placement: rounded(values[:, half]) for half, placement in FILE_NAMES.items()}}


def rounded(values: Array) -> list[float | None]:
    return [None if np.isnan(value) else abs(float(f"{value:.4g}")) for value in values]


def render(data: Mapping[str, Any]) -> str:
    """JSON with one line for each list or curve."""
    return f"{nested(data, depth=3)}\n"


def nested(value: Any, depth: int, indent: str = "") -> str:
    if not (isinstance(value, Mapping) and depth):
        return json.dumps(value)
    inner = indent + " "
    lines = (f"{inner}{json.dumps(key)}: {nested(item, depth - 1, inner)}" for key, item in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


# ---- reporting


def report(table: ThroughputTable, parameters: builtin.Parameters) -> str:
    """How far the models, as rounded in the data file, are from what was measured."""
    speedups, kept, rate = measured_speedups(table), measured_kept(table), measured_single(table)
    modelled = np.moveaxis(builtin.scaled_rates(parameters)[:, 1:], 1, 3) / rate[:, :, None, None]
    shared = builtin.shared_rates(parameters) / rate[:, None, :]
    lines = []
    for column, name in enumerate(parameters.types):
        for half, placement in FILE_NAMES.items():
            errors = np.abs(modelled[:, column, half] / speedups[:, column, half] - 1)
            lines.append(
                f"{name:5} scaling {placement:14} mean error {np.nanmean(errors):6.1%}"
                f" over {np.isfinite(errors).sum()} rates"
            )
        lines.append(f"{name:5} sharing {sharing_report(kept[:, :, column], shared[:, :, column])}")
    return "\n".join(lines)


def sharing_report(kept: Array, modelled: Array) -> str:
    runs, fits = kept > 0, modelled > 0
    errors = np.abs(modelled - kept)[runs & fits]
    upper = np.triu(np.ones_like(runs))
    return (
        f"mean error {errors.mean():.1%} of the rate alone over {errors.size} rates;"
        f" {(upper & ~runs & ~fits).sum()} of {(upper & ~runs).sum()} pairs that cannot share reproduced,"
        f" {(upper & runs & ~fits).sum()} of {(upper & runs).sum()} that can are refused"
    )


if __name__ == "__main__":
    main()
