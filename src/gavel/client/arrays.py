"""Arrays and grids: one request that stands for many jobs, which differ in an index and in parameters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gavel.client.field_checks import check_label, shortened
from gavel.errors import InputError
from gavel.limits import MOST_JOBS_IN_A_CALL

if TYPE_CHECKING:
    from gavel.client.requests import Submission

LARGEST_INDEX = 10**9
_PART = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Indices:
    """The indices of an array, and how many of its jobs may run at once (0: any number).

    >>> Indices.of("0-3%2"), Indices.of("1,5,10-20:5").values
    (Indices(values=(0, 1, 2, 3), at_once=2), (1, 5, 10, 15, 20))
    """

    values: tuple[int, ...]
    at_once: int = 0

    @classmethod
    def of(cls, text: str) -> Indices:
        """Read 0-99, 1,3,5, 0-90:10, each with %8 behind it for at most 8 at once."""
        listed, percent, most = text.partition("%")
        if percent and not (most.isdecimal() and 0 < int(most[:12]) <= MOST_JOBS_IN_A_CALL):
            raise InputError(f"{shortened(text)}: after % comes how many jobs may run at once, from 1")
        values: list[int] = []
        for part in listed.split(","):
            values += _range_of(part.strip(), text)
            _check_count(len(values))
        if len(set(values)) < len(values):
            raise InputError(f"{shortened(text)} names an index twice")
        return cls(tuple(values), int(most) if percent else 0)


def _range_of(part: str, text: str) -> range:
    found = _PART.fullmatch(part)
    if found is None or len(part) > 40:
        raise InputError(f"{shortened(text)} is not a list of indices; write for example 0-99, 0-99%8 or 1,3,10-90:10")
    first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    if last < first or step < 1 or last > LARGEST_INDEX:
        raise InputError(f"{part}: an index range goes up, by steps of at least 1, to at most {LARGEST_INDEX:,}")
    _check_count(len(range(first, last + 1, step)))
    return range(first, last + 1, step)


def _check_count(count: int) -> None:
    if count > MOST_JOBS_IN_A_CALL:
        raise InputError(f"it has more than {MOST_JOBS_IN_A_CALL:,} jobs; submit several arrays")


def grid_values(text: str) -> tuple[str, ...]:
    """The values of one parameter: a list, or a range of whole numbers.

    >>> grid_values("1e-3,1e-4"), grid_values("0..3")
    (('1e-3', '1e-4'), ('0', '1', '2', '3'))
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return tuple(value.strip() for value in text.split(","))
    if len(text) > 40 or int(found[2]) < int(found[1]):
        raise InputError(f"{shortened(text)}: a range goes up, for example 0..4")
    _check_count(int(found[2]) - int(found[1]) + 1)
    return tuple(map(str, range(int(found[1]), int(found[2]) + 1)))


def check_grid(grid: Mapping[Any, Any]) -> None:
    """Raise InputError for a grid that cannot be expanded."""
    if not isinstance(grid, Mapping):
        raise InputError(f"a grid is a mapping of parameters to lists of values, not {shortened(grid)}")
    count = 1
    for name, values in grid.items():
        if name == "index":
            raise InputError("'index' is the index of an array, and no name of a parameter; choose another name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"{shortened(name)} cannot be the name of a parameter: use letters, digits and _")
        if not isinstance(values, tuple | list) or not values:
            raise InputError(f"{name} has no values")
        for value in values:
            check_label("grid", value)
        if len(set(values)) < len(values):
            raise InputError(f"{name} has a value twice")
        count *= len(values)
        _check_count(count)


def size_of(request: Submission) -> int:
    """How many jobs a request stands for."""
    count = len(Indices.of(request.array).values) if request.array else 1
    for values in request.grid.values():
        count *= len(values)
    return count


def expanded(request: Submission, array_id: str) -> Iterator[Submission]:
    """The jobs that a request stands for: one for each combination of index and parameters, indices first.

    A request that is neither an array nor a grid stands for itself. In a grid without an array, jobs are numbered from
    0. `{index}` and `{NAME}` in the command and in the name are replaced.
    """
    if not request.array and not request.grid:
        yield request
        return
    indices = Indices.of(request.array) if request.array else None
    names = list(request.grid)
    combinations = [dict(zip(names, values, strict=True)) for values in itertools.product(*request.grid.values())]
    points = itertools.product(indices.values if indices else [None], combinations)
    at_once = request.at_once or (indices.at_once if indices else 0)
    alone = replace(request, array="", grid={}, array_id=array_id, at_once=at_once)
    for number, (index, parameters) in enumerate(points):
        place = number if index is None else index
        words = {"index": str(place), **parameters}
        yield replace(
            alone,
            index=place,
            parameters=parameters,
            name=filled(alone.name, words),
            command=tuple(filled(part, words) for part in alone.command),
        )


def filled(text: str, words: Mapping[str, str]) -> str:
    """A text with its known placeholders replaced; other braces stay.

    >>> filled("lr={lr} {index} {other} {}", {"lr": "0.1", "index": "3"})
    'lr=0.1 3 {other} {}'
    """
    return _PLACEHOLDER.sub(lambda found: words.get(found[1], found[0]), text)
