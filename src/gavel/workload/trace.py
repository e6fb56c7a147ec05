"""A trace: the jobs that arrive, in order of arrival. It knows nothing of files, clusters or policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from gavel.core.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job as it arrives."""

    id: str
    template: str
    """What it runs: a key of the throughput table."""
    workers: int
    steps: float
    """Total number of steps."""
    arrival: float
    """Seconds from the start of the trace."""
    weight: float = 1.0
    entity: str | None = None
    deadline_seconds: float | None = None
    """Seconds after its arrival by which it should finish; None if there is no deadline."""
    command: str = ""
    """As the trace gives it; for people only."""
    types: tuple[str, ...] | None = None
    """Where it may run; None: on every type."""

    def spec(self, types: tuple[str, ...] | None = None) -> JobSpec:
        """The job as submitted to a scheduler; with `types`, restricted to those among them that it may run on."""
        both = types if self.types is None else tuple(name for name in self.types if types is None or name in types)
        return JobSpec(
            self.id, self.template, self.workers, self.steps, self.weight, self.entity, self.deadline_seconds, both
        )

    def may_run_on(self, type_name: str) -> bool:
        """Whether its types include this one."""
        return self.types is None or type_name in self.types


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs sorted by arrival; jobs with the same arrival keep their order.

    >>> late, early = TraceJob("b", "A3C", 1, 10.0, arrival=5.0), TraceJob("a", "A3C", 1, 10.0, arrival=0.0)
    >>> trace = Trace.of([late, early])
    >>> [job.id for job in trace.jobs], trace.notes
    (['a', 'b'], ('arrivals were out of order; the jobs were sorted by arrival',))
    """

    jobs: tuple[TraceJob, ...]
    notes: tuple[str, ...] = ()
    """What was assumed or corrected, as sentences for the user."""

    @classmethod
    def of(cls, jobs: Iterable[TraceJob], notes: Iterable[str] = ()) -> Trace:
        """The jobs in order of arrival, with a note if they were not."""
        given, said = tuple(jobs), tuple(notes)
        if any(one.arrival > other.arrival for one, other in pairwise(given)):
            given = tuple(sorted(given, key=attrgetter("arrival")))
            said += ("arrivals were out of order; the jobs were sorted by arrival",)
        return cls(given, said)
