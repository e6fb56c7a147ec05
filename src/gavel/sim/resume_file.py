"""One simulation's state in a file, written from time to time and when it is interrupted, so that it can go on.

A file is known again by the settings of its run, the version of Gavel and the content of the files that the run reads.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gavel.core.errors import GavelError, InputError
from gavel.policies.mechanisms import check_mechanism
from gavel.sim.experiment import Experiment
from gavel.sim.results import settings_of
from gavel.sim.simulate import Underway

FORMAT = 3
EVERY_SECONDS = 60.0
LARGEST_PART = 0.05
"""Writing takes at most this part of the time; a large state is written less often."""


class StoppedError(GavelError):
    """The simulation was asked to stop, and its state is in the file."""

    def __init__(self, signal: int, done: int, jobs: int) -> None:
        super().__init__(f"interrupted after {done:,} of {jobs:,} jobs")
        self.signal = signal


class ResumeFile:
    """Keeps a simulation in a file; give it to `run` as an attendant, and what it found there as the start."""

    def __init__(self, path: Path, experiment: Experiment, *, clock: Callable[[], float] = time.monotonic) -> None:
        if "-" in experiment.files().values():
            raise InputError("--resume reads the trace again, and standard input is read only once; give --trace FILE")
        check_mechanism(experiment.mechanism, resumed_by="--resume")
        self.path = path
        self._identity = settings_of(experiment)
        self._clock = clock
        self._due = clock() + EVERY_SECONDS
        self._signal: int | None = None

    def found(self) -> dict[str, Any] | None:
        """What an earlier run left; None if there is no such file. Whatever is not of this run is refused."""
        if not self.path.exists():
            self._check_writable()
            return None
        document = self._read()
        if document.get("format") != FORMAT:
            raise InputError(
                f"{self.path} has format {document.get('format')!r}; this version of Gavel goes on with format {FORMAT}"
            )
        _check_same(self.path, document["identity"], self._identity)
        state: dict[str, Any] = document["state"]
        return state

    def interrupt(self, signal: int, *_: object) -> None:
        """Ask the simulation to stop at the next event: a handler of signals. Whoever insists stops it at once."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = signal

    def between(self, simulation: Underway) -> None:
        """Write the simulation down when it is time, or when it has to stop."""
        if self._signal is not None:
            self._write(simulation)
            raise StoppedError(self._signal, *simulation.jobs_done)
        if self._clock() >= self._due:
            began = self._clock()
            with suppress(GavelError):  # that nothing can be written now is no reason to lose the run
                self._write(simulation)
            ended = self._clock()
            self._due = ended + max(EVERY_SECONDS, (ended - began) / LARGEST_PART)

    def remove(self) -> None:
        """The run is over: there is nothing to go on with."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {(error.strerror or 'unknown error').lower()}") from None
        except ValueError:
            document = None
        if not isinstance(document, dict) or not {"format", "identity", "state"} <= document.keys():
            raise InputError(f"{self.path} is not a file that --resume has written; give another one")
        return document

    def _check_writable(self) -> None:
        """Refuse what cannot be written to, before any time is spent."""
        try:
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise _unwritable(self.path, error, InputError) from None

    def _write(self, simulation: Underway) -> None:
        document = {"format": FORMAT, "identity": self._identity, "state": simulation.dump()}
        try:
            replace_file(self.path, json.dumps(document, allow_nan=False))
        except OSError as error:
            raise _unwritable(self.path, error, GavelError) from None


def _unwritable(path: Path, error: OSError, kind: type[GavelError]) -> GavelError:
    return kind(f"cannot write to --resume {path}: {(error.strerror or 'unknown error').lower()}")


def replace_file(path: Path, text: str) -> None:
    """Write a file as a whole or not at all, whatever happens meanwhile."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _check_same(path: Path, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse the state of another run, and say what differs."""
    for name in {**now, **then}:
        before, after = then.get(name), now.get(name)
        if before == after:
            continue
        if name == "gavel_version":
            what = f"it was written by Gavel {before}, and this is {after}"
        elif name.endswith("_sha256"):
            what = f"the file of --{name.removesuffix('_sha256')} has other content now"
        else:
            what = f"its run has {name.replace('_', ' ')} = {before or 'nothing'}, and this one {after or 'nothing'}"
        raise InputError(f"cannot go on from {path}: {what}; give what it was begun with, or another --resume")
