"""Servers that join or leave while the policy is solving, so that its answer does not include them."""

from __future__ import annotations

import pytest

from gavel.core.cluster import Server
from gavel.core.events import (
    AllocationReady,
    Command,
    JobFinished,
    JobSubmitted,
    Launch,
    RoundDue,
    ServerJoined,
    ServerLeaving,
    Solve,
    SolveFailed,
)
from gavel.core.jobs import JobSpec
from gavel.core.throughputs import builtin_table
from gavel.policies.mechanisms import mechanism_for
from gavel.policies.registry import allocate, find_policy
from gavel.scheduler.machine import Scheduler, Settings, check_invariants

TEMPLATE = "ResNet-18 (batch size 16)"


@pytest.mark.parametrize("mechanism", ["plain", "credits"])
@pytest.mark.parametrize("drained", ["fast", "slow"])
@pytest.mark.parametrize("jobs", [2, 3, 4])
def test_a_server_drained_during_a_solve_is_empty_in_the_next_round(mechanism: str, drained: str, jobs: int) -> None:
    policy = find_policy("max_min_fairness")
    made = mechanism_for(policy, mechanism, agnostic=False, forgiving=True)
    scheduler = Scheduler(builtin_table(), made, Settings(round_seconds=10.0))
    scheduler.handle(ServerJoined(0.0, Server("fast", "v100", 1)))
    scheduler.handle(ServerJoined(0.0, Server("slow", "k80", 1)))
    scheduler.handle(ServerJoined(0.0, Server("other", "p100", 1)))
    for number in range(jobs):
        scheduler.handle(JobSubmitted(0.0, JobSpec(str(number), TEMPLATE, 1, 1e6)))
    for number in range(6):
        now = 10.0 * number
        if number == 3:
            scheduler.handle(JobSubmitted(now, JobSpec("late", TEMPLATE, 1, 1e6)))
        commands = scheduler.handle(RoundDue(now))
        asked = [command for command in commands if isinstance(command, Solve)]
        if number == 3:
            assert asked
            scheduler.handle(ServerLeaving(now, drained))
        for solve in asked:
            commands += scheduler.handle(AllocationReady(now, solve.number, allocate(solve.problem)))
        check_invariants(scheduler)
        if number >= 3:
            assert drained not in {server.name for server in scheduler.servers()}
            assert not [c for c in commands if isinstance(c, Launch) and drained in c.accelerators]


@pytest.mark.parametrize("mechanism", ["plain", "credits"])
def test_a_job_starts_on_a_server_that_joined_while_the_policy_was_asked(mechanism: str) -> None:
    made = mechanism_for(find_policy("max_min_fairness"), mechanism, agnostic=False, forgiving=True)
    scheduler = Scheduler(builtin_table(), made, Settings(round_seconds=10.0))
    scheduler.handle(ServerJoined(0.0, Server("slow", "k80", 1)))
    scheduler.handle(JobSubmitted(0.0, JobSpec("gang", TEMPLATE, 2, 1e6)))
    (solve, *_) = [command for command in scheduler.handle(RoundDue(0.0)) if isinstance(command, Solve)]
    scheduler.handle(ServerJoined(0.5, Server("fast", "v100", 2)))
    commands, now = scheduler.handle(AllocationReady(0.5, solve.number, allocate(solve.problem))), 0.5
    while not (launched := [command for command in commands if isinstance(command, Launch)]):
        assert scheduler.wake is not None, "the scheduler sleeps although the job could run"
        now = max(scheduler.wake, now)
        assert now <= 20.5
        commands = scheduler.handle(RoundDue(now))
        for solve in [command for command in commands if isinstance(command, Solve)]:
            commands += scheduler.handle(AllocationReady(now, solve.number, allocate(solve.problem)))
    assert launched[0].accelerators == {"fast": 2}


@pytest.mark.parametrize("mechanism", ["plain", "credits"])
@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_that_comes_too_late_for_its_round_wakes_a_scheduler_that_sleeps(
    mechanism: str, *, fails: bool
) -> None:
    made = mechanism_for(find_policy("max_min_fairness"), mechanism, agnostic=False, forgiving=True)
    scheduler = Scheduler(builtin_table(), made, Settings(round_seconds=10.0, solve_patience_seconds=1.0))
    scheduler.handle(ServerJoined(0.0, Server("slow", "k80", 1)))
    scheduler.handle(JobSubmitted(0.0, JobSpec("first", TEMPLATE, 1, 10.0)))
    scheduler.handle(JobSubmitted(0.0, JobSpec("gang", TEMPLATE, 2, 10.0)))
    play(scheduler, 0.0)
    scheduler.handle(JobFinished(1.0, "first"))
    scheduler.handle(ServerJoined(1.0, Server("fast", "v100", 2)))
    (solve, *_) = [command for command in scheduler.handle(RoundDue(2.0)) if isinstance(command, Solve)]
    commands = scheduler.handle(RoundDue(3.0))  # the wait has ended; by the old answer nothing can run
    answer = AllocationReady(4.0, solve.number, allocate(solve.problem))
    commands += scheduler.handle(SolveFailed(4.0, solve.number, "no time") if fails else answer)
    while not any(isinstance(command, Launch) for command in commands):
        assert scheduler.wake is not None, "the scheduler sleeps although the job could run"
        assert scheduler.wake <= 20.0
        commands = play(scheduler, max(scheduler.wake, 4.0))


def play(scheduler: Scheduler, now: float) -> list[Command]:
    """Run a round in which the policy answers at once."""
    commands = scheduler.handle(RoundDue(now))
    for solve in [command for command in commands if isinstance(command, Solve)]:
        commands += scheduler.handle(AllocationReady(now, solve.number, allocate(solve.problem)))
    return commands
