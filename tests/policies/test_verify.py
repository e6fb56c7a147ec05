"""`gavel verify` accepts every answer of every policy and rejects manipulated ones, without a solver."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gavel.bench.generate import generated_problem
from gavel.core.answer_file import Asked, document, parse_answer
from gavel.core.cluster import AcceleratorType
from gavel.core.errors import InputError
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.policies.registry import POLICIES, allocate
from gavel.policies.verify import VerificationReport, verify
from gavel.program import highs, interior, one_type, program
from strategies import Case, cases

PROVEN = [name for name, policy in POLICIES.items() if not policy.baseline]
LEXICOGRAPHIC = ["max_min_fairness_water_filling", "hierarchical"]


def suited(case: Case, policy: str) -> Case:
    """The case in a form that the policy accepts: allox needs jobs of one worker."""
    return case.with_jobs(tuple(replace(j, workers=1) for j in case.jobs)) if policy == "allox" else case


def answered(problem: Problem, policy: str, *, agnostic: bool = False) -> dict[str, Any]:
    """What `gavel allocate --space-sharing --json` prints."""
    answer = allocate(problem, policy, heterogeneity_agnostic=agnostic)
    printed: dict[str, Any] = json.loads(
        json.dumps(document(answer, Asked(space_sharing=True, agnostic=agnostic), 0.0))
    )
    return printed


def verified(problem: Problem, answer: dict[str, Any]) -> VerificationReport:
    return verify(problem, parse_answer(json.dumps(answer)))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("agnostic", [False, True], ids=["aware", "agnostic"])
@given(case=cases())
def test_every_answer_holds(policy: str, agnostic: bool, case: Case) -> None:
    problem = suited(case, policy).problem()
    assert verified(problem, answered(problem, policy, agnostic=agnostic)).wrong == []


@pytest.mark.parametrize("policy", PROVEN)
@given(case=cases())
def test_every_bound_of_an_optimum_is_proven(policy: str, case: Case) -> None:
    problem = case.problem()
    assume(problem.runnable[problem.jobs.profile].any())
    report = verified(problem, answered(problem, policy))
    assert any(line.startswith("the bound follows from") for line in report.checked)
    assert not any(line.startswith("not checked") for line in report.checked)


@pytest.mark.parametrize("policy", PROVEN)
@pytest.mark.parametrize("kind", ["templates", "distinct", "sharing"])
def test_answers_to_large_problems_hold(policy: str, kind: str) -> None:
    """Problems large enough for the interior-point method, sifting and pools."""
    problem = generated_problem(320, distinct=kind != "templates", space_sharing=kind == "sharing", accelerators=40)
    assert verified(problem, answered(problem, policy)).wrong == []


def test_no_solver_is_used() -> None:
    problem = mixed()
    answers = [answered(problem, policy) for policy in PROVEN]
    asked = AssertionError("a solver was used")
    with (
        patch.object(highs, "solve", side_effect=asked),
        patch.object(highs, "sift", side_effect=asked),
        patch.object(interior, "solve", side_effect=asked),
        patch.object(one_type, "solve", side_effect=asked),
        patch.object(program, "solve", side_effect=asked),
    ):
        for answer in answers:
            assert verified(problem, answer).ok


TYPES = [AcceleratorType.uniform("v100", count=2, per_server=2, price=2.48), AcceleratorType("k80", 3, price=0.45)]


def mixed() -> Problem:
    """Jobs that stop at several levels."""
    jobs = [
        Job("both", {"v100": 4.0, "k80": 1.0}, steps=4000.0, deadline_seconds=3000.0),
        Job("fast", {"v100": 3.0}, weight=2.0, steps=3000.0),
        Job("also", {"v100": 2.0}, weight=1.0, steps=3000.0),
        Job("slow", {"k80": 1.0}, steps=500.0, arrival=1.0),
        Job("gang", {"v100": 6.0, "k80": 2.0}, workers=2, steps=9000.0, arrival=2.0, entity="team"),
        Job("wide", {"k80": 3.0}, workers=2, steps=100.0, weight=0.5, entity="team"),
        Job("late", {"v100": 5.0, "k80": 2.0}, steps=7000.0, arrival=3.0, age_seconds=100.0),
        Job("more", {"v100": 5.0, "k80": 2.0}, steps=900.0, arrival=4.0),
    ]
    return Problem.of(TYPES, jobs)


def paths(value: Any, trail: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all non-zero numbers of a document."""
    if isinstance(value, dict):
        return [path for key, item in value.items() for path in paths(item, (*trail, key))]
    if isinstance(value, list):
        return [path for index, item in enumerate(value) for path in paths(item, (*trail, index))]
    return [trail] if isinstance(value, float) and abs(value) > 1e-9 else []


