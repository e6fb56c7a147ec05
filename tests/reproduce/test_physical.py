"""The live system beside its simulation: what the two traces measure, and what the table says."""

from __future__ import annotations

import pytest

from gavel.core.throughputs import builtin_table
from gavel.reproduce.measures.physical import CONTINUOUS, STATIC, Outcome, Plan, Trial, _simulated, _trace
from gavel.reproduce.study import all_studies


def test_arriving_jobs_count_by_their_average_and_static_ones_by_the_last() -> None:
    seconds = [3600.0, 3 * 3600.0]
    assert CONTINUOUS.hours(seconds) == pytest.approx(2.0)
    assert STATIC.hours(seconds) == pytest.approx(3.0)


def test_gains_and_differences_are_told_for_each_side() -> None:
    outcome = Outcome(STATIC, live=[[7200.0, 36000.0], [43200.0]], simulated=[[32400.0], [45360.0]])
    values = outcome.values("makespan")
    assert values["makespan_live_gain"] == pytest.approx(1.2)
    assert values["makespan_simulated_gain"] == pytest.approx(1.4)
    assert values["makespan_difference"] == pytest.approx(0.1)
    assert [row[0] for row in outcome.table().rows] == ["makespan", "Gandiva's packing"]
    assert outcome.table().rows[0][3:] == ["10.00", "9.00", "10.0%"]


def test_every_claim_of_the_study_is_measured() -> None:
    sides = [[1.0], [1.0]]
    values = Outcome(CONTINUOUS, sides, sides).values("jct") | Outcome(STATIC, sides, sides).values("makespan")
    assert {claim.value for claim in all_studies()["table-physical"].claims} == values.keys()


@pytest.mark.parametrize("trial", [CONTINUOUS, STATIC], ids=["continuous", "static"])
def test_the_better_policy_is_better_in_simulation(trial: Trial) -> None:
    plan = Plan(30, trial.quick.time_scale)
    trace = _trace(builtin_table(), plan, static=trial.static)
    assert len({job.arrival for job in trace.jobs}) == (1 if trial.static else 30)
    better, worse = (trial.hours(_simulated(trace, plan, contender)) for contender in trial.contenders)
    assert better < worse
