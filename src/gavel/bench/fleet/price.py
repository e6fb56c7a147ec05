"""The price of security: the same load on an open and on a secured scheduler, in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gavel.bench.fleet.load import Load
from gavel.bench.fleet.measure import Figures, Say, run

CPU, P50, P99 = "share_of_a_core", "call_p50_seconds", "call_p99_seconds"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of both schedulers, measured one after the other."""

    open: Figures
    secured: Figures

    @property
    def trouble(self) -> str | None:
        """Why it was not completed; None if it was."""
        return self.open.get("trouble") or self.secured.get("trouble")

    @property
    def cpu_ratio(self) -> float:
        """CPU time of the secured scheduler by that of the open one."""
        return float(self.secured[CPU] / self.open[CPU])

    def added(self, figure: str) -> float:
        """By how much security increases a figure."""
        return float(self.secured[figure] - self.open[figure])


def compare(load: Load, say: Say, pairs: int, profile: Path | None = None) -> list[Comparison]:
    """Measure pairs; the order changes from pair to pair, so that a machine that becomes busy slows both.

    Ends early after one that could not be completed. Profiles are of the last pair; that of the open scheduler has
    `.open` after its name.
    """
    found: list[Comparison] = []
    for number in range(pairs):
        figures: dict[bool, Figures] = {}
        for secured in (False, True) if number % 2 == 0 else (True, False):
            say(f"--- pair {number + 1} of {pairs}, {'secured' if secured else 'open'}")
            figures[secured] = run(load, say, _profile(profile, secured=secured), secured=secured)
        found.append(Comparison(figures[False], figures[True]))
        if found[-1].trouble is not None:
            break
    return found


def _profile(path: Path | None, *, secured: bool) -> Path | None:
    return path if path is None or secured else path.with_name(f"{path.name}.open")


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
