"""The machines: accelerator types and servers, and the notation for clusters on a command line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gavel.core.errors import InputError
from gavel.core.locality import Locality

LIST_PRICES = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
"""On-demand prices in dollars per hour in a public cloud when the paper was written; used if no price is given."""

MOST = 1_000_000
"""The most accelerators of one type in a cluster; limited because every server is an object."""


@dataclass(frozen=True, slots=True)
class AcceleratorType:
    """One kind of accelerator: how many there are, the hourly price of one, and how servers hold them.

    `servers` lists the number of accelerators in each server. Empty means unknown; then placement does
    not limit consolidated jobs.

    >>> AcceleratorType.uniform("v100", count=10, per_server=4).servers
    (4, 4, 2)
    """

    name: str
    count: int
    price: float | None = None
    servers: tuple[int, ...] = ()
    _of_size: Mapping[int, int] = field(init=False, repr=False, compare=False)
    """By size: the number of servers; clusters have thousands of servers of very few sizes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_of_size", Counter(self.servers))

    @classmethod
    def uniform(cls, name: str, *, count: int, per_server: int, price: float | None = None) -> AcceleratorType:
        """Servers of one size; the last one holds the rest."""
        return cls(name, count, price, _even_sizes(count, per_server))

    def gangs_at_once(self, workers: int, locality: Locality) -> int | None:
        """How many gangs of this size can have a locality at once; None if placement does not limit them."""
        return self.gangs_on_one_server(workers) if locality is Locality.SERVER else None

    def gangs_on_one_server(self, workers: int) -> int | None:
        """The most gangs of this size that fit at once, each on one server; None if placement does not limit them.

        A gang larger than every server uses whole servers, which no row limits.

        >>> AcceleratorType("v100", 8, servers=(4, 4)).gangs_on_one_server(3)
        2
        >>> AcceleratorType("v100", 8, servers=(4, 4)).gangs_on_one_server(8) is None
        True
        """
        if workers == 1 or not self._of_size or workers > max(self._of_size):
            return None
        return sum(size // workers * number for size, number in self._of_size.items())


@dataclass(frozen=True, slots=True)
class Server:
    """One machine with accelerators of one type."""

    name: str
    type: str
    accelerators: int
    cpus: float = 0.0
    """CPU cores that jobs may use; 0: unknown, and not limited."""
    memory_bytes: int = 0
    """RAM that jobs may use; 0: unknown, and not limited."""
    accelerator_memory: int = 0
    """Bytes of one accelerator; 0: unknown, and not limited."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Every server, in the order given."""

    servers: tuple[Server, ...]

    def types(self) -> tuple[AcceleratorType, ...]:
        """The accelerator types in order of first appearance, with list prices where known."""
        names = dict.fromkeys(server.type for server in self.servers)
        sizes = {name: tuple(s.accelerators for s in self.servers if s.type == name) for name in names}
        return tuple(AcceleratorType(name, sum(sizes[name]), LIST_PRICES.get(name), sizes[name]) for name in names)

    def text(self) -> str:
        """The cluster in the notation of the command line, which does not include the names of servers.

        >>> parse_cluster("v100=10,k80=2x8").text()
        'v100=2x4+1x2,k80=2x8'
        """
        return ",".join(
            f"{accelerator_type.name}={_groups(accelerator_type.servers)}" for accelerator_type in self.types()
        )


def parse_cluster(text: str, *, per_server: int = 4) -> Cluster:
    """Read a cluster from "type=accelerators" or "type=servers x size + ...", one for each type.

    A plain number of accelerators is divided into servers of `per_server`.

    >>> [(each.name, each.count, each.servers) for each in parse_cluster("v100=2x8+1x4,k80=6").types()]
    [('v100', 20, (8, 8, 4)), ('k80', 6, (4, 2))]
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        name, _, amount = (piece.strip() for piece in part.partition("="))
        where = f"cluster {text!r}: {part.strip()!r}"
        count = _number(amount)
        if not name or (count is None and "x" not in amount):
            raise InputError(
                f"{where} is not of the form type=count, for example v100=4, or type=servers x size, for example "
                "v100=4x8+2x4"
            )
        if name in sizes:
            raise InputError(f"cluster {text!r}: type {name!r} is given twice; add the counts up")
        if count is not None:
            _check_total(count, where)
        sizes[name] = parse_servers(amount, where) if count is None else _even_sizes(count, per_server)
    servers = ((name, index, size) for name, each in sizes.items() for index, size in enumerate(each))
    return Cluster(tuple(Server(f"{name}-{index}", name, size) for name, index, size in servers))


def parse_servers(text: str, where: str = "servers") -> tuple[int, ...]:
    """Read the size of each server from "servers x size + servers x size"; `where` is the prefix of error messages.

    >>> parse_servers("2x8+3x4")
    (8, 8, 4, 4, 4)
    """
    groups = [_group(term, where) for term in text.split("+")]
    _check_total(sum(number * size for number, size in groups), where)
    return tuple(size for number, size in groups for _ in range(number))


def _groups(sizes: Iterable[int]) -> str:
    """Sizes of servers as "servers x size + ...", largest first."""
    return "+".join(f"{number}x{size}" for size, number in sorted(Counter(sizes).items(), reverse=True))


def _group(text: str, where: str) -> tuple[int, int]:
    """Read one term: (number of servers, size)."""
    number, size = (_number(piece.strip()) for piece in text.partition("x")[::2])
    if number is None or size is None:
        raise InputError(f"{where}: {text.strip()!r} is not of the form servers x size, for example 4x8")
    if not number or not size:
        raise InputError(f"{where}: {text.strip()!r} has no accelerators; leave it out, or give 1 or more of each")
    return number, size


def _even_sizes(count: int, per_server: int) -> tuple[int, ...]:
    whole, rest = divmod(count, per_server)
    return (per_server,) * whole + ((rest,) if rest else ())


def _number(text: str) -> int | None:
    """A whole number in plain digits; None for anything else. Numbers above MOST are all treated alike."""
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text) <= len(str(MOST)) else MOST + 1


def _check_total(accelerators: int, where: str) -> None:
    if accelerators > MOST:
        raise InputError(f"{where} is more than {MOST:,} accelerators; give fewer")


def parse_prices(text: str) -> dict[str, float]:
    """Read dollars per hour from "type=price,type=price"; an empty text gives no prices.

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
