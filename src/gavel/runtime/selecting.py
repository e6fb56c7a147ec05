"""Which jobs a query matches: the one reading of `JobQuery`, for records in memory and for the journal's table."""

from __future__ import annotations

from collections.abc import Callable

from gavel.client.dependencies import is_array_id
from gavel.client.field_checks import check_label, shortened
from gavel.client.messages import from_states
from gavel.client.selection import Selection, has_tags, merged
from gavel.client.views import FINISHED
from gavel.core.errors import InputError
from gavel.journal.finished import FinishedQuery
from gavel.limits import MOST_IDS_IN_A_CALL, MOST_JOBS_IN_A_CALL, MOST_PATTERNS, MOST_RANGES, MOST_TAGS
from gavel.runtime.jobs import LiveJobRecord
from gavel.wire import gavel_pb2 as pb

LARGEST_ID = 2**62
"""Above every id, and not too large for a database."""
LONGEST_ARRAY_ID = 19
MOST_BETWEEN = 100
"""Ranges of ids that a database is asked for; instead of more, it gets the one around them."""


def check_query(query: pb.JobQuery) -> None:
    """Raise InputError for a query that would take too long to answer."""
    most = {
        "ids": (len(query.ids), MOST_IDS_IN_A_CALL),
        "ranges": (len(query.ranges), MOST_RANGES),
        "arrays": (len(query.arrays), MOST_RANGES),
        "patterns": (len(query.name_patterns), MOST_PATTERNS),
        "tags": (len(query.tags), MOST_TAGS),
    }
    for what, (count, limit) in most.items():
        if count > limit:
            raise InputError(f"{count:,} {what} in one call; give at most {limit:,} at a time")
    for pattern in query.name_patterns:
        check_label("a pattern for names", pattern)
    for array in query.arrays:
        if not is_array_id(array) or len(array) > LONGEST_ARRAY_ID:
            raise InputError(f"there is no array {shortened(array)}")


def selects(query: pb.JobQuery) -> bool:
    """Whether a query leaves jobs out for another reason than that they ended long ago."""
    lists = (query.ids, query.states, query.names, query.name_patterns, query.tags, query.arrays, query.ranges)
    return any(lists) or bool(query.entity or query.user)


def matcher(query: pb.JobQuery) -> Callable[[LiveJobRecord], bool]:
    """A test for records: whether a query matches them."""
    names, entity = set(query.names), query.entity
    states = from_states(query.states)
    selected = Selection(
        ids=tuple(query.ids),
        ranges=tuple((each.first, each.last) for each in query.ranges),
        arrays=tuple(query.arrays),
        names=tuple(query.name_patterns),
        user=query.user,
    ).test()
    tags = dict(query.tags)

    def wanted(record: LiveJobRecord) -> bool:
        request = record.request
        return (
            (not states or record.state in states)
            and (not names or request.name in names)
            and (not entity or request.entity == entity)
            and has_tags(request.tags, tags)
            and selected(record.id, request, record.state)
            and (not record.finished or record.changed >= query.ended_after)
        )

    return wanted


def among_finished(query: pb.JobQuery, limit: int, after: tuple[float, int] | None) -> FinishedQuery:
    """The query for the journal's table of finished jobs. It may find more: `matcher` decides."""
    return FinishedQuery(
        states=[state for state in from_states(query.states) if state in FINISHED],
        names=list(query.names),
        patterns=list(query.name_patterns),
        between=_id_ranges(query),
        entity=query.entity or None,
        user=query.user or None,
        ended_after=query.ended_after or None,
        limit=limit,
        after=after,
    )


def exact(query: pb.JobQuery) -> bool:
    """Whether the journal's table can answer a query without `matcher`."""
    return not (query.ids or query.name_patterns or query.tags or query.arrays or query.ranges)


def _id_ranges(query: pb.JobQuery) -> list[tuple[int, int]]:
    """Where the ids are. The ids of an array follow each other, from the one that it is named after."""
    ids = [(int(each), int(each)) for each in query.ids]
    arrays = [int(each[1:]) for each in query.arrays]
    ranges = [(min(each.first, LARGEST_ID), min(each.last, LARGEST_ID)) for each in query.ranges]
    found = merged([*ids, *ranges, *((first, first + MOST_JOBS_IN_A_CALL - 1) for first in arrays)])
    return found if len(found) <= MOST_BETWEEN else [(found[0][0], found[-1][1])]
