"""Run experiments in several processes at once. Owns the processes; the caller handles the answers."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict

from gavel.sim.experiment import Experiment
from gavel.sim.results import Result

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""There is one process per core, so one thread each is fastest; it also makes sums repeatable on every machine."""


class Worker:
    """A process that runs one experiment after another."""

    def __init__(self) -> None:
        # In its own session, so that Ctrl-C reaches only the sweep, which then ends its workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gavel.sim.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | ONE_THREAD,
            start_new_session=True,
            text=True,
        )
        assert self._process.stdin is not None  # noqa: S101 - they are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._questions, self.answers = self._process.stdin, self._process.stdout

    def ask(self, experiment: Experiment) -> None:
        """Begin an experiment; `answers` becomes readable when it is done."""
        with suppress(BrokenPipeError):  # the process has died; `hear` reports it
            self._questions.write(json.dumps(asdict(experiment)) + "\n")
            self._questions.flush()

    def hear(self) -> Result | str:
        """The result of the experiment, or a sentence about what went wrong."""
        line = self.answers.readline()
        if not line.endswith("\n"):
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return f"its process ended before it had an answer ({how})"
        answer = json.loads(line)
        return answer["failure"] if "failure" in answer else Result(answer["figures"], answer["completion_seconds"])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process at once."""
        self._process.kill()
        self._process.wait()
        self.answers.close()
        with suppress(BrokenPipeError):
            self._questions.close()


class WorkerPool:
    """Workers and the experiment that each is running. Close it to end them all."""

    def __init__(self, experiments: Sequence[Experiment]) -> None:
        self._left = iter(enumerate(experiments))
        self._at: dict[Worker, int] = {}
        """Every live worker, with the index of its experiment."""
        self._selector = selectors.DefaultSelector()

    def hire(self) -> None:
        """Start one more worker if experiments are left."""
        self._employ(None)

    def heard(self) -> Iterator[tuple[int, Result | str]]:
        """Yield answers as they arrive, until none is outstanding."""
        while self._at:
            for key, _ in self._selector.select():
                worker: Worker = key.data
                index, answer = self._at[worker], worker.hear()
                self._selector.unregister(worker.answers)
                del self._at[worker]
                if worker.alive:
                    self._employ(worker)
                else:
                    worker.end()
                    self._employ(None)
                yield index, answer

    def _employ(self, worker: Worker | None) -> None:
        following = next(self._left, None)
        if following is None:
            if worker is not None:
                worker.end()
            return
        worker = worker or Worker()
        self._at[worker], experiment = following
        self._selector.register(worker.answers, selectors.EVENT_READ, worker)
        worker.ask(experiment)

    def close(self) -> None:
        """End every worker at once."""
        for worker in self._at:
            worker.end()
        self._at.clear()
        self._selector.close()


def answers(experiments: Sequence[Experiment], workers: int) -> Generator[tuple[int, Result | str]]:
    """Run experiments and yield (index, result or error) as they end; closing the generator ends the processes."""
    with closing(WorkerPool(experiments)) as crew:
        for _ in range(workers):
            crew.hire()
        yield from crew.heard()
