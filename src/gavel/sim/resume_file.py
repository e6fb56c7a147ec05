"""The state of one simulation in a file, saved periodically and on interruption, so that it can be resumed.

A file matches a run by its settings, the version of Gavel and the content of the files that the run reads.
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
"""The largest fraction of the time to spend on writing; a large state is saved less often."""


class StoppedError(GavelError):
    """The simulation was asked to stop, and its state is in the file."""

    def __init__(self, signal: int, done: int, jobs: int) -> None:
        super().__init__(f"interrupted after {done:,} of {jobs:,} jobs")
        self.signal = signal


class ResumeFile:
    """Saves a simulation in a file. Pass it to `run` as an attendant, and what `found` returns as the start."""

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
        """The state that an earlier run left; None if there is none. Raise InputError if it belongs to another run."""
        if not self.path.exists():
            self._check_writable()
            return None
        document = self._read()
        if document.get("format") != FORMAT:
            raise InputError(
                f"{self.path} has format {document.get('format')!r}; this version of Gavel resumes format {FORMAT}"
            )
        _check_same(self.path, document["identity"], self._identity)
        state: dict[str, Any] = document["state"]
        return state

    def interrupt(self, signal: int, *_: object) -> None:
        """Signal handler: stop the simulation at the next event. A second signal stops it at once."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = signal

    def between(self, simulation: Underway) -> None:
        """Save the simulation when it is time, or when it has to stop."""
        if self._signal is not None:
            self._write(simulation)
            raise StoppedError(self._signal, *simulation.jobs_done)
        if self._clock() >= self._due:
            began = self._clock()
            with suppress(GavelError):  # a failed write must not end the run
                self._write(simulation)
            ended = self._clock()
            self._due = ended + max(EVERY_SECONDS, (ended - began) / LARGEST_PART)

    def remove(self) -> None:
        """Remove the file after the run has finished."""
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
        """Raise InputError if the file cannot be written, before any time is spent."""
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
    """Write a file atomically: completely or not at all."""
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
    """Raise InputError if the state belongs to another run, and say what differs."""
    for name in {**now, **then}:
        before, after = then.get(name), now.get(name)
        if before == after:
            continue
        if name == "gavel_version":
            what = f"it was written by Gavel {before}, but this is {after}"
        elif name.endswith("_sha256"):
            what = f"the content of the file of --{name.removesuffix('_sha256')} has changed"
        else:
            what = f"its run has {name.replace('_', ' ')} = {before or 'nothing'}, this one has {after or 'nothing'}"
        raise InputError(f"cannot resume from {path}: {what}; give what it was started with, or another --resume")
