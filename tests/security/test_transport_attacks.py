"""Plays the attacks on the transport against a real secured cluster; its job must finish."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import transport_attacks
from attacked_cluster import Target, attacked_cluster
from attacks import Attack, of_module


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with attacked_cluster() as found:
        yield found


@pytest.mark.parametrize("attack", of_module(transport_attacks.__name__), ids=lambda attack: attack.name)
def test_the_attack_fails_and_disturbs_nothing(target: Target, attack: Attack) -> None:
    attack.play(target)
    target.check_undisturbed()
