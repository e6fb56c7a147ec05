"""Many jobs in one request are decided and carried out in steps, so that the loop that renews leases stays free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from waiting_model import BY, Played, request

from gavel.core.errors import InputError
from gavel.core.events import JobCancelled
from gavel.runtime.events import EditAsked, Event, HoldAsked, JobsSubmitted
from gavel.runtime.steps import Steps, all_steps

MANY = 400
MOST_IN_A_STEP = 25
"""Facts that may be decided without a pause."""


@pytest.fixture
def played() -> Played:
    return Played()


def asked(played: Played, **fields: Any) -> JobsSubmitted:
    return JobsSubmitted(played.time, (request(array=f"0-{MANY - 1}", **fields),), "key", by=BY)


def numbers_of_facts(played: Played, event: Event) -> Iterator[int]:
    """How many facts each step decides."""
    steps: Steps[Any] = played.state.taking(event)
    before = 0
    for _ in steps:
        now = len(played.state._facts)
        yield now - before
        before = now


def test_a_large_array_is_decided_in_small_steps(played: Played) -> None:
    found = list(numbers_of_facts(played, asked(played)))
    assert sum(found) >= MANY - MOST_IN_A_STEP
    assert max(found) <= MOST_IN_A_STEP


def test_an_edit_of_many_jobs_is_decided_in_small_steps(played: Played) -> None:
    played.take(asked(played))
    jobs = tuple(record.id for record in played.state.jobs.active())
    edit = EditAsked(played.time, jobs, request(weight=2.0), ("weight",), BY)
    found = list(numbers_of_facts(played, edit))
    assert sum(found) >= MANY - MOST_IN_A_STEP
    assert max(found) <= MOST_IN_A_STEP


def test_a_batch_with_one_bad_job_is_refused_before_its_first_fact(played: Played) -> None:
    good = [request() for _ in range(MANY)]
    steps = played.state.taking(JobsSubmitted(played.time, (*good, request(after=("999:ok",))), "key", by=BY))
    with pytest.raises(InputError, match="there is none"):
        all_steps(steps)
    assert not list(played.state.jobs.active())
    assert played.state.jobs.next_number == 1


def test_steps_decide_what_is_decided_at_once() -> None:
    by_steps, at_once = Played(), Played()
    for event in (
        asked(at_once, workers=1),
        HoldAsked(0.0, ("1", "2"), BY),
        JobCancelled(0.0, "3", BY),
    ):
        assert all_steps(by_steps.state.taking(event)) == at_once.state.take(event)
