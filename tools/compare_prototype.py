"""Compare our simulator with the authors' prototype on its traces: `python tools/compare_prototype.py DATA [--write]`.

DATA holds the public artefact's throughput files, traces, and expected.json with the prototype's figures. Same
settings: plain mechanism, free restarts, at least 1,920 s between allocations, workers always consolidated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.sim.experiment import Experiment, run

OURS = {
    "max_min_fairness_perf": ("max_min_fairness", {}),
    "max_min_fairness": ("max_min_fairness", {"agnostic": True}),
    "max_min_fairness_packed": ("max_min_fairness", {"space_sharing": True}),
    "max_min_fairness_water_filling_perf": ("max_min_fairness_water_filling", {}),
    "finish_time_fairness_perf": ("finish_time_fairness", {}),
    "finish_time_fairness": ("finish_time_fairness", {"agnostic": True}),
    "min_total_duration_perf": ("makespan", {}),
    "min_total_duration": ("makespan", {"agnostic": True}),
    "fifo_perf": ("fifo", {}),
    "gandiva": ("gandiva", {"space_sharing": True}),
    "allox": ("allox", {}),
    "isolated": ("isolated", {}),
}
BEGIN, END = "<!-- prototype -->\n", "<!-- end prototype -->\n"


@dataclass(frozen=True)
class Comparison:
    """One policy on one trace."""

    trace: str
    policy: str
    figure: str
    prototype: float
    ours: float

    @property
    def ratio(self) -> float:
        return self.ours / self.prototype


def comparisons(data: Path, chosen: set[tuple[str, str]] | None = None) -> Iterator[Comparison]:
    """Run the traces of `data`, or only the chosen (trace, prototype's policy name)."""
    expected: dict[str, dict[str, Any]] = json.loads((data / "expected.json").read_text())
    for name, setting in expected.items():
        for theirs, figures in setting["policies"].items():
            if theirs in OURS and (chosen is None or (name, theirs) in chosen):
                yield _compare(data, name, setting, theirs, figures)


def _compare(data: Path, name: str, setting: dict[str, Any], theirs: str, figures: dict[str, float]) -> Comparison:
    policy, options = OURS[theirs]
    window = setting.get("window")
    report = run(
        Experiment(
            cluster=",".join(f"{kind}={count}" for kind, count in setting["cluster"].items()),
            policy=policy,
            mechanism="plain",
            trace=str(data / f"{name.removesuffix('-1200s')}.trace"),
            throughputs=str(data / setting["throughputs"]),
            round_seconds=float(setting["round_s"]),
            restart_seconds=0.0,
            min_seconds_between_allocations=1920.0,
            per_server=max(setting["cluster"].values()),  # the prototype's gangs are always consolidated
            window=(window[0], window[1]) if window else None,
            **options,  # type: ignore[arg-type]
        )
    ).document()
    static = "static" in name
    figure, key = ("makespan", "makespan_seconds") if static else ("average JCT", "average_jct_seconds")
    return Comparison(name, theirs, figure, figures["makespan" if static else "avg_jct"], report[key])


def main(arguments: list[str]) -> None:
    """Print the table; with --write, also update docs/simulation.md."""
    lines = ["| trace | prototype's policy | figure | prototype | ours | ratio |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for c in comparisons(Path(arguments[0])):
        lines.append(
            f"| {c.trace} | {c.policy} | {c.figure} | {c.prototype:,.0f} s | {c.ours:,.0f} s | {c.ratio:.3f} |"
        )
        print(lines[-1], flush=True)
    if "--write" in arguments:
        page = Path(__file__).parents[1] / "docs" / "simulation.md"
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(sys.argv[1:])
