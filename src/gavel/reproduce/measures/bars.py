"""How fast each model is on each type, and how much a dollar buys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gavel.core.cluster import LIST_PRICES
from gavel.core.problem import Floats
from gavel.core.throughputs import find_table
from gavel.plots.figures import Plot, colour, legend_below, new_figure, styled
from gavel.plots.page import NumberTable
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Scope, Study


def measure(study: Study, scope: Scope) -> Measured:
    """Compare rates of one worker by model, each represented by its batch size with the largest speed-up."""
    table = find_table(scope.throughputs)
    types = [type_name for type_name in ("k80", "p100", "v100") if type_name in table.types]
    known = [name for name in table.templates if 1 in table.workers(name)]
    every = table.single_rates(known, types)
    chosen = _fastest(known, every[:, -1] / np.maximum(every[:, 0], 1e-300) * (every[:, 0] > 0))
    templates, rates = [known[n] for n in chosen], every[chosen]
    faster = rates / rates[:, :1]
    per_dollar = faster / np.array([LIST_PRICES[type_name] for type_name in types]) * LIST_PRICES[types[0]]
    models = [name.partition(" (")[0] for name in templates]
    values = {
        "v100_not_best": float((per_dollar.argmax(axis=1) != len(types) - 1).mean()),
        "resnet50": float(faster[models.index("ResNet-50"), -1]),
        "a3c": float(faster[models.index("A3C"), -1]),
    }
    rows = [[model, *(f"{x:.2f}" for x in (*faster[n], *per_dollar[n]))] for n, model in enumerate(models)]
    headings = ["model", *types, *(f"{type_name} per dollar" for type_name in types)]
    return Measured(
        study,
        values=values,
        tables=[("Throughput relative to a K80, and the same per dollar", NumberTable(headings, rows))],
        plots=[_plot(study, models, types, faster, per_dollar)],
    )


def _fastest(templates: list[str], faster: Floats) -> list[int]:
    """One template of each model, by number."""
    best: dict[str, int] = {}
    for number, name in enumerate(templates):
        model = name.partition(" (")[0]
        if model not in best or faster[number] > faster[best[model]]:
            best[model] = number
    return list(best.values())


def _plot(study: Study, models: list[str], types: Sequence[str], faster: Floats, per_dollar: Floats) -> Plot:
    with styled():
        figure, axes = new_figure(6.5, rows=2)
        place = np.arange(len(models))
        for axis, values, label in zip(
            axes, (faster, per_dollar), ("throughput", "throughput per dollar"), strict=True
        ):
            for number, type_name in enumerate(types):
                axis.bar(place + (number - 1) * 0.27, values[:, number], 0.25, label=type_name, color=colour(number))
            axis.set_xticks(place, models, rotation=15, ha="right")
            axis.set_ylabel(f"{label}\n(K80 = 1)")
        legend_below(figure, axes, columns=len(types))
        return Plot(study.name, study.title, study.about, figure)
