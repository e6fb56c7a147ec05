"""Policies match an independent formulation, and are efficient: no job can gain without another losing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gavel.bench.generate import generated_problem
from gavel.bench.textbook import EXACT, FORMULATIONS, textbook
from gavel.core.allocation import Allocation
from gavel.core.errors import InputError
from gavel.core.problem import Floats, Pairs, Problem
from gavel.policies.registry import POLICIES, allocate
from gavel.program.program import Program
from strategies import Case, cases

SAME = 3e-6
UNIQUE = ["max_min_fairness_water_filling", "hierarchical"]
"""Policies whose optimal throughputs are unique."""
EFFICIENT = ["max_min_fairness", *UNIQUE]


def test_every_optimising_policy_has_a_textbook_formulation() -> None:
    assert set(FORMULATIONS) == {name for name, policy in POLICIES.items() if not policy.baseline}


@pytest.mark.parametrize("normalised", [False, True], ids=["", "normalised"])
@pytest.mark.parametrize("policy", FORMULATIONS)
@given(case=cases(max_jobs=6))
def test_the_objective_is_that_of_the_textbook(policy: str, normalised: bool, case: Case) -> None:
    if normalised and policy not in {"max_throughput", "min_cost", "min_cost_slo"}:
        return
    problem = case.problem()
    ours = allocate(problem, policy, normalised=normalised)
    theirs = textbook(problem, policy, normalised=normalised, given_up=ours.certificate.unmet, solver=EXACT)
    assert ours.certificate.objective == pytest.approx(theirs.objective, rel=SAME)
    assert set(ours.certificate.unmet) == set(theirs.unmet)


@pytest.mark.parametrize("policy", UNIQUE)
@given(case=cases(max_jobs=6))
def test_filling_gives_every_job_what_the_textbook_gives_it(policy: str, case: Case) -> None:
    problem = case.problem()
    ours, theirs = allocate(problem, policy), textbook(problem, policy, solver=EXACT)
    assert shares(problem, ours.job_throughput) == pytest.approx(shares(problem, theirs.throughput), abs=2e-5)


@given(case=cases(max_jobs=6))
def test_max_min_fairness_fills_up_to_the_total_of_the_textbook(case: Case) -> None:
    problem = case.problem()
    gain = gains(problem)
    ours = allocate(problem, "max_min_fairness").job_throughput @ gain
    theirs = textbook(problem, "max_min_fairness", fill=True, solver=EXACT).throughput @ gain
    assert ours == pytest.approx(theirs, rel=1e-5)


def gains(problem: Problem) -> Floats:
    """By job: from steps per second to normalised throughput; 0 for jobs that cannot run."""
    equal = problem.equal_share_rates[problem.jobs.profile]
    return (
        np.divide(1.0, equal, out=np.zeros(len(equal)), where=equal > 0)
        * problem.profiles.workers[problem.jobs.profile]
    )


def shares(problem: Problem, throughput: Floats) -> Floats:
    """By job: throughput as a share of its fastest rate."""
    fastest = problem.fastest_rates[problem.jobs.profile]
    return np.divide(throughput, fastest, out=np.zeros(len(fastest)), where=fastest > 0)


@pytest.mark.parametrize("policy", EFFICIENT)
@given(case=cases())
def test_no_job_can_gain_without_another_losing(policy: str, case: Case) -> None:
    assert_efficient(allocate(case.problem(), policy))


def assert_efficient(allocation: Allocation) -> None:
    """For each job, one program: all others keep what they have, and this job gets as much more as possible."""
    problem = allocation.problem
    program = Program(problem, rank=np.arange(len(problem.jobs)))
    floors = allocation.job_throughput[program.member]
    for index in range(len(program)):
        gain = np.zeros(len(program))
        gain[index] = 1.0 / program.fastest[index]
        most = program.maximise(gain, floors=floors * (1 - 1e-9)).bound
        assert most <= floors[index] * gain[index] + 2e-5


@pytest.mark.parametrize(
    "policy", ["max_min_fairness", "makespan", "finish_time_fairness", "max_throughput", "min_cost", "fifo"]
)
def test_many_jobs_with_distinct_rates_match_the_textbook(policy: str) -> None:
    """Enough jobs for the structured interior-point method."""
    problem = generated_problem(200, distinct=True, seed=5)
    ours, theirs = allocate(problem, policy), textbook(problem, policy, solver=EXACT)
    assert ours.certificate.gap <= 1e-6
    assert ours.certificate.objective == pytest.approx(theirs.objective, rel=SAME)


@pytest.mark.parametrize("policy", ["max_min_fairness", "makespan", "max_throughput", "min_cost", "fifo"])
def test_templates_that_share_accelerators_match_the_textbook(policy: str) -> None:
    """Classes of identical jobs, also paired within a class, against a program with every pair of jobs."""
    problem = generated_problem(24, space_sharing=True, seed=2)
    ours, theirs = allocate(problem, policy), textbook(problem, policy, solver=EXACT)
    assert ours.certificate.objective == pytest.approx(theirs.objective, rel=SAME)


@pytest.mark.parametrize("policy", UNIQUE)
def test_filling_many_jobs_with_distinct_rates_is_efficient(policy: str) -> None:
    problem = generated_problem(160, distinct=True, seed=1)
    weight = np.random.default_rng(1).choice([1.0, 2.0, 3.0], size=160)
    problem = replace(problem, jobs=replace(problem.jobs, weight=weight))
    allocation = allocate(problem, policy)
    program = Program(problem, rank=np.arange(160))
    floors = allocation.job_throughput
    more = program.maximise(1.0 / program.fastest, floors=floors * (1 - 1e-9))
    assert more.bound <= (floors / program.fastest).sum() * (1 + 1e-5)


@pytest.mark.parametrize("policy", ["max_min_fairness", "makespan", "finish_time_fairness", "hierarchical"])
@given(case=cases())
def test_solving_by_class_is_solving_by_job(policy: str, case: Case) -> None:
    """Every job has its own profile and pairs, so that nothing can be merged."""
    problem = case.problem()
    n = len(problem.jobs)
    own = replace(
        problem,
        profiles=replace(
            problem.profiles,
            workers=problem.profiles.workers[problem.jobs.profile],
            rates=problem.profiles.rates[problem.jobs.profile],
        ),
        jobs=replace(problem.jobs, profile=np.arange(n)),
        pairs=_by_job(problem),
    )
    assert len(own.classes()) == n
    by_class, by_job = (allocate(p, policy) for p in (problem, own))
    assert by_class.certificate.objective == pytest.approx(by_job.certificate.objective, rel=SAME)


def _by_job(problem: Problem) -> Pairs:
    """Pairs by job instead of by profile; a job in a pair is the only one of its profile."""
    job_of = np.full(len(problem.profiles.workers), -1)
    job_of[problem.jobs.profile] = np.arange(len(problem.jobs))
    return replace(problem.pairs, first=job_of[problem.pairs.first], second=job_of[problem.pairs.second])


def test_a_policy_without_a_formula_has_no_textbook() -> None:
    with pytest.raises(InputError, match="no textbook formulation of 'gandiva'"):
        textbook(generated_problem(4), "gandiva")


def test_the_textbook_says_which_solver_ran_and_how_long() -> None:
    answer = textbook(generated_problem(8), "max_min_fairness", solver=EXACT)
    assert answer.solver == EXACT
    assert answer.seconds > 0
