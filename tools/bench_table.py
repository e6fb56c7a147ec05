"""Measure the table of docs/performance.md: `python tools/bench_table.py [--write]`, about five minutes.

Each row is one `gavel bench policies` in a separate process, so that peak memory belongs to that row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROWS: tuple[tuple[str, str], ...] = (
    ("--policy max_min_fairness --jobs 2048 --against textbook", "at least 10x the textbook"),
    ("--policy max_min_fairness --jobs 512 --space-sharing --against textbook", "at least 500x the textbook"),
    ("--policy max_min_fairness --jobs 1000000 --space-sharing", "under 1 s and 2 GB"),
    ("--policy hierarchical --jobs 2048", "under 0.05 s"),
    ("--policy hierarchical --jobs 2048 --space-sharing", "under 0.2 s"),
    ("--policy finish_time_fairness --jobs 2048 --distinct --against textbook", "under 1 s"),
    ("--policy finish_time_fairness --jobs 100000 --distinct", "under 20 s"),
    ("--policy makespan --jobs 2048 --distinct --against textbook", "under 0.3 s"),
    ("--policy makespan --jobs 100000 --distinct", "under 20 s"),
    ("--policy max_min_fairness --jobs 600 --own-rates --space-sharing", "-"),
    ("--policy max_min_fairness_water_filling --jobs 2048", "-"),
    ("--policy max_min_fairness_water_filling --jobs 2048 --distinct", "under 0.28 s"),
    *(
        (f"--policy {policy} --jobs {jobs} --distinct --space-sharing{cluster}", f"under {target} s")
        for policy in ("makespan", "finish_time_fairness")
        for jobs, target in ((500, "0.3"), (1000, "1"), (2000, "3"), (10000, "30"))
        for cluster in ("", " --accelerators 36")
    ),
    ("--policy fifo --jobs 2048 --distinct", "-"),
    ("--policy min_cost_slo --jobs 2048 --distinct", "-"),
)
BEGIN, END = "<!-- measured -->\n", "<!-- end measured -->\n"


def main(arguments: list[str]) -> None:
    """Print the table row by row; with --write, also update docs/performance.md."""
    lines = ["| `gavel bench policies` | target | build | solve | gap | memory | textbook | speed-up |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    print("\n".join(lines), flush=True)
    for options, target in ROWS:
        lines.append(_row(options, target, _measure(options)))
        print(lines[-1], flush=True)
    if "--write" in arguments:
        page = Path(__file__).parents[1] / "docs" / "performance.md"
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


def _measure(options: str) -> dict[str, Any]:
    command = [sys.executable, "-c", "from gavel.cli.app import main; main()", "bench", "policies", "--json"]
    done = subprocess.run([*command, *options.split()], check=True, capture_output=True, text=True)  # noqa: S603
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _row(options: str, target: str, m: dict[str, Any]) -> str:
    seconds = f"{m['textbook_seconds']:.2f} s" if "textbook_seconds" in m else ""
    speedup = f"{m['speedup']:.0f}x" if "speedup" in m else ""
    cells = [
        f"`{options}`",
        target,
        f"{m['build_seconds']:.3f} s",
        f"{m['solve_seconds']:.3f} s",
        f"{m['gap']:.0e}",
        f"{m['peak_memory_mb']:.0f} MB",
        seconds,
        speedup,
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main(sys.argv[1:])
