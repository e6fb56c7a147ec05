"""One life of a job: every state with every fact that can be about it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from gavel.client.requests import Submission
from gavel.client.views import FINISHED, JobState
from gavel.core.cluster import Server
from gavel.core.events import JobsHeld, JobsProgressed, JobsReleased
from gavel.core.facts import (
    JobEnded,
    JobQueued,
    JobRequeued,
    JobsStopped,
    Outcome,
    RoundPlanned,
    ServerAdded,
    ServerRemoved,
    Started,
    Stopped,
    TimePassed,
)
from gavel.core.jobs import Cause, JobSpec
from gavel.core.locality import Locality
from gavel.runtime.facts import AttemptClosed, Fact
from gavel.runtime.jobs import HISTORY, TRANSITIONS, JobChange, JobRegistry, LiveJobRecord, Refusal

JOB = "7"
CAUSE = Cause("because", "a reason")
Q, R, P = JobState.QUEUED, JobState.RUNNING, JobState.PREEMPTED
ACTIVE = (Q, R, P)


def started(attempt: int = 1, server: str = "a") -> Started:
    return Started((JOB,), (attempt,), "v100", {server: 1}, Locality.SERVER, CAUSE)


def queued() -> JobQueued:
    request = Submission(command=("train",), template="mine", steps=100.0)
    return JobQueued(1.0, JobSpec.of(JOB, request), request, "key")


def planned(*, stopped: bool = False, moved: bool = False, launched: bool = False, attempt: int = 5) -> RoundPlanned:
    return RoundPlanned(
        9.0,
        1,
        20.0,
        20.0,
        stopped=(Stopped((JOB,), CAUSE),) if stopped else (),
        moved=(started(attempt, "b"),) if moved else (),
        started=(started(attempt, "b"),) if launched else (),
    )


def ended(outcome: Outcome) -> JobEnded:
    return JobEnded(9.0, JOB, outcome, "a reason", {"v100": 3.0}, 2)


PATHS: Mapping[JobState, tuple[Fact, ...]] = {
    Q: (),
    R: (planned(launched=True, attempt=1),),
    P: (planned(launched=True, attempt=1), planned(stopped=True)),
    JobState.COMPLETED: (planned(launched=True, attempt=1), ended("completed")),
    JobState.FAILED: (planned(launched=True, attempt=1), ended("failed")),
    JobState.CANCELLED: (ended("cancelled"),),
}
"""How a job comes into each state."""

CHANGES: Mapping[str, tuple[JobChange, Fact]] = {
    "launched": (JobChange.LAUNCHED, planned(launched=True)),
    "moved": (JobChange.MOVED, planned(moved=True)),
    "stopped by a plan": (JobChange.STOPPED, planned(stopped=True)),
    "stopped with its server": (JobChange.STOPPED, ServerRemoved(9.0, "a", CAUSE, (JOB,))),
    "requeued": (JobChange.REQUEUED, JobRequeued(9.0, JOB, "a reason")),
    "requeued without fault": (JobChange.REQUEUED, JobRequeued(9.0, JOB, "a reason", counts=False)),
    "completed": (JobChange.COMPLETED, ended("completed")),
    "failed": (JobChange.FAILED, ended("failed")),
    "cancelled": (JobChange.CANCELLED, ended("cancelled")),
    "held": (JobChange.HELD, JobsHeld(9.0, (JOB,), CAUSE)),
    "released": (JobChange.RELEASED, JobsReleased(9.0, (JOB,))),
}
EXPECTED: Mapping[tuple[JobState, JobChange], JobState] = {
    (Q, JobChange.LAUNCHED): R,
    (P, JobChange.LAUNCHED): R,
    (R, JobChange.MOVED): R,
    (R, JobChange.STOPPED): P,
    **{(state, change): state for state in (Q, P) for change in (JobChange.HELD, JobChange.RELEASED)},
    **{(state, JobChange.REQUEUED): Q for state in ACTIVE},
    **{(state, JobChange.COMPLETED): JobState.COMPLETED for state in ACTIVE},
    **{(state, JobChange.FAILED): JobState.FAILED for state in ACTIVE},
    **{(state, JobChange.CANCELLED): JobState.CANCELLED for state in ACTIVE},
}
"""Written down a second time, so that no change of the table goes unnoticed."""


def in_state(state: JobState) -> JobRegistry:
    jobs = JobRegistry()
    for fact in (queued(), *PATHS[state]):
        jobs.evolve(fact)
    assert jobs[JOB].state is state
    assert not jobs.refusals
    jobs.touched.clear()
    return jobs


def test_the_table_is_what_was_agreed() -> None:
    assert dict(TRANSITIONS) == EXPECTED


def test_every_turn_is_tried() -> None:
    assert {change for change, _ in CHANGES.values()} == set(JobChange)
    assert PATHS.keys() == set(JobState) - {JobState.UNKNOWN}


@pytest.mark.parametrize("state", PATHS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_fact_leads_where_the_table_says_or_changes_nothing_and_is_recorded(name: str, state: JobState) -> None:
    change, fact = CHANGES[name]
    jobs = in_state(state)
    before = jobs[JOB]
    changed = jobs.evolve(fact)
    if (state, change) in EXPECTED:
        assert jobs[JOB].state is EXPECTED[state, change]
        assert jobs[JOB].changed == fact.time
        assert changed == jobs.touched == {JOB}
        assert not jobs.refusals
    else:
        assert jobs[JOB] is before
        assert not changed
        assert not jobs.touched
        assert jobs.refusals == [Refusal(JOB, change, state)]
        assert JOB in str(jobs.refusals[0])
        assert state in str(jobs.refusals[0])


@pytest.mark.parametrize("state", sorted(FINISHED))
def test_a_finished_job_stays_finished_whatever_comes_together(state: JobState) -> None:
    jobs = in_state(state)
    before = jobs[JOB]
    for _, fact in CHANGES.values():
        jobs.evolve(fact)
    assert jobs[JOB] == before
    assert len(jobs.refusals) == len(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_facts_about_an_unknown_job_are_refused(name: str) -> None:
    change, fact = CHANGES[name]
    jobs = JobRegistry()
    assert not jobs.evolve(fact)
    assert jobs.refusals == [Refusal(JOB, change, None)]
    assert "no such job" in str(jobs.refusals[0])


@pytest.mark.parametrize("state", PATHS)
@pytest.mark.parametrize(
    "fact",
    [TimePassed(9.0), ServerAdded(9.0, Server("a", "v100", 1)), AttemptClosed(9.0, JOB, 1, "left")],
    ids=lambda fact: type(fact).__name__,
)
def test_facts_that_concern_no_job_change_no_record(fact: Fact, state: JobState) -> None:
    jobs = in_state(state)
    before = jobs[JOB]
    assert not jobs.evolve(fact)
    assert jobs[JOB] is before
    assert not jobs.refusals


def test_a_launch_says_where_and_as_which_attempt_and_a_stop_clears_that() -> None:
    jobs = in_state(P)
    jobs.evolve(planned(launched=True, attempt=4))
    record = jobs[JOB]
    assert (record.attempts, record.type, record.places, record.beside) == (4, "v100", {"b": 1}, "")
    jobs.evolve(planned(stopped=True))
    record = jobs[JOB]
    assert (record.attempts, record.type, record.places) == (4, "", {})


def test_two_jobs_that_share_accelerators_know_of_each_other() -> None:
    jobs = JobRegistry()
    request = queued().request
    assert request is not None
    for job in ("1", "2"):
        jobs.evolve(JobQueued(1.0, JobSpec.of(job, request), request))
    pair = Started(("1", "2"), (1, 3), "v100", {"a": 1}, Locality.SERVER, CAUSE)
    jobs.evolve(RoundPlanned(2.0, 1, 9.0, 9.0, started=(pair,)))
    assert [(jobs[job].beside, jobs[job].attempts) for job in ("1", "2")] == [("2", 1), ("1", 3)]


@pytest.mark.parametrize(("fact", "failures"), [("requeued", 1), ("requeued without fault", 0), ("failed", 1)])
def test_only_failures_of_its_own_count(fact: str, failures: int) -> None:
    jobs = in_state(R)
    jobs.evolve(CHANGES[fact][1])
    assert jobs[JOB].failures == failures


def test_the_final_record_says_what_the_job_received() -> None:
    jobs = in_state(R)
    jobs.evolve(ended("completed"))
    assert (jobs[JOB].received, jobs[JOB].restarts) == ({"v100": 3.0}, 2)


def test_steps_add_up_without_a_change_of_state() -> None:
    jobs = in_state(R)
    assert not jobs.evolve(JobsProgressed(2.0, (JOB, "gone"), np.array([5.0, 1.0])))
    jobs.evolve(JobsProgressed(3.0, (JOB,), np.array([-2.0])))
    assert jobs[JOB].steps_done == 3.0
    assert jobs.touched == {JOB}


def test_ids_are_never_given_again_and_a_repeated_call_finds_its_jobs() -> None:
    jobs = in_state(Q)
    assert jobs.next_number == 8
    assert jobs.keys == {"key": [JOB]}
    again = JobRegistry.of(jobs.document())
    assert (again.next_number, again.keys) == (8, {"key": [JOB]})


@pytest.mark.parametrize("state", PATHS)
def test_a_record_written_down_is_the_same_record(state: JobState) -> None:
    record = in_state(state)[JOB]
    assert LiveJobRecord.of(record.document()) == record


def test_only_the_newest_of_very_many_transitions_are_kept() -> None:
    jobs = in_state(Q)
    for number in range(HISTORY):
        jobs.evolve(planned(launched=True, attempt=number + 1))
        jobs.evolve(planned(stopped=True))
    assert len(jobs[JOB].history) == HISTORY
    assert jobs[JOB].history[-1].state is P


def test_a_job_that_stops_and_is_held_for_one_reason_says_it_once() -> None:
    jobs, by = in_state(R), Cause("held", "held by ann")
    for fact in (JobsStopped(9.0, (JOB,), by), JobsHeld(9.0, (JOB,), by)):
        jobs.evolve(fact)
    assert [each.reason for each in jobs[JOB].history].count("held by ann") == 1
