"""A live scheduler with a user's mechanism: it survives restarts, and its faults stop no job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from virtual_fleet import VirtualFleet

from gavel.client.views import JobState
from gavel.core.errors import InputError
from gavel.runtime.views import cluster_view

MODULE = """
from pathlib import Path
from gavel import Plan
from gavel.scheduler.priorities import Priorities
class Theirs(Priorities):
    def decide(self, given):
        if Path(__file__).with_name("broken").exists():
            raise RuntimeError("no plan today")
        return super().decide(given)
class Forgetful:
    def adopt(self, allocation, slots): pass
    def decide(self, given): return Plan()
    def account(self, elapsed): pass
    def leave(self, slot): pass
"""
Build = Callable[[str], VirtualFleet]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """A small cluster whose scheduler has this mechanism."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    (tmp_path / "theirs.py").write_text(MODULE)
    worlds: list[VirtualFleet] = []

    def build(mechanism: str) -> VirtualFleet:
        world = VirtualFleet(tmp_path, 0, facts_between_states=20)
        world.settings = replace(world.settings, mechanism=mechanism)
        worlds.append(world)
        world.boot()
        for number in range(2):
            world.add_agent(f"fast{number}", "v100", 2)
        return world

    yield build
    for world in worlds:
        world.finish()


def completed(world: VirtualFleet) -> bool:
    return all(record.state is JobState.COMPLETED for record in world.records())


def test_jobs_complete_although_the_scheduler_dies(fleet: Build) -> None:
    world = fleet("theirs.Theirs")
    for workers in (1, 2, 1, 4, 1, 1):
        world.submit(steps=100.0, workers=workers)
    world.run(20.0)
    world.kill_scheduler(1.0)
    world.run_until_over()
    assert completed(world)


def test_a_fault_keeps_what_runs_and_is_told_until_a_plan_succeeds(fleet: Build, tmp_path: Path) -> None:
    world = fleet("theirs.Theirs")
    world.submit(steps=40.0)
    world.run(6.0)
    (tmp_path / "broken").touch()
    world.submit(steps=40.0)
    world.run(10.0)
    assert world.engine is not None
    [first, second] = world.records()
    assert (first.attempts, second.attempts) == (1, 0)
    trouble = cluster_view(world.engine).trouble
    assert trouble.startswith("mechanism theirs.Theirs failed: RuntimeError: no plan today (theirs.py, line 8)")
    (tmp_path / "broken").unlink()
    world.submit(steps=40.0)
    world.run_until_over()
    assert completed(world)
    assert not cluster_view(world.engine).trouble


def test_a_folder_can_be_taken_up_with_another_mechanism(fleet: Build) -> None:
    world = fleet("theirs.Theirs")
    for _ in range(6):
        world.submit(steps=100.0)
    world.run(10.0)
    running = {record.id: record.attempts for record in world.records() if record.state is JobState.RUNNING}
    world.close()
    world.with_settings(mechanism="plain")
    world.boot()
    assert running
    assert {job: world.record(job).attempts for job in running} == running
    world.run_until_over()
    assert completed(world)


def test_a_mechanism_whose_state_cannot_be_stored_is_refused(fleet: Build) -> None:
    with pytest.raises(InputError, match=r"mechanism theirs\.Forgetful: a scheduler stores its state"):
        fleet("theirs.Forgetful")
