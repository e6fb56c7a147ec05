"""Simulated profiling: templates that the scheduler does not know are measured on accelerators set aside for that.

The times of profiling depend only on arrivals, so all of it is computed before the simulation begins, as events from
outside. Accelerators leave the cluster while they profile, and are part of it at all other times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.core.cluster import Cluster, Server
from gavel.core.errors import InputError
from gavel.core.events import Event, RatesProfiled, ServerJoined, ServerLost
from gavel.core.throughputs import ThroughputTable
from gavel.estimator.fingerprint import profiling_plan
from gavel.estimator.references import References
from gavel.workload.trace import Trace


def known_part(table: ThroughputTable, share: float, seed: int) -> ThroughputTable:
    """The table reduced to a random share of its templates, at least one."""
    count = max(1, round(share * len(table.templates)))
    chosen = np.random.default_rng((seed, count)).choice(len(table.templates), count, replace=False)
    return table.only({table.templates[number] for number in chosen})


@dataclass(frozen=True, slots=True)
class Profiling:
    """The cluster with the profiling accelerators as separate servers, and the events of profiling."""

    cluster: Cluster
    events: tuple[Event, ...]


def profile(
    trace: Trace, cluster: Cluster, truth: ThroughputTable, known: ThroughputTable, *, share: float, seconds: float
) -> Profiling:
    """Profile every unknown template when it first arrives: alone, then beside the most informative references.

    Each measurement takes `seconds` on one of the profiling accelerators of its type. All measurements of a
    template on a type are reported together, when the last one is done.
    """
    if share <= 0.0:
        return Profiling(cluster, ())
    servers = _set_aside(cluster, share)
    type_names = [server.type for server in servers]
    references = References.of(known).on(type_names)
    if not references.templates:
        raise InputError("no known template has pairs to compare new ones with; raise --throughputs-known")
    plan = profiling_plan(references)
    first = {job.template: job.arrival for job in reversed(trace.jobs) if job.template not in known.templates}
    events: list[Event] = []
    for server in servers:
        partners = [None, *(name for name, type_name in plan if type_name == server.type)]
        events += _on_one_type(server, sorted(first.items(), key=lambda item: item[1]), partners, truth, seconds)
    rest = {server.name: server for server in _without(cluster, servers)}
    return Profiling(Cluster((*rest.values(), *servers)), tuple(sorted(events, key=lambda event: event.time)))


def _set_aside(cluster: Cluster, share: float) -> list[Server]:
    """One server of each type for profiling, with at least one accelerator."""
    return [
        Server(f"{accelerator_type.name}-profiling", accelerator_type.name, math.ceil(share * accelerator_type.count))
        for accelerator_type in cluster.types()
        if accelerator_type.count
    ]


def _without(cluster: Cluster, servers: Sequence[Server]) -> Iterator[Server]:
    """The servers without the profiling accelerators, which are taken from the last servers of each type."""
    away = {server.type: server.accelerators for server in servers}
    left = []
    for server in reversed(cluster.servers):
        taken = min(away.get(server.type, 0), server.accelerators)
        away[server.type] = away.get(server.type, 0) - taken
        if server.accelerators > taken:
            left.append(Server(server.name, server.type, server.accelerators - taken))
    return reversed(left)


def _on_one_type(
    server: Server,
    arrivals: Sequence[tuple[str, float]],
    partners: Sequence[str | None],
    truth: ThroughputTable,
    seconds: float,
) -> Iterator[Event]:
    """The measurements on one type, and the times at which its accelerators leave and rejoin the cluster."""
    free = [0.0] * server.accelerators
    away_until: float | None = None
    for template, arrival in arrivals:
        if 1 not in truth.workers(template) or not truth.rates([(template, 1)], [server.type]).any():
            continue
        begin = max(arrival, free[0])
        if away_until is None or begin > away_until:
            if away_until is not None:
                yield ServerJoined(away_until, server)
            yield ServerLost(begin, server.name)
        for _ in partners:
            heapq.heappush(free, max(arrival, heapq.heappop(free)) + seconds)
        away_until = max(free)
        for partner in partners:
            yield _figure(truth, template, server.type, partner, away_until)
    if away_until is not None:
        yield ServerJoined(away_until, server)


def _figure(truth: ThroughputTable, template: str, type_name: str, partner: str | None, time: float) -> RatesProfiled:
    if partner is None:
        return RatesProfiled(time, template, type_name, float(truth.single_rates([template], [type_name])[0, 0]))
    mine, its = truth.together((template, 1), (partner, 1), type_name)
    return RatesProfiled(time, template, type_name, mine, partner, its)
