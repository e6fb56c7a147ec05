"""A job that is over stays as it ended."""

from __future__ import annotations

import pytest

from gavel.core.events import Event, JobCancelled, JobFailed, JobFinished, JobSubmitted
from gavel.core.jobs import JobSpec
from gavel.runtime.book import Book
from gavel.wire import gavel_pb2 as pb

ENDS: list[tuple[Event, int]] = [
    (JobFinished(5.0, "1"), pb.COMPLETED),
    (JobCancelled(5.0, "1"), pb.CANCELLED),
    (JobFailed(5.0, "1", "no such file", retry=False), pb.FAILED),
]
LATER: list[Event] = [
    JobFinished(6.0, "1"),
    JobCancelled(6.0, "1"),
    JobFailed(6.0, "1", "exit code 1"),
    JobFailed(6.0, "1", "exit code 1", retry=False),
]


@pytest.mark.parametrize("later", LATER, ids=lambda event: f"{type(event).__name__}-{getattr(event, 'retry', '')}")
@pytest.mark.parametrize(("end", "state"), ENDS, ids=lambda each: type(each).__name__)
def test_nothing_that_is_told_later_changes_how_a_job_ended(end: Event, state: int, later: Event) -> None:
    """A crash or an end that crosses a cancel: the scheduler no longer knows the job, so it is never queued again."""
    book = Book()
    book.apply(JobSubmitted(0.0, JobSpec("1", "mine", 1, 1.0)), {"request": {"command": ["train"]}}, [])
    book.apply(end, {"received": {"v100": 4.0}, "restarts": 2}, [])
    history, failures = list(book["1"].history), book["1"].failures
    assert book.apply(later, {}, []) == set()
    assert (book["1"].state, book["1"].history, book["1"].failures) == (state, history, failures)
    assert (book["1"].received, book["1"].restarts) == ({"v100": 4.0}, 2)


def test_words_about_a_job_whose_record_was_put_away_are_ignored() -> None:
    book = Book()
    for event in LATER:
        assert book.apply(event, {}, []) == set()
