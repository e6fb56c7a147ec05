"""Jobs with equal rates share accelerators in pools and are solved in groups: the answer matches a program by job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.bench.generate import generated_problem
from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.problem import Bools, Floats, Pairs, Problem, Profiles, job_arrays
from gavel.core.throughputs import builtin_table
from gavel.policies.policy import Options
from gavel.policies.registry import POLICIES, allocate
from gavel.program.grouping import _overlaps, _ring
from gavel.program.program import Program

SAME = 3e-6
TOLD_APART = ["makespan", "finish_time_fairness", "fifo", "shortest_job_first", "min_cost_slo"]
"""Policies that tell jobs apart by steps, age, place in a queue or deadline."""
UNIQUE = ["max_min_fairness_water_filling", "hierarchical"]
TABLE = builtin_table()


def crowd(seed: int, jobs: int, templates: int, accelerators: int) -> Problem:
    """Jobs of few templates that all differ otherwise, on a cluster with space sharing."""
    rng = np.random.default_rng(seed)
    known = [profile for profile in TABLE.profiles if profile[1] == 1]  # profiles that can share accelerators
    profiles = [known[n] for n in rng.choice(len(known), size=templates, replace=False)]
    profiles[-1] = (profiles[-1][0], 2) if templates > 2 and (profiles[-1][0], 2) in TABLE.profiles else profiles[-1]
    types = [AcceleratorType(name, accelerators, price=1.0 + n) for n, name in enumerate(TABLE.types)]
    seconds = 10.0 ** rng.uniform(1.5, 4.0, size=jobs)
    profile = rng.integers(templates, size=jobs)
    fastest = TABLE.rates(profiles, TABLE.types).max(axis=(1, 2))
    arrays = job_arrays(
        [f"j{n}" for n in range(jobs)],
        profile,
        weight=rng.choice([0.5, 1.0, 3.0], size=jobs),
        steps=seconds * fastest[profile],
        arrival=rng.uniform(0, 100, size=jobs),
        age=rng.uniform(0, 1000, size=jobs),
        isolated_age=rng.uniform(0, 1000, size=jobs),
        deadline=seconds * rng.choice([1.2, 2.0, 10.0, np.inf], size=jobs),
    )
    return Problem.from_table(types, TABLE, profiles, arrays)


def by_job(problem: Problem) -> Problem:
    """The same problem with a profile for each job, and every pair of jobs listed."""
    profile = problem.jobs.profile
    row = np.full((len(problem.profiles.workers),) * 2, -1)
    row[problem.pairs.first, problem.pairs.second] = np.arange(len(problem.pairs))
    one, other = np.triu_indices(len(profile), k=1)
    swapped = profile[one] > profile[other]
    first, second = np.where(swapped, other, one), np.where(swapped, one, other)
    found = row[profile[first], profile[second]]
    pairs = Pairs(first[found >= 0], second[found >= 0], problem.pairs.rates[found[found >= 0]])
    profiles = Profiles(problem.profiles.workers[profile], problem.profiles.rates[profile])
    return replace(problem, profiles=profiles, pairs=pairs, jobs=replace(problem.jobs, profile=np.arange(len(profile))))


crowds = st.builds(crowd, st.integers(0, 10**6), st.integers(2, 24), st.integers(1, 4), st.sampled_from([1, 2, 3, 6]))


@pytest.mark.parametrize("policy", [*TOLD_APART, *UNIQUE])
@settings(max_examples=15)
@given(problem=crowds)
def test_the_objective_is_that_of_a_program_by_job(policy: str, problem: Problem) -> None:
    ours, theirs = allocate(problem, policy), allocate(by_job(problem), policy)
    assert ours.certificate.gap <= SAME
    if ours.certificate.unmet == theirs.certificate.unmet:  # jobs with equal rates are given up together
        assert ours.certificate.objective == pytest.approx(theirs.certificate.objective, rel=SAME)


@pytest.mark.parametrize("policy", UNIQUE)
@settings(max_examples=15)
@given(problem=crowds)
def test_filling_gives_every_job_what_a_program_by_job_gives_it(policy: str, problem: Problem) -> None:
    ours, theirs = (allocate(p, policy).job_throughput for p in (problem, by_job(problem)))
    fastest = problem.fastest_rates[problem.jobs.profile]
    scale = np.where(fastest > 0, fastest, 1.0)
    assert ours / scale == pytest.approx(theirs / scale, abs=1e-5)


@pytest.mark.parametrize("policy", TOLD_APART)
@pytest.mark.parametrize("accelerators", [3, 8])
def test_sixty_jobs_match_a_program_by_job(policy: str, accelerators: int) -> None:
    problem = crowd(accelerators, 60, 5, accelerators)
    if policy == "min_cost_slo":
        problem = replace(problem, jobs=replace(problem.jobs, deadline=problem.jobs.deadline * 1000))
    ours, theirs = allocate(problem, policy), allocate(by_job(problem), policy)
    assert ours.certificate.objective == pytest.approx(theirs.certificate.objective, rel=SAME)
    assert_valid(ours)


def assert_valid(allocation: Allocation) -> None:
    """Assert by job: limits of time and accelerators, pairs of two jobs, and throughputs that match the rows."""
    problem = allocation.problem
    combos, shares = allocation.job_combos()
    time, throughput = np.zeros(len(problem.jobs)), np.zeros(len(problem.jobs))
    busy = np.zeros(len(problem.types))
    workers = problem.profiles.workers[problem.jobs.profile]
    for jobs, share in zip(combos, shares, strict=True):
        assert len(set(jobs)) == len(jobs)
        assert (share >= 0).all()
        np.add.at(busy, problem.column_type, share * workers[jobs[0]])
        for job, rate in zip(jobs, rates_of(problem, jobs), strict=True):
            time[job] += share.sum()
            throughput[job] += share @ rate
    assert (time <= 1 + 1e-9).all()
    assert (busy <= problem.counts * (1 + 1e-9)).all()
    assert throughput == pytest.approx(allocation.job_throughput, rel=1e-7)


def rates_of(problem: Problem, jobs: tuple[int, ...]) -> list[Floats]:
    profile = problem.jobs.profile[list(jobs)]
    if len(jobs) == 1:
        return [problem.rates[profile[0]]]
    one, other = (np.array([end]) for end in profile)
    return list(problem.pairs.between(one, other)[0])


@pytest.mark.parametrize("policy", [*TOLD_APART, *UNIQUE])
@settings(max_examples=15)
@given(problem=crowds)
def test_the_allocation_by_job_is_valid(policy: str, problem: Problem) -> None:
    assert_valid(allocate(problem, policy))


@pytest.mark.parametrize("policy", [*TOLD_APART, *UNIQUE])
@settings(max_examples=10)
@given(problem=crowds)
def test_sharing_is_never_worse_than_not_sharing(policy: str, problem: Problem) -> None:
    shared, alone = (allocate(p, policy).certificate for p in (problem, problem.without_pairs()))
    if shared.unmet == alone.unmet:
        sign = -1.0 if shared.minimised else 1.0
        assert sign * shared.objective >= sign * alone.objective * (1 - sign * SAME)


@pytest.mark.parametrize("policy", TOLD_APART)
@pytest.mark.parametrize("accelerators", [12, 75])
def test_hundreds_of_jobs_that_all_differ_are_certified(policy: str, accelerators: int) -> None:
    problem = generated_problem(300, distinct=True, space_sharing=True, accelerators=accelerators, seed=2)
    allocation = allocate(problem, policy)
    assert allocation.certificate.gap <= SAME
    score = POLICIES[policy].score
    assert score is not None
    assert allocation.certificate.objective == pytest.approx(score(Options())(allocation), rel=1e-9)
    assert_valid(allocation)


def test_pairs_are_few() -> None:
    """A transportation problem between two sides has fewer pairs than jobs, so each pool has few pairs."""
    problem = generated_problem(400, distinct=True, space_sharing=True, accelerators=20, seed=1)
    combos, shares = allocate(problem, "makespan").job_combos()
    pairs = [jobs for jobs, share in zip(combos, shares, strict=True) if len(jobs) == 2 and share.any()]
    assert 0 < len(pairs) < 5 * len(problem.jobs)


def test_programs_stay_small_where_jobs_differ_only_in_their_steps() -> None:
    problem = generated_problem(2000, distinct=True, space_sharing=True, accelerators=36)
    program = Program(problem, "steps")
    assert len(program) == 2000
    assert len(program.polytope) <= len(problem.profiles.workers)


parts = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12).map(np.array)


@given(one=parts, other=parts)
def test_overlaps_of_two_partitions_keep_the_length_of_every_part(one: Floats, other: Floats) -> None:
    one, other = one / one.sum(), other / other.sum()
    who, beside, much = _overlaps(one, other)
    assert np.bincount(who, weights=much, minlength=len(one)) == pytest.approx(one, abs=1e-9)
    assert np.bincount(beside, weights=much, minlength=len(other)) == pytest.approx(other, abs=1e-9)
    assert len(much) <= len(one) + len(other) - 1


@given(time=parts.filter(lambda time: len(time) >= 2))
def test_no_class_is_paired_with_itself_in_a_ring_unless_it_has_more_than_half(time: Floats) -> None:
    single: Bools = time <= time.sum() / 2
    who, beside, much = _ring(np.arange(len(time)), time, single)
    assert not ((who == beside) & single[who]).any()
    given = np.bincount(who, weights=much, minlength=len(time)) + np.bincount(beside, weights=much, minlength=len(time))
    assert given == pytest.approx(time, abs=1e-9 * time.sum())
    assert len(much) <= len(time) + 1
