"""Rates that are learned while jobs run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.locality import Locality
from gavel.core.throughputs import Condition, builtin_table
from gavel.estimator.fingerprint import profiling_plan
from gavel.estimator.learned import LearnedTable

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


def test_an_unknown_type_counts_as_fast_as_the_fastest_until_measured() -> None:
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
def test_an_impossible_rate_is_ignored(rate: float) -> None:
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
    table.learn(Condition(profiles[0][0], 1, "v100", Locality.SERVER, profiles[1][0]), 3.25)
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


NEW = "ResNet-50 (batch size 32)"
KNOWN = builtin_table().only(set(builtin_table().templates) - {NEW})
FRIEND = "ResNet-18 (batch size 16)"


def profiled(share_of_truth: float = 1.0) -> LearnedTable:
    """A table that does not list NEW, after NEW was profiled beside some of those that it lists."""
    truth, table = builtin_table(), LearnedTable(KNOWN)
    for kind in TYPES:
        table.learn(Condition(NEW, 1, kind), truth.rates([(NEW, 1)], [kind])[0, 0, 0])
    for partner, kind in profiling_plan(table.references):
        mine, its = truth.together((NEW, 1), (partner, 1), kind)
        if mine == its == 0.0:
            table.fail(Condition(NEW, 1, kind, beside=partner), "out of memory")
        else:
            table.learn(Condition(NEW, 1, kind, beside=partner), mine * share_of_truth)
            table.learn(Condition(partner, 1, kind, beside=NEW), its * share_of_truth)
    return table


def together(table: LearnedTable, one: str, other: str) -> list[list[float]]:
    """By type: the rates of both, 0 where they should not share."""
    first, second, rates = table.pairs([(one, 1), (other, 1)], TYPES)
    found = [pair.T.tolist() for a, b, pair in zip(first, second, rates, strict=True) if (a, b) == (0, 1)]
    return found[0] if found else [[0.0, 0.0]] * len(TYPES)


def test_a_profiled_template_is_packed_by_estimates_that_are_near_the_truth() -> None:
    table, truth = profiled(), builtin_table()
    offered, errors = 0, []
    for partner in KNOWN.templates:
        for kind, rates in zip(TYPES, together(table, NEW, partner), strict=True):
            true = truth.together((NEW, 1), (partner, 1), kind)
            if any(rates):
                offered += 1
                errors += [abs(found - rate) / max(rate, 1e-9) for found, rate in zip(rates, true, strict=True)]
    assert offered > 10
    assert np.mean(errors) < 0.1


def test_an_unmeasured_template_is_never_packed() -> None:
    table = LearnedTable(KNOWN)
    first, second, _ = table.pairs([(NEW, 1), *KNOWN.profiles], TYPES)
    assert 0 not in {*first.tolist(), *second.tolist()}


def test_a_pair_that_turns_out_bad_is_dropped_with_its_first_measurements() -> None:
    table = profiled()
    table.pairs([(NEW, 1), (FRIEND, 1)], TYPES)
    kind = next(kind for kind, rates in zip(TYPES, together(table, NEW, FRIEND), strict=True) if all(rates))
    mine, its = (table.rates([(name, 1)], [kind])[0, 0, 0] for name in (NEW, FRIEND))
    assert table.learn(Condition(NEW, 1, kind, beside=FRIEND), 0.4 * mine)
    for _ in range(3):  # older measurements from profiling fade as new ones arrive
        table.learn(Condition(NEW, 1, kind, beside=FRIEND), 0.3 * mine)
        table.learn(Condition(FRIEND, 1, kind, beside=NEW), 0.3 * its)
    assert together(table, NEW, FRIEND)[TYPES.index(kind)] == [0.0, 0.0]


def test_a_listed_pair_that_crashes_is_not_tried_again_on_that_type_unless_it_has_run_well() -> None:
    one, other = KNOWN.templates[:2]
    table = LearnedTable(KNOWN)
    before = together(table, one, other)
    assert table.fail(Condition(one, 1, "v100", beside=other), "out of memory")
    assert together(table, one, other) == [[0.0, 0.0], *before[1:]]
    proven = LearnedTable(KNOWN)
    for _ in range(3):
        proven.learn(Condition(one, 1, "v100", beside=other), before[0][0])
    assert not proven.fail(Condition(one, 1, "v100", beside=other), "its own bug")
    assert together(proven, one, other)[0] == pytest.approx(before[0])


def test_a_job_that_fails_alone_says_nothing_about_speed() -> None:
    table = LearnedTable(KNOWN)
    assert not table.fail(Condition(FRIEND, 1, "v100"), "exit code 1")
    assert alone(table, FRIEND) == alone(LearnedTable(KNOWN), FRIEND)
    assert table.measurements.ignored[-1] == (
        f"{FRIEND} on v100: nothing was measured, because the job failed: exit code 1"
    )


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_ignored_can_be_seen_with_the_reason_and_survives(rate: float) -> None:
    table = LearnedTable(KNOWN)
    table.learn(Condition(FRIEND, 1, "k80", beside=NEW), rate)
    again = LearnedTable.of(KNOWN, json.loads(json.dumps(table.document())))
    assert list(again.measurements.ignored) == [f"{FRIEND} on k80 beside {NEW}: {rate:g} steps a second cannot be"]


def test_one_wild_measurement_moves_a_rate_by_no_more_than_its_weight_of_a_factor_of_two() -> None:
    table = LearnedTable(KNOWN)
    for rate in (10.0, 10.0, 10.0, 10.0, 10.0, 1000.0):
        table.learn(Condition(NEW, 1, "v100"), rate)
    assert alone(table, NEW, ("v100",))[0] <= 12.0


def test_uncertainty_falls_with_measurements_that_agree_and_is_larger_where_they_do_not() -> None:
    calm, wild = LearnedTable(KNOWN), LearnedTable(KNOWN)
    condition, after = Condition(NEW, 1, "v100"), []
    for steady, shaky in zip((10.0, 10.1, 9.9, 10.0, 10.05), (10.0, 14.0, 7.0, 13.0, 8.0), strict=True):
        calm.learn(condition, steady)
        wild.learn(condition, shaky)
        after.append(calm.measurements.estimates[condition].uncertainty)
    assert after == sorted(after, reverse=True)
    assert wild.measurements.estimates[condition].uncertainty > 2 * after[-1]


def test_pairs_failures_and_confidence_survive_being_written_down() -> None:
    table = profiled()
    table.fail(Condition(NEW, 1, "v100", beside=FRIEND), "out of memory")
    again = LearnedTable.of(KNOWN, json.loads(json.dumps(table.document())))
    profiles = [(NEW, 1), *KNOWN.profiles]
    for ours, theirs in zip(again.pairs(profiles, TYPES), table.pairs(profiles, TYPES), strict=True):
        assert np.array_equal(ours, theirs)
    assert again.document() == table.document()
    assert again.document()["resembles"][NEW]["confidence"] > 0.4


def test_what_an_older_version_wrote_down_can_be_read() -> None:
    table = LearnedTable.of(KNOWN, {"types": ["a100"], "estimates": [[NEW, 1, "v100", True, None, 8.0, 3, 8.0]]})
    assert alone(table, NEW, ("v100",)) == [8.0]
    assert table.types[-1] == "a100"


def test_a_stored_table_gives_the_same_estimates_whatever_the_order_of_failures_and_measurements() -> None:
    table = profiled()
    table.fail(Condition(FRIEND, 1, "v100", beside=NEW), "crashed")
    table.learn(Condition(NEW, 1, "v100", beside=FRIEND), 1.0)
    again = LearnedTable.of(KNOWN, json.loads(json.dumps(table.document())))
    profiles = [(name, 1) for name in (NEW, FRIEND, *KNOWN.templates[-3:])]
    for one, other in zip(table.pairs(profiles, TYPES), again.pairs(profiles, TYPES), strict=True):
        np.testing.assert_array_equal(one, other)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([NEW, FRIEND, "else"]),
            st.sampled_from([NEW, FRIEND, "else", None]),
            st.sampled_from(TYPES),
            st.floats(-1.0, 200.0),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_no_report_can_poison_the_table(reports: list[tuple[str, str | None, str, float, bool]]) -> None:
    table = profiled()
    for template, beside, kind, rate, crashed in reports:
        condition = Condition(template, 1, kind, beside=beside)
        if crashed:
            table.fail(condition, "crashed")
        else:
            table.learn(condition, rate)
    profiles = [(name, 1) for name in (NEW, FRIEND, "else", *KNOWN.templates[-3:])]
    first, second, rates = table.pairs(profiles, TYPES)
    assert np.isfinite(rates).all()
    assert (rates >= 0).all()
    assert ((rates > 0).all(axis=1) == (rates > 0).any(axis=1)).all(), "both make steps or the pair is not packed"
    assert (first <= second).all()
    assert (table.rates(profiles, TYPES) > 0).all()
    again = LearnedTable.of(KNOWN, json.loads(json.dumps(table.document())))
    assert np.array_equal(again.pairs(profiles, TYPES)[2], rates)
