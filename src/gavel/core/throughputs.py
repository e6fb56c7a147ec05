"""Steps per second of every template, worker count and accelerator type, alone and shared, and their files.

`builtin` computes the built-in rates; which rates a policy uses is not decided here.
"""

from __future__ import annotations

import ast
import json
import math
import reprlib
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeGuard

import numpy as np

from gavel.core import builtin, scaling
from gavel.core.errors import InputError
from gavel.core.locality import FILE_NAMES, Locality
from gavel.core.strict_json import read_json
from gavel.limits import FASTEST, MOST_ACCELERATORS, SMALLEST, at_most

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

Profile = tuple[str, int]
"""The key of rates: a template, and the number of workers that run it."""

FORMAT = "gavel-throughputs/1"

_UNCONSOLIDATED = "_unconsolidated"


class Throughputs(Protocol):
    """A source of rates: steps per second by template, worker count and type."""

    @property
    def types(self) -> tuple[str, ...]:
        """The known types."""

    def rates(self, profiles: Sequence[Profile], types: Sequence[str]) -> NDArray[np.float64]:
        """Rates alone, shape (profiles, types, localities)."""

    def pairs(
        self, profiles: Sequence[Profile], types: Sequence[str]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        """The pairs that can share some type: (first, second, rates by pair, member and type)."""

    def admit(self, type_name: str) -> None:
        """Add a type, or raise InputError."""

    def learn(self, condition: Condition, rate: float) -> bool:
        """Learn from a measurement; return whether it changes a rate enough to matter."""

    def fail(self, condition: Condition, reason: str) -> bool:
        """Learn that a job failed under a condition; return whether that changes the set of pairs."""

    def ignore(self, sentence: str) -> None:
        """Remember a report that was ignored, with the reason."""

    @property
    def ignored(self) -> Sequence[str]:
        """The latest ignored reports, with reasons."""

    def document(self) -> dict[str, Any]:
        """Everything that was learned, as plain data."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition under which a rate was measured."""

    template: str
    workers: int
    type: str
    locality: Locality = Locality.SERVER
    beside: str | None = None
    """The template of the job that shares the accelerators; None if alone."""


@dataclass(frozen=True, eq=False)
class ThroughputTable:
    """Measured or modelled rates; 0: cannot run.

    >>> table = builtin_table()
    >>> table.rates([("A3C", 1)], ["k80", "v100"])[:, :, Locality.SERVER].tolist()
    [[3.439, 7.176]]
    """

    types: tuple[str, ...]
    profiles: tuple[Profile, ...]
    alone: NDArray[np.float64]
    """(profiles, types, localities): steps per second."""
    shared: NDArray[np.float64]
    """(profiles, profiles, types): steps per second of the first while it shares with the second.

    0 if the two have different numbers of workers. Dense, because tables have only dozens of templates. It may cover
    only the first profiles; the others cannot share.
    """

    def __post_init__(self) -> None:
        # Tables are cached and shared, so they must not be modified.
        self.alone.setflags(write=False)
        self.shared.setflags(write=False)

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """The known templates in order of first appearance."""
        return tuple(dict.fromkeys(template for template, _ in self.profiles))

    def workers(self, template: str) -> tuple[int, ...]:
        """The listed worker counts of a template; empty if the template is unknown."""
        return self._counts.get(template, ())

    def only(self, templates: Container[str]) -> ThroughputTable:
        """The table reduced to these templates."""
        rows = [row for row, (template, _) in enumerate(self.profiles) if template in templates]
        sharing = [row for row in rows if row < len(self.shared)]
        return ThroughputTable(
            self.types,
            tuple(self.profiles[row] for row in rows),
            self.alone[rows],
            self.shared[np.ix_(sharing, sharing)],
        )

    def faster(self, factor: float) -> ThroughputTable:
        """The table with all rates multiplied by a factor, for simulations in compressed time.

        >>> builtin_table().faster(60.0).rates([("A3C", 1)], ["v100"])[0, 0, 0].round(2).item()
        430.56
        """
        return ThroughputTable(self.types, self.profiles, self.alone * factor, self.shared * factor)

    def with_template(self, template: str, rate: float) -> ThroughputTable:
        """A table with one more template, of one worker, equally fast on every type, that cannot share.

        >>> builtin_table().with_template("mine", 2.0).rates([("mine", 1)], ["k80", "v100"])[:, :, 0].tolist()
        [[2.0, 2.0]]
        """
        rates = np.full((1, len(self.types), len(Locality)), rate)
        return ThroughputTable(
            self.types, (*self.profiles, (template, 1)), np.concatenate([self.alone, rates]), self.shared
        )

    def can_scale(self, template: str, workers: int) -> bool:
        """Whether rates for a number of workers that is not listed can be derived from the listed ones."""
        return scaling.can_scale(self._counts.get(template, ()), workers)

    def scaled(self, profiles: Iterable[Profile]) -> ThroughputTable:
        """A table that also has these profiles, with derived rates if they are not listed; these cannot share.

        >>> table = builtin_table().scaled([("LM (batch size 5)", 16)])
        >>> table.workers("LM (batch size 5)")
        (1, 2, 4, 8, 16)
        """
        new = [profile for profile in dict.fromkeys(profiles) if profile not in self._row]
        if not new:
            return self
        alone = np.stack([self.scaled_rates(*profile) for profile in new])
        return ThroughputTable(self.types, (*self.profiles, *new), np.concatenate([self.alone, alone]), self.shared)

    def scaled_rates(self, template: str, workers: int) -> NDArray[np.float64]:
        """Rates (types, localities) for a number of workers that is not listed, derived from the listed ones."""
        if not self.can_scale(template, workers):
            self._reject_profile(template, workers)
        counts = self._counts[template]
        return scaling.scaled(counts, self.alone[self._rows([(template, count) for count in counts])], workers)

    def rates(self, profiles: Sequence[Profile], types: Sequence[str]) -> NDArray[np.float64]:
        """Rates alone, shape (profiles, types, localities).

        They do not depend on locality for one worker, nor if the table has no unconsolidated figure.
        """
        return self.alone[np.ix_(self._rows(profiles), self._columns(types))]

    def single_rates(self, templates: Sequence[str], types: Sequence[str]) -> NDArray[np.float64]:
        """Rates of one worker alone, shape (templates, types); it has no locality.

        >>> builtin_table().single_rates(["A3C"], ["k80", "v100"]).tolist()
        [[3.439, 7.176]]
        """
        return self.rates([(template, 1) for template in templates], types)[..., Locality.SERVER]

    def pairs(
        self, profiles: Sequence[Profile], types: Sequence[str]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        """The pairs that can share some type: (first, second, rates), where first <= second index `profiles`.

        `rates` has shape (pairs, 2, types): of the first and of the second while they share.
        """
        rows = self._rows(profiles)
        sharing = np.flatnonzero(rows < len(self.shared))
        block = self.shared[np.ix_(rows[sharing], rows[sharing], self._columns(types))]
        first, second = np.triu_indices(len(sharing))
        rates = np.stack([block[first, second], block[second, first]], axis=1)
        runs = rates.any(axis=(1, 2))
        return sharing[first[runs]], sharing[second[runs]], rates[runs]

    def together(self, first: Profile, second: Profile, type_name: str) -> tuple[float, float]:
        """The rates of two profiles on one type while they share; both are 0 if they cannot."""
        (one, other), (column,) = self._rows([first, second]), self._columns([type_name])
        if max(one, other) >= len(self.shared):
            return 0.0, 0.0
        return float(self.shared[one, other, column]), float(self.shared[other, one, column])

    def admit(self, type_name: str) -> None:
        """Raise InputError for an unknown type: this table cannot learn types."""
        if type_name not in self.types:
            raise InputError(f"no throughput is known for type {type_name!r}; known types: {', '.join(self.types)}")

    def learn(self, condition: Condition, rate: float) -> bool:  # noqa: ARG002 - the signature of all tables
        """Ignore the report: this table does not learn."""
        return False

    def fail(self, condition: Condition, reason: str) -> bool:  # noqa: ARG002 - the signature of all tables
        """Ignore the report: this table does not learn."""
        return False

    def ignore(self, sentence: str) -> None:
        """Do nothing: this table ignores all reports."""

    @property
    def ignored(self) -> Sequence[str]:
        """Empty: this table keeps no reports."""
        return ()

    def document(self) -> dict[str, Any]:
        """Empty: this table does not learn."""
        return {}

    @cached_property
    def _row(self) -> dict[Profile, int]:
        return {profile: row for row, profile in enumerate(self.profiles)}

    @cached_property
    def _counts(self) -> dict[str, tuple[int, ...]]:
        """The listed worker counts of each template, in ascending order."""
        found: dict[str, list[int]] = {}
        for template, count in self.profiles:
            found.setdefault(template, []).append(count)
        return {template: tuple(sorted(counts)) for template, counts in found.items()}

    def _rows(self, profiles: Sequence[Profile]) -> NDArray[np.intp]:
        try:
            return np.array([self._row[template, count] for template, count in profiles], dtype=np.intp)
        except KeyError as missing:
            self._reject_profile(*missing.args[0])

    def _reject_profile(self, template: str, count: int) -> NoReturn:
        if template not in self.templates:
            raise InputError(f"template {template!r} has no throughputs; {_nearest(template, self.templates)}")
        known = ", ".join(map(str, self.workers(template)))
        raise InputError(f"{_named((template, count))} has no throughputs; use workers: {known}")

    def _columns(self, types: Sequence[str]) -> NDArray[np.intp]:
        for name in types:
            if name not in self.types:
                known = ", ".join(self.types)
                raise InputError(f"accelerator type {name!r} has no throughputs; use one of: {known}")
        return np.array([self.types.index(name) for name in types], dtype=np.intp)


@cache
def builtin_table() -> ThroughputTable:
    """The table that ships with Gavel: 26 templates on v100, p100 and k80, with 1, 2, 4 or 8 workers.

    Seven templates have no measurements with several workers, and are listed with one worker only.
    """
    parameters = builtin.load_parameters()
    scaled, shared = builtin.scaled_rates(parameters), builtin.shared_rates(parameters)
    known = [
        (row, column)
        for row in range(len(parameters.templates))
        for column, count in enumerate(parameters.workers)
        if count == 1 or scaled[row, column].any()
    ]
    rows, columns = (np.array(indices, dtype=np.intp) for indices in zip(*known, strict=True))
    single = np.array(parameters.workers)[columns] == 1
    return ThroughputTable(
        types=parameters.types,
        profiles=tuple((parameters.templates[row], parameters.workers[column]) for row, column in known),
        alone=scaled[rows, columns],
        shared=shared[np.ix_(rows, rows)] * np.outer(single, single)[:, :, None],
    )


def find_table(name: str) -> ThroughputTable:
    """The table that a setting names: "builtin", or a file."""
    return builtin_table() if name == "builtin" else read_table(Path(name))


def read_table(path: Path) -> ThroughputTable:
    """Read a table from JSON: our own format or the public Gavel artefact's (docs/throughputs.md)."""
    data = _parse(path)
    if "format" not in data:
        return _read_public(str(path), data)
    if data["format"] != FORMAT:
        raise InputError(f"{path}: format {_short(data['format'])} is not known; write {FORMAT!r}")
    return _read_own(str(path), data)


def table_of(document: Mapping[str, Any]) -> ThroughputTable:
    """Build a table from the content of a file in our own format.

    >>> table = table_of({"types": ["v100", "k80"], "templates": {"cnn": {1: {"v100": 4.0, "k80": 1.0}}}})
    >>> table.rates([("cnn", 1)], ["v100"])[0, 0, 0].item()
    4.0
    """
    return _read_own("the throughput table", json.loads(json.dumps(dict(document))))


def write_table(table: ThroughputTable, path: Path) -> None:
    """Write a table in our own format, one line for each profile and pair; rates of 0 are left out."""
    templates = {template: _template_entry(table, template) for template in table.templates}
    pairs = [_pair_entry(table, *pair) for pair in zip(*table.pairs(table.profiles, table.types), strict=True)]
    path.write_text(
        f'{{\n "format": {json.dumps(FORMAT)},\n "types": {json.dumps(table.types)},\n'
        f' "templates": {{\n{_lines(_block(*item) for item in templates.items())}\n }},\n'
        f' "pairs": [\n{_lines(f"  {json.dumps(pair)}" for pair in pairs)}\n ]\n}}\n',
        encoding="utf-8",
    )


def _block(template: str, entry: dict[str, Any]) -> str:
    lines = _lines(f"   {json.dumps(count)}: {json.dumps(rates)}" for count, rates in entry.items())
    return f"  {json.dumps(template)}: {{\n{lines}\n  }}"


def _lines(entries: Iterable[str]) -> str:
    return ",\n".join(entries)


def _template_entry(table: ThroughputTable, template: str) -> dict[str, dict[str, Any]]:
    counts = table.workers(template)
    rates = table.rates([(template, count) for count in counts], table.types).tolist()
    return {
        str(count): {
            name: placed[0] if len(set(placed)) == 1 else dict(zip(FILE_NAMES.values(), placed, strict=True))
            for name, placed in zip(table.types, row, strict=True)
            if any(placed)
        }
        for count, row in zip(counts, rates, strict=True)
    }


def _pair_entry(table: ThroughputTable, first: int, second: int, rates: NDArray[np.float64]) -> dict[str, Any]:
    (template, workers), (other, _) = table.profiles[first], table.profiles[second]
    by_type = zip(table.types, rates.T.tolist(), strict=True)
    return {
        "templates": [template, other],
        "workers": workers,
        "rates": {name: both for name, both in by_type if any(both)},
    }


def _read_own(source: str, data: dict[str, Any]) -> ThroughputTable:
    if unknown := set(data) - {"format", "about", "types", "templates", "pairs"}:
        raise InputError(f"{source}: key {min(unknown)!r} is not known; use types, templates, pairs or about")
    templates = _object(data.get("templates"), f"{source}: templates")
    entries = _Entries(source, _own_types(source, data.get("types")))
    for template, by_workers in templates.items():
        for count, rates in _object(by_workers, f"{source}: template {template!r}").items():
            _add_own_profile(entries, template, count, rates)
    pairs = data.get("pairs", [])
    if not isinstance(pairs, list):
        raise InputError(f"{source}: pairs: {_short(pairs)} is not a list; write [...] (see docs/throughputs.md)")
    for pair in pairs:
        _add_own_pair(entries, pair)
    return _table(entries)


def _own_types(source: str, types: Any) -> tuple[str, ...]:
    if isinstance(types, list) and types and all(isinstance(name, str) for name in types):
        if len(set(types)) == len(types):
            return tuple(types)
        raise InputError(f"{source}: types {_short(types)} repeat a name; name each accelerator type once")
    raise InputError(f"{source}: types {_short(types)} is not a list of names; list the accelerator types")


def _add_own_profile(entries: _Entries, template: str, count: str, rates: Any) -> None:
    if not (count.isdecimal() and count.isascii() and count[0] != "0"):
        raise InputError(
            f"{entries.source}: template {template!r}: {_short(count)} is not a worker count; write 1 or more"
        )
    if len(count) > len(str(MOST_ACCELERATORS)) or int(count) > MOST_ACCELERATORS:
        raise InputError(
            f"{entries.source}: template {template!r}: {_short(count)} workers are too many; "
            f"write {at_most(MOST_ACCELERATORS)}"
        )
    profile = (template, int(count))
    entries.add_profile(profile)
    where = f"{entries.source}: {_named(profile)}"
    for name, value in _object(rates, where).items():
        entries.check_type(name, where)
        entries.alone[profile, name] = _placed_rate(value, profile[1], f"{where}, type {name!r}")


def _placed_rate(value: Any, workers: int, where: str) -> tuple[float, ...]:
    """The rate by locality."""
    if not isinstance(value, dict):
        return (_rate(value, where),) * len(Locality)
    if set(value) != set(FILE_NAMES.values()):
        names = " and ".join(FILE_NAMES.values())
        raise InputError(f"{where}: {_short(value)} must be a number, or have exactly {names}")
    rates = tuple(_rate(value[name], f"{where}, {name}") for name in FILE_NAMES.values())
    if workers == 1 and len(set(rates)) > 1:
        raise InputError(f"{where}: {_short(value)} is two rates, but one worker has no spread; give one number")
    return rates


def _add_own_pair(entries: _Entries, pair: Any) -> None:
    where = f"{entries.source}: pair {_short(pair)}"
    data = _object(pair, where)
    templates, workers = data.get("templates"), data.get("workers", 1)
    if not (set(data) <= {"templates", "workers", "rates"} and _is_two_names(templates)):
        raise InputError(f"{where}: write templates (two names), workers (1 if left out) and rates")
    first, second = ((template, workers) for template in templates)
    for profile in (first, second):
        entries.check_profile(profile, where)
    where = f"{entries.source}: {_named(first)} next to template {second[0]!r}"
    for name, value in _object(data.get("rates"), where).items():
        entries.check_type(name, where)
        entries.add_pair(first, second, name, _two_rates(value, f"{where}, type {name!r}"))


def _is_two_names(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value)


def _read_public(source: str, data: dict[str, Any]) -> ThroughputTable:
    entries = _Entries(source, tuple(name for name in data if not name.endswith(_UNCONSOLIDATED)))
    parsed = {name: _public_type(f"{source}: type {name!r}", entry) for name, entry in data.items()}
    for name, profiles in parsed.items():
        entries.check_type(name.removesuffix(_UNCONSOLIDATED), f"{source}: type {name!r}")
        for profile in profiles:
            entries.add_profile(profile)
    if not entries.profiles:
        raise InputError(f"{source} has no throughputs; give at least one type with one template")
    for name in entries.types:
        spread = parsed.get(name + _UNCONSOLIDATED, {})
        for profile in entries.profiles:
            _add_public_profile(entries, name, profile, parsed[name].get(profile), spread.get(profile))
    return _table(entries)


@dataclass(frozen=True, slots=True)
class _PublicEntry:
    """One profile on one type: its rate alone, and (its rate, the other's rate) next to others."""

    alone: float
    beside: dict[Profile, tuple[float, float]]


def _public_type(where: str, by_profile: Any) -> dict[Profile, _PublicEntry]:
    return {
        profile: _public_entry(f"{where}, {_named(profile)}", rates)
        for key, rates in _object(by_profile, where).items()
        for profile in [_public_profile(where, key)]
    }


def _public_entry(where: str, rates: Any) -> _PublicEntry:
    if "null" not in _object(rates, where):
        raise InputError(f"{where}: the rate alone is missing; give it under the key 'null'")
    others = {_public_profile(where, key): value for key, value in rates.items() if key != "null"}
    return _PublicEntry(
        _rate(rates["null"], where),
        {other: _two_rates(value, f"{where} next to {_named(other)}") for other, value in others.items()},
    )


def _public_profile(where: str, key: str) -> Profile:
    profile = _literal_profile(key)
    if profile is None:
        raise InputError(
            f"{where}: key {_short(key)} is not of the form ('template', workers); fix it, or write"
            f' "format": "{FORMAT}" if the file is in our own format'
        )
    return profile


@lru_cache(maxsize=4096)  # every key of the artefact's files recurs a hundred times
def _literal_profile(key: str) -> Profile | None:
    try:
        value = ast.literal_eval(key)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)):
        return None
    return (value[0], value[1]) if _is_count(value[1]) else None


