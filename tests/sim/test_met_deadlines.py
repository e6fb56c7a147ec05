"""Deadlines in simulations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gavel.policies.mechanisms import MechanismName
from gavel.sim.experiment import Experiment, run


@pytest.mark.parametrize("mechanism", ["credits", "plain"])
def test_minimum_cost_with_deadlines_misses_none_that_can_be_met(mechanism: MechanismName) -> None:
    experiment = Experiment(
        cluster="v100=4,k80=4",
        policy="min_cost_slo",
        normalised=True,
        mechanism=mechanism,
        jobs=24,
        arrivals_per_hour=0.1,
        templates=("ResNet-50 (batch size 64)", "A3C"),
        durations=(43_200.0, 86_400.0),
        slo=(1.2, 2.0, 10.0),
    )
    met, dear = (run(e).document() for e in (experiment, replace(experiment, policy="max_throughput")))
    assert met["slo_violations"] == 0
    assert met["cost_dollars"] < dear["cost_dollars"]
