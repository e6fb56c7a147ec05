"""Time limits and idle timeouts in virtual time: never early, hardly late, with a warning and a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from virtual_fleet import SETTINGS, STEP, VirtualFleet

from gavel.client.views import JobState
from gavel.core.facts import JobEnded, RoundPlanned
from gavel.runtime.events import HoldAsked, IdleFound, LimitDue
from gavel.runtime.facts import StartDelayed, TimeLimitNear
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.time_limits import TimeLimits, warned_before
from gavel.runtime.views import job_view

World = Callable[..., VirtualFleet]


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Any:
    made: list[VirtualFleet] = []

    def make(*, agents: int = 1, **settings: Any) -> VirtualFleet:
        world = VirtualFleet(tmp_path, round_seconds=20.0)
        world.with_settings(**settings)
        world.solving = lambda: 0.0
        world.boot()
        for number in range(agents):
            world.add_agent(f"agent{number}", "v100", 1)
        made.append(world)
        return world

    yield make
    for each in made:
        each.finish()


def submitted(world: VirtualFleet, label: str = "x", steps: float = 1e6, **wanted: Any) -> None:
    world.client_submits(label, steps, **wanted)


def record(world: VirtualFleet, label: str = "x") -> LiveJobRecord:
    return world.record(world.keys[label])


def until(world: VirtualFleet, condition: Callable[[], bool], limit: float = 200.0) -> None:
    end = world.now + limit
    while not condition():
        assert world.now < end, "it does not happen"
        world.step()


def finished(world: VirtualFleet, label: str = "x") -> Callable[[], bool]:
    return lambda: label in world.keys and record(world, label).finished


def ran_seconds(world: VirtualFleet, job: str) -> float:
    """From the first start to the end, in facts."""
    started = next(fact.time for fact in world.story if isinstance(fact, RoundPlanned) and job in fact.jobs)
    ended = next(fact.time for fact in world.story if isinstance(fact, JobEnded) and fact.job == job)
    return ended - started


@pytest.mark.parametrize("limit", [3.0, 10.1, 33.3])
def test_a_job_is_stopped_at_its_time_limit_not_before_and_hardly_later(world: World, limit: float) -> None:
    here = world()
    submitted(here, time_limit_seconds=limit)
    until(here, finished(here))
    ended = record(here)
    assert limit <= ran_seconds(here, ended.id) <= limit + 2 * STEP
    assert ended.state is JobState.FAILED
    assert ended.history[-1].code == "time_limit"
    assert ended.history[-1].reason.endswith("is reached; it was stopped at a checkpoint")
    assert ended.failures == 0


def test_a_job_at_its_limit_saves_with_its_whole_grace_and_counts_what_it_saved(world: World) -> None:
    here = world(fleet=replace(SETTINGS, checkpoint_grace_seconds=4.0))
    here.slow_to_leave = True
    submitted(here, time_limit_seconds=5.0)
    until(here, finished(here))
    job = record(here).id
    at_end, saved_before = here.now, here.disk.get(job, 0.0)
    until(here, lambda: not any(agent.tasks for agent in here.agents.values()))
    assert here.now - at_end >= 3.5
    assert here.disk[job] > saved_before
    until(here, lambda: record(here).steps_done == here.disk[job])
    assert record(here).attempts == 1


def test_a_job_is_warned_before_its_limit_and_not_after_the_limit_was_raised(world: World) -> None:
    here = world()
    submitted(here, time_limit_seconds=16.0)
    until(here, lambda: any(isinstance(fact, TimeLimitNear) for fact in here.story))
    [near] = [fact for fact in here.story if isinstance(fact, TimeLimitNear)]
    assert warned_before(16.0) - 2 * STEP <= near.left_seconds <= warned_before(16.0)
    assert here.engine is not None
    told = job_view(here.engine, record(here)).warning
    assert told == "its time limit of 16s is near: it is stopped after 5s more of running"
    here.client_edits("x", time_limit_seconds=40.0)
    until(here, lambda: record(here).request.time_limit_seconds == 40.0)
    assert job_view(here.engine, record(here)).warning == ""
    until(here, finished(here))
    assert ran_seconds(here, record(here).id) >= 40.0
    warned = [fact.limit_seconds for fact in here.story if isinstance(fact, TimeLimitNear)]
    assert warned == [16.0, 40.0], "each limit is warned of once"


def test_time_before_a_restart_counts_and_time_without_a_scheduler_counts_as_long_as_its_lease(world: World) -> None:
    here = world()
    submitted(here, time_limit_seconds=12.0)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    here.run(8.0)
    here.kill_scheduler(2.0)
    until(here, lambda: here.engine is not None)
    until(here, finished(here))
    assert 12.0 <= ran_seconds(here, record(here).id) <= 12.0 + 3 * STEP


@pytest.mark.parametrize(("clock", "down"), [(3600.0, 1.0), (0.0, 300.0)])
def test_neither_a_clock_that_was_set_nor_a_long_absence_ends_a_job_early(
    world: World, clock: float, down: float
) -> None:
    """What is left of a lease is all that a job can have run without a scheduler."""
    here = world()
    submitted(here, time_limit_seconds=60.0)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    here.run(5.0)
    here.wall_offset += clock
    here.kill_scheduler(down)
    until(here, lambda: here.engine is not None, limit=400.0)
    here.run(10.0)
    assert not record(here).finished
    assert here.engine is not None
    used = here.engine.state.time_used(record(here).id, here.engine.clock())
    assert 10.0 <= used <= 5.0 + 20.0 + 10.0 + 4 * STEP


def test_time_over_several_attempts_adds_up(world: World) -> None:
    here = world()
    submitted(here, time_limit_seconds=12.0, retries=5)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    here.run(6.0)
    assert next(iter(here.agents.values())).crash_task(record(here).id)
    until(here, finished(here))
    ended = record(here)
    assert ended.history[-1].code == "time_limit"
    assert ended.attempts == 2
    assert sum(ended.received.values()) == pytest.approx(12.0, abs=2 * STEP)


def test_time_in_which_an_earlier_job_still_saves_does_not_count(world: World) -> None:
    here = world()
    submitted(here, "saver", grace_seconds=60.0)
    until(here, lambda: "saver" in here.keys and record(here, "saver").state is JobState.RUNNING)
    here.run(2.0)
    here.leaving_seconds = lambda longest: longest  # type: ignore[method-assign]
    submitted(here, "x", time_limit_seconds=12.0)
    here.run(1.0)
    here.client_asks(HoldAsked, "saver")
    until(here, finished(here))
    [delayed] = [fact for fact in here.story if isinstance(fact, StartDelayed)]
    assert delayed.seconds >= 50.0
    assert 12.0 <= ran_seconds(here, record(here).id) - delayed.seconds <= 12.0 + 3 * STEP


def test_a_silent_job_fails_after_its_idle_timeout_and_one_that_steps_does_not(world: World) -> None:
    here = world(agents=2)
    submitted(here, "busy", steps=150.0, idle_timeout_seconds=3.0)
    submitted(here, "silent", idle_timeout_seconds=3.0)
    until(here, lambda: "silent" in here.keys and record(here, "silent").state is JobState.RUNNING)
    silent = record(here, "silent").id
    advance = here.gang_steps
    here.gang_steps = lambda task, process: (  # type: ignore[method-assign]
        process.steps if task.start.job == silent else advance(task, process)
    )
    until(here, finished(here, "silent"))
    assert ran_seconds(here, silent) >= 3.0
    assert record(here, "silent").history[-1].code == "idle_timeout"
    assert record(here, "silent").history[-1].reason == (
        "it made no step and printed nothing for 3s, its idle timeout; it was stopped"
    )
    until(here, finished(here, "busy"))
    assert record(here, "busy").state is JobState.COMPLETED


def test_the_silence_of_an_agent_is_not_the_silence_of_its_job(world: World) -> None:
    here = world(fleet=replace(SETTINGS, agent_timeout_seconds=30.0, lease_slack_seconds=60.0))
    submitted(here, steps=400.0, idle_timeout_seconds=3.0)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    here.run(2.0)
    next(iter(here.agents.values())).lose_connection(8.0)
    until(here, finished(here))
    assert record(here).state is JobState.COMPLETED


def test_what_a_job_did_while_its_agent_was_away_is_not_known(world: World) -> None:
    here = world(fleet=replace(SETTINGS, agent_timeout_seconds=30.0, lease_slack_seconds=60.0))
    here.gang_steps = lambda task, process: process.steps  # type: ignore[method-assign]  # noqa: ARG005
    submitted(here, idle_timeout_seconds=5.0)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    here.run(2.0)
    [agent] = here.agents.values()
    agent.lose_connection(8.0)
    until(here, lambda: agent.connection is not None and agent.connection.welcome)
    returned = here.now
    until(here, finished(here))
    assert here.now - returned >= 4.5


def test_the_clock_of_an_idle_job_starts_again_with_the_scheduler(world: World) -> None:
    here = world()
    here.gang_steps = lambda task, process: process.steps  # type: ignore[method-assign]  # noqa: ARG005
    submitted(here, idle_timeout_seconds=6.0)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    here.run(4.0)
    here.kill_scheduler(0.5)
    until(here, lambda: here.engine is not None)
    began = here.now
    until(here, finished(here))
    assert here.now - began >= 6.0


def test_a_late_report_of_silence_ends_nothing(world: World) -> None:
    """The timeout was raised, or another attempt runs, while the report was on its way."""
    here = world()
    submitted(here, idle_timeout_seconds=30.0)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    assert here.engine is not None
    state, running = here.engine.state, record(here)
    for attempt, since in ((1, state.time - 29.0), (2, state.time - 90.0)):
        assert state.take(IdleFound(state.time, running.id, attempt, since)) == []
    assert state.take(LimitDue(state.time, running.id)) == []
    assert state.take(LimitDue(state.time, "99")) == []


def test_a_look_that_comes_too_early_ends_nothing(world: World) -> None:
    here = world()
    submitted(here, time_limit_seconds=60.0)
    until(here, lambda: "x" in here.keys and record(here).state is JobState.RUNNING)
    assert here.engine is not None
    state, began = here.engine.state, record(here).changed
    [near] = state.take(LimitDue(began + 59.9, record(here).id))
    assert isinstance(near, TimeLimitNear)
    assert state.take(LimitDue(began + 59.9, record(here).id)) == []
    assert isinstance(state.take(LimitDue(began + 60.0, record(here).id))[0], JobEnded)


def test_only_jobs_that_may_be_due_are_looked_at() -> None:
    limits = TimeLimits()
    limits.look_at = {"1": 5.0, "2": 9.0}
    assert limits.due(4.9) == []
    assert limits.due(5.0) == ["1"]
