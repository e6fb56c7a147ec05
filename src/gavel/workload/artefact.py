"""The public Gavel artefact's traces: tab-separated, no header, and more columns over the years."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from gavel.core.errors import InputError
from gavel.core.throughputs import ThroughputTable
from gavel.limits import LARGEST, LONGEST_SECONDS, SMALLEST, at_most
from gavel.workload.reference import Reference
from gavel.workload.rows import Row, Source, positional_rows
from gavel.workload.templates import UnknownTemplates
from gavel.workload.trace import Trace, TraceJob

_END = ("total steps", "scale factor", "weight", "SLO", "arrival")
LAYOUTS = {
    10: ("template", "command", "working directory", "steps argument", "needs data dir", *_END),
    9: ("template", "command", "steps argument", "needs data dir", *_END),
    7: ("template", "command", "steps argument", "needs data dir", "total steps", "arrival", "scale factor"),
    6: ("template", "command", "steps argument", "total steps", "arrival", "scale factor"),
}
"""What the columns are, by how many there are."""


def read_artefact(source: Source, table: ThroughputTable, reference_type: str) -> Trace:
    """Read a trace of the artefact as it is; jobs are numbered in the order of the file, as the artefact does."""
    reader, unknown = _Reader(table, reference_type), UnknownTemplates(source.name, table)
    rows = list(positional_rows(source, LAYOUTS, delimiter="\t", quoted=False, what="a trace of the Gavel artefact"))
    if not rows:
        raise InputError(f"{source.name} has no jobs; it needs one line for each")
    jobs = [reader.job(row, number) for number, row in enumerate(rows) if unknown.knows(row["template"].filled(), row)]
    unknown.check()
    return Trace.of(jobs, reader.notes())


@dataclass
class _Reader:
    """Reads the jobs of one file and remembers what it changed."""

    table: ThroughputTable
    reference_type: str
    rounded: Counter[str] = field(default_factory=Counter)
    """How many jobs of each template got a number of workers that they did not ask for."""

    def job(self, row: Row, number: int) -> TraceJob:
        template, command, weight = row["template"].text, row["command"].text, row["weight"]
        workers = self._workers(row, template)
        steps = row["total steps"].number("a number of steps; give one greater than 0", positive=True)
        return TraceJob(
            id=f"job{number}",
            template=template,
            workers=workers,
            steps=steps,
            arrival=row["arrival"].seconds("an arrival; give seconds from the start of the trace, 0 or more"),
            weight=weight.number("a weight; give a number greater than 0", positive=True) if weight.text else 1.0,
            deadline_seconds=self._deadline(row, template, workers, steps),
            command="" if command == "-" else command,
        )

    def notes(self) -> list[str]:
        return [
            f"the throughput table knows template {name!r} only with {_or(self._known[name])}; {count} "
            f"job{' that wanted others runs' if count == 1 else 's that wanted others run'} with the nearest of these "
            "and the same steps"
            for name, count in self.rounded.items()
        ]

    def _workers(self, row: Row, template: str) -> int:
        wanted = row["scale factor"].count("a number of workers; give 1 or more", least=1)
        nearest = min(self._known[template], key=lambda known: (abs(known - wanted), -known))
        if nearest != wanted:
            self.rounded[template] += 1
        return nearest

    def _deadline(self, row: Row, template: str, workers: int, steps: float) -> float | None:
        """The artefact's SLO is a multiple of the job's duration on a V100; negative is none."""
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
