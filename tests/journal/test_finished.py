"""Finished jobs are filtered, sorted and paged by the database, at a cost that their number does not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.views import JobState
from gavel.journal import FinishedJobRow, FinishedPage, FinishedQuery, Journal, open_read_only
from gavel.journal import finished as module
from journal_places import Place, file_place

STATES, NAMES, PEOPLE = ("completed", "failed", "cancelled"), ("a", "b", "c"), ("u", "v")
JOBS = [
    FinishedJobRow(
        id=number,
        state=STATES[number % 3],
        name=NAMES[number % 7 % 3],
        template="t",
        entity=PEOPLE[number % 5 % 2],
        user=PEOPLE[number % 2],
        submitted=0.0,
        ended=float(number * 7 % 20),
        document={"id": str(number)},
    )
    for number in range(1, 41)
]


def expected(query: FinishedQuery) -> list[FinishedJobRow]:
    """The same, one job at a time."""
    found = [
        job
        for job in JOBS
        if (not query.ids or job.id in query.ids)
        and (not query.states or job.state in query.states)
        and (not query.names or job.name in query.names)
        and query.entity in {None, job.entity}
        and query.user in {None, job.user}
        and (query.ended_after is None or job.ended >= query.ended_after)
    ]
    return sorted(found, key=lambda job: (job.ended, job.id), reverse=query.order == "newest")


def all_pages(journal: Journal, query: FinishedQuery) -> list[FinishedJobRow]:
    found: list[FinishedJobRow] = []
    page = FinishedPage((), None)
    while not found or page.next:
        page = journal.finished(replace(query, after=page.next))
        assert len(page.jobs) <= query.limit
        found += page.jobs
        if not page.jobs:
            break
    return found


queries = st.builds(
    FinishedQuery,
    ids=st.just(()) | st.lists(st.integers(0, 50), min_size=1, max_size=9),
    states=st.lists(st.sampled_from((*STATES, "other")), max_size=3),
    names=st.lists(st.sampled_from((*NAMES, "other")), max_size=3),
    entity=st.none() | st.sampled_from(PEOPLE),
    user=st.none() | st.sampled_from(PEOPLE),
    ended_after=st.none() | st.floats(-1, 21),
    limit=st.integers(1, 50),
    order=st.sampled_from(["newest", "oldest"]),
)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    with file_place(tmp_path_factory.mktemp("finished")).open() as journal:
        journal.keep({}, 0, JOBS)
        yield journal


@given(queries)
def test_pages_hold_what_was_asked_for_in_order(full: Journal, query: FinishedQuery) -> None:
    assert all_pages(full, query) == expected(query)


def test_postgres_pages_alike(place: Place) -> None:
    with place.open() as journal:
        journal.keep({}, 0, JOBS)
        for query in (
            FinishedQuery(limit=7),
            FinishedQuery(limit=7, order="oldest", states=["failed", "completed"], user="u"),
            FinishedQuery(limit=3, names=["a", "b"], entity="v", ended_after=4.0),
            FinishedQuery(ids=[3, 9, 100]),
            FinishedQuery(names=[f"n{number}" for number in range(100)] + ["a"], limit=5),
        ):
            assert all_pages(journal, query) == expected(query)


def test_a_job_kept_again_replaces_itself(place: Place) -> None:
    with place.open() as journal:
        journal.keep({}, 0, JOBS[:2])
        journal.keep({}, 0, [replace(JOBS[0], state="failed", document={"again": True}), JOBS[2]])
        assert journal.find("1") == {"again": True}
        assert journal.find("4") is journal.find("no number") is None
        assert {job.id for job in journal.finished(FinishedQuery(states=["failed"])).jobs} == {1}
        assert journal.check().finished == 3
        assert journal.check().problems == ()


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (FinishedQuery(), "finished_state (state=?)"),
        (FinishedQuery(after=(3.0, 1)), "finished_state (state=? AND ended<?)"),
        (FinishedQuery(states=["failed"], ended_after=3.0), "finished_state (state=? AND ended>?)"),
        (FinishedQuery(user="u"), "finished_user (user_name=? AND state=?)"),
        (FinishedQuery(entity="u", after=(3.0, 1)), "finished_entity (entity=? AND state=? AND ended<?)"),
        (FinishedQuery(names=["a"]), "finished_name (name=? AND state=?)"),
    ],
)
def test_a_page_is_read_from_the_end_of_an_index(full: Journal, query: FinishedQuery, index: str) -> None:
    with full.reading() as connection:
        statement = module._statement(connection, query)
        text = statement.compile(connection, compile_kwargs={"literal_binds": True})
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
    lines = [line for line in plan if " finished " in line]
    assert lines
    assert all(line.endswith(index) for line in lines), plan


def test_an_empty_page_is_no_page(tmp_path: Path) -> None:
    with file_place(tmp_path).open() as journal, pytest.raises(ValueError, match="at least one"):
        journal.finished(FinishedQuery(limit=0))


def test_a_check_accepts_finished_jobs_whose_states_are_enum_members(
    place: Place,
) -> None:
    with place.open() as journal:
        journal.append([{"kind": "job_ended", "time": 1.0, "job": "1"}])
        journal.keep({"of": 1}, 1, [replace(JOBS[0], state=JobState.COMPLETED)])
    with open_read_only(place.url) as reader:
        assert reader.check().problems == ()
