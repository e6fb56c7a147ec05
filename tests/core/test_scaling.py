"""Rates with numbers of workers that a table does not list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.errors import InputError
from gavel.core.scaling import can_scale, scaled
from gavel.core.throughputs import ThroughputTable, builtin_table
from gavel.limits import FASTEST

LM = "LM (batch size 5)"
TABLE = builtin_table()


@st.composite
def listed(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Worker counts in ascending order, and a rate for each."""
    counts = sorted(draw(st.sets(st.integers(1, 64), min_size=2, max_size=6)))
    return counts, [draw(st.floats(0.01, 1e4)) for _ in counts]


@given(listed=listed(), workers=st.integers(2, 4096))
def test_a_scaled_rate_lies_between_its_neighbours_or_grows_at_most_with_the_workers(
    listed: tuple[list[int], list[float]], workers: int
) -> None:
    counts, rates = listed
    if workers in counts or not can_scale(counts, workers):
        return
    rate = float(scaled(counts, np.array(rates), workers))
    above = [index for index, count in enumerate(counts) if count > workers]
    if above:
        low, high = sorted(rates[above[0] - 1 : above[0] + 1])
        assert low * (1 - 1e-9) <= rate <= high * (1 + 1e-9)
    else:
        assert rates[-1] * (1 - 1e-9) <= rate <= rates[-1] * workers / counts[-1] * (1 + 1e-9)


@given(first=st.floats(0.1, 100.0), exponent=st.floats(0.0, 1.0), workers=st.integers(2, 500))
def test_rates_that_follow_a_power_law_continue_it(first: float, exponent: float, workers: int) -> None:
    counts = (1, 2, 4, 8)
    rates = np.array([first * count**exponent for count in counts])
    if workers not in counts:
        assert scaled(counts, rates, workers) == pytest.approx(first * workers**exponent)


def test_one_worker_does_not_tell_how_gangs_scale() -> None:
    assert scaled((1, 2, 8), np.array([100.0, 10.0, 20.0]), 32) == pytest.approx(40.0)


def test_a_template_that_cannot_run_with_the_listed_workers_cannot_run_with_more() -> None:
    rates = np.array([[5.0, 5.0, 0.0], [0.0, 8.0, 0.0], [0.0, 12.0, 7.0]])
    assert scaled((1, 2, 4), rates, 8).tolist() == [0.0, pytest.approx(18.0), 0.0]
    assert scaled((1, 2, 4), rates, 3)[[0, 2]].tolist() == [0.0, 0.0]


def test_a_scaled_rate_is_at_most_the_limit() -> None:
    assert scaled((1, 2), np.array([1e8, 2e8]), 10**9) == FASTEST


def test_a_scaled_table_adds_profiles_and_keeps_its_own_figures() -> None:
    larger = TABLE.scaled([(LM, 16), (LM, 16), (LM, 8), ("A3C", 1)])
    assert larger.profiles == (*TABLE.profiles, (LM, 16))
    assert np.array_equal(larger.rates(TABLE.profiles, TABLE.types), TABLE.rates(TABLE.profiles, TABLE.types))
    eight, sixteen = larger.rates([(LM, 8), (LM, 16)], TABLE.types)
    assert (eight < sixteen).all()
    assert (sixteen <= 2.0 * eight).all()
    assert TABLE.scaled([(LM, 8)]) is TABLE


def test_scaled_profiles_cannot_share() -> None:
    larger = TABLE.scaled([(LM, 16)])
    profiles = [(LM, 16), ("A3C", 1), (LM, 1)]
    first, second, rates = larger.pairs(profiles, TABLE.types)
    _, _, before = TABLE.pairs(profiles[1:], TABLE.types)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(1, 1), (1, 2), (2, 2)]
    assert np.array_equal(rates, before)
    assert larger.together((LM, 16), ("A3C", 1), "v100") == (0.0, 0.0)


def test_a_part_of_a_larger_table_is_a_table() -> None:
    part: ThroughputTable = TABLE.scaled([(LM, 16), ("LM (batch size 10)", 16)]).only({LM, "A3C"})
    assert (LM, 16) in part.profiles
    assert part.together(("A3C", 1), (LM, 1), "k80") == TABLE.together(("A3C", 1), (LM, 1), "k80")


@pytest.mark.parametrize(("template", "workers"), [("A3C", 2), ("GPT", 1)])
def test_profiles_that_cannot_be_scaled_are_refused(template: str, workers: int) -> None:
    assert not TABLE.can_scale(template, workers)
    with pytest.raises(InputError, match="has no throughputs"):
        TABLE.scaled([(template, workers)])
