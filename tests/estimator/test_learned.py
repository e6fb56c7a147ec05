"""Rates that are learned while jobs run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.estimator.learned import LearnedTable
from gavel.core.throughputs import Condition, builtin_table

TYPES = ("v100", "p100", "k80")
TEMPLATE = builtin_table().templates[0]


def alone(table: LearnedTable, template: str, types: tuple[str, ...] = TYPES, workers: int = 1) -> list[float]:
    rates: list[float] = table.rates([(template, workers)], types)[0, :, 0].tolist()
    return rates


def test_before_anything_is_measured_the_table_is_believed() -> None:
    base = builtin_table()
    profiles = [(template, 1) for template in base.templates]
    assert np.array_equal(LearnedTable(base).rates(profiles, TYPES), base.rates(profiles, TYPES))
    for ours, theirs in zip(LearnedTable(base).pairs(profiles, TYPES), base.pairs(profiles, TYPES), strict=True):
        assert np.allclose(ours, theirs)


def test_a_measured_rate_replaces_the_table_and_scales_the_types_not_yet_seen() -> None:
    table = LearnedTable(builtin_table())
    v100, p100, k80 = alone(table, TEMPLATE)
    assert table.learn(Condition(TEMPLATE, 1, "v100"), 2 * v100)
    assert alone(table, TEMPLATE) == pytest.approx([2 * v100, 2 * p100, 2 * k80])
    assert table.learn(Condition(TEMPLATE, 1, "k80"), k80)
    assert alone(table, TEMPLATE)[2] == pytest.approx(k80)


def test_an_unknown_template_is_guessed_with_the_usual_order_of_types() -> None:
    v100, p100, k80 = alone(LearnedTable(builtin_table()), "never-seen")
    assert v100 > p100 > k80 > 0


def test_a_type_that_nobody_knows_counts_as_fast_as_the_fastest_until_measured() -> None:
    table = LearnedTable(builtin_table())
    table.admit("h100")
    rates = dict(zip((*TYPES, "h100"), alone(table, TEMPLATE, (*TYPES, "h100")), strict=True))
    assert rates["h100"] == max(rates[kind] for kind in TYPES)
    table.learn(Condition(TEMPLATE, 1, "h100"), 100.0)
    assert alone(table, TEMPLATE, ("h100",)) == [100.0]


def test_noise_is_smoothed_and_small_changes_ask_for_nothing() -> None:
    table = LearnedTable(builtin_table())
    condition = Condition("mine", 1, "v100")
    table.learn(condition, 10.0)
    assert not table.learn(condition, 10.2)
    assert alone(table, "mine", ("v100",)) == [10.0]
    assert table.learn(condition, 20.0)
    assert 10.0 < alone(table, "mine", ("v100",))[0] < 20.0


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_cannot_be_is_ignored(rate: float) -> None:
    table = LearnedTable(builtin_table())
    assert not table.learn(Condition(TEMPLATE, 1, "v100"), rate)
    assert alone(table, TEMPLATE) == alone(LearnedTable(builtin_table()), TEMPLATE)


def test_jobs_of_unknown_templates_are_not_packed() -> None:
    first, second, _ = LearnedTable(builtin_table()).pairs([("never-seen", 1), (TEMPLATE, 1)], TYPES)
    assert set(first.tolist()) | set(second.tolist()) <= {1}


def test_a_measured_pair_replaces_the_tables_figure_for_that_member_only() -> None:
    table = LearnedTable(builtin_table())
    profiles = [(template, 1) for template in table.base.templates[:2]]
    first, second, before = table.pairs(profiles, TYPES)
    pair = next(n for n, ends in enumerate(zip(first, second, strict=True)) if ends == (0, 1))
    table.learn(Condition(profiles[0][0], 1, "v100", True, profiles[1][0]), 3.25)
    _, _, after = table.pairs(profiles, TYPES)
    assert after[pair, 0, 0] == 3.25
    assert after[pair, 1, 0] == pytest.approx(before[pair, 1, 0])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", TEMPLATE]), st.sampled_from([1, 4]), st.sampled_from(TYPES), st.floats(0.01, 1e3)
        ),
        max_size=12,
    )
)
def test_what_was_learned_survives_being_written_down(measured: list[tuple[str, int, str, float]]) -> None:
    table = LearnedTable(builtin_table())
    table.admit("a100")
    for template, workers, kind, rate in measured:
        table.learn(Condition(template, workers, kind), rate)
    again = LearnedTable.of(table.base, json.loads(json.dumps(table.document())))
    types = (*TYPES, "a100")
    profiles = [(template, workers) for template in ("a", "b", TEMPLATE) for workers in (1, 4)]
    assert again.types == table.types
    assert np.array_equal(again.rates(profiles, types), table.rates(profiles, types))
    assert (table.rates(profiles, types) >= 0).all()
