"""Read problems from JSON with every value checked; a mistake gives one sentence that names field and value."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gavel.core.cluster import LIST_PRICES, AcceleratorType, parse_servers
from gavel.core.errors import InputError
from gavel.core.jobs import Entity, Job, Pair, PlacedRate, Rate, is_path
from gavel.core.locality import FILE_NAMES
from gavel.core.problem import Problem
from gavel.core.strict_json import Beyond, read_json
from gavel.core.throughputs import ThroughputTable
from gavel.limits import FASTEST, LARGEST, LONGEST_SECONDS, MOST_ACCELERATORS, MOST_SERVERS, SMALLEST, at_most

_PROBLEM = {"types", "jobs", "pairs", "entities"}
_TYPE = {"count", "price", "servers"}
_JOB = {
    "id",
    "rates",
    "template",
    "workers",
    "weight",
    "steps",
    "arrival",
    "age_seconds",
    "isolated_age_seconds",
    "deadline_seconds",
    "entity",
}
_PAIR = {"jobs", "rates"}
_ENTITY = {"weight", "policy", "parent"}


def parse_problem(text: str, *, table: ThroughputTable | None = None) -> Problem:
    """Read a problem; jobs with a template instead of rates get their rates, and those of pairs, from the table.

    >>> text = '{"types": {"v100": {"count": 1}}, "jobs": [{"id": "a", "rates": {"v100": 4.0}}]}'
    >>> parse_problem(text).jobs.ids
    ('a',)
    """
    root = _FileValue("the problem", _parsed(text))
    root.only(_PROBLEM)
    types = [_type(name, value) for name, value in root.get("types", required=True).items()]
    names = [t.name for t in types]
    entities = _entities(root.get("entities"))
    jobs = [_job(value, names, entities, table) for value in root.get("jobs", required=True).list()]
    _check_unique([job.id for job in jobs])
    pairs = [_pair(value, {job.id: job for job in jobs}, names) for value in root.get("pairs").list()]
    _check_pairs_once(pairs)
    return Problem.of(types, jobs, pairs, entities.described, table=table)


@dataclass(frozen=True, slots=True)
class Entities:
    """Entities as declared."""

    described: Mapping[str, Entity]
    """By full path."""
    paths: Mapping[str, str]
    """By declared name: the full path; nested entities may name their parent instead of a path."""

    def path_of(self, name: str, where: str) -> str:
        """The full path of the entity that a job names; `where` is the place, for messages.

        >>> parse_entities('{"lab": {"weight": 2}, "nlp": {"parent": "lab"}}').path_of("nlp", "job 'a'.entity")
        'lab/nlp'
        """
        if name in self.paths:
            return self.paths[name]
        if not is_path(name):
            raise InputError(f'{where}: {name!r} is not a path of names such as "company/research"')
        if name in self.described or not self.described:
            return name
        near = difflib.get_close_matches(name, self.paths, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known entities: {', '.join(sorted(self.paths))}"
        raise InputError(f"{where}: there is no entity {name!r}; {hint}")


def parse_entities(text: str) -> Entities:
    """Read entities alone, in the form that they have in a problem."""
    return _entities(_FileValue("entities", _parsed(text)))


def _parsed(text: str) -> Any:
    try:
        return read_json(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InputError("not a problem: its brackets nest too deep") from None


@dataclass(frozen=True, slots=True)
class _FileValue:
    """A JSON value and its place in the file, for messages."""

    where: str
    raw: Any

    def only(self, known: set[str]) -> None:
        for key in self.mapping():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known fields: {', '.join(sorted(known))}"
                raise InputError(f"{self.where}: unknown field {key!r}; {hint}")

    def mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.raw, dict):
            raise InputError(f"{self.where} must be an object, not {_short(self.raw)}")
        return self.raw

    def items(self) -> Iterable[tuple[str, _FileValue]]:
        return [(key, _FileValue(f"{self.where}.{key}", value)) for key, value in self.mapping().items()]

    def get(self, key: str, *, required: bool = False) -> _FileValue:
        where = key if self.where == "the problem" else f"{self.where}.{key}"
        raw = self.mapping().get(key)
        if raw is None and required:
            raise InputError(f"{self.where}: {key!r} is missing")
        return _FileValue(where, raw)

    def list(self) -> list[_FileValue]:
        if self.raw is None:
            return []
        if not isinstance(self.raw, list):
            raise InputError(f"{self.where} must be a list, not {_short(self.raw)}")
        return [_FileValue(f"{self.where}[{index}]", value) for index, value in enumerate(self.raw)]

    def number(self, default: float, *, least: float = 0.0, most: float = LARGEST, positive: bool = False) -> float:
        if self.raw is None:
            return default
        if isinstance(self.raw, bool) or not isinstance(self.raw, int | float):
            raise InputError(f"{self.where} must be a number, not {_short(self.raw)}")
        value = float(self.raw)
        if math.isnan(value):
            raise InputError(f"{self.where} must be a number, not NaN; leave out what is unknown")
        if positive and value <= 0:
            raise InputError(f"{self.where} must be greater than 0, not {_short(self.raw)}")
        if value < least:
            raise InputError(f"{self.where} must be at least {least:g}, not {_short(self.raw)}")
        if 0 < value < SMALLEST:
            wanted = "at least" if positive else "0 or at least"
            raise InputError(f"{self.where} must be {wanted} {SMALLEST:g}, not {_short(self.raw)}")
        if value > most:
            raise InputError(f"{self.where} must be {at_most(most)}, not {_short(self.raw)}")
        return value

    def optional_number(self, *, most: float = LARGEST, positive: bool = False) -> float | None:
        return None if self.raw is None else self.number(0.0, most=most, positive=positive)

    def rate(self, default: float = 0.0) -> float:
        return self.number(default, most=FASTEST)

    def seconds(self, *, least: float = 0.0) -> float:
        return self.number(0.0, least=least, most=LONGEST_SECONDS)

    def integer(self, default: int, *, least: int) -> int:
        value = self.number(default, least=least, most=MOST_ACCELERATORS)
        if value != int(value):
            raise InputError(f"{self.where} must be a whole number, not {_short(self.raw)}")
        return int(value)

    def text(self) -> str:
        if not isinstance(self.raw, str) or not self.raw:
            raise InputError(f"{self.where} must be a non-empty string, not {_short(self.raw)}")
        return self.raw


def _short(raw: Any) -> str:
    text = raw.written if isinstance(raw, Beyond) else json.dumps(raw)
    return text if len(text) <= 60 else text[:57] + "..."


def _type(name: str, value: _FileValue) -> AcceleratorType:
    value.only(_TYPE)
    price = value.get("price").optional_number()
    price = LIST_PRICES.get(name) if price is None else price
    servers = value.get("servers")
    sizes = _sizes(servers)
    if sizes is not None:
        total = _FileValue(servers.where, sum(sizes)).integer(0, least=0)
        count = value.get("count").integer(total, least=0)
        if total != count:
            raise InputError(f"{servers.where} add up to {total} accelerators, but the count is {count}")
        return AcceleratorType(name, count, price, sizes)
    count = value.get("count", required=True).integer(0, least=0)
    if servers.raw is None:
        return AcceleratorType(name, count, price)
    size = servers.integer(1, least=1)
    if count > MOST_SERVERS * size:
        raise InputError(
            f"{servers.where}: {count} accelerators, {size} in each, are more than {MOST_SERVERS:,} servers"
        )
    return AcceleratorType.uniform(name, count=count, per_server=size, price=price)


def _sizes(servers: _FileValue) -> tuple[int, ...] | None:
    """The size of each server, from a list or a text like "4x8+2x4"; None if given in another way."""
    if isinstance(servers.raw, str):
        return parse_servers(servers.raw, servers.where)
    if not isinstance(servers.raw, list):
        return None
    sizes = tuple(size.integer(0, least=1) for size in servers.list())
    if 0 in sizes:
        raise InputError(f"{servers.where} must be whole numbers from 1, not {_short(servers.raw)}")
    return sizes


def _job(value: _FileValue, types: list[str], entities: Entities, table: ThroughputTable | None) -> Job:
    value.only(_JOB)
    name = value.get("id", required=True).text()
    named = _FileValue(f"job {name!r}", value.raw)
    workers = named.get("workers").integer(1, least=1)
    template = None if named.get("template").raw is None else named.get("template").text()
    if named.get("rates").raw is not None:
        if template is not None:
            raise InputError(f"job {name!r}: give either 'rates' or 'template', not both")
        rates = _rates(named.get("rates"), types)
    elif template is not None and table is not None:
        rates = _table_rates(template, workers, types, table)
    else:
        hint = "; it names a template, so give a table with --throughputs" if template else ""
        raise InputError(f"job {name!r}: 'rates' is missing{hint}")
    entity = named.get("entity")
    path = None if entity.raw is None else entities.path_of(entity.text(), entity.where)
    return Job(
        name,
        rates,
        workers,
        named.get("weight").number(1.0, positive=True),
        named.get("steps").optional_number(positive=True),
        named.get("arrival").seconds(least=-LONGEST_SECONDS),
        named.get("age_seconds").seconds(),
        named.get("isolated_age_seconds").seconds(),
        named.get("deadline_seconds").optional_number(most=LONGEST_SECONDS, positive=True),
        path,
        template,
    )


def _rates(value: _FileValue, types: list[str]) -> dict[str, Rate]:
    rates: dict[str, Rate] = {}
    for type_name, rate in value.items():
        _check_type(type_name, value.where, types)
        if isinstance(rate.raw, dict):
            rate.only(set(FILE_NAMES.values()))
            closest, *others = FILE_NAMES.values()
            together = rate.get(closest, required=True).rate()
            rates[type_name] = PlacedRate(together, *(rate.get(name).rate(together) for name in others))
        else:
            rates[type_name] = rate.rate()
    return rates


def _check_type(type_name: str, where: str, types: list[str]) -> None:
    if type_name not in types:
        known = ", ".join(types) or "none"
        raise InputError(f"{where}: there is no accelerator type {type_name!r}; the problem's types are: {known}")


def _table_rates(template: str, workers: int, types: list[str], table: ThroughputTable) -> dict[str, Rate]:
    known = [type_name for type_name in types if type_name in table.types]
    placed = table.rates([(template, workers)], known)[0]
    return {
        type_name: rates[0] if len(set(rates)) == 1 else PlacedRate(*rates)
        for type_name, rates in zip(known, placed.tolist(), strict=True)
    }


def _pair(value: _FileValue, jobs: Mapping[str, Job], types: list[str]) -> Pair:
    value.only(_PAIR)
    members = value.get("jobs", required=True)
    names = [name.text() for name in members.list()]
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"{members.where} must name two different jobs, not {_short(members.raw)}")
    for name in names:
        if name not in jobs:
            raise InputError(f"{members.where}: there is no job {name!r}")
    if jobs[names[0]].workers != jobs[names[1]].workers:
        wanted = " and ".join(str(jobs[name].workers) for name in names)
        raise InputError(f"{members.where}: jobs that share accelerators need the same number of workers, not {wanted}")
    rates: dict[str, tuple[float, float]] = {}
    for type_name, both in value.get("rates", required=True).items():
        _check_type(type_name, f"{value.where}.rates", types)
        numbers = [rate.rate() for rate in both.list()]
        if len(numbers) != 2:
            raise InputError(f"{both.where} must be a list of two rates, not {_short(both.raw)}")
        rates[type_name] = (numbers[0], numbers[1])
    return Pair((names[0], names[1]), rates)


def _check_pairs_once(pairs: list[Pair]) -> None:
    seen: set[frozenset[str]] = set()
    for index, pair in enumerate(pairs):
        if frozenset(pair.jobs) in seen:
            raise InputError(f"pairs[{index}]: jobs {pair.jobs[0]!r} and {pair.jobs[1]!r} are paired twice")
        seen.add(frozenset(pair.jobs))


def _check_unique(ids: list[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise InputError(f"jobs: the id {name!r} is given to more than one job; ids must differ")
        seen.add(name)


def _entities(value: _FileValue) -> Entities:
    if value.raw is None:
        return Entities({}, {})
    found = {name: _entity(item) for name, item in value.items()}
    parents = {name: _parent(item, name, found) for name, item in value.items()}
    described: dict[str, Entity] = {}
    paths: dict[str, str] = {}
    for name, entity in found.items():
        path = _path(name, parents)
        if path in described:
            raise InputError(f"entities.{name}: {path!r} is already declared; keep one")
        described[path], paths[name] = entity, path
    return Entities(described, paths)


def _entity(value: _FileValue) -> Entity:
    value.only(_ENTITY)
    weight = value.get("weight").number(1.0, positive=True)
    match value.get("policy").raw:
        case None | "fairness":
            return Entity(weight, "fairness")
        case "fifo":
            return Entity(weight, "fifo")
        case other:
            raise InputError(f'{value.where}.policy must be "fairness" or "fifo", not {_short(other)}')


def _parent(value: _FileValue, name: str, entities: Mapping[str, Entity]) -> str | None:
    parent = value.get("parent")
    if not is_path(name):
        raise InputError(f'{value.where}: {name!r} is not a path of names such as "company/research"')
    if parent.raw is None:
        return None
    if parent.text() not in entities:
        raise InputError(f"{parent.where}: there is no entity {parent.raw!r}")
    if "/" in name:
        raise InputError(f'{parent.where}: {name!r} already names its parent in its path; leave out "parent"')
    return parent.text()


def _path(name: str, parents: Mapping[str, str | None]) -> str:
    parts, seen = [name], {name}
    while (parent := parents[parts[0]]) is not None:
        if parent in seen:
            raise InputError(f"entities.{name}: {parent!r} is its own ancestor; entities must form a tree")
        seen.add(parent)
        parts.insert(0, parent)
    return "/".join(parts)
