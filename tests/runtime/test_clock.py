"""The scheduler's time does not jump, and a suspended scheduler does not blame its agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from virtual_fleet import VirtualFleet

from gavel.core.allocation import Allocation
from gavel.core.problem import Problem
from gavel.runtime import driver
from gavel.runtime.clock import SteadyClock
from gavel.runtime.driver import Driver
from gavel.runtime.fleet import RefusedError
from gavel.runtime.messages import Hello, ToAgent
from gavel.wire import PROTOCOL


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[VirtualFleet]:
    world = VirtualFleet(tmp_path)
    world.boot()
    world.add_agent("a", "v100", 2)
    world.submit(1e6)
    world.run(10.0)
    yield world
    world.finish()


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


@pytest.mark.parametrize("excused", [True, False])
def test_agents_are_not_lost_because_the_scheduler_was_suspended(cluster: VirtualFleet, *, excused: bool) -> None:
    fleet = cluster.fleet
    still = cluster.fleet_settings.agent_timeout_seconds + 5.0
    cluster.now += still
    if excused:
        fleet.excuse(still)
    fleet.tick()
    assert bool(fleet.members) == excused


def test_the_driver_notices_that_it_was_suspended(cluster: VirtualFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, still = cluster.engine, cluster.fleet_settings.agent_timeout_seconds + 5.0
    assert engine is not None
    monkeypatch.setattr(driver, "TICK_SECONDS", 0.01)

    async def stand_still() -> None:
        driving = Driver(engine, cluster.fleet, _never)
        ticking = asyncio.create_task(driving._tick())
        await asyncio.sleep(0.05)
        cluster.now += still
        await asyncio.sleep(0.05)
        ticking.cancel()

    asyncio.run(stand_still())
    assert cluster.fleet.members


def _never(_: Problem) -> Allocation:
    raise NotImplementedError


def test_a_name_that_could_not_be_told_from_a_type_is_refused(cluster: VirtualFleet) -> None:
    hello = Hello(name="rack:3", agent="x", incarnation="1", protocol=PROTOCOL, accelerators={"v100": 1})
    with pytest.raises(RefusedError, match="contains a colon"):
        cluster.fleet.attach(hello, Nowhere())


class Nowhere:
    def send(self, message: ToAgent) -> None:
        raise AssertionError(message)

    def unread(self) -> int:
        return 0

    def close(self) -> None:
        pass
