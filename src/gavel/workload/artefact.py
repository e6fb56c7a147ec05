"""The public Gavel artefact's traces: tab-separated, without a header, with more columns in later versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gavel.core.errors import InputError
from gavel.core.throughputs import ThroughputTable
from gavel.limits import LARGEST, LONGEST_SECONDS, SMALLEST, at_most
from gavel.workload.reference import Reference, gpu_hours_on
from gavel.workload.rows import Row, Source, positional_rows
from gavel.workload.scaled import counted, scaled_note
from gavel.workload.templates import UnknownTemplates
from gavel.workload.trace import Trace, TraceJob

_END = ("total steps", "scale factor", "weight", "SLO", "arrival")
LAYOUTS = {
    10: ("template", "command", "working directory", "steps argument", "needs data dir", *_END),
    9: ("template", "command", "steps argument", "needs data dir", *_END),
    7: ("template", "command", "steps argument", "needs data dir", "total steps", "arrival", "scale factor"),
    6: ("template", "command", "steps argument", "total steps", "arrival", "scale factor"),
}
"""The columns, by their number."""


def read_artefact(source: Source, table: ThroughputTable, reference_type: str) -> Trace:
    """Read an artefact trace unchanged; jobs are numbered in file order, as in the artefact."""
    rows = list(positional_rows(source, LAYOUTS, delimiter="\t", quoted=False, what="a trace of the Gavel artefact"))
    jobs, notes = jobs_of(rows, source, table, reference_type)
    return Trace.of(jobs, notes)


def jobs_of(
    rows: Sequence[Row], source: Source, table: ThroughputTable, reference_type: str
) -> tuple[list[TraceJob], list[str]]:
    """The jobs of rows with the artefact's columns, in the order of the rows, and what was changed."""
    reader, unknown = _Reader(table, reference_type), UnknownTemplates(source.name, table)
    if not rows:
        raise InputError(f"{source.name} has no jobs; it needs one line per job")
    jobs = [reader.job(row, number) for number, row in enumerate(rows) if unknown.knows(row["template"].filled(), row)]
    unknown.check()
    return jobs, [*reader.notes(jobs), *scaled_note(jobs, table)]


@dataclass
class _Reader:
    """Reads the jobs of one file and remembers what it changed."""

    table: ThroughputTable
    reference_type: str
    rounded: dict[str, set[str]] = field(default_factory=dict)
    """By template, the jobs that got another number of workers than they requested."""

    def job(self, row: Row, number: int) -> TraceJob:
        template, command, weight = row["template"].text, row["command"].text, row["weight"]
        name = f"job{number}"
        workers = self._workers(row, template, name)
        steps = row["total steps"].number("a number of steps; give one greater than 0", positive=True)
        return TraceJob(
            id=name,
            template=template,
            workers=workers,
            steps=steps,
            arrival=row["arrival"].seconds("an arrival; give seconds from the start of the trace, 0 or more"),
            weight=weight.number("a weight; give a number greater than 0", positive=True) if weight.text else 1.0,
            deadline_seconds=self._deadline(row, template, workers, steps),
            command="" if command == "-" else command,
        )

    def notes(self, jobs: Sequence[TraceJob]) -> Iterator[str]:
        """Notes on what was changed; without a rate, the GPU-hours a job would have had are unknown."""
        for name, rounded in self.rounded.items():
            yield (
                f"the throughput table lists template {name!r} only with {_or(self._known[name])}; "
                f"{counted(len(rounded), 'job')} with other counts run{'s' * (len(rounded) == 1)} with the nearest of "
                f"these and the same steps{self._affected(rounded, jobs)}"
            )

    def _affected(self, rounded: set[str], jobs: Sequence[TraceJob]) -> str:
        """The rounded jobs' fraction of the trace's work."""
        if self.reference_type not in self.table.types:
            return ""
        total = gpu_hours_on(self._reference, jobs)
        theirs = gpu_hours_on(self._reference, [job for job in jobs if job.id in rounded])
        return f": {theirs / total:.1%} of all GPU-hours on {self.reference_type}" if total else ""

    def _workers(self, row: Row, template: str, job: str) -> int:
        """The row's number if there are rates for it, listed or scaled; else the nearest listed number."""
        wanted = row["scale factor"].count("a number of workers; give 1 or more", least=1)
        if wanted in self._known[template] or self.table.can_scale(template, wanted):
            return wanted
        self.rounded.setdefault(template, set()).add(job)
        return min(self._known[template], key=lambda known: (abs(known - wanted), -known))

    def _deadline(self, row: Row, template: str, workers: int, steps: float) -> float | None:
        """Convert the artefact's SLO, a multiple of the job's duration on a V100; negative means none."""
        cell = row["SLO"]
        factor = (
            cell.number("a multiple of the job's duration; give -1 for none", least=-LARGEST) if cell.text else -1.0
        )
        if factor < 0:
            return None
        rate = self._reference.rate(template, workers)
        if not factor or not rate:
            raise cell.refuse(f"an SLO of a job that makes {rate:g} steps per second on {self.reference_type}")
        deadline = factor * steps / rate
        if not SMALLEST <= deadline <= LONGEST_SECONDS:
            raise cell.refuse(f"an SLO of a job of {steps / rate:g} s: a deadline is {at_most(LONGEST_SECONDS)}")
        return deadline

    @cached_property
    def _known(self) -> dict[str, tuple[int, ...]]:
        return {template: self.table.workers(template) for template in self.table.templates}

    @cached_property
    def _reference(self) -> Reference:
        return Reference.of(self.table, self.reference_type)


def _or(counts: tuple[int, ...]) -> str:
    return f"{' or '.join(map(str, counts))} worker{'' if counts == (1,) else 's'}"