def _add_public_profile(
    entries: _Entries, name: str, profile: Profile, entry: _PublicEntry | None, spread: _PublicEntry | None
) -> None:
    """Add a profile on one type, from its consolidated and unconsolidated parts in the file.

    Pairs are taken from the consolidated part: the artefact measured only pairs of single workers, for which both
    parts are equal.
    """
    consolidated = entry.alone if entry else 0.0
    one_worker = profile[1] == 1
    unconsolidated = consolidated if spread is None or one_worker else spread.alone
    entries.alone[profile, name] = (consolidated, unconsolidated)
    where = f"{entries.source}: type {name!r}, {_named(profile)}"
    for other, rates in (entry.beside if entry else {}).items():
        entries.check_profile(other, where)
        if other[1] != profile[1]:
            raise InputError(
                f"{where} next to {_named(other)}: only profiles with the same number of workers can share"
            )
        entries.add_pair(profile, other, name, rates)


@dataclass(frozen=True)
class _Entries:
    """The content of a file, with every rate checked; a reader fills it and `_table` converts it to arrays."""

    source: str
    types: tuple[str, ...]
    profiles: dict[Profile, int] = field(default_factory=dict)
    """By profile: its row."""
    alone: dict[tuple[Profile, str], tuple[float, ...]] = field(default_factory=dict)
    """By locality."""
    shared: dict[tuple[Profile, Profile, str], float] = field(default_factory=dict)
    """Rate of the first profile next to the second."""

    def add_profile(self, profile: Profile) -> None:
        self.profiles.setdefault(profile, len(self.profiles))

    def check_type(self, name: str, where: str) -> None:
        if name not in self.types:
            known = ", ".join(self.types)
            raise InputError(f"{where}: type {name!r} is not among the file's types; add it, or use one of: {known}")

    def check_profile(self, profile: Profile, where: str) -> None:
        template, workers = profile
        if not _is_count(workers) or profile not in self.profiles:
            raise InputError(f"{where}: template {template!r} with workers {_short(workers)} has no rate alone; add it")

    def add_pair(self, first: Profile, second: Profile, name: str, rates: tuple[float, float]) -> None:
        """Add both directions of a pair; files may state a pair twice, but not with different rates."""
        for key, rate in zip(((first, second, name), (second, first, name)), rates, strict=True):
            if self.shared.setdefault(key, rate) != rate:
                raise InputError(
                    f"{self.source}: type {name!r}, {_named(key[0])} next to {_named(key[1])}: the rate is"
                    f" both {self.shared[key]} and {rate}; keep one"
                )


