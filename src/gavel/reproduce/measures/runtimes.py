"""How long one allocation takes to solve, by the number of jobs."""

from __future__ import annotations

import time

from gavel.bench.generate import generated_problem
from gavel.plots.figures import Plot, colour, new_figure, styled
from gavel.plots.page import NumberTable
from gavel.policies.registry import allocate
from gavel.reproduce.measured import Measured
from gavel.reproduce.study import Scope, Study

POLICIES = {"LAS": "max_min_fairness", "hierarchical": "hierarchical"}
SIZES = (32, 128, 512, 2048)
LARGE = (8192, 32768, 131072)
"""Sizes of a full run, far beyond the paper's."""


def measure(study: Study, scope: Scope) -> Measured:
    """Solve problems of growing size, jobs of the built-in templates in five entities."""
    sizes = SIZES + (LARGE if scope.full else ())
    for policy in POLICIES.values():
        _seconds(policy, SIZES[0], sharing=True)  # warm-up: imports during the first solve are not measured
    seconds = {
        (label, sharing, jobs): _seconds(policy, jobs, sharing=sharing)
        for label, policy in POLICIES.items()
        for sharing in (False, True)
        for jobs in sizes
    }
    values = {
        f"{policy}{'_sharing' * sharing}_{jobs}".lower(): value for (policy, sharing, jobs), value in seconds.items()
    }
    values["over_las"] = values[f"hierarchical_{sizes[-1]}"] / values[f"las_{sizes[-1]}"]
    labels = [(label, sharing) for label in POLICIES for sharing in (False, True)]
    rows = [[f"{jobs:,}", *(f"{seconds[label, sharing, jobs]:.4f}" for label, sharing in labels)] for jobs in sizes]
    headings = ["jobs", *(label + " with space sharing" * sharing for label, sharing in labels)]
    return Measured(
        study,
        values=values,
        tables=[("Seconds to solve one allocation", NumberTable(headings, rows))],
        plots=[_plot(study, sizes, seconds)],
    )


def _seconds(policy: str, jobs: int, *, sharing: bool) -> float:
    problem = generated_problem(jobs, space_sharing=sharing)
    began = time.perf_counter()
    allocate(problem, policy)
    return time.perf_counter() - began


def _plot(study: Study, sizes: tuple[int, ...], seconds: dict[tuple[str, bool, int], float]) -> Plot:
    with styled():
        figure, (axis,) = new_figure(4.5)
        for number, label in enumerate(POLICIES):
            for sharing in (False, True):
                name = label + " with space sharing" * sharing
                line = [seconds[label, sharing, jobs] for jobs in sizes]
                axis.plot(sizes, line, "--" if sharing else "-", marker="o", color=colour(number), label=name)
        axis.axhline(600.0, color="#888888", linewidth=1, label="10 minutes, the paper's measure")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("active jobs")
        axis.set_ylabel("seconds")
        axis.legend()
        return Plot(study.name, study.title, study.about, figure)
