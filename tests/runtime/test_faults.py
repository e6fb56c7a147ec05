"""Every kind of fault at random, by seed, and what single faults must and must not lead to; see also test_safety."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fault_campaign import Campaign, play
from fault_fixtures import Folders
from safety import CLOSED, PROGRESSED, Checker
from virtual_fleet import VirtualFleet

from gavel.runtime.events import StepsCounted
from gavel.runtime.facts import AgentLost
from gavel.runtime.messages import TaskStatus

BROAD_FAULTS = 10_000
"""Survived in the broad profile, doubled messages aside."""
FIRST_BROAD_SEED = 1_000


@pytest.mark.parametrize("seed", range(8))
def test_everything_stays_safe_and_completes_whatever_happens_together(seed: int, fresh_folder: Folders) -> None:
    faults = play(fresh_folder(), seed)
    assert faults["scheduler crashed"]


@pytest.mark.campaign
def test_ten_thousand_faults_break_no_safety_property(
    fresh_folder: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    faults: Counter[str] = Counter()
    seed = FIRST_BROAD_SEED
    while faults.total() - faults["message doubled"] < BROAD_FAULTS:
        faults += play(fresh_folder(), seed)
        seed += 1
    with capsys.disabled():
        print(f"\n{seed - FIRST_BROAD_SEED} seeds, {faults.total()} faults: {dict(faults)}")


def test_a_campaign_has_every_kind_of_fault(fresh_folder: Folders) -> None:
    campaign = Campaign(fresh_folder(), 5)
    faults = campaign.play()
    assert campaign.world.crashes
    assert len([kind for kind, count in faults.items() if count]) >= 10


def test_a_campaign_ends_with_rounds_that_outlast_restarts_also_if_its_scheduler_is_suspended_then(
    fresh_folder: Folders,
) -> None:
    campaign = Campaign(fresh_folder(), 5)
    world = campaign.world
    world.with_settings(round_seconds=2.0)
    world.boot()
    world.stand_still(5.0)
    campaign.calm()
    world.run(6.0)
    assert world.engine is not None
    assert world.engine.state.settings["round_seconds"] == 12.0
    world.finish()


def recorded(kind: str, **fact: object) -> dict[str, object]:
    return {"kind": kind, "fact": fact}


def checker_of_a_crashed_job(folder: Path) -> Checker:
    """69 steps are recorded of job 1, whose agent died, and its next attempt has begun with 60."""
    checker = Checker(VirtualFleet(folder))
    closed = recorded(CLOSED, job="1", attempt=1)
    checker.wrote([recorded(PROGRESSED, jobs=["1"], steps=[69.0]), closed], 2)
    checker.begins("1", 60.0)
    return checker


SAVED = TaskStatus(job="1", attempt=2, rank=0, counts=True, steps=72.0, saved_steps=72.0)
COUNTED = StepsCounted(0.0, {"1": 67.5})
FELL = recorded(PROGRESSED, jobs=["1"], steps=[-1.5])


def test_a_checkpoint_that_is_heard_of_while_steps_are_written_is_not_held_against_them(tmp_path: Path) -> None:
    checker = checker_of_a_crashed_job(tmp_path)
    checker.reports(COUNTED)
    checker.heard([SAVED])
    checker.wrote([FELL], 3)
    assert checker.steps["1"] == 67.5


def test_steps_behind_a_checkpoint_that_was_heard_of_before_are_noticed(tmp_path: Path) -> None:
    checker = checker_of_a_crashed_job(tmp_path)
    checker.heard([SAVED])
    checker.reports(COUNTED)
    with pytest.raises(AssertionError, match="behind its checkpoint of 72"):
        checker.wrote([FELL], 3)


@pytest.fixture
def cluster(fresh_folder: Folders) -> VirtualFleet:
    world = VirtualFleet(fresh_folder(), 1, round_seconds=4.0)
    world.boot()
    world.add_agent("a", "v100", 2)
    world.add_agent("b", "k80", 2)
    return world


def test_jobs_of_all_sizes_complete_without_faults(cluster: VirtualFleet) -> None:
    for workers in (1, 1, 2, 1, 2, 1):
        cluster.submit(steps=40.0, workers=workers)
    cluster.run_until_over()
    assert {record.state for record in cluster.records()} == {"completed"}
    assert all(record.steps_done == pytest.approx(40.0) for record in cluster.records())
    cluster.finish()


def test_running_jobs_continue_while_the_scheduler_is_away_and_are_not_restarted(cluster: VirtualFleet) -> None:
    job = cluster.submit(steps=100.0)
    cluster.run(4.0)
    cluster.kill_scheduler(1.5)
    cluster.run_until_over()
    assert cluster.record(job).attempts == 1
    cluster.finish()


def test_a_suspended_scheduler_does_not_lose_its_agents(cluster: VirtualFleet) -> None:
    cluster.submit(steps=60.0)
    cluster.run(3.0)
    cluster.stand_still(cluster.fleet_settings.agent_timeout_seconds + 5.0)
    cluster.run_until_over()
    assert not [fact for fact in cluster.story if isinstance(fact, AgentLost)]
    cluster.finish()


def test_a_crash_takes_a_job_back_to_its_checkpoint(cluster: VirtualFleet) -> None:
    cluster.checkpoint_seconds = 2.0
    job = cluster.submit(steps=200.0)
    cluster.run(7.5)
    saved = cluster.disk[job]
    assert any(agent.crash_task(job) for agent in cluster.agents.values())
    while cluster.record(job).state == "running":
        cluster.step()
    assert cluster.record(job).steps_done == cluster.disk[job] == saved
    cluster.finish()


def test_a_job_that_always_fails_is_given_up_with_a_reason_and_disturbs_no_other(cluster: VirtualFleet) -> None:
    good = [cluster.submit(steps=40.0) for _ in range(2)]
    bad = cluster.submit(steps=1e9, retries=2)
    cluster.run(40.0, lambda: void(*(agent.crash_task(bad) for agent in cluster.agents.values())))
    cluster.run_until_over()
    record = cluster.record(bad)
    assert (record.state, record.failures, record.history[-1].reason) == ("failed", 3, "exit code 3")
    assert {cluster.record(job).state for job in good} == {"completed"}
    cluster.finish()


def void(*_: object) -> None:
    pass
