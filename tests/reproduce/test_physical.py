"""The live system beside its simulation: what the two traces measure, and what the table says."""

from __future__ import annotations

import pytest

from gavel.core.throughputs import builtin_table
from gavel.reproduce.measures.physical import (
    CONTINUOUS,
    STATIC,
    PhysicalOutcome,
    Trial,
    TrialSize,
    _simulations,
    _trace,
)
from gavel.reproduce.study import all_studies
from gavel.sim.starts import StartCosts


def test_arriving_jobs_count_by_their_average_and_static_ones_by_the_last() -> None:
    seconds = [3600.0, 3 * 3600.0]
    assert CONTINUOUS.hours(seconds) == pytest.approx(2.0)
    assert STATIC.hours(seconds) == pytest.approx(3.0)


def test_gains_and_differences_are_told_for_each_side() -> None:
    simulated = [[[30600.0], [34200.0]], [[45360.0]]]
    outcome = PhysicalOutcome(STATIC, live=[[7200.0, 36000.0], [43200.0]], simulated=simulated)
    values = outcome.values("makespan")
    assert values["makespan_live_gain"] == pytest.approx(1.2)
    assert values["makespan_simulated_gain"] == pytest.approx(1.4)
    assert values["makespan_difference"] == pytest.approx(0.1)
    assert [row[0] for row in outcome.table().rows] == ["makespan", "Gandiva's packing"]
    assert outcome.table().rows[0][3:] == ["10.00", "9.00", "8.50-9.50", "10.0%"]


def test_every_claim_of_the_study_is_measured() -> None:
    live, simulated = [[1.0], [1.0]], [[[1.0]], [[1.0]]]
    values = PhysicalOutcome(CONTINUOUS, live, simulated).values("jct") | PhysicalOutcome(
        STATIC, live, simulated
    ).values("makespan")
    assert {claim.value for claim in all_studies()["table-physical"].claims} == values.keys()


@pytest.mark.parametrize("trial", [CONTINUOUS, STATIC], ids=["continuous", "static"])
def test_the_better_policy_is_better_in_simulation(trial: Trial) -> None:
    size, starts = TrialSize(30, trial.quick.time_scale), StartCosts(first_seconds=40.0, restart_seconds=50.0)
    trace = _trace(builtin_table(), size, trial)
    assert len({job.arrival for job in trace.jobs}) == (1 if trial.static else 30)
    outcome = PhysicalOutcome(
        trial,
        live=[[1.0], [1.0]],
        simulated=[_simulations(trace, size, contender, starts) for contender in trial.contenders],
    )
    (_, better), (_, worse) = outcome.hours
    assert better < worse


def test_jobs_are_called_in_simulation_what_the_live_system_will_call_them() -> None:
    """Policies that draw at random do so by the names of jobs."""
    trace = _trace(builtin_table(), TrialSize(12, 100.0), STATIC)
    assert [job.id for job in trace.jobs] == [str(number) for number in range(1, 13)]


def test_what_starts_cost_live_is_part_of_the_report() -> None:
    costs = StartCosts(first_seconds=30.0, restart_seconds=45.0)
    notes = PhysicalOutcome(STATIC, [[1.0]] * 2, [[[1.0]]] * 2, [costs] * 2).notes()
    assert notes[0].startswith("makespan: in seconds of the trace a first start took 30 and a restart 45 on average")
