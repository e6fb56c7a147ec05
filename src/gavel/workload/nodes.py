"""Published lists of nodes as a cluster: CSV with a name, a number of GPUs and a model for each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gavel.core.cluster import MOST, Cluster, Server, parse_cluster
from gavel.core.errors import InputError
from gavel.workload.models import type_of
from gavel.workload.rows import Row, Source, named_rows
from gavel.workload.scaled import counted, shortened

REQUIRED = ("sn", "gpu", "model")


@dataclass(frozen=True, slots=True)
class NodeList:
    """The servers of a list whose GPUs are in a throughput table, and what is left out."""

    cluster: Cluster
    nodes: int
    """All nodes of the list."""
    left_out: Mapping[str, tuple[int, int]]
    """Numbers of nodes and GPUs, by model that is not in the table."""
    without_gpu: int
    """Number of nodes without a GPU."""

    def notes(self) -> tuple[str, ...]:
        """Sentences about what is left out."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        if self.left_out:
            nodes, gpus = (sum(pair[index] for pair in self.left_out.values()) for index in (0, 1))
            named = shortened(
                f"{model} ({counted(number, 'node')}, {counted(size, 'GPU')})"
                for model, (number, size) in self.left_out.items()
            )
            yield (
                f"left out {counted(nodes, 'node')} with {counted(gpus, 'GPU')} of models that are not in the "
                f"throughput table: {named}"
            )
        if self.without_gpu:
            yield f"left out {counted(self.without_gpu, 'node')} without a GPU"


def names_a_node_list(text: str) -> bool:
    """Whether a cluster is given as a file: its name ends in .csv."""
    return text.lower().endswith(".csv")


def find_cluster(text: str, *, per_server: int, types: Sequence[str]) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster given by a setting, either a list of nodes or the servers themselves, and notes about it."""
    if not names_a_node_list(text):
        return parse_cluster(text, per_server=per_server), ()
    found = read_nodes(Source.of(Path(text)), types)
    return found.cluster, found.notes()


def read_nodes(source: Source, types: Sequence[str]) -> NodeList:
    """Read a list; its nodes keep their names, and those with GPUs of unknown models are left out."""
    rows = list(named_rows(source, required=REQUIRED, what="a list of nodes"))
    _check_names(rows)
    nodes = [(row, row["gpu"].count("a number of GPUs")) for row in rows]
    meant = {model: type_of(model, types) for model in {row["model"].text for row in rows}}
    servers = [
        Server(row["sn"].text, type_name, gpus)
        for row, gpus in nodes
        if gpus and (type_name := meant[row["model"].text])
    ]
    unknown = [(row["model"].text or "no model", gpus) for row, gpus in nodes if gpus and not meant[row["model"].text]]
    _check(source, servers, unknown, types)
    number, total = Counter(model for model, _ in unknown), Counter[str]()
    for model, gpus in unknown:
        total[model] += gpus
    left_out = {model: (count, total[model]) for model, count in number.most_common()}
    return NodeList(Cluster(tuple(servers)), len(rows), left_out, sum(not gpus for _, gpus in nodes))


def _check_names(rows: Sequence[Row]) -> None:
    lines: dict[str, int] = {}
    for row in rows:
        name = row["sn"].filled()
        if name in lines:
            raise InputError(f"{row.where}, column 'sn': {name!r} is also on line {lines[name]}; names must differ")
        lines[name] = row.line


def _check(source: Source, servers: Sequence[Server], unknown: Sequence[tuple[str, int]], types: Sequence[str]) -> None:
    """Refuse a list that yields no cluster, or one that is too large."""
    if not servers:
        has = f"its models are {shortened(dict(unknown))}" if unknown else "no node has a GPU"
        raise InputError(f"{source.name}: no node has a type of the throughput table ({', '.join(types)}); {has}")
    totals = Counter[str]()
    for server in servers:
        totals[server.type] += server.accelerators
        if totals[server.type] > MOST:
            raise InputError(
                f"{source.name}: up to node {server.name!r} there are more than {MOST:,} accelerators of type "
                f"{server.type}; give fewer"
            )
