"""How many CPU cores and how much RAM jobs on this server may use: what the system and our control group allow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gavel.runtime.agent.cgroups import hierarchies

_RESERVE = 0.05
_MOST_RESERVED = 4 * 2**30
_STEP = 64 * 2**20
"""RAM is rounded down to this, so that the figure is the same after every start."""
_UNLIMITED = 2**60


def usable_cores() -> float:
    """The cores that we may use: by our affinity and by the quotas of our control groups."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return round(min([cores, *_quotas()]), 3)


def usable_memory() -> int:
    """The RAM that jobs may use, in bytes: without a small reserve for the system and the agent; 0 if unknown."""
    total = min([*_memory_limits(), *_installed()], default=0)
    left = total - min(int(total * _RESERVE), _MOST_RESERVED)
    return left // _STEP * _STEP


def _installed() -> Iterator[int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("MemTotal:"):
            yield int(line.split()[1]) * 1024


def _quotas() -> Iterator[float]:
    for group in _groups("cpu"):
        text = _text(group / "cpu.max") or f"{_text(group / 'cpu.cfs_quota_us')} {_text(group / 'cpu.cfs_period_us')}"
        quota, _, period = text.partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) and int(quota):
            yield int(quota) / int(period)


def _memory_limits() -> Iterator[int]:
    for group in _groups("memory"):
        limit = _text(group / "memory.max") or _text(group / "memory.limit_in_bytes")
        if limit.isdecimal() and 0 < int(limit) < _UNLIMITED:
            yield int(limit)


def _groups(controller: str) -> Iterator[Path]:
    """Our control group for a controller, and the groups above it."""
    for kind in (controller, ""):
        for root, group in hierarchies(kind):
            yield from (path for path in (group, *group.parents) if path == root or root in path.parents)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
