"""Servers that fail and come back: from a file, or at random by seed."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gavel.core.cluster import Cluster, Server
from gavel.core.errors import InputError
from gavel.core.events import Event, ServerJoined, ServerLost


def random_failures(
    cluster: Cluster, *, per_server_day: float, repair_hours: float, until_seconds: float, seed: int
) -> list[Event]:
    """Each server fails at random so often, and is back after an exponential time of the given mean."""
    rng = np.random.default_rng([seed, 7])
    events: list[Event] = []
    for server in cluster.servers:
        at = 0.0
        while per_server_day > 0:
            at += rng.exponential(86_400.0 / per_server_day)
            if at >= until_seconds:
                break
            events.append(ServerLost(at, server.name))
            at += rng.exponential(repair_hours * 3600.0)
            events.append(ServerJoined(at, server))
    return events


def read_failures(path: Path, cluster: Cluster) -> list[Event]:
    """Read a CSV with the columns seconds, event (lost or joined) and server.

    Servers are named type-number from 0, as in v100-0; a server that joins must have been there at the start.
    """
    servers = {server.name: server for server in cluster.servers}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if set(rows.fieldnames or ()) != {"seconds", "event", "server"}:
                raise InputError(f"{path}: the first line must name the columns seconds, event and server")
            return list(_events(path, rows, servers))
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or 'unknown error').lower()}") from None


def _events(path: Path, rows: csv.DictReader[str], servers: dict[str, Server]) -> Iterator[Event]:
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        try:
            seconds = float(row["seconds"])
        except ValueError:
            raise InputError(f"{where}: seconds must be a number, not {row['seconds']!r}") from None
        if row["server"] not in servers:
            known = ", ".join(list(servers)[:6])
            raise InputError(f"{where}: there is no server {row['server']!r}; servers are named {known} ...")
        if row["event"] == "lost":
            yield ServerLost(seconds, row["server"])
        elif row["event"] == "joined":
            yield ServerJoined(seconds, servers[row["server"]])
        else:
            raise InputError(f"{where}: event must be lost or joined, not {row['event']!r}")
