"""Studies that are not sweeps of simulations: each measures its own numbers."""

from __future__ import annotations

from collections.abc import Callable

from gavel.reproduce.measured import Measured
from gavel.reproduce.measures import bars, examples, heatmap, hierarchy, physical, runtimes
from gavel.reproduce.study import Scope, Study

MEASURES: dict[str, Callable[[Study, Scope], Measured]] = {
    "examples": examples.measure,
    "bars": bars.measure,
    "heatmap": heatmap.measure,
    "hierarchy": hierarchy.measure,
    "hierarchy_fifo": hierarchy.measure_fifo,
    "runtimes": runtimes.measure,
    "physical": physical.measure,
}
"""By the kind given in a study's file."""
