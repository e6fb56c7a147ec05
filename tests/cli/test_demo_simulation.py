"""The simulation that `gavel demo` prints beside what happened."""

from __future__ import annotations

import pytest

from gavel.cli.demo import simulated
from gavel.cli.demo_jobs import REAL_TEMPLATE, DemoJob, as_trace, demo_table, emulated_ids
from gavel.core.throughputs import builtin_table
from gavel.sim.starts import StartCosts

TABLE = builtin_table()
EMULATED = DemoJob("CycleGAN", "CycleGAN", 3600)
REAL = DemoJob("real training", REAL_TEMPLATE, 1600)


def test_a_real_training_is_simulated_as_fast_as_it_was_here() -> None:
    jobs = [EMULATED, REAL]
    table = demo_table(TABLE, jobs, [20.0, 4.0], time_scale=60.0)
    assert table.rates([(REAL_TEMPLATE, 1)], ["v100", "k80"])[0, :, 0].tolist() == pytest.approx([400.0 / 60.0] * 2)
    assert [job.id for job in as_trace(jobs)] == ["1", "2"]
    assert emulated_ids(jobs) == ["1"]


def test_without_a_real_training_the_table_is_the_usual_one() -> None:
    assert demo_table(TABLE, [EMULATED], [20.0], time_scale=60.0) is TABLE


def test_a_start_takes_as_long_in_simulation_as_it_took_here() -> None:
    rate = float(TABLE.rates([("CycleGAN", 1)], ["v100"])[0, 0, 0])
    free, dear = (
        simulated([EMULATED], TABLE, StartCosts(first_seconds=seconds * 60.0), agnostic=False) for seconds in (0.0, 2.0)
    )
    assert free == pytest.approx(3600 / rate / 60.0)
    assert dear == pytest.approx(free + 2.0)
