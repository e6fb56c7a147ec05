"""A small campaign of `tools/chaos.py`: real processes are killed; nothing is lost, runs twice or is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHAOS = Path(__file__).resolve().parents[2] / "tools" / "chaos.py"


def test_a_dozen_kills_lose_nothing_and_leave_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    options = {"kills": 12, "seed": 1, "minutes": 3, "every": 0.7, "steps": 60, "folder": folder}
    command = [
        sys.executable,
        str(CHAOS),
        *(part for name, value in options.items() for part in (f"--{name}", str(value))),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was lost, nothing ran twice, no process was left behind" in done.stdout
    assert not folder.exists()
