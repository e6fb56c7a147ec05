"""How the scheduler reads a query: in memory and in the journal's table alike."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.requests import Submission
from gavel.client.views import FINISHED, JobState, Transition
from gavel.errors import InputError
from gavel.journal import FinishedJobRow, Journal
from gavel.limits import MOST_PATTERNS, MOST_RANGES
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.selecting import among_finished, check_query, exact, matcher, selects
from gavel.wire import gavel_pb2 as pb
from journal_places import file_place

NAMES = ("", "resnet", "resnet-50", "50%_", "é-run", "[a]", "\\x", "a" * 30)
PATTERNS = ("resnet*", "*", "?-run", "é*", "*%_", "[[]a]", "[a]", "\\*", "[!r]*", "RESNET", "*[0-9]", "a*a*a", "none")
ENDS = sorted(FINISHED)


def record(number: int) -> LiveJobRecord:
    array = f"a{number - number % 5}" if number % 3 == 0 and number >= 5 else ""
    request = Submission(
        command=("train",),
        name=NAMES[number % len(NAMES)],
        tags={"x": str(number % 2)} if number % 4 else {},
        user="ada" if number % 3 else "bob",
        array_id=array,
        index=number % 5 if array else None,
    )
    history = (Transition(float(number * 7 % 20), ENDS[number % 3], ""),)
    return LiveJobRecord(id=str(number), request=request, submitted=0.0, history=history)


RECORDS = [record(number) for number in range(1, 61)]
queries = st.builds(
    pb.JobQuery,
    states=st.lists(st.sampled_from([pb.COMPLETED, pb.FAILED, pb.CANCELLED, pb.QUEUED]), max_size=2),
    name_patterns=st.lists(st.sampled_from(PATTERNS), max_size=3),
    tags=st.dictionaries(st.just("x"), st.sampled_from("012")),
    arrays=st.lists(st.sampled_from(["a5", "a30", "a999"]), max_size=2),
    ids=st.lists(st.integers(1, 70).map(str), max_size=3),
    ranges=st.lists(
        st.builds(
            lambda a, b: pb.IdRange(first=min(a, b), last=max(a, b)), st.integers(0, 70), st.integers(0, 2**64 - 1)
        )
        | st.builds(lambda a, b: pb.IdRange(first=min(a, b), last=max(a, b)), st.integers(0, 70), st.integers(0, 70)),
        max_size=3,
    ),
    user=st.sampled_from(["", "ada", "eve"]),
    ended_after=st.sampled_from([0.0, 5.0]),
)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    rows = [
        FinishedJobRow(
            id=int(each.id),
            state=each.state,
            name=each.request.name,
            template="",
            entity="",
            user=each.request.user,
            submitted=0.0,
            ended=each.changed,
            document=each.document(),
        )
        for each in RECORDS
    ]
    with file_place(tmp_path_factory.mktemp("selecting")).open() as found:
        found.keep({}, 0, rows)
        yield found


def written_out(query: pb.JobQuery, job: LiveJobRecord) -> bool:
    """Whether a query matches a job, word by word as the protocol says it."""
    request, number = job.request, int(job.id)
    placed = query.ids or query.arrays or query.ranges
    here = job.id in query.ids or request.array_id in query.arrays
    here |= any(each.first <= number <= each.last for each in query.ranges)
    numbers = {JobState.COMPLETED: pb.COMPLETED, JobState.FAILED: pb.FAILED, JobState.CANCELLED: pb.CANCELLED}
    return bool(
        (not placed or here)
        and (not query.states or numbers[job.state] in query.states)
        and (not query.user or request.user == query.user)
        and (
            not query.name_patterns
            or any(request.name == each or fnmatchcase(request.name, each) for each in query.name_patterns)
        )
        and all(request.tags.get(name) == value for name, value in query.tags.items())
        and job.changed >= query.ended_after
    )


@given(queries)
def test_the_journal_and_the_memory_select_what_the_query_says(journal: Journal, query: pb.JobQuery) -> None:
    expected = [job.id for job in RECORDS if written_out(query, job)]
    wanted = matcher(query)
    assert [job.id for job in RECORDS if wanted(job)] == expected
    assert selects(query) or query.ended_after or len(expected) == len(RECORDS)
    if set(query.states) == {pb.QUEUED}:
        return  # of finished jobs, the scheduler asks for none
    page = journal.finished(among_finished(query, 1000, None))
    found = [LiveJobRecord.of(row.document) for row in page.jobs]
    assert sorted((job.id for job in found if wanted(job)), key=int) == expected
    if exact(query):
        assert len(found) == len(expected), "a page of the table is a page of the answer"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_journal_finds_every_name_that_a_pattern_matches(journal: Journal, pattern: str) -> None:
    found = journal.finished(among_finished(pb.JobQuery(name_patterns=[pattern]), 1000, None)).jobs
    assert {job.name for job in found} >= {name for name in NAMES if fnmatchcase(name, pattern)}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (pb.JobQuery(ranges=[pb.IdRange(first=1, last=2)] * (MOST_RANGES + 1)), "1,001 ranges in one call"),
        (pb.JobQuery(name_patterns=["x"] * (MOST_PATTERNS + 1)), "33 patterns in one call"),
        (pb.JobQuery(name_patterns=["x" * 201]), "a pattern for names has 201 characters"),
        (pb.JobQuery(arrays=["38"]), "there is no array '38'"),
        (pb.JobQuery(arrays=["a" + "9" * 9000]), "there is no array"),
    ],
)
def test_a_query_that_would_take_too_long_or_means_nothing_is_refused(query: pb.JobQuery, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_query(query)
