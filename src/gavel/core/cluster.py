"""The machines: accelerator types, servers, and how a cluster is written on a command line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gavel.core.errors import InputError

LIST_PRICES = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
"""Dollars an hour on demand in a public cloud when the paper was written; used where a price is not given."""

MOST = 1_000_000
"""The most accelerators of one type that a cluster may have: each server is kept by itself."""


@dataclass(frozen=True, slots=True)
class AcceleratorType:
    """One kind of accelerator: how many there are, what one costs an hour, and how they sit in servers.

    `servers` lists the number of accelerators in each server; empty means that nobody said, and then placement does
    not limit consolidated jobs.

    >>> AcceleratorType.uniform("v100", count=10, per_server=4).servers
    (4, 4, 2)
    """

    name: str
    count: int
    price: float | None = None
    servers: tuple[int, ...] = ()

    @classmethod
    def uniform(cls, name: str, *, count: int, per_server: int, price: float | None = None) -> AcceleratorType:
        """Servers of one size, the last one holding the rest."""
        whole, rest = divmod(count, per_server)
        return cls(name, count, price, (per_server,) * whole + ((rest,) if rest else ()))

    def gangs_on_one_server(self, workers: int) -> int | None:
        """How many gangs of this size fit at once with each on one server; None if placement does not limit them.

        >>> AcceleratorType("v100", 8, servers=(4, 4)).gangs_on_one_server(3)
        2
        """
        if workers == 1 or not self.servers or workers > max(self.servers):
            return None
        return sum(size // workers for size in self.servers)


@dataclass(frozen=True, slots=True)
class Server:
    """One machine with accelerators of one type."""

    name: str
    type: str
    accelerators: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Every server, in the order given."""

    servers: tuple[Server, ...]

    def types(self) -> tuple[AcceleratorType, ...]:
        """The accelerator types in order of first appearance, with list prices where known."""
        names = dict.fromkeys(server.type for server in self.servers)
        sizes = {name: tuple(s.accelerators for s in self.servers if s.type == name) for name in names}
        return tuple(AcceleratorType(name, sum(sizes[name]), LIST_PRICES.get(name), sizes[name]) for name in names)


def parse_cluster(text: str, *, per_server: int = 4) -> Cluster:
    """Read a cluster from "type=count,type=count".

    >>> [(t.name, t.count) for t in parse_cluster("v100=2,k80=6").types()]
    [('v100', 2), ('k80', 6)]
    """
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, separator, number = (piece.strip() for piece in part.partition("="))
        if not (name and separator and number.isascii() and number.isdigit()):
            raise InputError(f"cluster {text!r}: {part.strip()!r} is not of the form type=count, for example v100=4")
        if name in counts:
            raise InputError(f"cluster {text!r}: type {name!r} is given twice; add the counts up")
        if len(number) > len(str(MOST)) or int(number) > MOST:
            raise InputError(f"cluster {text!r}: {part.strip()!r} is more than {MOST:,} accelerators; give fewer")
        counts[name] = int(number)
    return Cluster(tuple(_servers(counts.items(), per_server)))


def _servers(counts: Iterable[tuple[str, int]], per_server: int) -> Iterable[Server]:
    for name, count in counts:
        sizes = AcceleratorType.uniform(name, count=count, per_server=per_server).servers
        yield from (Server(f"{name}-{index}", name, size) for index, size in enumerate(sizes))


def parse_prices(text: str) -> dict[str, float]:
    """Read dollars an hour from "type=price,type=price"; an empty text has none.

    >>> parse_prices("a100=3.67, h100=12")
    {'a100': 3.67, 'h100': 12.0}
    """
    prices: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            price = float(number)
        except ValueError:
            price = math.nan
        if not name or not 0.0 < price < math.inf:
            raise InputError(f"prices {text!r}: {part!r} is not of the form type=dollars, for example a100=3.67")
        if name in prices:
            raise InputError(f"prices {text!r}: type {name!r} is given twice; keep one")
        prices[name] = price
    return prices
