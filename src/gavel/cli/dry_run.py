"""`gavel submit --dry-run`: what would be sent, after defaults, options, extended files and expansion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import groupby, islice
from typing import Any

from gavel.cli.render import print_json
from gavel.cli.words import printable, said_command
from gavel.client.arrays import Indices, expanded, size_of
from gavel.client.dependencies import Dependency
from gavel.client.field_checks import nearest, shortened
from gavel.client.quantities import duration, size
from gavel.client.requests import JobRequest
from gavel.errors import InputError

SHOWN_REQUESTS = 10
SHOWN_MEMBERS = 5
_DURATIONS = ("grace", "time_limit", "idle_timeout")
_SIZES = ("gpu_memory", "memory")
_NOTHING: tuple[object, ...] = (None, "", False, 0, [], {})


def check_names(jobs: Sequence[JobRequest]) -> None:
    """Refuse dependencies on names that the same submission does not have, and jobs that wait for each other."""
    called: dict[str, set[int]] = {}
    for number, job in enumerate(jobs):
        for name in _names(job):
            called.setdefault(name, set()).add(number)
    waits: dict[int, set[int]] = {}
    for number, job in enumerate(jobs):
        references = [each.reference for each in map(Dependency.of, job.after) if not each.by_id]
        for reference in references:
            if reference not in called:
                known = nearest(reference, called) if called else "none of its jobs has a name"
                raise InputError(
                    f"after: {shortened(reference)} is no id, and no job of this submission has that name; {known}"
                )
        waits[number] = set().union(*(called[reference] for reference in references))
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        way = " → ".join(repr(jobs[number].name) for number in reversed(error.args[1]))
        raise InputError(f"these jobs wait for each other, so none could ever start: {way}") from None


def _names(job: JobRequest) -> set[str]:
    """Its name, and those of the jobs that it stands for."""
    if not job.name or not (job.array or job.grid) or "{" not in job.name:
        return {job.name} - {""}
    return {job.name, *(member.name for member in expanded(job.submission(), ""))}


def show(jobs: Sequence[JobRequest], *, as_json: bool) -> None:
    """Print what would be sent: a job file with comments, or a document."""
    total = sum(size_of(job.submission()) for job in jobs)
    if as_json:
        listed = [{**job.document(), "stands_for": size_of(job.submission()), "first": _first(job)} for job in jobs]
        print_json({"sent": False, "count": total, "jobs": listed})
        return
    print(printable("\n".join(_lines(jobs, total))))


def _lines(jobs: Sequence[JobRequest], total: int) -> Iterator[str]:
    from yaml import safe_dump  # noqa: PLC0415 - loaded only where it is used

    yield f"# {total:,} {'job' if total == 1 else 'jobs'} would be submitted; nothing was sent"
    groups = [(job, len(list(copies))) for job, copies in groupby(jobs)]
    for job, copies in groups[:SHOWN_REQUESTS]:
        document = {**_document(job), **({"count": copies} if copies > 1 else {})}
        yield ""
        yield from (f"# {line}" for line in _members(job))
        yield safe_dump([document], sort_keys=False, allow_unicode=True, width=1000).rstrip("\n")
    if len(groups) > SHOWN_REQUESTS:
        yield f"\n# and {len(groups) - SHOWN_REQUESTS:,} more; --json shows all"


def _document(job: JobRequest) -> dict[str, Any]:
    """The fields that say something, as files write them."""
    given = {name: value for name, value in job.document().items() if value not in _NOTHING or name == "retries"}
    for name in (*_DURATIONS, *_SIZES):
        if name in given:
            given[name] = duration(given[name]) if name in _DURATIONS else size(given[name])
    return given


def _members(job: JobRequest) -> Iterator[str]:
    """The first jobs of an array or a grid."""
    count = size_of(job.submission())
    if not (job.array or job.grid):
        return
    most = job.at_once or (Indices.of(job.array).at_once if job.array else 0)
    yield f"{count:,} jobs{f', at most {most:,} at once' if most else ''}:"
    for member in _first(job):
        yield "  " + "  ".join(filter(None, [str(member["index"]), member["name"], member["command"]]))
    if count > SHOWN_MEMBERS:
        yield f"  and {count - SHOWN_MEMBERS:,} more"


def _first(job: JobRequest) -> list[dict[str, Any]]:
    """The first jobs that a request stands for; none if it is one job."""
    if not (job.array or job.grid):
        return []
    members = [each.request() for each in islice(expanded(job.submission(), ""), SHOWN_MEMBERS)]
    return [
        {"index": each.index, "parameters": dict(each.parameters), "name": each.name, "command": said_command(each)}
        for each in members
    ]
