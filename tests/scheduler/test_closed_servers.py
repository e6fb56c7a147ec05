"""A server that is drained while the policy is being asked takes nothing in the round that the answer begins."""

from __future__ import annotations

import pytest

from gavel.core.cluster import Server
from gavel.core.events import AllocationReady, JobSubmitted, Launch, RoundDue, ServerJoined, ServerLeaving, Solve
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
