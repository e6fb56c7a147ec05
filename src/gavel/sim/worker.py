"""One process of a sweep (`python -m gavel.sim.worker`): reads experiments and writes answers as lines of JSON.

It ends when its input ends, even in the middle of a simulation, because the sweep that asked is gone then.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from gavel.core.errors import GavelError
from gavel.sim.experiment import Experiment, run


def main() -> None:
    """Answer one line with one line."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with the answers
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()
    while True:
        answers.write(json.dumps(answer(json.loads(lines.get()))) + "\n")
        answers.flush()


def _listen(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def answer(settings: dict[str, Any]) -> dict[str, Any]:
    """Run an experiment; any error is also returned as an answer."""
    try:
        report = run(Experiment.of(settings))
    except GavelError as error:
        return {"failure": str(error)}
    except Exception as error:  # noqa: BLE001 - the edge of a process: one point must not end the others
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {"failure": f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"}
    return {"figures": report.figures.document(), "completion_seconds": report.completion_seconds()}


if __name__ == "__main__":
    main()
