"""The scheduler's time does not jump, and a scheduler that stood still blames nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from gavel.runtime.clockwork import Clockwork
from virtual_fleet import VirtualFleet

from gavel.core.allocation import Allocation
from gavel.core.problem import Problem
from gavel.runtime import clockwork
from gavel.runtime.clock import SteadyClock
from gavel.runtime.fleet import RefusedError
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[VirtualFleet]:
    world = VirtualFleet(tmp_path, seed=0)
    world.boot()
    world.add_agent("a", "v100", 2)
    world.submit(1e6)
    world.run(10.0)
    yield world
    world.close()


def test_setting_the_machines_clock_changes_nothing() -> None:
    wall, ticking = 1e9, 50.0
    clock = SteadyClock(wall=lambda: wall, monotonic=lambda: ticking)
    assert clock() == 1e9
    for step in (3600.0, -7200.0):
        wall += step
        ticking += 1.0
    assert clock() == 1e9 + 2.0


def test_it_begins_no_earlier_than_the_journal_ends() -> None:
    clock = SteadyClock(not_before=2e9, wall=lambda: 1e9, monotonic=lambda: 50.0)
    assert clock() == 2e9


def agent_timeout(world: VirtualFleet) -> float:
    assert world.engine is not None
    return world.engine.fleet.settings.agent_timeout_seconds


@pytest.mark.parametrize("excused", [True, False])
def test_agents_are_not_lost_because_the_scheduler_stood_still(cluster: VirtualFleet, *, excused: bool) -> None:
    assert cluster.engine is not None
    fleet = cluster.engine.fleet
    still = agent_timeout(cluster) + 5.0
    cluster.now += still
    if excused:
        fleet.excuse(still)
    fleet.tick()
    assert ("a" in fleet.members) == excused


def test_the_driver_notices_that_it_stood_still(cluster: VirtualFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, still = cluster.engine, agent_timeout(cluster) + 5.0
    assert engine is not None
    monkeypatch.setattr(clockwork, "TICK_SECONDS", 0.01)

    async def stand_still() -> None:
        driver = Clockwork(engine, _never)
        ticking = asyncio.create_task(driver._tick())
        await asyncio.sleep(0.05)
        cluster.now += still
        await asyncio.sleep(0.05)
        ticking.cancel()

    asyncio.run(stand_still())
    assert "a" in engine.fleet.members


def _never(_: Problem) -> Allocation:
    raise NotImplementedError


def test_fences_last_as_long_after_a_restart_whatever_the_clock_says(cluster: VirtualFleet) -> None:
    """The machine's clock was set forward by an hour while the scheduler was away."""
    assert cluster.engine is not None
    cluster.engine.here.fences["1", "b"] = cluster.engine.here.time + 30.0
    cluster.engine.keep_state()
    written = cluster.engine.here.time
    cluster.kill_scheduler(1.0)
    cluster.now += 3600.0
    cluster.boot()
    assert cluster.engine is not None
    left = cluster.engine.fleet.fences["1", "b"] - cluster.now
    assert left == pytest.approx(written + 30.0 - cluster.engine.here.time)


def test_a_name_that_could_not_be_told_from_a_type_is_refused(cluster: VirtualFleet) -> None:
    assert cluster.engine is not None
    hello = pb.Hello(name="rack:3", protocol=PROTOCOL, accelerators=[pb.Accelerators(type="v100", count=1)])
    with pytest.raises(RefusedError, match="contains a colon"):
        cluster.engine.fleet.attach(hello, Nowhere())


class Nowhere:
    def send(self, message: pb.ToAgent) -> None:
        raise AssertionError(message)

    def close(self) -> None:
        pass
