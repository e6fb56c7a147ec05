"""From a cluster's log to a trace: the log says when jobs arrived, how many GPUs they held and for how long.

It does not say what they ran, so a template is drawn for each job; its steps are those the template would make in
the recorded time on the reference type.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gavel.core.errors import InputError
from gavel.limits import LONGEST_SECONDS, SMALLEST, at_most
from gavel.workload.generate import drawn_seconds
from gavel.workload.models import SEPARATOR, type_of, types_of
from gavel.workload.reference import Reference
from gavel.workload.scaled import counted, gpu_hours, scaled_note, shortened
from gavel.workload.trace import Trace, TraceJob

NO_GPU = "used no GPU"
NEVER_RAN = "never ran"
NO_END = "lacked a recorded end"


@dataclass(frozen=True, slots=True)
class Record:
    """One job as recorded in a log."""

    id: str
    submitted: float
    """Seconds; only differences matter."""
    run_seconds: float
    """NaN if the log does not say; then a duration is drawn."""
    gpus: int
    entity: str | None = None
    command: str = ""
    share: float = 0.0
    """What `gpus` was rounded up from; 0 if it was not rounded."""
    models: tuple[str, ...] = ()
    """The GPU models that it may run on; empty: all."""

    @property
    def asked(self) -> float:
        """GPUs as in the log, including fractions."""
        return self.share or float(self.gpus)


@dataclass
class RecordedLog:
    """What was read from a log: jobs that can be replayed, how many cannot and why, and what was assumed."""

    source: str
    records: list[Record] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Add a job if it ran on a GPU at all."""
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
        span = order[-1].submitted - order[0].submitted
        self._check_length(order[-1].id, "was submitted after the first by", span)
        timed = _with_durations(order, seed)
        jobs = _jobs(timed, reference, seed)
        notes = [
            *_drawn_notes(order, reference, seed),
            *(["arrivals were out of order; the jobs were sorted by arrival"] if order != self.records else []),
            *(f"left out {counted(count, 'job')} that {reason}" for reason, count in self.left_out.items()),
            *_size_notes(timed, jobs),
            *scaled_note(jobs, reference.table),
            *_type_notes(order, jobs, reference),
            *_id_notes(order),
            *self.notes,
        ]
        return Trace(tuple(jobs), tuple(notes))

    def _check_length(self, job: str, what: str, seconds: float) -> None:
        """Refuse a duration or arrival beyond what any log can contain."""
        if seconds > LONGEST_SECONDS:
            raise InputError(f"{self.source}: job {job!r} {what} {seconds:g} s; it must be {at_most(LONGEST_SECONDS)}")

    def _check(self) -> None:
        if self.records:
            return
        if not self.left_out:
            raise InputError(f"{self.source} has no jobs")
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        raise InputError(f"{self.source}: none of its {self.left_out.total()} jobs can be replayed: {reasons}")


def _with_durations(order: list[Record], seed: int) -> list[Record]:
    """The records, with drawn durations if the log has none."""
    if not any(math.isnan(record.run_seconds) for record in order):
        return order
    drawn = drawn_seconds(len(order), seed)
    return [
        replace(record, run_seconds=seconds) if math.isnan(record.run_seconds) else record
        for record, seconds in zip(order, drawn, strict=True)
    ]


def _jobs(order: list[Record], reference: Reference, seed: int) -> list[TraceJob]:
    """A job for each record, with a template that runs with its workers on its types."""
    start, ids = order[0].submitted, _unique_ids(record.id for record in order)
    workers = {gpus: reference.workers_for(gpus) for gpus in {record.gpus for record in order}}
    meant = _types_meant(order, reference)
    uniform = np.random.default_rng(seed).random(len(order)).tolist()
    return [
        _job(record, name, start, workers[record.gpus], meant[record.models], reference, position)
        for record, name, position in zip(order, ids, uniform, strict=True)
    ]


