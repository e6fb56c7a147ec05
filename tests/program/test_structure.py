"""Structures that are computed once for many problems do not change the answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.problem import Problem, ProblemJobs, grouped, job_arrays
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.program.columns import Columns
from gavel.program.structure import KEPT_STRUCTURES, LpStructure

TABLE = builtin_table()
PROFILES = (("A3C", 1), ("LM (batch size 5)", 1), ("LM (batch size 5)", 4), ("ResNet-50 (batch size 64)", 2))


def base(*, space_sharing: bool) -> Problem:
    types = [AcceleratorType.uniform(name, count=4, per_server=4) for name in TABLE.types]
    problem = Problem.from_table(types, TABLE, PROFILES, jobs_of([]))
    return problem if space_sharing else problem.without_pairs()


def jobs_of(profiles: list[int]) -> ProblemJobs:
    return job_arrays([f"j{n}" for n in range(len(profiles))], np.array(profiles, dtype=np.intp), steps=1e6)


def content(allocation: Allocation) -> tuple[object, ...]:
    arrays = allocation.combos, allocation.instances, allocation.rates, allocation.classes.of_job
    return (*(array.tobytes() for array in arrays), allocation.certificate)


@pytest.mark.parametrize("space_sharing", [False, True])
@given(crowds=st.lists(st.lists(st.integers(0, len(PROFILES) - 1), min_size=1, max_size=8), min_size=2, max_size=6))
@settings(max_examples=25)
def test_a_problem_with_other_jobs_gives_the_answer_of_one_built_for_them(
    space_sharing: bool, crowds: list[list[int]]
) -> None:
    first = base(space_sharing=space_sharing)
    for crowd in crowds:
        jobs = jobs_of(crowd)
        assert content(allocate(first.with_jobs(jobs))) == content(allocate(replace(first, jobs=jobs)))


def test_structures_are_reused_and_their_cache_is_bounded() -> None:
    first = base(space_sharing=False)
    one, few = np.ones(1, dtype=bool), np.array([0])
    structure = LpStructure.of(first.with_jobs(jobs_of([0])), few, one)
    assert LpStructure.of(first.with_jobs(jobs_of([0, 0])), few, one) is structure
    for size in range(1, 3 * KEPT_STRUCTURES):
        LpStructure.of(first, np.zeros(size, dtype=np.intp), np.ones(size, dtype=bool))
    assert len(first.kept) <= KEPT_STRUCTURES


@given(codes=st.lists(st.integers(0, 30) | st.integers(0, 2**62)))
def test_equal_numbers_form_groups(codes: list[int]) -> None:
    code = np.array(codes, dtype=np.intp)
    _, first, group, count = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    assert [part.tolist() for part in grouped(code)] == [first.tolist(), group.tolist(), count.tolist()]


@given(entries=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(-3, 3))))
def test_a_matrix_does_not_depend_on_the_order_of_its_entries(entries: list[tuple[int, int, int]]) -> None:
    dense = np.zeros((4, 5))
    for row, column, value in entries:
        dense[row, column] += value
    rows, columns, values = np.array(entries, dtype=np.intp).reshape(len(entries), 3).T
    matrix = Columns.of(rows, columns, values.astype(float), (4, 5))
    x, y = np.arange(1.0, 6.0), np.arange(1.0, 5.0)
    assert matrix.times(x).tolist() == (dense @ x).tolist()
    assert matrix.transposed_times(y).tolist() == (dense.T @ y).tolist()
    chosen = np.array([3, 0], dtype=np.intp)
    assert matrix.select(chosen).times(x[:2]).tolist() == (dense[:, chosen] @ x[:2]).tolist()
