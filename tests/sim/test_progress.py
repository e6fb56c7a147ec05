"""Steps in arrays: reported once, never more than were left, and jobs end when their steps run out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.sim.progress import RunningJobs


@given(
    jobs=st.lists(
        st.tuples(st.floats(0.0, 100.0), st.floats(0.1, 10.0), st.floats(0.1, 1000.0)), min_size=1, max_size=200
    ),
    times=st.lists(st.floats(0.0, 300.0), min_size=1, max_size=5),
)
def test_every_step_is_reported_once(jobs: list[tuple[float, float, float]], times: list[float]) -> None:
    progress = RunningJobs()
    for number, (since, rate, left) in enumerate(jobs):
        progress.begin(f"j{number}", since, rate, left)
    told = dict.fromkeys((f"j{number}" for number in range(len(jobs))), 0.0)
    for time in sorted(times):
        for job, steps in zip(*progress.count(time), strict=True):
            told[job] += float(steps)
    for number, (since, rate, left) in enumerate(jobs):
        made = min(max(max(times) - since, 0.0) * rate, left)
        assert told[f"j{number}"] == pytest.approx(made, abs=1e-9)
        assert progress.end(f"j{number}") == pytest.approx(left - made, abs=1e-9)


def test_jobs_that_finish_by_then_are_listed_in_order_of_launch() -> None:
    progress = RunningJobs()
    for job, left in (("late", 50.0), ("first", 10.0), ("second", 10.0)):
        progress.begin(job, 0.0, 1.0, left)
    progress.end("first")
    progress.begin("first", 0.0, 1.0, 10.0)
    progress.begin("stuck", 0.0, 0.0, 1.0)
    assert progress.ends(20.0) == [(10.0, "second"), (10.0, "first")]


def test_steps_made_at_the_old_rate_are_reported_after_the_rate_has_changed() -> None:
    progress = RunningJobs()
    progress.begin("j", 0.0, 2.0, 100.0)
    assert progress.change_rate("j", 10.0, 4.0) == 30.0
    jobs, steps = progress.count(20.0)
    assert (jobs, steps.tolist()) == (["j"], [60.0])
    assert progress.count(20.0)[0] == []