def _table(entries: _Entries) -> ThroughputTable:
    row, column = entries.profiles, {name: index for index, name in enumerate(entries.types)}
    alone = np.zeros((len(row), len(column), len(Locality)))
    shared = np.zeros((len(row), len(row), len(column)))
    for (profile, name), rates in entries.alone.items():
        alone[row[profile], column[name]] = rates
    for (profile, other, name), rate in entries.shared.items():
        shared[row[profile], row[other], column[name]] = rate
    return ThroughputTable(entries.types, tuple(row), alone, shared)


def _parse(path: Path) -> dict[str, Any]:
    try:
        data = read_json(path.read_text("utf-8"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}); fix it or write it again") from error
    return _object(data, str(path))


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {_short(value)} is not an object; write {{...}} (see docs/throughputs.md)")
    return value


def _rate(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise InputError(f"{where}: {_short(value)} is not a rate; give finite steps per second, 0 if it cannot run")
    if value > FASTEST:
        raise InputError(f"{where}: {_short(value)} steps per second are too many; give {at_most(FASTEST)}")
    if 0 < value < SMALLEST:
        raise InputError(f"{where}: {_short(value)} steps per second are too few; give at least {SMALLEST:g}, or 0")
    return float(value)


def _two_rates(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{where}: {_short(value)} is not a pair of rates; give [rate of this, rate of the other]")
    return _rate(value[0], where), _rate(value[1], where)


def _named(profile: Profile) -> str:
    template, workers = profile
    return f"template {template!r} with {workers} worker{'' if workers == 1 else 's'}"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_ACCELERATORS


def _short(value: Any) -> str:
    return reprlib.repr(value)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=3, cutoff=0.4)
    return ("the nearest known are: " if close else "known are: ") + ", ".join(map(repr, close or known))
