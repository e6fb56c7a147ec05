"""What is older than it has to be kept is removed beside a running scheduler, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from virtual_fleet import VirtualFleet

from gavel.runtime.housekeeping import DAY, Keep, tidy
from gavel.runtime.logs import Logs


def test_old_facts_and_finished_jobs_go_and_the_scheduler_continues(tmp_path: Path) -> None:
    world = VirtualFleet(tmp_path, facts_between_states=10)
    world.boot()
    world.add_agent("a", "v100", 2)
    for _ in range(3):
        world.submit(steps=40.0)
    world.run_until_over()
    engine = world.engine
    assert engine is not None
    engine.keep_state()
    facts = engine.journal.last
    keep = Keep(journal_days=1.0, finished_days=2.0)
    tidy(keep, engine.journal, Logs(tmp_path / "logs"), engine.clock())
    assert engine.journal.leader.base == 0, "nothing is old yet"
    tidy(keep, engine.journal, Logs(tmp_path / "logs"), engine.clock() + 1.5 * DAY)
    assert engine.journal.leader.base > 0
    assert engine.journal.last == facts
    assert engine.journal.find("1") is not None
    tidy(keep, engine.journal, Logs(tmp_path / "logs"), engine.clock() + 3 * DAY)
    assert engine.journal.find("1") is None
    later = world.submit(steps=40.0)
    assert later == "4", "ids are never given again"
    world.kill_scheduler(0.5)
    world.run(30.0)
    assert world.record(later).finished
    world.finish()


def test_logs_of_jobs_that_print_nothing_any_more_go(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    for job in ("1", "2"):
        logs.append(job, 0, 1, 0, b"hello")
    old = next((tmp_path / "1").iterdir())
    os.utime(old, (1_000.0, 1_000.0))
    assert logs.prune(2_000.0) == 1
    assert logs.read("1", 0) == (0, b"")
    assert logs.read("2", 0) == (0, b"hello")


@pytest.mark.parametrize("days", [0.0, -1.0])
def test_keeping_for_zero_days_is_refused(days: float) -> None:
    with pytest.raises(ValueError, match="retention must be greater than 0 days"):
        Keep(journal_days=days).retention  # noqa: B018 - it is worked out
