"""Counting and pacing, with time as a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.pacing import Pace, StepTally


@given(first=st.floats(0, 1e6), lengths=st.lists(st.floats(0.001, 100), max_size=30))
def test_the_first_step_is_counted_but_not_measured(first: float, lengths: list[float]) -> None:
    tally = StepTally()
    now = first
    tally.step(now)
    for length in lengths:
        now += length
        tally.step(now)
    steps, seconds = tally.measured
    assert tally.steps == 1 + len(lengths)
    assert steps == len(lengths)
    assert seconds == pytest.approx(sum(lengths), abs=1e-6)


def test_time_spent_on_saving_is_left_out() -> None:
    tally = StepTally()
    tally.step(10.0)
    tally.leave_out(5.0)
    tally.step(16.0)
    assert tally.measured == (1, 1.0)


@given(
    rate=st.floats(0.01, 1e4),
    works=st.lists(st.floats(0, 1), min_size=1, max_size=50),
    overshoot=st.floats(0, 0.01),
)
def test_steps_come_no_faster_than_the_rate_and_late_waking_does_not_add_up(
    rate: float, works: list[float], overshoot: float
) -> None:
    interval = 1 / rate
    pace, now, due = Pace(rate, 0.0), 0.0, 0.0
    for count, share in enumerate(works, 1):
        now += share * interval  # the work itself is fast enough
        left = pace.seconds_left(now)
        now += left + (overshoot if left else 0.0)
        pace.step()
        due = count * interval
        assert now >= due - 1e-9
    assert now <= due + overshoot + 1e-9


def test_time_lost_is_not_caught_up() -> None:
    pace = Pace(10.0, 0.0)
    assert pace.seconds_left(5.0) == 0.0  # the step took five seconds instead of a tenth
    pace.step()
    assert pace.seconds_left(5.0) == pytest.approx(0.1)
