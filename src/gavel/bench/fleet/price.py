"""The price of security: the same load on an open and on a secured scheduler, in turn or at the same time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gavel.bench.fleet.load import Load
from gavel.bench.fleet.measure import Figures, Say, run, run_both

CPU, P50, P99 = "share_of_a_core", "call_p50_seconds", "call_p99_seconds"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of both schedulers under the same load."""

    open: Figures
    secured: Figures

    @property
    def trouble(self) -> str | None:
        """Why it was not completed; None if it was."""
        return self.open.get("trouble") or self.secured.get("trouble")

    @property
    def cpu_ratio(self) -> float:
        """CPU time of the secured scheduler by that of the open one, which is at least one tick of the clock."""
        tick = 1.0 / (os.sysconf("SC_CLK_TCK") * self.open["measured_seconds"])
        return float(self.secured[CPU] / max(self.open[CPU], tick))

    def added(self, figure: str) -> float:
        """By how much security increases a figure."""
        return float(self.secured[figure] - self.open[figure])


def compare(
    load: Load, say: Say, pairs: int, profile: Path | None = None, *, at_once: bool = False
) -> list[Comparison]:
    """Measure pairs, one scheduler after the other or both at once; ends early after a pair with trouble.

    Profiles are of the last pair; that of the open scheduler has `.open` after its name.
    """
    found: list[Comparison] = []
    beside = None if profile is None else profile.with_name(f"{profile.name}.open")
    for number in range(pairs):
        say(f"--- pair {number + 1} of {pairs}")
        if at_once:
            found.append(Comparison(*run_both(load, say, beside, profile)))
        else:
            found.append(_in_turn(load, say, beside, profile, secured_first=number % 2 == 1))
        if found[-1].trouble is not None:
            break
    return found


def _in_turn(
    load: Load, say: Say, open_profile: Path | None, secured_profile: Path | None, *, secured_first: bool
) -> Comparison:
    """Measure one after the other; the order changes from pair to pair, in case the machine becomes busy."""
    figures: dict[bool, Figures] = {}
    for secured in (secured_first, not secured_first):
        say(f"--- {'secured' if secured else 'open'}")
        figures[secured] = run(load, say, secured_profile if secured else open_profile, secured=secured)
    return Comparison(figures[False], figures[True])


def document(comparisons: Sequence[Comparison]) -> Figures:
    """All figures, and the medians of the pairs unless one was not completed."""
    told: Figures = {"pairs": [{"open": each.open, "secured": each.secured} for each in comparisons]}
    if trouble := next((each.trouble for each in comparisons if each.trouble), None):
        return {**told, "trouble": trouble}
    return {
        "cpu_ratio": median(each.cpu_ratio for each in comparisons),
        "added_call_p50_seconds": median(each.added(P50) for each in comparisons),
        "added_call_p99_seconds": median(each.added(P99) for each in comparisons),
        **told,
    }
