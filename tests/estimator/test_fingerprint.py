"""Which templates a template resembles, how certain that is, and what is measured to find out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.throughputs import builtin_table
from gavel.estimator.evaluation import ESTIMATORS, matches, observed, scores
from gavel.estimator.fingerprint import Pair, Shares, fingerprint, profiling_plan
from gavel.estimator.guesses import between, guessed_shares, worthwhile
from gavel.estimator.references import References

REFERENCES = References.of(builtin_table())
PAIRS = [(name, kind) for name in REFERENCES.templates for kind in REFERENCES.types]

shares = st.floats(0.0, 1.2) | st.just(math.nan)
measurements = st.dictionaries(st.sampled_from(PAIRS), st.tuples(shares, shares) | st.just((0.0, 0.0)), max_size=40)


@given(measurements)
def test_whatever_is_measured_a_fingerprint_is_a_set_of_shares_with_a_confidence(seen: dict[Pair, Shares]) -> None:
    found = fingerprint(REFERENCES, seen)
    for values in (found.kept, found.left):
        assert ((values >= 0) & (values <= 1)).all()
    assert 0 <= found.confidence <= 1
    assert found.reference in REFERENCES.templates
    again = fingerprint(REFERENCES, seen)
    assert (again.reference, again.distance, again.error) == (found.reference, found.distance, found.error)


@given(measurements)
def test_what_was_measured_is_kept(seen: dict[Pair, Shares]) -> None:
    found = fingerprint(REFERENCES, seen)
    for (partner, kind), (kept, left) in seen.items():
        where = REFERENCES.row[partner], REFERENCES.column[kind]
        assert found.fits[where] == (not kept == left == 0.0)
        for value, stored in ((kept, found.kept[where]), (left, found.left[where])):
            if value > 0:
                assert stored == pytest.approx(min(value, 1.0))


def test_a_known_template_is_recognised_by_all_of_its_pairs_and_nearly_always_by_half() -> None:
    assert matches(REFERENCES, 1.0) == 1.0
    assert matches(REFERENCES, 0.5) >= 0.9
    assert np.mean([matches(REFERENCES, 0.5, seed=seed) for seed in range(5)]) >= 0.9


@pytest.mark.parametrize("factor", [0.1, 0.5, 2.0])
def test_one_bad_measurement_does_not_hide_which_template_it_resembles(factor: float) -> None:
    plan = profiling_plan(REFERENCES, 39)
    right = 0
    for number, template in enumerate(REFERENCES.templates):
        seen = observed(REFERENCES, template, plan)
        spoilt = plan[number % len(plan)]
        seen[spoilt] = (seen[spoilt][0] * factor, seen[spoilt][1])
        right += fingerprint(REFERENCES, seen).reference == template
    assert right >= 24


def test_a_template_unlike_any_reference_is_not_trusted() -> None:
    random = np.random.default_rng(0)
    for _ in range(10):
        noise = random.uniform(0.05, 1.0, size=(15, 2)).tolist()
        strange = dict(zip(profiling_plan(REFERENCES), map(tuple, noise), strict=True))
        assert not fingerprint(REFERENCES, strange).trusted


def test_one_measured_pair_is_not_enough_to_be_trusted() -> None:
    for template in REFERENCES.templates:
        rest = REFERENCES.without(template)
        seen = observed(REFERENCES, template, profiling_plan(rest, 1))
        assert not fingerprint(rest, seen).trusted
    nothing = fingerprint(REFERENCES, {})
    assert (nothing.confidence, nothing.measured) == (0.0, 0)


def test_fifteen_pairs_are_enough_for_most_templates() -> None:
    trusted = 0
    for template in REFERENCES.templates:
        rest = REFERENCES.without(template)
        trusted += fingerprint(rest, observed(REFERENCES, template, profiling_plan(rest))).trusted
    assert trusted >= 24


def test_nineteen_of_twenty_pairs_are_judged_correctly() -> None:
    wrong = []
    for template in REFERENCES.templates:
        rest = REFERENCES.without(template)
        found = fingerprint(rest, observed(REFERENCES, template, profiling_plan(rest)))
        rows = [REFERENCES.row[name] for name in rest.templates]
        wrong.append((found.fits != (REFERENCES.kept[REFERENCES.row[template], rows] > 0)).mean())
    assert np.mean(wrong) < 0.05


def test_the_plan_looks_at_every_type_and_at_nothing_twice() -> None:
    plan = profiling_plan(REFERENCES)
    assert len(set(plan)) == len(plan) == 15
    assert {kind for _, kind in plan[:3]} == set(REFERENCES.types)
    assert profiling_plan(REFERENCES, 10_000) == profiling_plan(REFERENCES, len(PAIRS))
    assert set(profiling_plan(REFERENCES.on(["k80"]))) <= {pair for pair in PAIRS if pair[1] == "k80"}


def test_estimates_are_clearly_nearer_than_both_simple_ways() -> None:
    found = scores(REFERENCES, 0.2)
    ours, _, alone, mean = (found[name] for name in ESTIMATORS)
    assert ours.mean < 0.6 * min(alone.mean, mean.mean)
    assert ours.p90 < 0.6 * min(alone.p90, mean.p90)


def test_more_measured_pairs_make_better_estimates() -> None:
    name = next(iter(ESTIMATORS))
    assert scores(REFERENCES, 0.5)[name].mean < scores(REFERENCES, 0.1)[name].mean


def test_pairs_of_two_new_templates_are_estimated_better_than_by_the_mean() -> None:
    new = list(REFERENCES.templates[::3])
    rest = REFERENCES
    for template in new:
        rest = rest.without(template)
    plan = profiling_plan(rest)
    found = [fingerprint(rest, observed(REFERENCES, template, plan)) for template in new]
    rows = [REFERENCES.row[template] for template in new]
    true = REFERENCES.kept[np.ix_(rows, rows)]
    assert np.abs(between(found) - true).mean() < 0.6 * np.abs(rest.kept.mean(axis=(0, 1)) - true).mean()


def test_only_gains_larger_than_the_uncertainty_are_worth_trying() -> None:
    pair = np.zeros((2, 2, 3))
    pair[0, 1], pair[1, 0] = (0.7, 0.5, 0.9), (0.6, 0.5, 0.0)
    assert worthwhile(pair, np.full((2, 2), 0.2))[0, 1].tolist() == [0.7, 0.0, 0.0]
    assert not worthwhile(pair, np.full((2, 2), 0.8)).any()


def test_an_untrusted_fingerprint_packs_no_jobs() -> None:
    template = REFERENCES.templates[0]
    rest = REFERENCES.without(template)
    few = fingerprint(rest, observed(REFERENCES, template, profiling_plan(rest, 1)))
    assert not guessed_shares(rest, [template, *rest.templates], {template: few}).any()
    many = fingerprint(rest, observed(REFERENCES, template, profiling_plan(rest)))
    assert guessed_shares(rest, [template, *rest.templates], {template: many}).any()
