"""The table of the mutation check fits the code: every old text is there exactly once, so that no entry is idle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent / "tools"
COUNT = "import mutate; print('\\n'.join(mutate.mismatches(mutate.MUTANTS))); print(len(mutate.MUTANTS))"


def test_every_mutant_of_the_table_can_be_made() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], cwd=TOOLS, capture_output=True, text=True, check=True)
    *wrong, count = done.stdout.split("\n")[:-1]
    assert [line for line in wrong if line] == []
    assert int(count) >= 60
