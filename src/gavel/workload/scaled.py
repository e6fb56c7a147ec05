"""Notes for users about jobs whose rates are not in a throughput table, or whose GPU-hours were changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gavel.core.throughputs import ThroughputTable
from gavel.workload.trace import TraceJob

_SHOWN = 6


def scaled_note(jobs: Iterable[TraceJob], table: ThroughputTable) -> Iterator[str]:
    """A sentence about the jobs whose number of workers the table does not list for their template."""
    listed = frozenset(table.profiles)
    scaled = [job.workers for job in jobs if (job.template, job.workers) not in listed]
    if scaled:
        yield (
            f"the throughput table does not list {shortened(map(str, sorted(set(scaled))))} workers, which "
            f"{counted(len(scaled), 'job')} request{'s' * (len(scaled) == 1)}; the rates are scaled from the numbers "
            "that it lists (docs/throughputs.md)"
        )


def gpu_hours(change: float, total: float) -> str:
    """By how much GPU-hours changed, as a share of the total.

    >>> gpu_hours(16.2, 100.0), gpu_hours(-7.0, 100.0), gpu_hours(-0.001, 100.0)
    ('GPU-hours +16.2%', 'GPU-hours -7.0%', 'GPU-hours +0.0%')
    """
    share = round(change / total, 3) + 0.0  # turns -0.0 into 0.0
    return f"GPU-hours {share:+.1%}"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "job"), counted(2092, "job")
    ('1 job', '2,092 jobs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(names: Iterable[str]) -> str:
    """The first few of a list of names.

    >>> shortened("abcdefgh"), shortened("ab")
    ('a, b, c, d, e, f and 2 more', 'a, b')
    """
    every: Sequence[str] = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
