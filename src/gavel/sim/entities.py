"""The entities that own the jobs: given by name, or in a file with their weights and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gavel.core.errors import InputError
from gavel.core.jobs import Entity
from gavel.core.problem_file import Entities, parse_entities
from gavel.workload.rows import Source
from gavel.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class WorkloadEntities:
    """The entities of one simulation."""

    source: str = ""
    """The file that describes the entities, if there is one."""
    declared: Entities | None = None
    """The entities of the file; if given, jobs may belong only to these."""
    names: tuple[str, ...] = ()
    """The entities that own generated jobs, in turn."""

    def named_by(self, trace: Trace) -> dict[str, Entity]:
        """The entities that own the trace's jobs; those not described have weight 1 and share fairly."""
        described: Mapping[str, Entity] = self.declared.described if self.declared else {}
        return {job.entity: Entity() for job in trace.jobs if job.entity} | dict(described)

    def resolved(self, trace: Trace) -> Trace:
        """The trace with the full path of every entity; raise InputError if the file does not describe one."""
        known = self.declared or Entities({}, {})
        path_of = {name: known.path_of(name, f"{self._where}job {job!r}") for name, job in _first_jobs(trace).items()}
        if all(name == path for name, path in path_of.items()):
            return trace
        jobs = (replace(job, entity=path_of[job.entity]) if job.entity else job for job in trace.jobs)
        return replace(trace, jobs=tuple(jobs))

    @property
    def _where(self) -> str:
        return f"{self.source}: " if self.source else ""


def read_entities(text: str | None) -> WorkloadEntities:
    """Read entities from "a,b/c", or from a JSON file with the content of "entities" in a problem file.

    >>> read_entities("research, product").names
    ('research', 'product')
    """
    if text is None:
        return WorkloadEntities()
    if names_a_file(text):
        return _from_file(text)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise InputError("no entity is named; give names with commas between them, or a JSON file")
    return WorkloadEntities(names=names)


def names_a_file(text: str) -> bool:
    """Whether a text names a file: it ends in .json, or there is a file of that name."""
    return text.endswith(".json") or ("," not in text and Path(text).exists() and not Path(text).is_dir())


def _from_file(name: str) -> WorkloadEntities:
    text = Source.of(Path(name)).text
    try:
        declared = parse_entities(text)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if not declared.described:
        raise InputError(f'{name} describes no entity; write for example {{"research": {{"weight": 2}}}}')
    inner = {above for path in declared.described for above in _ancestors(path)}
    return WorkloadEntities(name, declared, tuple(path for path in declared.described if path not in inner))


def _ancestors(path: str) -> list[str]:
    """
    >>> _ancestors("company/research/nlp")
    ['company', 'company/research']
    """
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _first_jobs(trace: Trace) -> dict[str, str]:
    """By entity: the first job that names it."""
    found: dict[str, str] = {}
    for job in trace.jobs:
        if job.entity:
            found.setdefault(job.entity, job.id)
    return found
