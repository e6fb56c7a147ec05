"""From a cluster's log to a trace: the log says when jobs came, how many GPUs they held and for how long.

It does not say what they ran, so a template is drawn for each job; its steps are what that template would do in the
recorded time on the reference type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from gavel.core.errors import InputError
from gavel.limits import LONGEST_SECONDS, SMALLEST, at_most
from gavel.workload.reference import Reference
from gavel.workload.trace import Trace, TraceJob

_SHOWN = 6

NO_GPU = "used no GPU"
NEVER_RAN = "never ran"
NO_END = "did not end on record"


@dataclass(frozen=True, slots=True)
class Record:
    """One job as a log tells of it."""

    id: str
    submitted: float
    """Seconds; only differences matter."""
    run_seconds: float
    gpus: int
    entity: str | None = None
    command: str = ""


@dataclass
class Log:
    """What was read from a log: jobs that can be replayed, how many cannot and why, and what was assumed."""

    source: str
    records: list[Record] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Take a job if it ran on a GPU at all."""
        if record.gpus < 1:
            self.left_out[NO_GPU] += 1
        elif record.run_seconds < SMALLEST:
            self.left_out[NEVER_RAN] += 1
        else:
            self._check_length(record.id, "ran for", record.run_seconds)
            self.records.append(record)

    def leave_out(self, reason: str) -> None:
        """Count a job that cannot be replayed."""
        self.left_out[reason] += 1

    def trace(self, reference: Reference, seed: int) -> Trace:
        """The jobs from the first arrival on, with drawn templates."""
        self._check()
        order = sorted(self.records, key=lambda record: record.submitted)
        sorted_already = order == self.records
        start = order[0].submitted
        self._check_length(order[-1].id, "was submitted after the first by", order[-1].submitted - start)
        ids = _unique_ids(record.id for record in order)
        workers = {gpus: reference.nearest_workers(gpus) for gpus in sorted({record.gpus for record in order})}
        uniform = np.random.default_rng(seed).random(len(order)).tolist()
        jobs = []
        for index, record in enumerate(order):
            count = workers[record.gpus]
            choices = reference.templates(count)
            template = choices[int(uniform[index] * len(choices))]
            jobs.append(
                TraceJob(
                    id=ids[index],
                    template=template,
                    workers=count,
                    steps=reference.steps(template, count, record.run_seconds),
                    arrival=record.submitted - start,
                    entity=_path(record.entity),
                    command=record.command,
                )
            )
        return Trace(tuple(jobs), (*self._notes(order, workers, reference, seed, sorted_already),))

    def _check_length(self, job: str, what: str, seconds: float) -> None:
        """Refuse what adds up to more than any log can tell of."""
        if seconds > LONGEST_SECONDS:
            raise InputError(f"{self.source}: job {job!r} {what} {seconds:g} s; it must be {at_most(LONGEST_SECONDS)}")

    def _check(self) -> None:
        if self.records:
            return
        if not self.left_out:
            raise InputError(f"{self.source} has no jobs")
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        raise InputError(f"{self.source}: none of its {self.left_out.total()} jobs can be replayed: {reasons}")

    def _notes(
        self, order: list[Record], workers: dict[int, int], reference: Reference, seed: int, sorted_already: bool
    ) -> Iterable[str]:
        yield (
            f"the log does not say what jobs ran: templates were drawn at random (seed {seed}), and steps are the "
            f"recorded run time times the template's rate on {reference.type}"
        )
        if not sorted_already:
            yield "arrivals were out of order; the jobs were sorted by arrival"
        for reason, count in self.left_out.items():
            yield f"left out {count} job{'' if count == 1 else 's'} that {reason}"
        rounded = {gpus: count for gpus, count in workers.items() if gpus != count}
        if rounded:
            jobs = sum(record.gpus in rounded for record in order)
            pairs = [f"{gpus} to {count}" for gpus, count in rounded.items()]
            more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
            yield (
                f"rounded the GPUs of {jobs} job{'' if jobs == 1 else 's'} to a number of workers that the throughput "
                f"table knows: {', '.join(pairs[:_SHOWN])}{more}"
            )
        again = len(order) - len({record.id for record in order})
        if again:
            yield f"{again} job{' repeats an id' if again == 1 else 's repeat an id'} and got a suffix such as #2"
        yield from self.notes


def _path(name: str | None) -> str | None:
    """Whoever a log names as a path of entities: empty parts are left out.

    >>> _path("/groups//vision"), _path("/"), _path(None)
    ('groups/vision', None, None)
    """
    return "/".join(part for part in name.split("/") if part) or None if name else None


def _unique_ids(ids: Iterable[str]) -> list[str]:
    taken: set[str] = set()
    repeats: Counter[str] = Counter()
    found = []
    for name in ids:
        unique = name
        while unique in taken:
            repeats[name] += 1
            unique = f"{name}#{repeats[name] + 1}"
        taken.add(unique)
        found.append(unique)
    return found
