"""min_cost_slo meets every deadline except those it names, and names none that could also have been met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.policies.registry import allocate
from gavel.program.demand import Proportional
from gavel.program.program import Program
from strategies import Case, cases

ROUNDING = 3e-6


def late(allocation: Allocation, case: Case) -> set[str]:
    """Jobs that miss their deadline at the throughput they get."""
    return {
        job.id
        for job in case.jobs
        if job.deadline_seconds is not None
        and job.steps is not None
        and allocation.throughput[job.id] * job.deadline_seconds < job.steps * (1 - ROUNDING)
    }


@given(case=cases())
def test_every_deadline_that_is_not_named_is_met(case: Case) -> None:
    allocation = allocate(case.problem(), "min_cost_slo")
    assert late(allocation, case) <= set(allocation.certificate.unmet)


@given(case=cases())
def test_no_deadline_that_was_given_up_could_have_been_met_as_well(case: Case) -> None:
    problem = case.problem()
    unmet = allocate(problem, "min_cost_slo").certificate.unmet
    program = Program(problem, rank=np.arange(len(problem.jobs)))
    names = [problem.jobs.ids[job] for job in program.member.tolist()]
    deadline = problem.jobs.deadline[program.member]
    needed = np.where(np.isfinite(deadline), program.steps / deadline, 0.0)
    kept = np.array([name not in unmet for name in names])
    for name in set(unmet) & set(names):
        together = kept | np.array([other == name for other in names])
        level = program.max_level(Proportional(np.where(together, needed, 0.0)))
        assert level.value < 1 - 1e-7


@given(case=cases())
def test_without_deadlines_it_is_min_cost(case: Case) -> None:
    free = case.with_jobs(tuple(replace(job, deadline_seconds=None) for job in case.jobs))
    with_slo, plain = (allocate(free.problem(), p).certificate for p in ("min_cost_slo", "min_cost"))
    assert with_slo.unmet == ()
    assert with_slo.objective == pytest.approx(plain.objective, rel=1e-6)


def test_of_two_equal_jobs_with_room_for_one_exactly_one_is_given_up() -> None:
    jobs = [Job(f"job{n}", {"gpu": 1.0}, steps=100.0, deadline_seconds=110.0) for n in range(2)]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 1, 1.0)], jobs), "min_cost_slo")
    assert allocation.certificate.unmet == ("job1",)
    assert allocation.throughput["job0"] >= 100 / 110 * (1 - ROUNDING)


def test_a_job_with_a_deadline_that_can_run_nowhere_is_named() -> None:
    jobs = [
        Job("huge", {"gpu": 1.0}, workers=9, steps=1.0, deadline_seconds=1e9),
        Job("fine", {"gpu": 1.0}, steps=1.0, deadline_seconds=10.0),
    ]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 1, 1.0)], jobs), "min_cost_slo")
    assert allocation.certificate.unmet == ("huge",)


def test_a_deadline_costs_money() -> None:
    """The cheap type is too slow, so the expensive one is used just as much as necessary."""
    types = [AcceleratorType("dear", 1, 10.0), AcceleratorType("cheap", 1, 1.0)]
    rates = {"dear": 4.0, "cheap": 1.0}
    relaxed = allocate(Problem.of(types, [Job("a", rates, steps=100.0, deadline_seconds=100.0)]), "min_cost_slo")
    hurried = allocate(Problem.of(types, [Job("a", rates, steps=100.0, deadline_seconds=40.0)]), "min_cost_slo")
    assert relaxed.throughput["a"] == pytest.approx(1.0)
    assert hurried.throughput["a"] == pytest.approx(2.5, rel=1e-5)
    assert relaxed.certificate.objective == pytest.approx(1.0)
    assert hurried.certificate.objective == pytest.approx(2.5 / 5.5, rel=1e-5)


def test_prices_of_very_different_size_do_not_hide_the_best_buy() -> None:
    types = [AcceleratorType("dear", 4, 1000.0), AcceleratorType("cheap", 4, 0.001)]
    jobs = [
        Job("x", {"dear": 1.0, "cheap": 1.0}, steps=100.0, deadline_seconds=1e5),
        Job("y", {"dear": 3.0}),
    ]
    certificate = allocate(Problem.of(types, jobs), "min_cost_slo").certificate
    assert certificate.objective == pytest.approx(1000.0)
    assert certificate.gap <= 1e-6


def test_where_no_job_can_run_every_deadline_is_named() -> None:
    jobs = [Job("b", {"gpu": 1.0}, steps=1.0, deadline_seconds=9.0), Job("a", {}, steps=1.0, deadline_seconds=9.0)]
    allocation = allocate(Problem.of([AcceleratorType("gpu", 0, 1.0)], jobs), "min_cost_slo")
    assert allocation.certificate.unmet == ("a", "b")