def _types_meant(order: list[Record], reference: Reference) -> Mapping[tuple[str, ...], tuple[str, ...] | None]:
    """The types for lists of models; None if the table has none of them."""
    return {models: types_of(models, reference.table.types) or None for models in {record.models for record in order}}


def _job(
    record: Record,
    name: str,
    start: float,
    workers: int,
    types: tuple[str, ...] | None,
    reference: Reference,
    position: float,
) -> TraceJob:
    choices = reference.choices(workers, types)
    template = choices[int(position * len(choices))]
    return TraceJob(
        id=name,
        template=template,
        workers=workers,
        steps=reference.steps(template, workers, record.run_seconds),
        arrival=record.submitted - start,
        entity=_path(record.entity),
        command=record.command,
        types=types,
    )


def _drawn_notes(order: list[Record], reference: Reference, seed: int) -> Iterator[str]:
    untimed = sum(math.isnan(record.run_seconds) for record in order)
    yield (
        f"the log does not say what jobs ran: templates were drawn at random (seed {seed}), and steps are the "
        f"{'duration' if untimed else 'recorded run time'} times the template's rate on {reference.type}"
    )
    if untimed:
        yield (
            f"the file has no times: all jobs arrive at once, and the durations of {counted(untimed, 'job')} were "
            f"drawn as for generated workloads (seed {seed})"
        )


def _size_notes(order: list[Record], jobs: list[TraceJob]) -> Iterator[str]:
    """Sentences about jobs whose number of workers differs from the log's number of GPUs."""
    total = sum(record.asked * record.run_seconds for record in order)
    shares = [record for record in order if record.share]
    if shares:
        more = sum((record.gpus - record.share) * record.run_seconds for record in shares)
        yield (
            f"fractions of a GPU were rounded up to whole GPUs for {counted(len(shares), 'job')}: "
            f"{gpu_hours(more, total)}"
        )
    rounded = [(record, job.workers) for record, job in zip(order, jobs, strict=True) if record.gpus != job.workers]
    if rounded:
        more = sum((workers - record.gpus) * record.run_seconds for record, workers in rounded)
        pairs = dict.fromkeys(f"{gpus} to {workers}" for gpus, workers in sorted({(r.gpus, w) for r, w in rounded}))
        yield (
            f"rounded the GPUs of {counted(len(rounded), 'job')} to a number of workers that the throughput table "
            f"knows: {shortened(pairs)}: {gpu_hours(more, total)}"
        )


def _type_notes(order: list[Record], jobs: list[TraceJob], reference: Reference) -> Iterator[str]:
    """Sentences about the GPU models that jobs were restricted to."""
    bound = [(record, job) for record, job in zip(order, jobs, strict=True) if record.models]
    kept = [(record, job.types) for record, job in bound if job.types]
    if kept:
        every = sorted({name for _, types in kept for name in types})
        known = {model: type_of(model, reference.table.types) for record, _ in kept for model in record.models}
        partly = sum(not all(known[model] for model in record.models) for record, _ in kept)
        other = f"; the table does not have all models of {counted(partly, 'job')} of these" if partly else ""
        yield f"kept the GPU models that {counted(len(kept), 'job')} may run on, as types: {shortened(every)}{other}"
    lost = Counter(SEPARATOR.join(record.models) for record, job in bound if not job.types)
    if lost:
        yield (
            f"the throughput table has none of the GPU models that {counted(lost.total(), 'job')} may run on; these "
            f"may run on every type: {shortened(f'{models} ({count:,})' for models, count in lost.most_common())}"
        )


def _id_notes(order: list[Record]) -> Iterator[str]:
    again = len(order) - len({record.id for record in order})
    if again:
        yield f"{again} job{' repeats an id' if again == 1 else 's repeat an id'} and got a suffix such as #2"


def _path(name: str | None) -> str | None:
    """The name of an entity in a log as a path, without empty parts.

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
