"""Low-rank completion of a row from a few of its entries."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.throughputs import builtin_table
from gavel.estimator.completion import Basis, Floats, basis, complete, most_telling
from gavel.estimator.references import References

REFERENCES = References.of(builtin_table())


def low_rank(seed: int, rows: int = 12, columns: int = 40, rank: int = 3) -> Floats:
    random = np.random.default_rng(seed)
    return 0.5 + 0.1 * random.normal(size=(rows, rank)) @ random.normal(size=(rank, columns))


def of(rows: Floats) -> Basis:
    return basis(rows, np.ones(rows.shape, dtype=bool))


@given(st.integers(0, 10_000), st.integers(0, 40))
def test_given_entries_are_kept_and_all_others_are_finite(seed: int, count: int) -> None:
    rows, random = low_rank(seed), np.random.default_rng(seed)
    columns = random.choice(40, count, replace=False)
    values = random.uniform(size=count)
    found = complete(of(rows), columns, values)
    assert np.array_equal(found.row[columns], values)
    assert np.isfinite(found.row).all()
    assert found.error >= 0


@given(st.integers(0, 10_000))
def test_a_row_of_few_directions_is_found_from_a_few_entries(seed: int) -> None:
    rows = low_rank(seed, rows=13)
    columns = np.random.default_rng(seed).choice(40, 12, replace=False)
    found = complete(of(rows[:12]), columns, rows[12, columns])
    usual = np.abs(rows[:12].mean(axis=0) - rows[12]).mean()
    assert np.abs(found.row - rows[12]).mean() < max(0.5 * usual, 0.05)


def test_one_bad_entry_among_many_does_little_harm() -> None:
    rows = low_rank(1, rows=13)
    columns = np.arange(0, 40, 2)
    values = rows[12, columns].copy()
    clean = complete(of(rows[:12]), columns, values)
    values[5] += 1.0
    spoilt = complete(of(rows[:12]), columns, values)
    others = np.setdiff1d(np.arange(40), columns)
    assert np.abs(spoilt.row - clean.row)[others].max() < 0.1
    assert spoilt.error > clean.error


def test_with_nothing_given_the_mean_is_the_answer_and_nothing_is_known() -> None:
    rows = low_rank(2)
    found = complete(of(rows), np.array([], dtype=np.intp), np.array([]))
    assert np.allclose(found.row, rows.mean(axis=0))
    assert found.error > 0.25


def test_unknown_entries_of_the_matrix_do_not_move_the_mean() -> None:
    rows = np.array([[0.2, 0.4], [0.4, 0.0], [0.6, 0.6]])
    known = np.array([[True, True], [True, False], [True, True]])
    assert np.allclose(basis(rows, known).mean, [0.4, 0.5])


def test_a_matrix_without_any_variation_has_no_directions() -> None:
    found = complete(of(np.full((4, 6), 0.7)), np.array([0], dtype=np.intp), np.array([0.1]))
    assert found.row[1:].tolist() == [0.7] * 5


@given(st.integers(0, 10_000), st.integers(0, 20))
def test_a_larger_budget_begins_with_what_a_smaller_one_looks_at(seed: int, count: int) -> None:
    common, groups = of(low_rank(seed)), np.arange(40).reshape(20, 2)
    chosen = most_telling(common, groups, count, first=[3])
    assert len(set(chosen)) == len(chosen) == count
    assert most_telling(common, groups, 20, first=[3])[:count] == chosen
    assert chosen[:1] in ([], [3])


def test_the_most_telling_entries_tell_more_than_random_ones() -> None:
    rows, groups = REFERENCES.fingerprints, np.arange(REFERENCES.fingerprints.shape[1])[:, None]

    def error(left_out: int, columns: np.ndarray) -> float:
        common = of(np.delete(rows, left_out, axis=0))
        found = complete(common, columns, rows[left_out, columns])
        return float(np.abs(found.row - rows[left_out]).mean())

    random = np.random.default_rng(0)
    told, drawn = [], []
    for number in range(len(rows)):
        common = of(np.delete(rows, number, axis=0))
        told.append(error(number, np.array(most_telling(common, groups, 12, first=[]))))
        drawn += [error(number, random.choice(rows.shape[1], 12, replace=False)) for _ in range(4)]
    assert np.mean(told) < np.mean(drawn)
