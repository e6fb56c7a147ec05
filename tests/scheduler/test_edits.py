"""Edits of jobs: the scheduler continues as if the job had always been so, and nothing runs where it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.core.cluster import Server
from gavel.core.codec import encode_command
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobEdited,
    JobsHeld,
    JobsProgressed,
    JobSubmitted,
    Launch,
    Renew,
    RoundDue,
    ServerJoined,
    Solve,
    Stop,
    TypesAllowed,
    WakeAt,
)
from gavel.core.facts import JobsStopped
from gavel.core.jobs import Cause, JobSpec
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings, check_invariants
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism
from gavel.scheduler.snapshot import meant_for
from stories import TYPES, Story, Teller, stories

TABLE = builtin_table()
MECHANISMS = (Credits, Priorities)
both = pytest.mark.parametrize("mechanism", MECHANISMS, ids=["credits", "priorities"])
JOB = JobSpec("a", "A3C", 1, 1e6)


def edit(time: float, job: JobSpec, done: float = 0.0) -> JobEdited:
    return JobEdited(time, job, job.steps - done)


def told(scheduler: Scheduler, *events: Event) -> list[Command]:
    """Handle events, answer questions at once, and carry out wake-ups that are due; returns the other commands."""
    queue, commands = list(events), list[Command]()
    while queue:
        event = queue.pop(0)
        for command in scheduler.handle(event):
            commands.append(command)
            if isinstance(command, Solve):
                queue.append(AllocationReady(event.time, command.number, allocate(command.problem)))
            elif isinstance(command, WakeAt) and command.time <= event.time:
                queue.append(RoundDue(event.time))
        check_invariants(scheduler)
    return commands


def cluster(mechanism: Callable[[], Mechanism], *jobs: JobSpec, **counts: int) -> Scheduler:
    scheduler = Scheduler(TABLE, mechanism(), Settings())
    told(scheduler, *(ServerJoined(0.0, Server(kind, kind, count)) for kind, count in counts.items()))
    told(scheduler, *(JobSubmitted(0.0, job) for job in jobs))
    return scheduler


def type_of(scheduler: Scheduler, job: str) -> str | None:
    run = scheduler.run_of.get(scheduler.roster.slot_of[job])
    return None if run is None else scheduler.types[run.type_index]


def aged(scheduler: Scheduler) -> float:
    """The age of job a in isolation, once a problem has been posed."""
    scheduler.problem(100.0)
    return float(scheduler.roster.isolated_age[scheduler.roster.slot_of["a"]])


def shown(commands: Iterable[Command]) -> list[dict[str, Any]]:
    """Commands, without the profiles that a problem lists although no job has them."""
    found = []
    for command in commands:
        plain = encode_command(command) if not isinstance(command, Solve) else {"solve": command.number}
        found.append(plain)
    return found


@both
@given(story=stories(at_most=40), types=st.sampled_from(TYPES), weight=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=30)
def test_a_job_that_is_edited_before_it_runs_is_treated_as_if_it_had_been_submitted_so(
    mechanism: Callable[[], Mechanism], story: Story, types: tuple[str, ...] | None, weight: float
) -> None:
    """The other way round: every job is submitted differently, and edited to what the story says at the same time."""
    first, second, teller = (*(Scheduler(TABLE, mechanism(), Settings()) for _ in range(2)), Teller(story))
    for event in teller.events(first):
        commands = first.handle(event)
        if isinstance(event, JobSubmitted):
            other = replace(event.job, weight=weight, steps=7.0, deadline_seconds=60.0, types=types)
            also = second.handle(replace(event, job=other))
            also += second.handle(JobEdited(event.time, event.job, event.job.steps))
            assert not [command for command in also if isinstance(command, Launch | Stop)]
        else:
            also = second.handle(event)
            assert shown(commands) == shown(also)
        check_invariants(second)
        teller.hear(commands)
    here = first.roster.active
    for column in ("weight", "steps", "deadline", "rates", "workers"):
        np.testing.assert_array_equal(getattr(first.roster, column)[here], getattr(second.roster, column)[here])


@both
@given(story=stories(at_most=60))
@settings(max_examples=60)
def test_no_job_ever_runs_on_a_type_that_it_may_not_use(mechanism: Callable[[], Mechanism], story: Story) -> None:
    """Not even while an allocation from before its edit stays in force for long."""
    how = Settings(space_sharing=True, min_seconds_between_allocations=7200.0)
    scheduler, teller = Scheduler(TABLE, mechanism(), how), Teller(story)
    for event in teller.events(scheduler):
        teller.hear(scheduler.handle(event))
        for slot, run in scheduler.run_of.items():
            _, _, types, _ = scheduler.beliefs.profile_at(int(scheduler.roster.profile[slot]))
            assert types is None or scheduler.types[run.type_index] in types


@both
def test_a_running_job_whose_type_is_no_longer_allowed_leaves_at_once_and_starts_elsewhere(
    mechanism: Callable[[], Mechanism],
) -> None:
    scheduler = cluster(mechanism, JOB, v100=1, k80=1)
    assert type_of(scheduler, "a") == "v100"
    commands = told(scheduler, edit(10.0, replace(JOB, types=("k80",))))
    assert commands[0] == Stop("a")
    assert type_of(scheduler, "a") == "k80"


@both
def test_a_running_job_whose_type_stays_allowed_is_not_restarted(mechanism: Callable[[], Mechanism]) -> None:
    scheduler = cluster(mechanism, JOB, v100=1, k80=1)
    told(scheduler, edit(10.0, replace(JOB, types=("v100", "p100"))))
    commands = told(scheduler, RoundDue(360.0))
    assert not [command for command in commands if isinstance(command, Stop | Launch)]
    assert [command for command in commands if isinstance(command, Renew)]
    assert type_of(scheduler, "a") == "v100"


@both
def test_a_job_that_waits_for_a_type_that_is_not_there_starts_when_others_are_allowed(
    mechanism: Callable[[], Mechanism],
) -> None:
    waits = replace(JOB, types=("p100",))
    scheduler = cluster(mechanism, waits, v100=1)
    told(scheduler, RoundDue(1.0))
    assert type_of(scheduler, "a") is None
    told(scheduler, TypesAllowed(5.0, "a", None, Cause("waited")))
    assert type_of(scheduler, "a") == "v100"


@both
def test_an_answer_to_an_older_question_does_not_put_an_edited_job_where_it_may_not_run(
    mechanism: Callable[[], Mechanism],
) -> None:
    scheduler = Scheduler(TABLE, mechanism(), Settings())
    told(scheduler, ServerJoined(0.0, Server("s", "v100", 2)))
    scheduler.handle(JobSubmitted(0.0, JOB))
    scheduler.handle(JobSubmitted(0.0, replace(JOB, id="b")))
    solve = next(command for command in scheduler.handle(RoundDue(0.0)) if isinstance(command, Solve))
    scheduler.handle(edit(1.0, replace(JOB, types=("k80",))))
    told(scheduler, AllocationReady(2.0, solve.number, allocate(solve.problem)))
    assert type_of(scheduler, "b") == "v100"
    assert type_of(scheduler, "a") is None
    assert meant_for(scheduler, "a") == (None, None)
    told(scheduler, RoundDue(400.0))
    assert type_of(scheduler, "a") is None
    shares, _ = meant_for(scheduler, "a")
    assert shares is not None
    assert shares["v100"] == 0.0


@both
def test_every_edit_asks_for_a_new_allocation_at_the_next_round(mechanism: Callable[[], Mechanism]) -> None:
    for changed in (
        replace(JOB, weight=2.0),
        replace(JOB, steps=5e6),
        replace(JOB, deadline_seconds=60.0),
        replace(JOB, types=("v100",)),
    ):
        scheduler = cluster(mechanism, JOB, v100=1)
        assert not [each for each in told(scheduler, RoundDue(360.0)) if isinstance(each, Solve)]
        told(scheduler, edit(400.0, changed))
        asked = [each for each in told(scheduler, RoundDue(720.0)) if isinstance(each, Solve)]
        assert len(asked) == 1
        jobs = asked[0].problem.jobs
        assert jobs.weight.tolist() == [changed.weight]
        assert jobs.steps.tolist() == [changed.steps]


def test_the_steps_left_change_and_the_age_does_not() -> None:
    scheduler = cluster(Credits, JOB, v100=1)
    scheduler.handle(JobsProgressed(100.0, ["a"], np.array([4e5])))
    before = aged(scheduler)
    told(scheduler, edit(100.0, replace(JOB, steps=5e5), done=4e5))
    assert scheduler.problem(100.0).jobs.steps.tolist() == [1e5]
    assert aged(scheduler) == before > 0


def test_a_job_of_unknown_length_that_gets_one_has_the_age_of_the_steps_it_made() -> None:
    unknown = replace(JOB, steps=np.nan)
    scheduler, other = cluster(Credits, unknown, v100=1), cluster(Credits, JOB, v100=1)
    for each in (scheduler, other):
        each.handle(JobsProgressed(100.0, ["a"], np.array([4e5])))
    assert np.isnan(aged(scheduler))
    told(scheduler, edit(100.0, JOB, done=4e5))
    assert aged(scheduler) == aged(other) > 0


def test_an_edit_of_a_job_on_hold_does_not_start_it() -> None:
    scheduler = cluster(Credits, replace(JOB, types=("k80",)), v100=1)
    told(scheduler, JobsHeld(1.0, ("a",), Cause("held", "held")))
    told(scheduler, edit(2.0, JOB), RoundDue(400.0))
    assert type_of(scheduler, "a") is None


def test_an_edit_of_a_job_that_has_left_changes_nothing() -> None:
    scheduler = cluster(Credits, JOB, v100=1)
    gone = replace(JOB, id="gone")
    assert scheduler.take(edit(1.0, gone)) == []
    assert scheduler.take(TypesAllowed(1.0, "gone", None, Cause("waited"))) == []


def test_a_plan_that_was_settled_before_an_edit_is_not_used_after_it() -> None:
    scheduler = cluster(Credits, JOB, v100=1)
    told(scheduler, RoundDue(360.0))
    mechanism = scheduler.mechanism
    assert isinstance(mechanism, Credits)
    settled = mechanism._settled
    assert settled is not None
    given = scheduler.round_input(361.0)
    assert settled.holds(given)
    assert not settled.holds(replace(given, edits=given.edits + 1))
    told(scheduler, edit(361.0, replace(JOB, steps=2e6)))
    assert not settled.holds(scheduler.round_input(361.0))


def test_the_stop_of_an_edited_job_is_a_fact_of_its_own_with_its_reason() -> None:
    scheduler = cluster(Credits, JOB, v100=1)
    stopped = scheduler.take(edit(10.0, replace(JOB, types=("k80",))))[0]
    assert stopped == JobsStopped(10.0, ("a",), Cause("edited", "it may no longer run on this type"))
