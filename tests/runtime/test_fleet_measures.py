"""What running jobs are measured at is posted under the condition that they really ran in, or not at all."""

from __future__ import annotations

from gavel.runtime.book import Book, Note, Record, Transition

from gavel.core.events import Event, JobsProgressed, Launch, RateMeasured
from gavel.runtime.attempts import Attempt
from gavel.runtime.fleet import Fleet, FleetSettings
from gavel.wire import gavel_pb2 as pb


def fleet(*attempts: Attempt) -> tuple[Fleet, list[Event]]:
    """A fleet with attempts under way, and what it posts."""
    posted: list[Event] = []
    book = Book()
    for attempt in attempts:
        book.records[attempt.job] = Record(attempt.job, pb.JobRequest(), 0.0, [Transition(0.0, pb.RUNNING, "")])

    def post(event: Event, _: Note) -> None:
        posted.append(event)

    made = Fleet(FleetSettings(), lambda: 10.0, post, book)
    made.attempts = {attempt.job: attempt for attempt in attempts}
    return made, posted


def running(job: str, beside: str | None = None) -> Attempt:
    launch = Launch(job, "v100", {"a": 1}, 60.0, beside=beside)
    return Attempt(launch, 1, [], 60.0, steps=0.0, measured_steps=20.0, measured_seconds=2.0)


def rates(posted: list[Event]) -> list[tuple[str, float, str | None]]:
    return [(event.job, event.rate, event.beside) for event in posted if isinstance(event, RateMeasured)]


def test_jobs_that_share_are_measured_beside_each_other() -> None:
    made, posted = fleet(running("1", "2"), running("2", "1"))
    made.progress()
    assert rates(posted) == [("1", 10.0, "2"), ("2", 10.0, "1")]


def test_a_job_whose_partner_has_left_is_measured_alone_from_then_on() -> None:
    leaving, staying = running("1", "2"), running("2", "1")
    made, posted = fleet(leaving, staying)
    leaving.stopping = True
    made._settle(leaving)
    made.progress()  # what it measured until then is of both conditions
    assert rates(posted) == [("1", 10.0, "2")]
    staying.measured_steps, staying.measured_seconds = 30.0, 2.0
    made.progress()
    assert rates(posted)[1:] == [("2", 15.0, None)]


def test_what_was_measured_of_a_job_that_crashed_is_not_posted() -> None:
    crashed = running("1")
    made, posted = fleet(crashed)
    crashed.crash = "exit code 1"
    made._settle(crashed)
    assert rates(posted) == []


def test_steps_are_counted_once_although_the_book_hears_of_them_later() -> None:
    """A round ends, and a moment later the job: both are counted before either is in the journal."""
    job = running("1")
    made, posted = fleet(job)
    job.steps = 140.0
    made.progress()
    job.steps = job.saved_steps = 150.0
    made._settle(job)
    assert sum(event.steps.sum() for event in posted if isinstance(event, JobsProgressed)) == 150.0
    made.closed("1")
    assert not made.counted
