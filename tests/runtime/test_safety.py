"""The scheduler may end between any two operations: small scenarios, each run once for every operation it has."""

from __future__ import annotations

import pytest
from fault_fixtures import Folders
from fault_scenarios import SCENARIOS, base, crashed


@pytest.mark.parametrize("name", SCENARIOS)
def test_recovery_from_any_prefix_gives_the_state_that_existed_then(name: str, fresh_folder: Folders) -> None:
    world = base(SCENARIOS[name], fresh_folder())
    world.checker.check_prefixes()
    world.checker.check_other_settings(
        round_seconds=9.0, policy="fifo", mechanism="plain", space_sharing=not world.settings.space_sharing
    )
    world.finish()


@pytest.mark.parametrize("name", SCENARIOS)
def test_everything_stays_safe_and_completes_wherever_the_scheduler_ends(name: str, fresh_folder: Folders) -> None:
    scenario = SCENARIOS[name]
    world = base(scenario, fresh_folder())
    world.finish()
    for at in range(1, world.points + 1):
        try:
            crashed(scenario, fresh_folder(), at).finish()
        except AssertionError as error:
            raise AssertionError(f"crash point {at} of {world.points}: {error}") from error