def changed(document: dict[str, Any], path: tuple[Any, ...], factor: float) -> dict[str, Any]:
    """The document with one number multiplied."""
    other = copy.deepcopy(document)
    place: Any = other
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] *= factor
    return other


@pytest.mark.parametrize("policy", PROVEN)
@settings(max_examples=15)
@given(case=cases(max_jobs=6), data=st.data(), factor=st.sampled_from([0.5, 0.9, 1.1, 2.0]))
def test_an_answer_with_one_share_changed_is_rejected(
    policy: str, case: Case, data: st.DataObject, factor: float
) -> None:
    problem = case.problem()
    answer = answered(problem, policy)
    rows = answer["allocation"]
    shares = [path for path in paths(rows) if path[1] == "shares" and rows[path[0]]["shares"][path[2]] > 1e-3]
    assume(shares)
    path = data.draw(st.sampled_from(shares))
    assert not verified(problem, changed(answer, ("allocation", *path), factor)).ok


DUALS = ("prices", "worth", "time_worth")


@pytest.mark.parametrize("policy", [name for name in PROVEN if name != "min_cost"])  # whose proof needs no duals
@settings(max_examples=15)
@given(case=cases(max_jobs=6), data=st.data(), factor=st.sampled_from([0.5, 0.9, 1.1, 2.0]))
def test_an_answer_with_one_dual_changed_is_rejected(
    policy: str, case: Case, data: st.DataObject, factor: float
) -> None:
    problem = case.problem()
    answer = answered(problem, policy)
    duals = [path for path in paths(answer["stages"]) if path[1] in DUALS]
    assume(duals)
    path = data.draw(st.sampled_from(duals))
    assert not verified(problem, changed(answer, ("stages", *path), factor)).ok


@pytest.mark.parametrize("policy", PROVEN)
@settings(max_examples=10)
@given(case=cases(max_jobs=6), factor=st.sampled_from([0.9, 1.1]), which=st.sampled_from(["objective", "bound"]))
def test_an_answer_that_claims_more_or_less_is_rejected(policy: str, case: Case, factor: float, which: str) -> None:
    problem = case.problem()
    answer = answered(problem, policy)
    assume(answer["stages"] and answer[which])
    assert not verified(problem, changed(answer, (which,), factor)).ok


@pytest.mark.parametrize("policy", LEXICOGRAPHIC)
@settings(suppress_health_check=[HealthCheck.filter_too_much])  # few of these problems have several levels
@given(case=cases(), data=st.data())
def test_a_job_that_was_stopped_too_early_is_noticed(policy: str, case: Case, data: st.DataObject) -> None:
    problem = case.problem()
    answer = answered(problem, policy)
    assume(len(answer["stages"]) > 1)
    job = data.draw(st.sampled_from(answer["stages"][-1]["stopped"]))
    answer["stages"][-1]["stopped"].remove(job)
    answer["stages"][0]["stopped"].append(job)
    answer["jobs"][job]["stage"] = 0
    assert not verified(problem, answer).ok


@pytest.mark.parametrize("policy", LEXICOGRAPHIC)
def test_a_stage_that_is_left_out_is_noticed(policy: str) -> None:
    types = [AcceleratorType("v100", 1), AcceleratorType("k80", 1)]
    problem = Problem.of(types, [Job("a", {"v100": 2.0}), Job("b", {"v100": 3.0}), Job("c", {"k80": 1.0})])
    answer = answered(problem, policy)
    assert len(answer["stages"]) > 1
    del answer["stages"][-1]
    assert not verified(problem, answer).ok


def test_the_report_names_what_was_not_checked() -> None:
    problem = Problem.of([AcceleratorType("v100", 1)], [Job("a", {"v100": 1.0}, steps=5.0)])
    report = verified(problem, answered(problem, "allox"))
    assert report.ok
    assert any(line.startswith("not checked: objective and bound of allox") for line in report.checked)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not JSON"),
        ("[]", "not an answer of gavel allocate"),
        ('{"policy": "fifo"}', "older version"),
        ('{"asked": {}, "policy": 3}', "policy is 3, not a text"),
    ],
)
def test_a_text_that_is_not_an_answer_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_answer(text)
