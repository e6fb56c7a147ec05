"""Two jobs on one P100: the share of its throughput that each keeps."""

from __future__ import annotations

import numpy as np

from gavel.core.problem import Floats
from gavel.core.throughputs import find_table
from gavel.plots.figures import Plot, new_figure, styled
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Scope, Study

KIND = "p100"


def measure(study: Study, scope: Scope) -> Measured:
    """Add up the shares of both members of every pair: more than 1 is better than taking turns."""
    table = find_table(scope.throughputs)
    profiles = [profile for profile in table.profiles if profile[1] == 1]
    alone = table.single_rates([template for template, _ in profiles], [KIND])[:, 0]
    first, second, rates = table.pairs(profiles, [KIND])
    kept = np.zeros((len(profiles), len(profiles)))
    kept[first, second] = rates[:, 0, 0] / np.maximum(alone[first], 1e-300)
    kept[second, first] = rates[:, 1, 0] / np.maximum(alone[second], 1e-300)
    runs = alone > 0
    kept, names = kept[np.ix_(runs, runs)], [template for (template, _), ok in zip(profiles, runs, strict=True) if ok]
    total = np.where((kept > 0) & (kept.T > 0), kept + kept.T, 0.0)
    upper = total[np.triu_indices(len(total))]
    values = {
        "best": float(upper.max()),
        "do_not_fit": float((upper == 0).mean()),
        "worse": float(((upper > 0) & (upper < 1.0)).mean()),
        "mean_gain": float(upper[upper > 0].mean()),
    }
    return Measured(study, values=values, plots=[_plot(study, names, kept)])


def _plot(study: Study, names: list[str], kept: Floats) -> Plot:
    with styled():
        figure, (axis,) = new_figure(9.0)
        shown = axis.imshow(np.where(kept > 0, kept, np.nan), cmap="viridis", vmin=0.0, vmax=1.0)
        axis.set_facecolor("#dddddd")
        axis.grid(visible=False)
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.set_xlabel("beside")
        figure.colorbar(shown, ax=axis, label="share of its throughput that the row's job keeps", shrink=0.7)
        return Plot(study.name, study.title, f"{study.about} Grey: they do not fit.", figure)
