"""Tables as text: rows of named cells that know their file, line and column, for precise error messages."""

from __future__ import annotations

import csv
import io
import math
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from gavel.core.errors import InputError
from gavel.limits import LARGEST, LONGEST_SECONDS, MOST_ACCELERATORS, SMALLEST, at_most

Refusal = Callable[[str], InputError]
"""Makes the error for a value of the wrong kind."""

STANDARD_INPUT = "standard input"
"""Its name in messages."""

_MISSING = frozenset({"", "nan", "none", "null", "unknown", "n/a"})


@dataclass(frozen=True, slots=True)
class Source:
    """A file's name and content."""

    name: str
    text: str

    @classmethod
    def of(cls, path: Path) -> Source:
        """Read a file of UTF-8 text; "-" is standard input."""
        if str(path) == "-":
            return cls(STANDARD_INPUT, _standard_input())
        try:
            # Keep line ends unchanged: a quoted cell may contain some.
            with path.open(encoding="utf-8-sig", newline="") as file:
                return cls(str(path), file.read())
        except OSError as error:
            raise InputError(f"cannot read {path}: {(error.strerror or 'unknown error').lower()}") from None
        except UnicodeDecodeError:
            raise InputError(f"cannot read {path}: it is not UTF-8 text") from None

    def first_line(self) -> str:
        """The first line that is not blank."""
        start = self.text.lstrip()[:100_000]
        return start.splitlines()[0] if start else ""

    def columns(self, delimiter: str = ",") -> frozenset[str]:
        """The names in the first line, if it is a header."""
        return frozenset(name.strip().strip('"') for name in self.first_line().split(delimiter))


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"cannot read {STANDARD_INPUT}: it is not UTF-8 text") from None


@dataclass(frozen=True, slots=True)
class Cell:
    """One value as text, and its location."""

    row: Row
    column: str
    text: str

    @property
    def missing(self) -> bool:
        """Whether the log marks this value as missing."""
        return self.text.lower() in _MISSING

    def refuse(self, wanted: str) -> InputError:
        """The error that points at this cell."""
        return InputError(f"{self.row.where}, column {self.column!r}: {reprlib.repr(self.text)} is not {wanted}")

    def out_of_range(self, limit: str) -> InputError:
        """The error for a number beyond a limit."""
        return InputError(f"{self.row.where}, column {self.column!r} must be {limit}, not {reprlib.repr(self.text)}")

    def filled(self) -> str:
        """The text; an empty cell is refused."""
        if not self.text:
            raise InputError(f"{self.row.where}, column {self.column!r}: a value is missing")
        return self.text

    def number(self, wanted: str, *, least: float = 0.0, most: float = LARGEST, positive: bool = False) -> float:
        """A number that is neither too small nor too large."""
        text = self.filled()
        try:
            value = math.nan if "_" in text else float(text)
        except ValueError:
            value = math.nan
        if not least <= value or (positive and value <= 0):
            raise self.refuse(wanted)
        if positive and value < SMALLEST:
            raise self.out_of_range(f"at least {SMALLEST:g}")
        return self.limited(value, most)

    def seconds(self, wanted: str, *, positive: bool = False) -> float:
        """A duration, or a time that is counted from some moment."""
        return self.number(wanted, most=LONGEST_SECONDS, positive=positive)

    def count(self, wanted: str, *, least: int = 0) -> int:
        """A whole number of accelerators or workers; "2.0" is one."""
        value = self.number(wanted, least=least, most=MOST_ACCELERATORS)
        if value != int(value):
            raise self.refuse(wanted)
        return int(value)

    def limited(self, value: float, most: float) -> float:
        """Check a value that was computed from this cell; one that is too large is refused."""
        if value > most:
            raise self.out_of_range(at_most(most))
        return value

    def time(self) -> float:
        """A time in seconds since 1970: from ISO 8601 (UTC if no zone is given) or from seconds."""
        return seconds_of(self.filled(), self.refuse)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    source: str
    line: int
    values: Mapping[str, str]

    @property
    def where(self) -> str:
        """The file and the line, for messages."""
        return f"{self.source}, line {self.line}"

    def __getitem__(self, column: str) -> Cell:
        """A cell without spaces around it; empty if the table has no such column."""
        return Cell(self, column, self.values.get(column, "").strip())


def seconds_of(text: str, refuse: Refusal) -> float:
    """A time in seconds since 1970, from ISO 8601 or from seconds."""
    if text.replace(".", "", 1).isdecimal():
        seconds = float(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise refuse("a time such as 2024-05-17 09:30:00") from None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if abs(seconds) > LONGEST_SECONDS:
        raise refuse(f"a time within 317 years of 1970 ({LONGEST_SECONDS:,.0f} s); check its unit")
    return seconds


def named_rows(
    source: Source, *, delimiter: str = ",", quoted: bool = True, required: Sequence[str], what: str
) -> Iterator[Row]:
    """The rows of a table with a header; `what` names the kind of table in messages."""
    lines = _lines(source, delimiter, quoted)
    try:
        line, header = next(lines)
    except StopIteration:
        raise InputError(f"{source.name} is empty; {what} starts with a line that names its columns") from None
    columns = [name.strip() for name in header]
    open_ended = columns[-1] == ""  # `sacct -p` ends every line with its delimiter
    columns = columns[:-1] if open_ended else columns
    for name in required:
        if name not in columns:
            raise InputError(
                f"{source.name}, line {line}: column {name!r} is missing; {what} has at least: {', '.join(required)}"
            )
    for name in columns:
        if columns.count(name) > 1:
            raise InputError(f"{source.name}, line {line}: column {name!r} is named twice; keep one")
    for number, cells in lines:
        yield Row(source.name, number, _named(source, number, cells[:-1] if open_ended else cells, columns))


def positional_rows(
    source: Source, layouts: Mapping[int, Sequence[str]], *, delimiter: str, quoted: bool, what: str
) -> Iterator[Row]:
    """The rows of a table without a header, whose layout follows from its number of columns."""
    columns: Sequence[str] | None = None
    for line, cells in _lines(source, delimiter, quoted):
        if columns is None:
            if len(cells) not in layouts:
                known = " or ".join(str(count) for count in layouts)
                raise InputError(f"{source.name}, line {line}: {what} has {known} columns, not {len(cells)}")
            columns = layouts[len(cells)]
        yield Row(source.name, line, _named(source, line, cells, columns))


def _named(source: Source, line: int, cells: list[str], columns: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(columns):
        raise InputError(
            f"{source.name}, line {line}: {len(cells)} columns, but the first line has {len(columns)}; "
            "look for a missing or extra value, or one that contains the separator"
        )
    return dict(zip(columns, cells, strict=True))


def _lines(source: Source, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Each line's number and cells; blank lines are skipped."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(io.StringIO(source.text, newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{source.name}, line {line}: not a valid line of a table ({error}); check its quotes"
        ) from None
