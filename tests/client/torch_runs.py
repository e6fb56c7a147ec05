"""Runs of programs that use torch, each a separate process, forked from one that has already loaded torch."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from pathlib import Path

from counting import PATIENCE, until

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch._dynamo", "numpy"])


class Run:
    """A program that runs, and what it has printed."""

    def __init__(self, output: Path, program: Path, *arguments: str, **environment: str) -> None:
        self._output = output
        output.touch()
        self._process = _CONTEXT.Process(target=_main, args=(output, program, arguments, environment))
        self._process.start()

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def printed(self, line: str) -> None:
        """Wait until it has printed this line."""
        until(lambda: line in self.lines() or not self._process.is_alive())
        assert line in self.lines()

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> int:
        """Wait for its end and return its exit code."""
        self._process.join(2 * PATIENCE)
        code = self._process.exitcode
        self._process.kill()
        assert code is not None, f"still running after {self.lines()}"
        return code

    def result(self) -> list[str]:
        """Return what it has printed when it has ended well."""
        assert self.ended() == 0
        return self.lines()


def _main(output: Path, program: Path, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    os.environ.update(environment)
    multiprocessing.set_start_method("fork", force=True)  # the default of a program that was not started this way
    sys.argv = [str(program), *arguments]
    sys.path.insert(0, str(program.parent))
    runpy.run_path(str(program), run_name="__main__")
