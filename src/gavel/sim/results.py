"""What a sweep leaves on disk: a line in `results.csv` for each finished point, and its completion times beside it.

Lines are appended as points finish, so an interrupted sweep can continue. A point is identified by its settings: every
field of the experiment, the version of Gavel and the content of the files that it reads.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Self

from gavel.core.errors import GavelError, InputError
from gavel.sim.experiment import Experiment
from gavel.sim.report import Figures
from gavel.version import __version__

RESULTS = "results.csv"
COMPLETIONS = "completions.csv"
READ = ("throughputs", "trace", "entities", "failures", "policy", "mechanism", "cluster")
"""Settings that may name a file, whose content is part of the identity."""
SETTINGS = ("gavel_version", *(field.name for field in fields(Experiment)), *(f"{name}_sha256" for name in READ))
"""The columns that together identify a point."""


FIGURES = tuple(field.name for field in fields(Figures))
COLUMNS = ("point", *SETTINGS, *FIGURES)


@dataclass(frozen=True, slots=True)
class Result:
    """What one point measured."""

    figures: Mapping[str, Any]
    completion_seconds: Sequence[float]
    """The completion times of the window's jobs, in order of arrival."""


def settings_of(experiment: Experiment) -> dict[str, str]:
    """The identity of a point, as text for its line."""
    named = {field.name: getattr(experiment, field.name) for field in fields(experiment)}
    files = experiment.files()
    digests = {f"{name}_sha256": digest(files[name]) if name in files else "" for name in READ}
    return {name: _cell(value) for name, value in {"gavel_version": __version__, **named, **digests}.items()}


def point_of(settings: Mapping[str, str]) -> str:
    """A short name for a point, the key that joins the two files."""
    text = "\n".join(f"{name}={settings[name]}" for name in SETTINGS)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def digest(file: str) -> str:
    """The digest of a file's content: a point with changed content is another point."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(f"cannot read {file}: {(error.strerror or 'unknown error').lower()}") from error


def _cell(value: Any) -> str:
    """A value as text on one line.

    >>> [_cell(value) for value in (None, True, 360.0, (4000, 5000), (1.2, 2.0), "fifo", ["a note"])]
    ['', 'true', '360.0', '4000:5000', '1.2,2.0', 'fifo', '["a note"]']
    """
    match value:
        case None:
            return ""
        case str():
            return value if value.isprintable() else json.dumps(value)
        case (int(first), int(last)):
            return f"{first}:{last}"
        case tuple():
            return ",".join(map(str, value))
        case _:
            return json.dumps(value)


class ResultsFiles:
    """The two files of a sweep, open for one writer at a time. Use it in a `with` statement."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with ExitStack() as opened:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                self._results = opened.enter_context(_open(directory / RESULTS, COLUMNS))
                self._completions = opened.enter_context(
                    _open(directory / COMPLETIONS, ("point", "completion_seconds"))
                )
            except OSError as error:
                reason = "it is a file" if directory.is_file() else (error.strerror or "unknown error").lower()
                raise InputError(f"cannot write results to {directory}: {reason}; give another --out") from error
            self.known: dict[str, Result] = self._read()
            """Every point with both of its lines on disk."""
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def append(self, settings: Mapping[str, str], result: Result) -> None:
        """Store a point. Completion times are written first, so a line in the results means that both are complete."""
        point = point_of(settings)
        cells = {"point": point, **settings, **{name: _cell(value) for name, value in result.figures.items()}}
        text = io.StringIO()
        csv.DictWriter(text, COLUMNS, lineterminator="\n").writerow(cells)
        seconds = " ".join(f"{value:.3f}" for value in result.completion_seconds)
        try:
            for file, line in ((self._completions, f"{point},{seconds}\n"), (self._results, text.getvalue())):
                file.write(line.encode())
                file.flush()
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            raise GavelError(f"cannot write results to {self.directory}: {reason}") from error
        self.known[point] = result

    def _read(self) -> dict[str, Result]:
        seconds = self._read_completions()
        known: dict[str, Result] = {}
        rows = csv.reader(_lines(self._results))
        for number, cells in enumerate(rows, 1):
            if number == 1:
                continue
            row = dict(zip(COLUMNS, cells, strict=False))
            try:
                figures = {name: json.loads(row[name] or "null") for name in FIGURES}
            except (KeyError, ValueError):
                raise InputError(_foreign(self.directory / RESULTS, number)) from None
            point = point_of(row)
            if point in seconds:
                known[point] = Result(figures, seconds[point])
        return known

    def _read_completions(self) -> dict[str, list[float]]:
        seconds: dict[str, list[float]] = {}
        for number, line in enumerate(_lines(self._completions), 1):
            if number == 1:
                continue
            point, _, numbers = line.partition(",")
            try:
                seconds[point] = [float(value) for value in numbers.split()]
            except ValueError:
                raise InputError(_foreign(self.directory / COMPLETIONS, number)) from None
        return seconds


def _lines(file: BinaryIO) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="replace").splitlines()


def _foreign(path: Path, line: int) -> str:
    return f"{path}, line {line}: this line was not written by a sweep; remove it or give another --out"


def _open(path: Path, columns: Sequence[str]) -> BinaryIO:
    """Open a file for appending, with an exclusive lock, and cut off a partial line that a killed writer may have left.

    A file that no sweep wrote is rejected and left unchanged.
    """
    file = path.open("a+b")
    with ExitStack() as opened:
        opened.enter_context(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another sweep is writing to {path.parent}; wait for it or give another --out") from None
        file.seek(0)
        content, header = file.read(), ",".join(columns).encode() + b"\n"
        if header.startswith(content):
            file.truncate(0)
            file.write(header)
            file.flush()
        else:
            _check_header(path, content.partition(b"\n")[0].decode(errors="replace"), columns)
            file.truncate(content.rfind(b"\n") + 1)
        opened.pop_all()
    return file


def _check_header(path: Path, header: str, columns: Sequence[str]) -> None:
    there = header.split(",")
    if there == list(columns):
        return
    missing = [name for name in columns if name not in there]
    why = f"lacks the columns {', '.join(missing[:5])}" if missing else "does not have the columns of a sweep"
    raise InputError(f"{path} {why}{', …' if len(missing) > 5 else ''}; give another --out")
