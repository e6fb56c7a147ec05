"""Policies that do not choose placements: as many gangs are consolidated as servers have room for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job, PlacedRate
from gavel.core.problem import Problem
from gavel.policies.consolidation import seated
from gavel.policies.registry import allocate
from judging import assert_feasible
from strategies import Case

FASTER_TOGETHER = PlacedRate(consolidated=4.0, unconsolidated=1.0)
BLIND = [("max_min_fairness", True), ("max_throughput", True), ("isolated", False), ("gandiva", False)]


def gangs(*workers: int, rate: PlacedRate = FASTER_TOGETHER) -> tuple[Job, ...]:
    return tuple(Job(f"job{number}", {"t": rate}, size) for number, size in enumerate(workers))


def of_sizes(*servers: int) -> AcceleratorType:
    return AcceleratorType("t", sum(servers), 1.0, servers)


def test_the_largest_gangs_are_consolidated_first_and_equal_gangs_equally_long() -> None:
    problem = Problem.of([of_sizes(4, 2, 2)], gangs(4, 2))
    workers, rates = problem.profiles.workers, problem.rates
    apart = np.array([[1.5, 0.0], [0.5, 0.0]])  # gangs of two, then of four
    assert workers.tolist() == [2, 4]
    assert seated(problem, workers, rates, apart).tolist() == [[0.0, 1.5], [0.0, 0.5]]
    crowded = seated(problem, workers, rates, np.array([[4.0, 0.0], [2.0, 0.0]]))
    assert crowded.tolist() == [[1.0, 3.0], [1.0, 1.0]]  # room for one gang of four, and for four gangs of two or more


def test_gangs_that_run_only_consolidated_come_first_and_lose_time_without_room() -> None:
    jobs = (*gangs(2), Job("rigid", {"t": PlacedRate(3.0, 0.0)}, 2))
    problem = Problem.of([of_sizes(2, 1, 1)], jobs)
    rigid = problem.rates[:, 0].argmin()
    wanted = np.zeros((2, 2))
    wanted[rigid, 1], wanted[1 - rigid, 1] = 1.5, 0.5
    placed = seated(problem, problem.profiles.workers, problem.rates, wanted)
    assert placed[rigid].tolist() == [0.0, 1.0]
    assert placed[1 - rigid].tolist() == [0.5, 0.0]


@pytest.mark.parametrize(("policy", "agnostic"), BLIND)
@given(
    servers=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=6),
    workers=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=6),
    apart=st.sampled_from([0.0, 1.0, 4.0]),
)
def test_no_policy_consolidates_more_gangs_than_servers_hold(
    policy: str, agnostic: bool, servers: list[int], workers: list[int], apart: float
) -> None:
    case = Case((of_sizes(*servers),), gangs(*workers, rate=PlacedRate(4.0, apart)), (), {})
    assert_feasible(allocate(case.problem(), policy, heterogeneity_agnostic=agnostic), case)


@pytest.mark.parametrize(("policy", "agnostic"), BLIND)
def test_gangs_are_consolidated_where_there_is_room(policy: str, agnostic: bool) -> None:
    case = Case((of_sizes(4, 4, 2),), gangs(4, 4, 2), (), {})
    throughput = allocate(case.problem(), policy, heterogeneity_agnostic=agnostic).throughput
    assert throughput["job0"] == pytest.approx(4.0 if policy not in {"isolated", "gandiva"} else 4.0 * 10 / 12)


@pytest.mark.parametrize(("policy", "agnostic"), BLIND)
def test_gangs_too_large_for_every_server_still_run_spread_out(policy: str, agnostic: bool) -> None:
    case = Case((of_sizes(4, 2, 2),), gangs(4, 4), (), {})
    throughput = allocate(case.problem(), policy, heterogeneity_agnostic=agnostic).throughput
    assert sum(throughput.values()) == pytest.approx(4.0 + 1.0)
