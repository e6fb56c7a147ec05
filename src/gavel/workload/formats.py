"""Trace files: the known formats, how each is recognised by content, and reading any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gavel.core.errors import InputError
from gavel.core.throughputs import ThroughputTable
from gavel.workload import alibaba, artefact, helios, native, philly, shockwave, sia, slurm
from gavel.workload.recorded import RecordedLog
from gavel.workload.reference import Reference
from gavel.workload.rows import Source
from gavel.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class Context:
    """What reading may need besides the file."""

    table: ThroughputTable
    seed: int
    reference_type: str


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of trace file."""

    description: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source, Context], Trace]


def read_trace(
    file: Path | Source,
    *,
    table: ThroughputTable,
    format: str | None = None,  # noqa: A002 (the name on the command line)
    seed: int = 0,
    reference_type: str = "v100",
) -> Trace:
    """Read a trace in any known format; `seed` and `reference_type` matter if a log does not say what jobs ran."""
    source = _source(file)
    kind = FORMATS[_known(format) if format else _recognised(source)]
    return kind.read(source, Context(table, seed, reference_type))


def recognise(file: Path | Source) -> str:
    """The name of a file's format."""
    return _recognised(_source(file))


def _source(file: Path | Source) -> Source:
    return file if isinstance(file, Source) else Source.of(file)


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace in our own format."""
    native.write_native(trace, path)


def _recognised(source: Source) -> str:
    if not source.text.strip():
        raise InputError(f"{source.name} is empty; a trace has at least one job")
    for name, kind in FORMATS.items():
        if kind.recognises(source):
            return name
    for separator, called in {";": "semicolons", "\t": "tabs", "|": "bars"}.items():
        if source.columns(separator).issuperset(native.REQUIRED):
            raise InputError(f"{source.name}: its columns are separated by {called}; our own format uses commas")
    known = "; ".join(f"{name} ({kind.description})" for name, kind in FORMATS.items())
    raise InputError(f"{source.name}: its format is not recognised; name it with --format, one of: {known}")


def _known(name: str) -> str:
    if name not in FORMATS:
        raise InputError(f"there is no trace format {name!r}; known are: {', '.join(FORMATS)}")
    return name


def _named(*columns: str, delimiter: str = ",", at_least: int | None = None) -> Callable[[Source], bool]:
    """Whether the first line names these columns, or at least some of them."""
    needed = len(columns) if at_least is None else at_least

    def recognises(source: Source) -> bool:
        return len(source.columns(delimiter) & set(columns)) >= needed

    return recognises


def _is_artefact(source: Source) -> bool:
    return source.first_line().count("\t") + 1 in artefact.LAYOUTS


def _is_philly(source: Source) -> bool:
    return source.text.lstrip()[:1] in {"[", "{"}


def _is_pai(source: Source) -> bool:
    first = source.first_line().split(",")
    headless = len(first) in {6, 10} and first[3] in alibaba.STATUSES
    return headless or {"job_name", "plan_gpu"} <= set(first) or {"job_name", "inst_id", "user"} <= set(first)


def _is_pod_list(source: Source) -> bool:
    columns = source.columns()
    return columns.issuperset(("num_gpu", "creation_time")) or columns.issuperset(alibaba.UNTIMED_PODS)


def _log(read: Callable[[Source], RecordedLog]) -> Callable[[Source, Context], Trace]:
    """The reader of a cluster's log, whose templates are drawn at random."""
    return lambda source, context: read(source).trace(Reference.of(context.table, context.reference_type), context.seed)


FORMATS = {
    "artefact": Format(
        "tab-separated traces of the public Gavel artefact, 10, 9, 7 or 6 columns",
        _is_artefact,
        lambda source, context: artefact.read_artefact(source, context.table, context.reference_type),
    ),
    "slurm": Format("sacct -P with a header", _named("JobID", delimiter="|"), _log(slurm.read_slurm)),
    "philly": Format("Microsoft Philly cluster_job_log, JSON", _is_philly, _log(philly.read_philly)),
    "alibaba-2020": Format("Alibaba PAI pai_task_table, CSV", _is_pai, _log(alibaba.read_tasks)),
    "alibaba-2023": Format("Alibaba openb_pod_list, CSV", _is_pod_list, _log(alibaba.read_pods)),
    "sia": Format("Sia's job lists (timestamp, duration, num_gpus), CSV", _named(*sia.REQUIRED), _log(sia.read_sia)),
    "helios": Format("Helios cluster_log, CSV", _named(*helios.REQUIRED), _log(helios.read_helios)),
    "shockwave": Format(
        "tab-separated traces of Shockwave, 12 columns",
        lambda source: source.first_line().count("\t") + 1 == len(shockwave.COLUMNS),
        lambda source, context: shockwave.read_shockwave(source, context.table, context.reference_type),
    ),
    "gavel": Format(
        f"CSV with the columns {', '.join(native.REQUIRED)} and more",
        _named(*native.COLUMNS, at_least=2),
        lambda source, context: native.read_native(source, context.table),
    ),
}
"""Every format by name. The first that recognises a file is used."""
