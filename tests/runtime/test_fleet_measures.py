"""What running jobs are measured at is reported under the condition that they really ran in, or not at all."""

from __future__ import annotations

from virtual_fleet import job_request

from gavel.client.views import JobState, Transition
from gavel.core.events import Launch, RateMeasured
from gavel.runtime.attempts import Attempt, Part
from gavel.runtime.events import AttemptEnded, AttemptOutcome, Event, StepsCounted
from gavel.runtime.executor import Done
from gavel.runtime.fleet import Fleet, FleetSettings, SchedulerIdentity
from gavel.runtime.jobs import LiveJobRecord


def fleet(*attempts: Attempt) -> tuple[Fleet, list[Event]]:
    """A fleet with attempts under way, and what it posts; the journal is never written."""
    posted: list[Event] = []
    running = (Transition(0.0, JobState.RUNNING, ""),)
    records = {
        attempt.job: LiveJobRecord(id=attempt.job, request=job_request(1e6), submitted=0.0, history=running)
        for attempt in attempts
    }

    def post(event: Event, done: Done | None = None) -> None:  # noqa: ARG001 - it is never called
        posted.append(event)

    made = Fleet(FleetSettings(), SchedulerIdentity("lab", 1), lambda: 10.0, post, records)
    for attempt in attempts:
        made._enter(attempt)
    return made, posted


def running(job: str, beside: str | None = None) -> Attempt:
    launch = Launch(job, "v100", {"a": 1}, 60.0, beside=beside)
    return Attempt(launch, [Part("a", 0, 1)], 60.0, steps=0.0, measured_steps=20.0, measured_seconds=2.0)


def end(made: Fleet, attempt: Attempt) -> None:
    attempt.parts[0].give_up()
    made._settle(attempt)


def rates(posted: list[Event]) -> list[tuple[str, float, str | None]]:
    return [(event.job, event.rate, event.beside) for event in posted if isinstance(event, RateMeasured)]


def test_jobs_that_share_are_measured_beside_each_other() -> None:
    made, posted = fleet(running("1", "2"), running("2", "1"))
    made.report()
    assert rates(posted) == [("1", 10.0, "2"), ("2", 10.0, "1")]


def test_a_job_whose_partner_has_left_is_measured_alone_from_then_on() -> None:
    leaving, staying = running("1", "2"), running("2", "1")
    made, posted = fleet(leaving, staying)
    leaving.stopping = True
    end(made, leaving)
    made.report()  # what it measured until then is of both conditions
    assert rates(posted) == [("1", 10.0, "2")]
    staying.measured_steps, staying.measured_seconds = 30.0, 2.0
    made.report()
    assert rates(posted)[1:] == [("2", 15.0, None)]


def test_what_was_measured_of_a_job_that_crashed_is_not_reported() -> None:
    crashed = running("1")
    made, posted = fleet(crashed)
    crashed.crash = "exit code 1"
    end(made, crashed)
    assert rates(posted) == []
    (ended,) = [event for event in posted if isinstance(event, AttemptEnded)]
    assert (ended.outcome, ended.reason) == (AttemptOutcome.CRASHED, "exit code 1")


def test_steps_are_reported_as_totals_so_that_counting_twice_changes_nothing() -> None:
    """A round ends, and a moment later the job: both are reported before either is in the journal."""
    job = running("1")
    made, posted = fleet(job)
    job.steps = 140.0
    made.report()
    job.steps = job.saved_steps = 150.0
    job.done = True
    end(made, job)
    assert [event.steps for event in posted if isinstance(event, StepsCounted)] == [{"1": 140.0}]
    assert [event.steps for event in posted if isinstance(event, AttemptEnded)] == [150.0]


def test_nothing_of_a_job_starts_while_an_end_is_on_its_way_to_the_journal() -> None:
    job = running("1")
    made, _ = fleet(job)
    job.stopping = True
    end(made, job)
    made.launch(Launch("1", "v100", {"a": 1}, 60.0, attempt=2), {})
    assert "1" in made.waiting
    assert not made.attempts
