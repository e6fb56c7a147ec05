"""Servers that fail and come back: from a file, or at random by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gavel.core.cluster import Cluster, Server
from gavel.core.errors import InputError
from gavel.core.events import Event, ServerJoined, ServerLost
from gavel.limits import MOST_FAILURES, at_most
from gavel.workload.rows import Row, Source, named_rows

COLUMNS = ("seconds", "event", "server")


def random_failures(
    cluster: Cluster, *, per_server_day: float, repair_hours: float, until_seconds: float, seed: int
) -> list[Event]:
    """Servers that fail at random at this rate and return after an exponential time with the given mean."""
    expected = len(cluster.servers) * per_server_day * until_seconds / 86_400.0
    if expected > MOST_FAILURES:
        raise InputError(
            f"--failures-per-server-day {per_server_day:g} means about {expected:.1g} failures in all; "
            f"draw {at_most(MOST_FAILURES)}"
        )
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


def together(*causes: Sequence[Event]) -> list[Event]:
    """Merge several independent causes of failure: a server is up while none of them keeps it down."""
    events = sorted((event for cause in causes for event in cause), key=lambda event: event.time)
    against: Counter[str] = Counter()
    found: list[Event] = []
    for event in events:
        match event:
            case ServerLost():
                against[event.server] += 1
                if against[event.server] == 1:
                    found.append(event)
            case ServerJoined():
                against[event.server.name] -= 1
                if against[event.server.name] == 0:
                    found.append(event)
            case _:
                found.append(event)
    return found


def read_failures(path: Path, cluster: Cluster) -> list[Event]:
    """Read a CSV with the columns seconds, event (lost or joined) and server.

    Servers are named type-number from 0, as in v100-0. All are up at the start, so each is lost and joins in turn.
    """
    source, servers = Source.of(path), {server.name: server for server in cluster.servers}
    rows = list(named_rows(source, required=COLUMNS, what="a list of failures"))
    timed = [(row["seconds"].seconds("a time; give seconds from the start, 0 or more"), row) for row in rows]
    here = set(servers)
    return [_event(time, row, servers, here) for time, row in sorted(timed, key=lambda pair: pair[0])]


def _event(time: float, row: Row, servers: dict[str, Server], here: set[str]) -> Event:
    """Turn one line into an event and update `here`, the set of servers that are up."""
    name, kind = row["server"].text, row["event"].text
    if name not in servers:
        known = ", ".join(list(servers)[:6])
        raise InputError(f"{row.where}: there is no server {name!r}; servers are named {known} ...")
    if kind not in {"lost", "joined"}:
        raise InputError(f"{row.where}: event must be lost or joined, not {kind!r}")
    if (kind == "lost") != (name in here):
        state = "is already lost" if kind == "lost" else "is already up, like all servers at the start"
        raise InputError(f"{row.where}: server {name!r} cannot be {kind} at {time:g} s; it {state}")
    if kind == "lost":
        here.discard(name)
        return ServerLost(time, name)
    here.add(name)
    return ServerJoined(time, servers[name])
