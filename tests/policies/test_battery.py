"""One battery of properties that every policy must have, aware of types or agnostic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType
from gavel.core.errors import InputError
from gavel.core.jobs import Job, PlacedRate
from gavel.policies.policy import Options
from gavel.policies.registry import POLICIES, allocate
from judging import assert_certificate_sane, assert_feasible
from strategies import Case, cases, times

OPTIMISING = [name for name, policy in POLICIES.items() if not policy.baseline]
TINY_GAP = 3e-6

every_policy = pytest.mark.parametrize("policy", POLICIES)
every_optimising_policy = pytest.mark.parametrize("policy", OPTIMISING)
aware_and_agnostic = pytest.mark.parametrize("agnostic", [False, True], ids=["aware", "agnostic"])


def suited(case: Case, policy: str) -> Case:
    """The case in a form that the policy accepts: allox needs jobs of one worker."""
    return case.with_jobs(tuple(replace(j, workers=1) for j in case.jobs)) if policy == "allox" else case


def assert_sound(allocation: Allocation, case: Case) -> None:
    assert_feasible(allocation, case)
    assert_certificate_sane(allocation, case)


@every_policy
@aware_and_agnostic
@given(case=cases())
def test_any_allocation_is_feasible_and_says_how_good_it_is(policy: str, agnostic: bool, case: Case) -> None:
    case = suited(case, policy)
    assert_sound(allocate(case.problem(), policy, heterogeneity_agnostic=agnostic), case)


@every_optimising_policy
@given(case=cases())
def test_answers_called_optimal_have_almost_no_gap(policy: str, case: Case) -> None:
    assert allocate(case.problem(), policy).certificate.gap <= TINY_GAP


@every_policy
@aware_and_agnostic
@given(case=cases(), data=st.data())
def test_the_order_of_jobs_does_not_matter(policy: str, agnostic: bool, case: Case, data: st.DataObject) -> None:
    case = suited(case, policy)
    shuffled = case.with_jobs(tuple(data.draw(st.permutations(case.jobs))))
    one, other = (allocate(c.problem(), policy, heterogeneity_agnostic=agnostic) for c in (case, shuffled))
    assert one.certificate.objective == pytest.approx(other.certificate.objective, rel=1e-9)
    assert one.certificate.unmet == other.certificate.unmet
    for name, rate in one.throughput.items():
        assert rate == pytest.approx(other.throughput[name], rel=1e-9)


@every_policy
@given(case=cases(max_types=1, placed=False))
def test_on_one_type_aware_and_agnostic_answers_are_equal(policy: str, case: Case) -> None:
    case = suited(case, policy)
    aware, agnostic = (allocate(case.problem(), policy, heterogeneity_agnostic=flag) for flag in (False, True))
    assert aware.certificate.objective == pytest.approx(agnostic.certificate.objective, rel=1e-6)


@every_optimising_policy
@given(case=cases())
def test_no_policy_is_worse_by_its_own_objective_than_a_baseline_or_its_agnostic_version(
    policy: str, case: Case
) -> None:
    if policy == "min_cost_slo":  # the others ignore its deadlines
        case = case.with_jobs(tuple(replace(j, deadline_seconds=None) for j in case.jobs))
    problem = case.problem()
    own = allocate(problem, policy)
    score = POLICIES[policy].score
    assert score is not None
    sign = -1.0 if own.certificate.minimised else 1.0
    others = [allocate(problem, "isolated"), allocate(problem, "gandiva")]
    others.append(allocate(problem, policy, heterogeneity_agnostic=True))
    if "no job can run" in own.certificate.notes:
        return
    assert own.certificate.objective == pytest.approx(score(Options())(own), rel=1e-12)
    for other in others:
        assert sign * score(Options())(other) <= sign * own.certificate.objective * (1 + sign * 3e-6)


@every_optimising_policy
@given(case=cases())
def test_space_sharing_never_makes_it_worse(policy: str, case: Case) -> None:
    shared = allocate(case.problem(), policy).certificate
    alone = allocate(case.problem().without_pairs(), policy).certificate
    if shared.unmet == alone.unmet:
        sign = -1.0 if shared.minimised else 1.0
        assert sign * shared.objective >= sign * alone.objective * (1 - sign * 3e-6)


NORMALISED = {
    "max_min_fairness": False,
    "max_min_fairness_water_filling": False,
    "hierarchical": False,
    "fifo": False,
    "makespan": True,
    "finish_time_fairness": True,
    "shortest_job_first": True,
    "max_throughput": False,
    "min_cost": False,
    "isolated": False,
}


@pytest.mark.parametrize(("policy", "steps"), NORMALISED.items())
@given(case=cases(), data=st.data())
def test_the_unit_in_which_a_job_counts_its_steps_does_not_matter(
    policy: str, steps: bool, case: Case, data: st.DataObject
) -> None:
    factors = {job.id: data.draw(st.sampled_from([1e-6, 0.125, 1.0, 8.0, 1e4])) for job in case.jobs}
    one, other = (
        allocate(c.problem(), policy, normalised=POLICIES[policy].adds_up).certificate.objective
        for c in (case, case.scaled(factors, steps=steps))
    )
    assert one == pytest.approx(other, rel=3e-6)


@every_optimising_policy
@given(case=cases(), data=st.data())
def test_identical_jobs_get_the_same_as_jobs_that_differ_only_in_irrelevant_ways(
    policy: str, case: Case, data: st.DataObject
) -> None:
    chosen = data.draw(st.sampled_from(case.jobs))
    copies = tuple(replace(chosen, id=f"copy{n}") for n in range(3))
    alike = replace(case, jobs=(*case.jobs, *copies))
    apart = tuple(
        replace(job, rates={k: times(r, 1 + n * 1e-12) for k, r in job.rates.items()})
        for n, job in enumerate(alike.jobs)
    )
    one, other = (allocate(c.problem(), policy).certificate for c in (alike, alike.with_jobs(apart)))
    if one.unmet == other.unmet:  # which of several equal deadlines is given up is arbitrary
        assert one.objective == pytest.approx(other.objective, rel=3e-6)


V100, K80 = AcceleratorType("v100", 1, 2.48), AcceleratorType("k80", 1, 0.45)


def job(name: str, v100: float, k80: float, *, steps: float = 1000.0, workers: int = 1) -> Job:
    return Job(name, {"v100": v100, "k80": k80}, steps=steps, workers=workers)


DEGENERATE = {
    "no jobs": Case((V100, K80), ()),
    "no types": Case((), (Job("a", {}, steps=1.0),)),
    "one job": Case((V100, K80), (job("a", 4.0, 1.0),)),
    "one type": Case((V100,), (Job("a", {"v100": 1.0}, steps=5.0), Job("b", {"v100": 2.0}, steps=7.0))),
    "zero accelerators": Case((replace(V100, count=0), replace(K80, count=0)), (job("a", 4.0, 1.0),)),
    "one type without accelerators": Case((replace(V100, count=0), K80), (job("a", 4.0, 1.0), job("b", 2.0, 1.0))),
    "a job without rates": Case((V100, K80), (job("a", 0.0, 0.0), job("b", 2.0, 1.0))),
    "rates from 1e-9 to 1e9": Case(
        (V100, K80),
        (job("a", 1e9, 1e8), job("b", 1e-9, 1e-10), job("c", 1e9, 1e-9), job("d", 2.0, 1.0)),
    ),
    "steps over twelve decades": Case(
        (V100, K80), tuple(job(f"j{n}", 2.0 + n, 1.0, steps=10.0 ** (2 * n - 4)) for n in range(7))
    ),
}


@every_policy
@aware_and_agnostic
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_problems_have_sound_answers(policy: str, agnostic: bool, name: str) -> None:
    case = DEGENERATE[name]
    allocation = allocate(case.problem(), policy, heterogeneity_agnostic=agnostic)
    assert_sound(allocation, case)
    if policy in OPTIMISING and not agnostic:
        assert allocation.certificate.gap <= TINY_GAP


@every_policy
@aware_and_agnostic
def test_a_job_that_fits_nowhere_gets_a_reason_and_does_not_change_the_shares_of_others(
    policy: str, agnostic: bool
) -> None:
    case = Case((V100, K80), (job("a", 4.0, 1.0), job("b", 3.0, 1.0)))
    huge = Job(
        "z", {"v100": 9.0} if policy != "allox" else {}, workers=1 if policy == "allox" else 9, steps=1.0, arrival=9.0
    )
    with_it = allocate(replace(case, jobs=(*case.jobs, huge)).problem(), policy, heterogeneity_agnostic=agnostic)
    without = allocate(case.problem(), policy, heterogeneity_agnostic=agnostic)
    assert with_it.throughput == pytest.approx(without.throughput | {"z": 0.0})
    assert with_it.limits()["z"].reason


@settings(max_examples=10)
@every_policy
@given(case=cases())
def test_the_same_question_has_the_same_answer(policy: str, case: Case) -> None:
    case = suited(case, policy)
    one, other = (allocate(case.problem(), policy, seed=7) for _ in range(2))
    assert (one.instances == other.instances).all()
    assert one.certificate == other.certificate


@pytest.mark.parametrize("policy", [name for name, p in POLICIES.items() if "steps" in p.needs])
def test_a_policy_about_completion_refuses_jobs_with_unknown_steps(policy: str) -> None:
    case = Case((V100,), (Job("a", {"v100": 1.0}),))
    with pytest.raises(InputError, match=r"steps left of every job, but job 'a' has none"):
        allocate(case.problem(), policy)


@pytest.mark.parametrize("policy", ["min_cost", "min_cost_slo"])
def test_a_policy_about_cost_refuses_types_without_a_price(policy: str) -> None:
    case = Case((replace(V100, price=None),), (Job("a", {"v100": 1.0}, steps=1.0),))
    with pytest.raises(InputError, match=r"positive price for every type, but 'v100' has none"):
        allocate(case.problem(), policy)


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"no policy 'makspan'; did you mean makespan"):
        allocate(DEGENERATE["one job"].problem(), "makspan")


@given(case=cases(max_workers=1))
def test_one_more_accelerator_improves_the_objective_by_at_most_its_price(case: Case) -> None:
    """For max_throughput, whose objective is concave in the counts."""
    before = allocate(case.problem(), "max_throughput").certificate
    for index, kind in enumerate(case.types):
        if kind.count:
            more = (*case.types[:index], replace(kind, count=kind.count + 1, servers=()), *case.types[index + 1 :])
            after = allocate(replace(case, types=more).problem(), "max_throughput").certificate
            gained = after.objective - before.objective
            assert gained <= before.prices[kind.name] + 1e-6 * max(after.objective, 1e-300)
            assert gained >= -1e-6 * before.objective
            assert np.isfinite(gained)


@every_policy
def test_an_agnostic_policy_consolidates_jobs_that_cannot_run_otherwise(policy: str) -> None:
    types = (AcceleratorType.uniform("t", count=5, per_server=2, price=1.0), AcceleratorType("u", 3, 1.0))
    rates = {"t": PlacedRate(consolidated=3.0, unconsolidated=0.0)}
    jobs = tuple(Job(f"job{n}", rates, workers=2, steps=10.0) for n in range(4))
    case = suited(Case(types, (*jobs, Job("other", {"t": 1.0, "u": 1.0}, steps=10.0))), policy)
    allocation = allocate(case.problem(), policy, heterogeneity_agnostic=True)
    assert_sound(allocation, case)
    assert allocation.throughput["job0"] > 0
