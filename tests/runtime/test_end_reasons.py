"""What users read about the end of a job: why it completed, and how many retries are left."""

from __future__ import annotations

import pytest
from fault_fixtures import Folders
from virtual_fleet import VirtualFleet

from gavel.client.requests import Submission
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.state import _done


@pytest.mark.parametrize(
    ("steps", "done", "reason"),
    [(100.0, 100.0, "all steps done"), (100.0, 60.0, "finished by itself"), (None, 60.0, "finished by itself")],
)
def test_steps_are_called_done_only_if_they_were(steps: float | None, done: float, reason: str) -> None:
    request = Submission(command=("train",), steps=steps)
    assert _done(LiveJobRecord(id="1", request=request, submitted=0.0, history=(), steps_done=done)) == reason


@pytest.mark.parametrize(("retries", "left"), [(1, "0 more retries"), (2, "1 more retry"), (3, "2 more retries")])
def test_retries_are_counted_in_english(retries: int, left: str, fresh_folder: Folders) -> None:
    world = VirtualFleet(fresh_folder(), 1, round_seconds=4.0)
    world.boot()
    agent = world.add_agent("a", "v100", 1)
    job = world.submit(steps=60.0, retries=retries)
    while not agent.crash_task(job):
        world.run(1.0)
    world.run(1.0)
    assert any(entry.reason.endswith(left) for entry in world.record(job).history), world.record(job).history
    world.finish()
