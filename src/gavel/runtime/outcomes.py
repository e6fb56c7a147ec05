"""How jobs and arrays have ended that left the state: read from the journal's table of finished jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gavel.client.dependencies import is_array_id
from gavel.journal.finished import FinishedQuery
from gavel.limits import MOST_JOBS_IN_A_CALL
from gavel.runtime.engine import Engine
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.prerequisites import Ends

CHUNK = 500
"""Jobs read at a time."""


def outcomes(engine: Engine, references: Iterable[str]) -> dict[str, Ends]:
    """How the jobs of each id or array id have ended, as far as all of them have; any thread may ask."""
    wanted = set(references)
    arrays = {each for each in wanted if is_array_id(each)}
    found = {record.id: _ends([record]) for record in _records(engine, map(int, filter(_is_number, wanted - arrays)))}
    for array in arrays:
        if members := list(_members(engine, array)):
            found[array] = _ends(members)
    return {reference: ends for reference, ends in found.items() if not ends.unfinished}


def _members(engine: Engine, array: str) -> Iterator[LiveJobRecord]:
    """The jobs of an array, which were submitted together: their ids follow the one that it is called after.

    Those of an array that was submitted again may lie far apart: other jobs of the same call come between them.
    """
    first = int(array[1:])
    end = min(first + MOST_JOBS_IN_A_CALL, engine.state.jobs.next_number)
    for start in range(first, end, CHUNK):
        for record in _records(engine, range(start, min(start + CHUNK, end))):
            if record.request.array_id == array:
                yield record


def _records(engine: Engine, numbers: Iterable[int]) -> Iterator[LiveJobRecord]:
    """The jobs with these ids that exist."""
    rest = []
    for number in numbers:
        record = engine.records.get(str(number))
        if record is None:
            rest.append(number)
        else:
            yield record
    for start in range(0, len(rest), CHUNK):
        page = engine.journal.finished(FinishedQuery(ids=rest[start : start + CHUNK], limit=CHUNK))
        yield from (LiveJobRecord.of(job.document) for job in page.jobs)


def _is_number(reference: str) -> bool:
    return reference.isascii() and reference.isdecimal() and len(reference) <= 18


def _ends(records: Iterable[LiveJobRecord]) -> Ends:
    ends = Ends()
    for record in sorted(records, key=lambda each: (each.changed, int(each.id))):
        ends = ends.ended(record.id, record.state) if record.finished else Ends(unfinished=1)
        if ends.unfinished:
            break
    return ends
