"""After a restart, parts of a gang are expected at the agents that they were launched at, whatever their names."""

from __future__ import annotations

from fault_fixtures import Folders
from virtual_fleet import VirtualFleet


def test_a_gang_that_lost_an_agent_to_a_namesake_is_not_expected_there_after_a_restart(fresh_folder: Folders) -> None:
    world = VirtualFleet(fresh_folder(), 1, round_seconds=10.0, slow_to_leave=True)
    world.boot()
    world.add_agent("a", "v100", 1)
    first = world.add_agent("b", "v100", 1)
    job = world.submit(steps=200.0, workers=2)
    world.run(3.0)
    assert first.tasks
    stays = world.agents["id-a"]
    stays.hang(40.0)
    first.hang(40.0)
    world.add_agent("b", "v100", 1, identity="namesake")
    world.run(2.0)
    assert world.engine is not None
    assert world.engine.state.agents.by_server["b"] == "namesake"
    assert world.engine.state.attempts.holders[job, 1] == {"a": "id-a", "b": "id-b"}
    world.kill_scheduler(0.5)
    world.run(0.75)
    attempt = world.fleet.attempts[job]
    assert attempt.part_at("namesake") is None
    assert attempt.part_at("id-a") is not None
    world.run_until_over()
    world.finish()
