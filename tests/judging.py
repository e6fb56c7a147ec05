"""What must hold for any allocation, spelled out by job and independently of how it was computed."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.jobs import Job, PlacedRate
from strategies import Case, anywhere

ROUNDING = 1e-9


def assert_feasible(allocation: Allocation, case: Case) -> None:
    """Shares in [0, 1], no job with more than all of its time, no accelerator given twice, none where none runs."""
    jobs = {job.id: job for job in case.jobs}
    counts = {kind.name: kind.count for kind in case.types}
    time: dict[str, float] = defaultdict(float)
    busy: dict[str, float] = defaultdict(float)
    throughput: dict[str, float] = defaultdict(float)
    for row in allocation.rows():
        assert len(set(row.jobs)) == len(row.jobs) in {1, 2}
        for name in row.jobs:
            time[name] += 0.0
        for kind, share in row.shares.items():
            together = row.consolidated.get(kind, 0.0)
            assert 0.0 <= together <= share * (1 + ROUNDING)
            assert share <= 1.0 + ROUNDING
            busy[kind] += share * jobs[row.jobs[0]].workers
            for name, alone, sitting in _rates(row.jobs, kind, jobs, case):
                assert share - together <= ROUNDING or alone > 0
                assert together <= ROUNDING or sitting > 0
                assert share <= ROUNDING or jobs[name].workers <= counts[kind]
                time[name] += share
                throughput[name] += (share - together) * alone + together * sitting
    assert all(total <= 1.0 + ROUNDING for total in time.values())
    assert all(total <= counts[kind] * (1 + ROUNDING) for kind, total in busy.items())
    assert set(time) == set(jobs)
    for name, rate in allocation.throughput.items():
        np.testing.assert_allclose(rate, throughput[name], rtol=1e-7, atol=1e-12 * rate)
    _assert_gangs_fit(allocation, case)


def _rates(members: tuple[str, ...], kind: str, jobs: dict[str, Job], case: Case) -> list[tuple[str, float, float]]:
    """(job, rate anywhere, rate sitting together) of each member of a combo on a type."""
    if len(members) == 1:
        rate = jobs[members[0]].rates.get(kind, 0.0)
        return [(members[0], anywhere(rate), rate.consolidated if isinstance(rate, PlacedRate) else 0.0)]
    (pair,) = [p for p in case.pairs if set(p.jobs) == set(members)]
    both = dict(zip(pair.jobs, pair.rates.get(kind, (0.0, 0.0)), strict=True))
    return [(name, both[name], 0.0) for name in members]


def _assert_gangs_fit(allocation: Allocation, case: Case) -> None:
    """Servers have room for the gangs that count on sitting together."""
    workers = {job.id: job.workers for job in case.jobs}
    for kind in case.types:
        for size in {w for w in workers.values() if w > 1}:
            limit = kind.gangs_on_one_server(size)
            if limit is not None:
                gangs = sum(
                    row.consolidated.get(kind.name, 0.0) for row in allocation.rows() if workers[row.jobs[0]] >= size
                )
                assert gangs <= limit * (1 + ROUNDING)


def assert_certificate_sane(allocation: Allocation, case: Case) -> None:
    """The objective is on its side of the bound, prices are not negative, every job knows what limits it."""
    certificate = allocation.certificate
    if certificate.minimised:
        assert certificate.objective >= certificate.bound
    else:
        assert certificate.objective <= certificate.bound
    assert 0.0 <= certificate.gap <= 1.0
    assert set(certificate.prices) == {kind.name for kind in case.types}
    assert all(price >= 0 and np.isfinite(price) for price in certificate.prices.values())
    limits = allocation.limits()
    counts = {kind.name: kind.count for kind in case.types}
    assert set(limits) == {job.id for job in case.jobs}
    for job in case.jobs:
        fits = any(max(anywhere(r), together(r)) > 0 and counts[k] >= job.workers for k, r in job.rates.items())
        assert (limits[job.id].kind == "not_runnable") == (not fits)
        assert fits or limits[job.id].reason
        assert limits[job.id].kind != "bottlenecked" or limits[job.id].type in counts
        assert str(limits[job.id])


def together(rate: float | PlacedRate) -> float:
    """A rate with the workers on one server; 0 where placement does not matter."""
    return rate.consolidated if isinstance(rate, PlacedRate) else 0.0
