"""Runs of programs that use heavy libraries: forked from one process that has loaded them, interrupted at will.

A run is interrupted after the report of a step, either by SIGTERM or, if it holds, by the order that a fake agent sends
while it waits. Started as a program, this file is that process: it reads one line of runs, and answers with exit codes.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gavel.client import gang, own_loop
from gavel.client.iterator import GavelIterator


@dataclass(frozen=True)
class Start:
    """One process."""

    program: str
    arguments: list[str]
    output: str
    environment: dict[str, str] = field(default_factory=dict)
    stop_at: int | None = None
    holds: bool = False

    def output_text(self) -> str:
        return Path(self.output).read_text()


class Stage:
    """The process that has loaded the libraries, as a test sees it."""

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, "-W", "ignore", __file__, *modules]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, *starts: Start) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([asdict(start) for start in starts]) + "\n")
        self._process.stdin.flush()

    def codes(self) -> list[int]:
        """Wait for the runs that were begun and return their exit codes."""
        assert self._process.stdout is not None
        codes: list[int] = json.loads(self._process.stdout.readline())
        return codes

    def run(self, *starts: Start) -> None:
        """Run processes side by side; all must end with exit code 0."""
        self.begin(*starts)
        codes = self.codes()
        assert not any(codes), [codes, *(start.output_text()[-3000:] for start in starts)]

    def close(self) -> None:
        self._process.communicate("")


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        pids = [_forked(Start(**start)) for start in json.loads(line)]
        codes = _awaited(pids)
        print(json.dumps([codes[pid] for pid in pids]), flush=True)


def _awaited(pids: list[int]) -> dict[int, int]:
    """Wait for all; if one fails, end the others, which may be waiting for it."""
    codes: dict[int, int] = {}
    while len(codes) < len(pids):
        pid, status = os.wait()
        codes[pid] = os.waitstatus_to_exitcode(status)
        if codes[pid]:
            for other in set(pids) - set(codes):
                os.kill(other, signal.SIGKILL)
    return codes


def _forked(start: Start) -> int:
    pid = os.fork()
    if pid == 0:
        code: Any = 70
        try:
            _become(start)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:  # noqa: BLE001 - reported like any program's
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            os._exit(code if isinstance(code, int) else 1)
    return pid


def _become(start: Start) -> None:
    file = os.open(start.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(start.environment)
    if start.stop_at is not None:
        _interrupt_at(start.stop_at, holds=start.holds)
    sys.argv = [start.program, *start.arguments]
    sys.path.insert(0, str(Path(start.program).parent))
    runpy.run_path(start.program, run_name="__main__")


def _interrupt_at(wanted: int, *, holds: bool) -> None:
    gang.WINDOW_SECONDS = 0.0  # steps take so little time that half a second is the whole training
    tell, count = own_loop.OwnLoop.tell, GavelIterator._count

    def interrupting(self: own_loop.OwnLoop, step: float, saved: float) -> None:
        tell(self, step, saved)
        if step == wanted and holds:
            while not own_loop.should_leave():
                time.sleep(0.001)
        elif step == wanted:
            signal.raise_signal(signal.SIGTERM)

    def counting(self: GavelIterator[Any]) -> None:
        count(self)
        if self.step == wanted and holds:
            while not self.leaving:
                time.sleep(0.001)
        elif self.step == wanted:
            signal.raise_signal(signal.SIGTERM)

    own_loop.OwnLoop.tell = interrupting  # type: ignore[method-assign]
    GavelIterator._count = counting  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
