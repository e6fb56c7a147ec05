"""Nothing is lost and nothing runs twice, whatever is killed: the real engine and journal in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from virtual_fleet import SETTINGS, VirtualFleet

from gavel.core.codec import encode_command
from gavel.core.throughputs import builtin_table
from gavel.estimator.learned import LearnedTable
from gavel.runtime.book import Book
from gavel.runtime.engine import Recovered, replay
from gavel.runtime.journal import Journal, sqlite_url
from gavel.runtime.server import fresh_scheduler
from gavel.wire import gavel_pb2 as pb


class Build(Protocol):
    def __call__(
        self, seed: int, *, crash_rate: float = 0.0, events_between_states: int = 5_000, round_seconds: float = 2.0
    ) -> VirtualFleet: ...


@pytest.fixture
def small_cluster(tmp_path: Path) -> Iterator[Build]:
    worlds: list[VirtualFleet] = []

    def build(
        seed: int, *, crash_rate: float = 0.0, events_between_states: int = 5_000, round_seconds: float = 2.0
    ) -> VirtualFleet:
        world = VirtualFleet(
            tmp_path,
            seed,
            crash_rate=crash_rate,
            events_between_states=events_between_states,
            round_seconds=round_seconds,
        )
        worlds.append(world)
        world.boot()
        for number in range(2):
            world.add_agent(f"fast{number}", "v100", 2)
            world.add_agent(f"slow{number}", "k80", 2)
        return world

    yield build
    for world in worlds:
        world.close()


def completed(world: VirtualFleet) -> None:
    for record in world.records():
        assert record.state == pb.COMPLETED, (record.id, record.history)
        assert record.steps_done == pytest.approx(record.request.steps)


def test_jobs_of_all_sizes_complete_without_faults(small_cluster: Build) -> None:
    world = small_cluster(0)
    for workers in (1, 1, 2, 4, 1, 2, 1, 1, 1):
        world.submit(steps=100.0, workers=workers)
    world.run_until_over()
    completed(world)


@pytest.mark.parametrize("round_seconds", [2.0, 30.0], ids=["short rounds", "long rounds"])
@pytest.mark.parametrize("seed", range(12))
def test_everything_completes_although_connections_break_and_processes_die(
    small_cluster: Build, seed: int, round_seconds: float
) -> None:
    often = 40 if seed % 2 else 5_000
    world = small_cluster(seed, crash_rate=0.002, events_between_states=often, round_seconds=round_seconds)
    rng = world.random
    for _ in range(10):
        world.submit(steps=rng.uniform(20.0, 200.0), workers=rng.choice([1, 1, 1, 2, 3, 4]))

    def trouble() -> None:
        agent = rng.choice(list(world.agents.values()))
        dice = rng.random()
        if dice < 0.01 and agent.wire is not None:
            agent.away_until = world.now + rng.uniform(0.0, 12.0)
            agent.wire.close()
        elif dice < 0.015:
            agent.die()
            agent.away_until = world.now + rng.uniform(0.0, 12.0)
        elif dice < 0.022 and world.engine is not None:
            world.kill_scheduler(rng.uniform(0.25, 12.0))

    world.run(120.0, trouble)
    world.run_until_over()
    completed(world)


@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_always_fails_is_given_up_with_a_reason_and_disturbs_nobody(small_cluster: Build, seed: int) -> None:
    world = small_cluster(seed)
    good = [world.submit(steps=60.0) for _ in range(4)]
    world.crash_rate = 0.0
    bad = world.submit(steps=1e9, retries=2)

    def crash_the_bad_one() -> None:
        for agent in world.agents.values():
            for (job, _), task in agent.tasks.items():
                if job == bad and task.processes and task.processes[0].ends_at is None:
                    agent.end(task, task.processes[0], pb.TaskEnded.How.CRASHED, "exit code 3")

    world.run(60.0, crash_the_bad_one)
    world.run_until_over()
    assert world.engine is not None
    record = world.engine.book[bad]
    assert (record.state, record.failures) == (pb.FAILED, 3)
    assert record.history[-1].reason == "exit code 3"
    assert all(world.engine.book[job].state == pb.COMPLETED for job in good)


def test_running_jobs_go_on_while_the_scheduler_is_away_and_are_not_restarted(small_cluster: Build) -> None:
    world = small_cluster(1)
    job = world.submit(steps=400.0)
    world.run(5.0)
    world.kill_scheduler(1.5)
    world.run(5.0)
    world.run_until_over()
    assert world.engine is not None
    assert world.engine.book[job].attempts == 1


def test_a_finished_job_stays_finished_when_the_scheduler_dies_before_it_says_thanks(small_cluster: Build) -> None:
    world = small_cluster(2)
    job = world.submit(steps=30.0)
    while not any(agent.unacknowledged for agent in world.agents.values()) and not world.all_over():
        world.step()
    world.kill_scheduler(1.0)
    world.run(20.0)
    world.run_until_over()
    assert world.engine is not None
    assert world.engine.book[job].attempts == 1


def test_the_journal_of_a_run_replayed_gives_the_same_commands(small_cluster: Build, tmp_path: Path) -> None:
    world = small_cluster(3, crash_rate=0.005)
    for workers in (1, 2, 1, 4, 1, 1):
        world.submit(steps=80.0, workers=workers)
    world.run(10.0)
    world.agents["fast0"].die()
    world.run_until_over()
    assert world.engine is not None
    told = [[encode_command(command) for command in commands] for _, commands in world.story]
    world.kill_scheduler(1.0)
    with Journal(sqlite_url(tmp_path / "journal.sqlite")) as journal:
        here = Recovered(fresh_scheduler(world.settings, LearnedTable(builtin_table())), Book())
        again = [[encode_command(command) for command in replay(here, entry)] for entry in journal.events()]
    assert again == told


@pytest.mark.parametrize("quarters", range(8, 32))
def test_an_agent_that_comes_back_late_has_its_jobs_stopped_before_they_start_elsewhere(
    small_cluster: Build, quarters: int
) -> None:
    world = small_cluster(quarters)
    jobs = [world.submit(steps=400.0, workers=2) for _ in range(3)]
    world.run(6.0)
    agent = next(agent for agent in world.agents.values() if agent.tasks)
    assert agent.wire is not None
    agent.away_until = world.now + quarters / 4
    agent.wire.close()
    world.run_until_over()  # nothing runs twice: the fleet looks after every step
    completed(world)
    assert len(jobs) == 3


@pytest.mark.parametrize("events_between_states", [3, 5_000])
@pytest.mark.parametrize("seconds_later", [0.0, 1.0, 5.0])
def test_a_scheduler_that_restarts_still_knows_what_a_lost_agent_may_run(
    small_cluster: Build, seconds_later: float, events_between_states: int
) -> None:
    """Rounds are long, so leases are: the job of the lost agent must not start elsewhere before its lease ends."""
    world = small_cluster(5, round_seconds=40.0, events_between_states=events_between_states)
    job = world.submit(steps=2_000.0)
    world.run(6.0)
    agent = next(agent for agent in world.agents.values() if agent.tasks)
    assert agent.wire is not None
    agent.away_until = world.now + 1_000.0
    agent.wire.close()
    world.run(SETTINGS.agent_timeout_seconds + 1.0 + seconds_later)
    assert agent.tasks  # it is given up, and still runs under its lease
    world.kill_scheduler(1.0)
    world.run(20.0)  # nothing runs twice: the fleet looks after every step
    world.run_until_over()
    assert world.record(job).state == pb.COMPLETED
