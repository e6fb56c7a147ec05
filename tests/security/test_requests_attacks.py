"""Plays the attacks by requests against a real secured cluster; its job must finish."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests_attacks
from attacked_cluster import Target, attacked_cluster
from attacks import Attack, of_module

from gavel.wire import gavel_pb2 as pb


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with attacked_cluster() as found:
        yield found


@pytest.mark.parametrize("attack", of_module(requests_attacks.__name__), ids=lambda attack: attack.name)
def test_the_attack_fails_and_disturbs_nothing(target: Target, attack: Attack) -> None:
    # Calls are counted by token, and these attacks make more of them than one token may.
    target.tokens["ann"] = target.call("CreateToken", pb.CreateTokenRequest(user="ann"), "root").token
    attack.play(target)
    target.check_undisturbed()
